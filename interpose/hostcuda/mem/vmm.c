/*
 * Memory mapped by hand (vmm.h). Each piece of memory is a memfd of its own, so that another
 * process needs only its descriptor; its name contains the device. Rights are kept for each device.
 * This process has the rights of all devices together, because all devices are this process.
 *
 * Any thread; one lock guards the tables. Pieces of memory count for their device where they were
 * made.
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
#include <sys/stat.h>
#include <unistd.h>

struct piece {
	struct df_hslot slot;
	size_t bytes;
	int device, fd, shared, counted;
	/* numbers of each; the piece is freed when the last handle or mapping ends */
	int handles, mappings;
};

struct mapping {
	char *at;
	size_t bytes;
	struct piece *piece;
	uint8_t *rights; /* rights of each device, then of the host */
	int all;	 /* all rights together: those of this process */
};

struct reserved {
	char *at;
	size_t bytes;
};

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_HOSTCUDA_TABLE, "host CUDA mappings");
static struct df_hslab pieces;
static struct reserved *reserved;
static struct mapping *mappings; /* sorted by address */
static size_t nr_reserved, room_reserved;
/* `nr_mappings` is atomic, so a query takes no lock if there are no mappings. */
static size_t nr_mappings, room_mappings;

#define NAME	   "dfshim-mapped-"
#define NR_PIECES  (1u << 20)
#define WHOLE(n)   ((n) && (n) % DF_HVMM_UNIT == 0)
#define ALIGNED(p) ((uintptr_t)(p) % DF_HVMM_UNIT == 0)

/* -- tables; lock held ------------------------------------------------------------------------- */

/* Returns the first mapping that ends after the address. */
static size_t mapping_at(const void *at)
{
	size_t lo = 0, hi = nr_mappings;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if ((uintptr_t)mappings[mid].at + mappings[mid].bytes <= (uintptr_t)at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct mapping *mapping_of(const void *at)
{
	size_t i = mapping_at(at);

	return i < nr_mappings && mappings[i].at <= (const char *)at ? &mappings[i] : NULL;
}

/*
 * Finds whole mappings without a gap. Stores the first one and returns their number, or 0 if there
 * are none.
 */
static size_t mappings_of(const char *at, size_t bytes, size_t *first)
{
	size_t i = mapping_at(at), nr = 0;
	const char *end;

	*first = i;
	/* An address may be any bit pattern. */
	if (bytes > UINTPTR_MAX - (uintptr_t)at)
		return 0;
	end = at + bytes;
	for (; at < end && i < nr_mappings && mappings[i].at == at; i++, nr++)
		at += mappings[i].bytes;
	return at == end ? nr : 0;
}

static struct reserved *reserved_around(const char *at, size_t bytes)
{
	size_t i;

	for (i = 0; i < nr_reserved; i++)
		if (at >= reserved[i].at &&
		    (size_t)(at - reserved[i].at) <=
			    reserved[i].bytes - DF_MIN(bytes, reserved[i].bytes) &&
		    bytes <= reserved[i].bytes)
			return &reserved[i];
	return NULL;
}

static struct piece *piece_of(uint64_t handle)
{
	struct piece *p = pieces.base ? df_hslab_find(&pieces, (void *)(uintptr_t)handle) : NULL;

	return p && p->handles ? p : NULL;
}

/*
 * Returns 1 if the piece has no user any more. Then the caller frees it, without holding the
 * lock.
 */
static int unused(struct piece *p)
{
	return !p->handles && !p->mappings && df_hslot_retire(&p->slot);
}

static void end_piece(struct piece *p)
{
	close(p->fd);
	if (p->counted)
		df_hmem_aside(p->device, -(int64_t)p->bytes);
	df_hslab_put(&pieces, p);
}

/* -- addresses --------------------------------------------------------------------------------- */

static void *nothing(void *at, size_t bytes, int fixed)
{
	return mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1,
		    0);
}

int df_hvmm_reserve(size_t bytes, size_t align, void *hint, void **out)
{
	size_t room;
	char *p = MAP_FAILED, *from;

	if (!WHOLE(bytes) || (align & (align - 1)))
		return -EINVAL;
	align = DF_MAX(align, DF_HVMM_UNIT);
	if (__builtin_add_overflow(bytes, align, &room))
		return -ENOMEM;
	if (hint && (uintptr_t)hint % align == 0)
		p = nothing(hint, bytes, MAP_FIXED_NOREPLACE);
	if (p != MAP_FAILED && p != hint) {
		munmap(p, bytes);
		p = MAP_FAILED;
	}
	if (p == MAP_FAILED) {
		p = nothing(NULL, room, 0);
		if (p == MAP_FAILED)
			return -ENOMEM;
		/* Unmap the excess on both sides. */
		from = p;
		p += (align - (uintptr_t)p % align) % align;
		if (p > from)
			munmap(from, (size_t)(p - from));
		munmap(p + bytes, room - bytes - (size_t)(p - from));
	}
	df_mutex_lock(&lock);
	if (DF_VEC_ROOM(reserved, room_reserved, nr_reserved + 1)) {
		df_mutex_unlock(&lock);
		munmap(p, bytes);
		return -ENOMEM;
	}
	reserved[nr_reserved++] = (struct reserved){p, bytes};
	df_mutex_unlock(&lock);
	*out = p;
	return 0;
}

int df_hvmm_unreserve(void *at, size_t bytes)
{
	size_t i, m;
	int err = -EINVAL;

	df_mutex_lock(&lock);
	for (i = 0; i < nr_reserved && reserved[i].at != at; i++)
		;
	if (i < nr_reserved && reserved[i].bytes == bytes) {
		m = mapping_at(at);
		err = m < nr_mappings && mappings[m].at < (char *)at + bytes ? -EBUSY : 0;
	}
	if (!err) {
		munmap(at, bytes);
		reserved[i] = reserved[--nr_reserved];
	}
	df_mutex_unlock(&lock);
	return err;
}

/* -- memory ------------------------------------------------------------------------------------ */

static int piece_new(int device, size_t bytes, int fd, int shared, int counted, uint64_t *handle)
{
	struct piece *p = NULL;

	df_mutex_lock(&lock);
	if (!pieces.base && df_hslab_init(&pieces, "pieces of memory", sizeof(*p), NR_PIECES))
		pieces.base = NULL;
	df_mutex_unlock(&lock);
	if (pieces.base)
		p = df_hslab_get(&pieces);
	if (!p)
		return -ENOMEM;
	p->bytes = bytes;
	p->device = device;
	p->fd = fd;
	p->shared = shared;
	p->counted = counted;
	p->handles = 1;
	p->mappings = 0;
	df_hslot_publish(&p->slot);
	*handle = (uintptr_t)p;
	return 0;
}

int df_hvmm_create(int device, size_t bytes, int shared, uint64_t *handle)
{
	char name[64];
	int fd, err;

	if (!WHOLE(bytes))
		return -EINVAL;
	if (bytes > INT64_MAX)
		return -ENOMEM;
	err = df_hmem_aside(device, (int64_t)bytes);
	if (err)
		return err;
	snprintf(name, sizeof(name), NAME "%d", device);
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0) {
		err = -errno;
		goto err_count;
	}
	if (df_file_fits(bytes, "memory that is mapped by hand") || ftruncate(fd, (off_t)bytes)) {
		err = -ENOMEM;
		goto err_fd;
	}
	err = piece_new(device, bytes, fd, shared, 1, handle);
	if (!err)
		return 0;
err_fd:
	close(fd);
err_count:
	df_hmem_aside(device, -(int64_t)bytes);
	return err;
}

int df_hvmm_release(uint64_t handle)
{
	struct piece *p;
	int last = 0;

	df_mutex_lock(&lock);
	p = piece_of(handle);
	if (p) {
		p->handles--;
		last = unused(p);
	}
	df_mutex_unlock(&lock);
	if (last)
		end_piece(p);
	return p ? 0 : -EINVAL;
}

int df_hvmm_retain(const void *at, uint64_t *handle)
{
	struct mapping *m;

	df_mutex_lock(&lock);
	m = mapping_of(at);
	if (m) {
		m->piece->handles++;
		*handle = (uintptr_t)m->piece;
	}
	df_mutex_unlock(&lock);
	return m ? 0 : -EINVAL;
}

int df_hvmm_describe(uint64_t handle, int *device, int *shared)
{
	struct piece *p;

	df_mutex_lock(&lock);
	p = piece_of(handle);
	if (p) {
		*device = p->device;
		*shared = p->shared;
	}
	df_mutex_unlock(&lock);
	return p ? 0 : -EINVAL;
}

int df_hvmm_export(uint64_t handle, int *fd)
{
	struct piece *p;
	int err = -EINVAL;

	df_mutex_lock(&lock);
	p = piece_of(handle);
	if (p && !p->shared) {
		err = -ENOTSUP;
	} else if (p) {
		*fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
		err = *fd < 0 ? -errno : 0;
	}
	df_mutex_unlock(&lock);
	return err;
}

int df_hvmm_import(int fd, uint64_t *handle)
{
	char path[64], name[128] = "";
	struct stat st;
	ssize_t n;
	int device, own, err;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, name, sizeof(name) - 1);
	if (n < 0 || fstat(fd, &st))
		return -EINVAL;
	/* "/memfd:dfshim-mapped-0 (deleted)" */
	if (sscanf(name, "/memfd:" NAME "%d", &device) != 1 || !WHOLE((size_t)st.st_size))
		return -EINVAL;
	if (device != -1 && !df_hdevice_ok(device))
		return -ENODEV;
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return -errno;
	err = piece_new(device, (size_t)st.st_size, own, 1, 0, handle);
	if (err)
		close(own);
	return err;
}

/* -- mapping ----------------------------------------------------------------------------------- */

/* Maps a piece. The caller holds the lock. */
static int map_piece(char *at, size_t bytes, struct piece *p)
{
	struct mapping m = {at, bytes, p, NULL, 0};
	size_t i = mapping_at(at);

	if (!reserved_around(at, bytes) || bytes > p->bytes ||
	    (i < nr_mappings && mappings[i].at < at + bytes))
		return -EINVAL;
	if (DF_VEC_ROOM(mappings, room_mappings, nr_mappings + 1))
		return -ENOMEM;
	m.rights = calloc((size_t)df_h.nr_devices + 1, 1);
	if (!m.rights)
		return -ENOMEM;
	if (mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, p->fd, 0) ==
	    MAP_FAILED) {
		free(m.rights);
		return -ENOMEM;
	}
	memmove(&mappings[i + 1], &mappings[i], (nr_mappings - i) * sizeof(m));
	mappings[i] = m;
	/* RELAXED for the reason given in df_hvmm_look(). */
	__atomic_store_n(&nr_mappings, nr_mappings + 1, __ATOMIC_RELAXED);
	p->mappings++;
	return 0;
}

int df_hvmm_map(void *at, size_t bytes, uint64_t handle)
{
	struct piece *p;
	int err = -EINVAL;

	if (!WHOLE(bytes) || !ALIGNED(at))
		return -EINVAL;
	df_mutex_lock(&lock);
	p = piece_of(handle);
	if (p)
		err = map_piece(at, bytes, p);
	df_mutex_unlock(&lock);
	return err;
}

int df_hvmm_unmap(void *at, size_t bytes)
{
	struct piece *p, *last = NULL;
	size_t first, nr, i;

	df_mutex_lock(&lock);
	nr = mappings_of(at, bytes, &first);
	if (nr && nothing(at, bytes, MAP_FIXED) == MAP_FAILED)
		nr = 0;
	for (i = first; i < first + nr; i++) {
		p = mappings[i].piece;
		free(mappings[i].rights);
		p->mappings--;
		/* A retired slot has an unused link. */
		if (unused(p)) {
			p->slot.next_free = (void *)last;
			last = p;
		}
	}
	if (nr) {
		memmove(&mappings[first], &mappings[first + nr],
			(nr_mappings - first - nr) * sizeof(*mappings));
		/* RELAXED for the reason given in df_hvmm_look(). */
		__atomic_store_n(&nr_mappings, nr_mappings - nr, __ATOMIC_RELAXED);
	}
	df_mutex_unlock(&lock);
	for (; last; last = p) {
		p = (struct piece *)last->slot.next_free;
		end_piece(last);
	}
	return nr ? 0 : -EINVAL;
}

static int rights_index(int device)
{
	return device < 0 ? df_h.nr_devices : device;
}

/* Sets the rights of a mapping. The caller holds the lock. */
static int allow(struct mapping *m, int device, int rights)
{
	int i;

	m->rights[rights_index(device)] = (uint8_t)rights;
	for (m->all = 0, i = 0; i <= df_h.nr_devices; i++)
		m->all |= m->rights[i];
	return mprotect(m->at, m->bytes,
			(m->all & DF_HVMM_READ ? PROT_READ : 0) |
				(m->all & DF_HVMM_WRITE ? PROT_WRITE : 0))
		       ? -ENOMEM
		       : 0;
}

int df_hvmm_allow(void *at, size_t bytes, int device, int rights)
{
	size_t first, nr, i;
	int err;

	df_mutex_lock(&lock);
	nr = mappings_of(at, bytes, &first);
	err = nr ? 0 : -EINVAL;
	/* The host cannot have rights to a device's memory. */
	for (i = first; i < first + nr; i++)
		if (device < 0 && mappings[i].piece->device >= 0)
			err = -EINVAL;
	for (i = first; i < first + nr && !err; i++)
		err = allow(&mappings[i], device, rights);
	df_mutex_unlock(&lock);
	return err;
}

int df_hvmm_allowed(const void *at, int device, int *rights)
{
	struct mapping *m;

	df_mutex_lock(&lock);
	m = mapping_of(at);
	if (m)
		*rights = m->rights[rights_index(device)];
	df_mutex_unlock(&lock);
	return m ? 0 : -EINVAL;
}

static int usable(const struct mapping *m)
{
	return m->all == (DF_HVMM_READ | DF_HVMM_WRITE);
}

int df_hvmm_look(const void *at, struct df_mem_info *out)
{
	const struct mapping *m, *lo, *hi;

	/*
	 * RELAXED: a thread that queries memory knows that it is mapped; memory that is being
	 * mapped now does not count.
	 */
	if (!__atomic_load_n(&nr_mappings, __ATOMIC_RELAXED))
		return 0;
	df_mutex_lock(&lock);
	m = mapping_of(at);
	if (m && !usable(m))
		m = NULL;
	if (m) {
		for (lo = m; lo > mappings && lo[-1].at + lo[-1].bytes == lo->at &&
			     usable(lo - 1) && lo[-1].piece->device == m->piece->device;)
			lo--;
		for (hi = m; hi + 1 < mappings + nr_mappings && hi->at + hi->bytes == hi[1].at &&
			     usable(hi + 1) && hi[1].piece->device == m->piece->device;)
			hi++;
		*out = (struct df_mem_info){.kind = m->piece->device < 0 ? DF_MEM_HOST
									 : DF_MEM_DEVICE,
					    .device = m->piece->device,
					    .base = lo->at,
					    .bytes = (size_t)(hi->at - lo->at) + hi->bytes,
					    .fd = -1};
	}
	df_mutex_unlock(&lock);
	return m != NULL;
}
