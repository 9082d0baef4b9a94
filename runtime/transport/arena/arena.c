/*
 * Segments of the arena, and allocation. A segment is a sparse memfd, sealed against shrinking; it
 * is mapped once and stays mapped. pool.c cuts it into blocks. fallocate() backs the pages of a
 * block before it is used; freeing a large block returns its pages to the system. One lock
 * (DF_RANK_ARENA) guards allocator and directory; nothing under it waits. The child of a fork
 * starts with an arena of its own.
 *
 * Where a segment has to be registered with GPUs (df_blocks->show), which can take long, a
 * separate thread does that without a lock, and begins the next segment when the last one is half
 * used. Until the segment is there, allocations return -EAGAIN.
 */
#define _GNU_SOURCE
#include "runtime/blocks.h"
#include "runtime/transport/arena/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "runtime/base/file_size.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/net/sockaddr.h"
#include "runtime/ctl/ctl.h"
#include "runtime/transport/arena/arena_int.h"
#include "runtime/transport/arena/pool.h"
#include "runtime/transport/transport.h"

#define PAGE	    4096ull
#define PUNCH_BYTES (64ull << 10)

struct df_arena df_arena = {.lock = DF_MUTEX_INIT(DF_RANK_ARENA, "arena")};
uint64_t df_arena_bytes;
static uint64_t arena_most; /* the largest value of df_arena_bytes; atomic */

static int seg_fds[DF_SEGS_MAX];
static struct df_pool pool;
static uint64_t limit;
static int growing;    /* a thread is making the next segment */
static int grow_error; /* error of the last attempt; reported once */
static int shown;      /* state of the first segment: 1 the GPUs know it, -1 they refused it */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void after_fork_child(void)
{
	uint32_t i;

	/*
	 * The mapping stays, so that a stale pointer finds memory; close our copies of the parent's
	 * descriptors.
	 */
	for (i = 0; i < df_arena.view.nr; i++)
		close(seg_fds[i]);
	memset(&df_arena.view, 0, sizeof(df_arena.view));
	df_arena.seg0 = NULL;
	memset(&pool, 0, sizeof(pool));
	growing = grow_error = shown = 0;
	df_arena_bytes = 0;
	df_mutex_init(&df_arena.lock, DF_RANK_ARENA, "arena");
}

void df_arena_count(uint64_t bytes)
{
	uint64_t now = __atomic_add_fetch(&df_arena_bytes, bytes, __ATOMIC_RELAXED);
	uint64_t most = __atomic_load_n(&arena_most, __ATOMIC_RELAXED);

	while (now > most && !__atomic_compare_exchange_n(&arena_most, &most, now, 0,
							  __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static void install_fork(void)
{
	pthread_atfork(NULL, NULL, after_fork_child);
}

struct seg {
	void *base;
	uint64_t bytes;
	int fd;
};

/* Makes memory for the n-th segment, without publishing it. */
static int seg_make(uint32_t n, uint64_t min_bytes, struct seg *out)
{
	uint64_t bytes = DF_SEG_FIRST_BYTES << DF_MIN(n, 6u);
	void *base;
	int fd;

	if (n == DF_SEGS_MAX)
		return -ENOMEM;
	/* The first segment has a fixed size, which peers expect. */
	while (n && bytes < min_bytes)
		bytes *= 2;
	fd = memfd_create("dfshim", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0) {
		/* The caller reports missing descriptors, with their limit. */
		if (errno == EMFILE)
			return -EMFILE;
		df_warn_once("no shared memory between processes: memfd_create: %s",
			     strerror(errno));
		return -ENOMEM;
	}
	if (df_file_fits(bytes, "shared memory") || ftruncate(fd, (off_t)bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		goto err_close;
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (base == MAP_FAILED)
		goto err_close;
	*out = (struct seg){base, bytes, fd};
	return 0;

err_close:
	close(fd);
	return -ENOMEM;
}

/* Under the lock. */
static void seg_publish(const struct seg *s)
{
	uint32_t n = df_arena.view.nr;

	seg_fds[n] = s->fd;
	df_arena.view.bytes[n] = s->bytes;
	df_pool_seg(&pool, s->bytes);
	/*
	 * RELEASE pairs with the ACQUIRE in df_view_base() and serve_segments(): readers that see
	 * the segment see its size and descriptor.
	 */
	__atomic_store_n(&df_arena.view.base[n], s->base, __ATOMIC_RELEASE);
	__atomic_store_n(&df_arena.view.nr, n + 1, __ATOMIC_RELEASE);
}

/*
 * Makes the first segment known to the GPUs, on a thread of its own. This segment has been
 * published before; grow() publishes later ones only when the GPUs know them.
 */
static void show_first(void *arg)
{
	int ret = df_blocks->show(arg, DF_SEG_FIRST_BYTES);

	df_mutex_lock(&df_arena.lock);
	shown = ret ? -1 : 1;
	df_mutex_unlock(&df_arena.lock);
}

static void grow(void *arg)
{
	struct seg s;
	/* While `growing` is set, no other thread adds segments. */
	int ret = seg_make(df_arena.view.nr, (uint64_t)(uintptr_t)arg, &s);

	if (!ret) {
		ret = df_blocks->show(s.base, s.bytes);
		if (ret) {
			munmap(s.base, s.bytes);
			close(s.fd);
		}
	}
	df_mutex_lock(&df_arena.lock);
	if (!ret)
		seg_publish(&s);
	grow_error = ret;
	growing = 0;
	df_mutex_unlock(&df_arena.lock);
}

/* Adds room for `bytes`. Returns 0 if it is there, or -EAGAIN if it will be. Under the lock. */
static int grow_locked(uint64_t bytes)
{
	struct seg s;
	int ret;

	if (!df_blocks->show || !df_arena.view.nr) {
		ret = seg_make(df_arena.view.nr, bytes, &s);
		if (!ret)
			seg_publish(&s);
		return ret;
	}
	if (grow_error) {
		ret = grow_error;
		grow_error = 0;
		return ret;
	}
	if (!growing && df_arena.view.nr < DF_SEGS_MAX)
		growing = df_blocks->aside(grow, (void *)(uintptr_t)bytes) == 0;
	return growing ? -EAGAIN : -ENOMEM;
}

/* Backs a range with pages. Returns 0 or -ENOMEM. */
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
	struct df_pool_piece piece;
	int ret;

	if (limit && pool.out + bytes > limit)
		return -ENOMEM;
	while ((ret = df_pool_take(&pool, bytes, &piece)) == -ENOSPC) {
		ret = grow_locked(piece.bytes);
		if (ret)
			return ret;
	}
	if (ret < 0)
		return ret;
	/* Begin the next segment early, because it takes a while. */
	if (df_blocks->show && !grow_error && df_pool_left(&pool) < pool.seg_bytes / 2)
		(void)grow_locked(0);
	*fresh = ret || piece.bytes >= PUNCH_BYTES;
	*out = (struct df_block){.seg = piece.seg,
				 .offset = piece.offset,
				 .bytes = piece.bytes,
				 .ptr = seg_at(piece.seg, piece.offset)};
	return 0;
}

static void give_locked(const struct df_block *b)
{
	df_pool_give(&pool, &(struct df_pool_piece){b->seg, b->offset, b->bytes});
}

/*
 * Whether GPUs, if any, know the first segment: 0, -EAGAIN if not yet, -ENOMEM if they refused it.
 */
static int shown_locked(void)
{
	if (!df_blocks->show || shown > 0)
		return 0;
	return shown ? -ENOMEM : -EAGAIN;
}

int df_arena_alloc(size_t bytes, struct df_block *out)
{
	struct df_block b;
	int ret, fresh;

	ret = df_arena_start();
	if (ret)
		return ret;
	df_mutex_lock(&df_arena.lock);
	ret = shown_locked();
	if (!ret)
		ret = df_arena_take_locked(bytes, &b, &fresh);
	df_mutex_unlock(&df_arena.lock);
	if (ret)
		return ret;
	/* Backing page by page may take a while, so not under the lock. */
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

	/* Small blocks keep their pages, so their next use needs no system call. */
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
	 * RELEASE pairs with the ACQUIRE in df_arena_start(): readers that see the first segment
	 * see its header.
	 */
	__atomic_store_n(&df_arena.seg0, s, __ATOMIC_RELEASE);
	return 0;
}

/* Returns descriptors of our segments from `first` on, for peers. Never blocks. */
static int serve_segments(uint32_t first, int *fds, uint64_t *bytes, int max)
{
	/*
	 * ACQUIRE pairs with the RELEASE in seg_publish(): descriptors and sizes below nr are set.
	 */
	uint32_t nr = __atomic_load_n(&df_arena.view.nr, __ATOMIC_ACQUIRE);
	int n = 0;

	for (; first < nr && n < max; first++, n++) {
		fds[n] = seg_fds[first];
		bytes[n] = df_arena.view.bytes[first];
	}
	return n;
}

int df_arena_start(void)
{
	struct df_member self;
	char why[DF_NO_FILE_TEXT];
	int ret, first;

	/*
	 * ACQUIRE pairs with the RELEASE in start_locked(): without it the header could look empty.
	 */
	if (__atomic_load_n(&df_arena.seg0, __ATOMIC_ACQUIRE))
		return 0;
	pthread_once(&fork_once, install_fork);
	ret = df_ctl_self(&self);
	if (ret)
		return ret;
	df_mutex_lock(&df_arena.lock);
	first = !df_arena.seg0;
	ret = first ? start_locked(self.proc) : 0;
	if (!ret && first && df_blocks->show && df_blocks->aside(show_first, df_arena.view.base[0]))
		shown = -1;
	df_mutex_unlock(&df_arena.lock);
	if (!ret)
		df_fetch_set_server(serve_segments);
	if (ret == -EMFILE)
		df_addr_no_file(why, sizeof(why));
	else
		snprintf(why, sizeof(why), "%s", strerror(-ret));
	if (ret)
		df_warn_once("cannot allocate shared memory for connectors: %s", why);
	return ret;
}

int df_arena_settled(void)
{
	int ret = df_arena_start();

	if (ret)
		return ret;
	df_mutex_lock(&df_arena.lock);
	ret = shown_locked();
	df_mutex_unlock(&df_arena.lock);
	return ret;
}

const struct df_view *df_arena_view(void)
{
	return &df_arena.view;
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

uint64_t df_tl_bytes(void)
{
	return __atomic_load_n(&df_arena_bytes, __ATOMIC_RELAXED);
}

uint64_t df_tl_most(void)
{
	return __atomic_load_n(&arena_most, __ATOMIC_RELAXED);
}

struct df_bell *df_tl_bell(void)
{
	/* Without shared memory there are no peers that could ring it. */
	static struct df_bell alone;
	void *base;

	if (df_arena_start())
		return &alone;
	/* ACQUIRE pairs with the RELEASE in seg_publish(): the header is mapped. */
	base = __atomic_load_n(&df_arena_view()->base[0], __ATOMIC_ACQUIRE);
	return df_arena_bell(base);
}
