/*
 * Segments and allocation. A segment is a memfd, sparse, sealed against shrinking; it is mapped once and
 * stays. Blocks come in sizes of four steps per doubling, from free lists or the end of the last segment;
 * their pages are allocated before they are handed out (fallocate), and large ones are given back to
 * the system when they are freed. One lock (DF_RANK_ARENA) for allocator and directory; nothing is
 * called under it that waits. After fork the child starts with an arena of its own.
 */
#define _GNU_SOURCE
#include "runtime/transport/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/ctl/ctl.h"
#include "runtime/transport/arena_int.h"

#define PAGE	    4096ull
#define PUNCH_BYTES (64ull << 10)
#define NR_CLASSES  256

struct free_block {
	struct free_block *next;
	uint32_t seg;
	uint64_t offset;
};

struct df_arena df_arena = {.lock = DF_MUTEX_INIT(DF_RANK_ARENA, "arena")};
uint64_t df_arena_bytes;

static int seg_fds[DF_SEGS_MAX];
static struct free_block *free_lists[NR_CLASSES];
static uint64_t seg_used; /* of the last segment */
static uint64_t backed, limit;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* Sizes: 512, 640, 768, 896, 1024, 1280, ... */
static unsigned class_of(uint64_t bytes, uint64_t *size)
{
	unsigned log;
	uint64_t step;

	if (bytes < 512)
		bytes = 512;
	log = 63 - (unsigned)__builtin_clzll(bytes);
	step = 1ull << (log - 2);
	bytes = (bytes + step - 1) & ~(step - 1);
	log = 63 - (unsigned)__builtin_clzll(bytes);
	*size = bytes;
	return (log - 9) * 4 + (unsigned)((bytes >> (log - 2)) & 3);
}

static void after_fork_child(void)
{
	uint32_t i;

	/* The mapping stays, so that a stale pointer finds memory; the descriptors are the parent's. */
	for (i = 0; i < df_arena.view.nr; i++)
		close(seg_fds[i]);
	memset(&df_arena.view, 0, sizeof(df_arena.view));
	df_arena.seg0 = NULL;
	memset(free_lists, 0, sizeof(free_lists));
	seg_used = backed = 0;
	df_arena_bytes = 0;
	df_mutex_init(&df_arena.lock, DF_RANK_ARENA, "arena");
}

static void install_fork(void)
{
	pthread_atfork(NULL, NULL, after_fork_child);
}

int (*df_arena_mapped)(void *base, uint64_t bytes);

static int seg_add(uint64_t min_bytes)
{
	uint32_t n = df_arena.view.nr;
	uint64_t bytes = DF_SEG_FIRST_BYTES << DF_MIN(n, 6u);
	void *base;
	int fd, ret;

	if (n == DF_SEGS_MAX)
		return -ENOMEM;
	/* The first has the size that peers expect. */
	while (n && bytes < min_bytes)
		bytes *= 2;
	fd = memfd_create("dfshim", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -ENOMEM;
	if (ftruncate(fd, (off_t)bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		ret = -ENOMEM;
		goto err_close;
	}
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (base == MAP_FAILED) {
		ret = -ENOMEM;
		goto err_close;
	}
	if (df_arena_mapped && df_arena_mapped(base, bytes)) {
		munmap(base, bytes);
		ret = -ENOMEM;
		goto err_close;
	}
	seg_fds[n] = fd;
	df_arena.view.bytes[n] = bytes;
	seg_used = 0;
	/*
	 * RELEASE pairs with the ACQUIRE in df_view_base() and df_arena_serve(): who sees the segment
	 * sees its size and descriptor.
	 */
	__atomic_store_n(&df_arena.view.base[n], base, __ATOMIC_RELEASE);
	__atomic_store_n(&df_arena.view.nr, n + 1, __ATOMIC_RELEASE);
	return 0;

err_close:
	close(fd);
	return ret;
}

/* Backs a range with pages. 0, -ENOMEM. */
static int populate(uint32_t seg, uint64_t offset, uint64_t bytes)
{
	uint64_t from = offset & ~(PAGE - 1), to = (offset + bytes + PAGE - 1) & ~(PAGE - 1);
	int ret;

	do {
		ret = fallocate(seg_fds[seg], 0, (off_t)from, (off_t)(to - from));
	} while (ret && errno == EINTR);
	return ret ? -ENOMEM : 0;
}

static void *seg_at(uint32_t seg, uint64_t offset)
{
	return (char *)df_arena.view.base[seg] + offset;
}

int df_arena_take_locked(uint64_t bytes, struct df_block *out, int *fresh)
{
	uint64_t size, align;
	unsigned class = class_of(bytes, &size);
	struct free_block *f;
	int ret;

	if (bytes > 1ull << 40 || class >= NR_CLASSES)
		return -ENOMEM;
	if (limit && backed + size > limit)
		return -ENOMEM;
	f = free_lists[class];
	*fresh = !f || size >= PUNCH_BYTES;
	if (f) {
		free_lists[class] = f->next;
		out->seg = f->seg;
		out->offset = f->offset;
		free(f);
	} else {
		align = size >= PAGE ? PAGE : 256;
		seg_used = (seg_used + align - 1) & ~(align - 1);
		if (!df_arena.view.nr ||
		    seg_used + size > df_arena.view.bytes[df_arena.view.nr - 1]) {
			ret = seg_add(size);
			if (ret)
				return ret;
		}
		out->seg = df_arena.view.nr - 1;
		out->offset = seg_used;
		seg_used += size;
	}
	backed += size;
	out->bytes = size;
	out->ptr = seg_at(out->seg, out->offset);
	return 0;
}

static void give_locked(const struct df_block *b)
{
	struct free_block *f = malloc(sizeof(*f));
	uint64_t size;

	backed -= b->bytes;
	if (!f)
		return; /* this memory is not used again */
	f->seg = b->seg;
	f->offset = b->offset;
	f->next = free_lists[class_of(b->bytes, &size)];
	free_lists[class_of(b->bytes, &size)] = f;
}

int df_arena_alloc(size_t bytes, struct df_block *out)
{
	struct df_block b;
	int ret, fresh;

	ret = df_arena_start();
	if (ret)
		return ret;
	df_mutex_lock(&df_arena.lock);
	ret = df_arena_take_locked(bytes, &b, &fresh);
	df_mutex_unlock(&df_arena.lock);
	if (ret)
		return ret;
	/* Page by page this may take a while: not under the lock. */
	if (fresh)
		ret = populate(b.seg, b.offset, b.bytes);
	if (ret) {
		df_arena_free(&b);
		return ret;
	}
	*out = b;
	return 0;
}

int df_arena_back(const struct df_block *b)
{
	return populate(b->seg, b->offset, b->bytes);
}

void df_arena_free(const struct df_block *b)
{
	uint64_t from = (b->offset + PAGE - 1) & ~(PAGE - 1);
	uint64_t to = (b->offset + b->bytes) & ~(PAGE - 1);

	/* Small ones keep their pages: their class gets them back without a system call. */
	if (b->bytes >= PUNCH_BYTES)
		(void)!fallocate(seg_fds[b->seg], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				 (off_t)from, (off_t)(to - from));
	df_mutex_lock(&df_arena.lock);
	give_locked(b);
	df_mutex_unlock(&df_arena.lock);
}

void df_arena_limit(uint64_t bytes)
{
	df_mutex_lock(&df_arena.lock);
	limit = bytes;
	df_mutex_unlock(&df_arena.lock);
}

static int start_locked(uint64_t process)
{
	struct df_seg0 *s;
	struct df_block b;
	int ret, fresh;

	ret = df_arena_take_locked(sizeof(*s), &b, &fresh);
	if (ret)
		return ret;
	ret = populate(b.seg, b.offset, b.bytes);
	if (ret)
		return ret;
	s = b.ptr;
	s->magic = DF_SEG0_MAGIC;
	s->version = DF_ABI_VERSION;
	s->process = process;
	/*
	 * RELEASE pairs with the ACQUIRE in df_arena_start(): who sees the first segment sees its
	 * header.
	 */
	__atomic_store_n(&df_arena.seg0, s, __ATOMIC_RELEASE);
	return 0;
}

int df_arena_start(void)
{
	struct df_member self;
	int ret;

	/* ACQUIRE pairs with the RELEASE in start_locked(): else the header could look empty. */
	if (__atomic_load_n(&df_arena.seg0, __ATOMIC_ACQUIRE))
		return 0;
	pthread_once(&fork_once, install_fork);
	ret = df_ctl_self(&self);
	if (ret)
		return ret;
	df_mutex_lock(&df_arena.lock);
	ret = df_arena.seg0 ? 0 : start_locked(self.proc);
	df_mutex_unlock(&df_arena.lock);
	if (ret)
		df_warn("no shared memory for connectors: %s", strerror(-ret));
	else
		df_fetch_set_server(df_arena_serve);
	return ret;
}

const struct df_view *df_arena_view(void)
{
	return &df_arena.view;
}

int df_arena_serve(uint32_t first, int *fds, uint64_t *bytes, int max)
{
	/* ACQUIRE pairs with the RELEASE in seg_add(): descriptors and sizes below nr are set. */
	uint32_t nr = __atomic_load_n(&df_arena.view.nr, __ATOMIC_ACQUIRE);
	int n = 0;

	for (; first < nr && n < max; first++, n++) {
		fds[n] = seg_fds[first];
		bytes[n] = df_arena.view.bytes[first];
	}
	return n;
}

int df_arena_check(const void *base, uint64_t bytes, uint64_t process)
{
	const struct df_seg0 *s = base;

	return bytes >= sizeof(*s) && s->magic == DF_SEG0_MAGIC && s->version == DF_ABI_VERSION &&
	       s->process == process;
}

struct df_bell *df_arena_bell(const void *base)
{
	return &((struct df_seg0 *)(uintptr_t)base)->bell;
}
