/*
 * Manages the memory of devices, pinned and managed memory, and memory that the user registers.
 *
 * Each device has an arena: a sparse memfd as large as the device, mapped once. So every allocation
 * can be shared with another process by (descriptor, offset), and no file has a name. One more
 * arena is for pinned and managed memory. An arena is a sorted array of allocations; the gaps
 * between them are free. Memory that other processes export is mapped as foreign ranges.
 *
 * Any thread; each arena has a lock, and so has the table of foreign and registered ranges.
 */
#define _GNU_SOURCE
#include "interpose/hostcuda/mem/mem.h"
#include "interpose/hostcuda/mem/vmm.h"
#include "interpose/hostcuda/internal.h"
#include "runtime/base/file_size.h"
#include "runtime/base/vec.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#define REDZONE		     DF_H_ALIGN
#define POISON(ptr, bytes)   ASAN_POISON_MEMORY_REGION(ptr, bytes)
#define UNPOISON(ptr, bytes) ASAN_UNPOISON_MEMORY_REGION(ptr, bytes)
/*
 * LeakSanitizer does not search mapped memory. Without this it would report memory to which only
 * pinned memory points, such as libdfshim.so's. Larger blocks are data.
 */
#define HOLDER		     (16u << 20)
#define HOLDS(ptr, bytes)    __lsan_register_root_region(ptr, bytes)
#define HOLDS_NO(ptr, bytes) __lsan_unregister_root_region(ptr, bytes)
#else
#define REDZONE		     0
#define POISON(ptr, bytes)   ((void)0)
#define UNPOISON(ptr, bytes) ((void)0)
#define HOLDER		     0
#define HOLDS(ptr, bytes)    ((void)0)
#define HOLDS_NO(ptr, bytes) ((void)0)
#endif

/* allocations of at least this size begin at a page, as a driver's do */
#define LARGE	    (1u << 20)
#define PUNCH_BYTES (64u << 10) /* freed memory of at least this size is returned to the system */

struct block {
	uint64_t off;
	size_t bytes, room; /* numbers of bytes: requested, and reserved with the redzone */
	enum df_mem_kind kind;
	unsigned flags;
	int internal;
	int dying; /* the application has freed it, but operations in flight may still touch it */
};

struct arena {
	struct df_mutex lock;
	char *base; /* atomic; NULL if not mapped yet */
	uint64_t size, used;
	int fd;
	struct block *blocks; /* sorted by offset */
	size_t nr, cap;
};

struct range {
	char *ptr;
	size_t bytes;
	enum df_mem_kind kind;
	int device, fd, refs;
	uint64_t offset, key;
	unsigned flags;
};

static struct arena *arenas; /* one arena for each device, then one for the host */
static uint64_t host_bytes;

static struct {
	struct df_mutex lock;
	struct range *v;
	size_t nr, cap;
	size_t seen; /* copy of nr for a check without the lock; atomic */
} ranges = {.lock = DF_MUTEX_INIT(DF_RANK_HOSTCUDA_TABLE, "host CUDA ranges")};

int df_hmem_init(void)
{
	int i;

	arenas = calloc((size_t)df_h.nr_devices + 1, sizeof(*arenas));
	if (!arenas)
		return -ENOMEM;
	host_bytes = df_h.device_bytes * (uint64_t)df_h.nr_devices;
	for (i = 0; i <= df_h.nr_devices; i++) {
		df_mutex_init(&arenas[i].lock, DF_RANK_HOSTCUDA, "host CUDA arena");
		arenas[i].size = i < df_h.nr_devices ? df_h.device_bytes : host_bytes;
		arenas[i].fd = -1;
	}
	return 0;
}

/* A file is mapped, and its pages freed, by whole pages: 64 KiB on some machines of arm64. */
static uint64_t page_mask(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE) - 1;
}

static char *arena_base(const struct arena *a)
{
	/*
	 * ACQUIRE pairs with the RELEASE in arena_open(): without it the base could be seen before
	 * the fd.
	 */
	return __atomic_load_n(&a->base, __ATOMIC_ACQUIRE);
}

/* Maps an arena. The caller holds its lock. */
static int arena_open(struct arena *a, int is_host)
{
	char name[32] = "dfshim-device";
	void *base;
	int fd, err;

	if (is_host)
		strcpy(name, "dfshim-pinned");
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0) {
		err = -errno;
		/* dfshim reports missing descriptors, with their limit. */
		if (err != -EMFILE)
			df_warn_once("host CUDA: no memory for the devices: memfd_create: %s",
				     strerror(-err));
		return err;
	}
	if (df_file_fits(a->size, "the memory of the devices") || ftruncate(fd, (off_t)a->size)) {
		close(fd);
		return -ENOMEM;
	}
	base = mmap(NULL, a->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (base == MAP_FAILED) {
		df_warn_once(
			"host CUDA: no address space of %llu MiB for the memory of a device: %s",
			(unsigned long long)(a->size >> 20), strerror(errno));
		close(fd);
		return -ENOMEM;
	}
	madvise(base, a->size, MADV_DONTDUMP);
	/*
	 * Most of the time of a large copy is the first use of its pages. Huge pages help if
	 * shmem_enabled allows them.
	 */
	madvise(base, a->size, MADV_HUGEPAGE);
	a->fd = fd;
	/* RELEASE pairs with the ACQUIRE in arena_base(). */
	__atomic_store_n(&a->base, base, __ATOMIC_RELEASE);
	return 0;
}

int df_hmem_alloc(int device, enum df_mem_kind kind, unsigned flags, size_t bytes, int internal,
		  void **out)
{
	struct arena *a = &arenas[device < 0 ? df_h.nr_devices : device];
	/* libdfshim.so's ncclMemAlloc() memory must be usable for windows. */
	uint64_t align = internal || bytes >= LARGE ? 4096 : DF_H_ALIGN, room, gap = 0;
	struct block *b;
	size_t i;
	int err = 0;

	if (bytes > a->size)
		return -ENOMEM;
	room = (bytes + REDZONE + DF_H_ALIGN - 1) & ~(uint64_t)(DF_H_ALIGN - 1);
	df_mutex_lock(&a->lock);
	if (!a->base)
		err = arena_open(a, device < 0);
	if (!err)
		err = DF_VEC_ROOM(a->blocks, a->cap, a->nr + 1);
	if (err)
		goto out;
	/* Searches the first gap that is large enough. */
	for (i = 0; i < a->nr; i++) {
		if (a->blocks[i].off >= gap && a->blocks[i].off - gap >= room)
			break;
		gap = (a->blocks[i].off + a->blocks[i].room + align - 1) & ~(align - 1);
	}
	if (a->size - a->used < room || (i == a->nr && (gap > a->size || a->size - gap < room))) {
		err = -ENOMEM;
		goto out;
	}
	memmove(&a->blocks[i + 1], &a->blocks[i], (a->nr - i) * sizeof(*b));
	b = &a->blocks[i];
	*b = (struct block){gap, bytes, room, kind, flags, internal, 0};
	a->nr++;
	a->used += room;
	UNPOISON(a->base + gap, bytes);
	POISON(a->base + gap + bytes, room - bytes);
	if (device < 0 && bytes <= HOLDER)
		HOLDS(a->base + gap, bytes);
	*out = a->base + gap;
out:
	df_mutex_unlock(&a->lock);
	return err;
}

/* Returns the block that contains the offset, or NULL. The caller holds the lock. */
static struct block *find(struct arena *a, uint64_t off)
{
	size_t lo = 0, hi = a->nr, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (a->blocks[mid].off <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || off - a->blocks[lo - 1].off >= DF_MAX(a->blocks[lo - 1].bytes, 1))
		return NULL;
	return &a->blocks[lo - 1];
}

/* Frees a block. The caller holds the lock. */
static void drop(struct arena *a, struct block *b)
{
	uint64_t page = page_mask(), from = (b->off + page) & ~page,
		 to = (b->off + b->room) & ~page;

	a->used -= b->room;
	if (to > from && to - from >= PUNCH_BYTES)
		(void)!fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
				 (off_t)(to - from));
	POISON(a->base + b->off, b->room);
	if (a == &arenas[df_h.nr_devices] && b->bytes <= HOLDER)
		HOLDS_NO(a->base + b->off, b->bytes);
	memmove(b, b + 1, (size_t)(a->blocks + a->nr - (b + 1)) * sizeof(*b));
	a->nr--;
}

static struct arena *arena_of(const void *ptr, int *device)
{
	int i;

	for (i = 0; i <= df_h.nr_devices; i++) {
		char *base = arena_base(&arenas[i]);

		if (base && (uintptr_t)ptr - (uintptr_t)base < arenas[i].size) {
			*device = i < df_h.nr_devices ? i : -1;
			return &arenas[i];
		}
	}
	return NULL;
}

/* Frees the block that begins at `ptr`, or marks one that is not marked yet. */
static int end_block(void *ptr, int frees)
{
	int device, err = -EINVAL;
	struct arena *a = arena_of(ptr, &device);
	struct block *b;

	if (!a)
		return -EINVAL;
	df_mutex_lock(&a->lock);
	b = find(a, (uint64_t)((char *)ptr - a->base));
	if (b && a->base + b->off == (char *)ptr && (frees || !b->dying)) {
		b->dying = 1;
		if (frees)
			drop(a, b);
		err = 0;
	}
	df_mutex_unlock(&a->lock);
	return err;
}

int df_hmem_free(void *ptr)
{
	return end_block(ptr, 1);
}

int df_hmem_retire(void *ptr)
{
	return end_block(ptr, 0);
}

void df_hmem_reset(int device)
{
	struct arena *a = &arenas[device];
	size_t i;

	df_mutex_lock(&a->lock);
	for (i = a->nr; i > 0; i--)
		/* A dying block is freed later: its free is already under way. */
		if (!a->blocks[i - 1].internal && !a->blocks[i - 1].dying)
			drop(a, &a->blocks[i - 1]);
	df_mutex_unlock(&a->lock);
}

/* Returns the range that contains the pointer, or NULL. The caller holds the lock of ranges. */
static struct range *range_find(const void *ptr)
{
	size_t i;

	for (i = 0; i < ranges.nr; i++)
		if ((uintptr_t)ptr - (uintptr_t)ranges.v[i].ptr < ranges.v[i].bytes)
			return &ranges.v[i];
	return NULL;
}

void df_hmem_look(const void *ptr, int dying_too, struct df_mem_info *out, unsigned *flags)
{
	struct arena *a;
	struct block *b;
	struct range *r;
	int device;

	*out = (struct df_mem_info){.kind = DF_MEM_UNKNOWN, .device = -1, .fd = -1};
	a = arena_of(ptr, &device);
	if (a) {
		df_mutex_lock(&a->lock);
		b = find(a, (uint64_t)((const char *)ptr - a->base));
		if (b && (dying_too || !b->dying)) {
			*out = (struct df_mem_info){.kind = b->kind,
						    .device = device,
						    .base = a->base + b->off,
						    .bytes = b->bytes,
						    .fd = a->fd,
						    .offset = b->off};
			if (flags)
				*flags = b->flags;
		}
		df_mutex_unlock(&a->lock);
		return;
	}
	if (df_hvmm_look(ptr, out))
		return;
	/* RELAXED: a range that is being added now does not count. */
	if (!__atomic_load_n(&ranges.seen, __ATOMIC_RELAXED))
		return;
	df_mutex_lock(&ranges.lock);
	r = range_find(ptr);
	if (r) {
		*out = (struct df_mem_info){.kind = r->kind,
					    .device = r->device,
					    .base = r->ptr,
					    .bytes = r->bytes,
					    .fd = r->fd,
					    .offset = r->offset};
		if (flags)
			*flags = r->flags;
	}
	df_mutex_unlock(&ranges.lock);
}

/* The caller holds the lock of ranges. */
static int range_add(const struct range *r)
{
	if (DF_VEC_ROOM(ranges.v, ranges.cap, ranges.nr + 1))
		return -ENOMEM;
	ranges.v[ranges.nr++] = *r;
	__atomic_store_n(&ranges.seen, ranges.nr, __ATOMIC_RELAXED);
	return 0;
}

/* The caller holds the lock of ranges. */
static void range_del(struct range *r)
{
	*r = ranges.v[--ranges.nr];
	__atomic_store_n(&ranges.seen, ranges.nr, __ATOMIC_RELAXED);
}

/* Adds memory that is not ours and is not in another range yet. */
static int take_in(const struct range *r)
{
	struct df_mem_info info;
	size_t i;
	int err = 0;

	df_hmem_info(r->ptr, &info, NULL);
	if (info.kind != DF_MEM_UNKNOWN)
		return -EEXIST;
	df_mutex_lock(&ranges.lock);
	for (i = 0; i < ranges.nr && !err; i++)
		if (ranges.v[i].ptr < r->ptr + r->bytes &&
		    r->ptr < ranges.v[i].ptr + ranges.v[i].bytes)
			err = -EEXIST;
	if (!err)
		err = range_add(r);
	df_mutex_unlock(&ranges.lock);
	return err;
}

int df_hmem_register(void *ptr, size_t bytes, unsigned flags)
{
	struct range r = {.ptr = ptr, .bytes = bytes, .kind = DF_MEM_HOST, .device = -1, .fd = -1};

	r.flags = flags;
	return take_in(&r);
}

int df_hmem_lend(void *ptr, size_t bytes, int device)
{
	struct range r = {
		.ptr = ptr, .bytes = bytes, .kind = DF_MEM_DEVICE, .device = device, .fd = -1};
	int err = take_in(&r);

	return err == -EEXIST ? 0 : err;
}

void df_hmem_hide(int on)
{
	int how = on ? PROT_NONE : PROT_READ | PROT_WRITE, i;
	size_t k;

	for (i = 0; arenas && i < df_h.nr_devices; i++)
		if (arena_base(&arenas[i]))
			mprotect(arenas[i].base, arenas[i].size, how);
	df_mutex_lock(&ranges.lock);
	for (k = 0; k < ranges.nr; k++) {
		uint64_t pad = ranges.v[k].offset & page_mask();

		if (ranges.v[k].refs)
			mprotect(ranges.v[k].ptr - pad, ranges.v[k].bytes + pad, how);
	}
	df_mutex_unlock(&ranges.lock);
}

int df_hmem_unregister(void *ptr)
{
	struct range *r;
	int err = -ENOENT;

	df_mutex_lock(&ranges.lock);
	r = range_find(ptr);
	if (r && r->ptr == (char *)ptr && r->kind == DF_MEM_HOST) {
		range_del(r);
		err = 0;
	}
	df_mutex_unlock(&ranges.lock);
	return err;
}

void *df_hmem_import(int fd, uint64_t offset, size_t bytes, int device, uint64_t key)
{
	uint64_t pad = offset & page_mask();
	struct range r = {.bytes = bytes,
			  .kind = DF_MEM_DEVICE,
			  .device = device,
			  .fd = fd,
			  .refs = 1,
			  .offset = offset,
			  .key = key};
	struct range *old;
	void *map = NULL;
	size_t i;

	df_mutex_lock(&ranges.lock);
	for (i = 0; i < ranges.nr; i++) {
		old = &ranges.v[i];
		if (old->refs && old->key == key && old->offset == offset && old->bytes == bytes) {
			old->refs++;
			map = old->ptr;
			close(fd);
			goto out;
		}
	}
	map = mmap(NULL, bytes + pad, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
		   (off_t)(offset - pad));
	if (map == MAP_FAILED) {
		map = NULL;
		goto out;
	}
	r.ptr = (char *)map + pad;
	if (range_add(&r)) {
		munmap(map, bytes + pad);
		map = NULL;
		goto out;
	}
	map = r.ptr;
out:
	df_mutex_unlock(&ranges.lock);
	return map;
}

int df_hmem_unimport(void *ptr)
{
	struct range *r;
	int err = -EINVAL;
	uint64_t pad;

	df_mutex_lock(&ranges.lock);
	r = range_find(ptr);
	if (r && r->ptr == (char *)ptr && r->refs) {
		err = 0;
		if (--r->refs == 0) {
			pad = r->offset & page_mask();
			munmap((char *)ptr - pad, r->bytes + pad);
			close(r->fd);
			range_del(r);
		}
	}
	df_mutex_unlock(&ranges.lock);
	return err;
}

int df_hmem_aside(int device, int64_t bytes)
{
	struct arena *a = &arenas[device < 0 ? df_h.nr_devices : device];
	int err = 0;

	df_mutex_lock(&a->lock);
	if (bytes > 0 && a->size - a->used < (uint64_t)bytes)
		err = -ENOMEM;
	else
		a->used += (uint64_t)bytes;
	df_mutex_unlock(&a->lock);
	return err;
}

void df_hmem_usage(int device, size_t *free_bytes, size_t *total_bytes)
{
	struct arena *a = &arenas[device];

	df_mutex_lock(&a->lock);
	*free_bytes = a->size - a->used;
	*total_bytes = a->size;
	df_mutex_unlock(&a->lock);
}
