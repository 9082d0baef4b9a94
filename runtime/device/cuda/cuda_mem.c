/*
 * Memory that the host and all devices see at the same address: rings, contexts, programs, words.
 * It is cut from large pinned pieces, because pinning takes long and may wait for the device. Freed
 * blocks are reused by size class, never returned to the driver. Any thread; one lock, not held
 * while a piece is pinned.
 *
 * Most of it is requested under the lock of a device, where the driver must not be called. So
 * another thread makes a spare piece whenever the last one was taken into use, and a thread waits,
 * for a bounded time, until there is a reserve before it takes that lock. Before the first
 * operation, and before the daemon runs, the calling thread pins pieces itself.
 */
#if __has_include(<cuda.h>)
#include <pthread.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/device/cuda/cuda_daemon.h"
#include "runtime/device/cuda/cuda_int.h"

#define PIECE_BYTES (16u << 20)
#define RESERVE	    (4u << 20)
#define RESERVE_NS  DF_NS_PER_S
#define MIN_SHIFT   6
#define NR_CLASSES  40

/* Precedes every block, on a cache line of its own. */
struct head {
	uint32_t class;
	struct head *next;
	uint64_t pad[6];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct head *free_list[NR_CLASSES];
static char *piece, *spare;
static size_t left;
static int refilling;
static int reserved; /* a thread has asked for a reserve */

static void *pin(size_t bytes)
{
	int in = df_cuda_enter(df_cuda_ctx_any());
	void *p = NULL;
	CUresult r;

	if (in < 0)
		return NULL;
	df_cuda_quiet(-1, 1);
	r = df_drv.host_alloc(&p, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	df_cuda_quiet(-1, 0);
	df_cuda_leave(in);
	return r == CUDA_SUCCESS ? p : NULL;
}

static void refill(void *arg)
{
	char *p = pin(PIECE_BYTES);

	(void)arg;
	pthread_mutex_lock(&lock);
	/* No other thread makes a spare piece while `refilling` is set. */
	spare = p;
	refilling = 0;
	pthread_mutex_unlock(&lock);
	if (!p)
		df_warn_once("cannot pin %u MiB of memory for the GPU", PIECE_BYTES >> 20);
}

/* Starts to make a spare piece. The caller holds the lock. */
static void refill_begin(void)
{
	if (!spare && !refilling)
		refilling = df_cuda_aside(refill, NULL) == 0;
}

/* Cuts a block from a piece. Returns NULL if there is no memory now. The caller holds the lock. */
static struct head *cut(size_t whole)
{
	struct head *h;

	if (left < whole && spare && whole <= PIECE_BYTES) {
		/* The rest of the last piece is lost. */
		piece = spare;
		left = PIECE_BYTES;
		spare = NULL;
	}
	if (left < whole)
		return NULL;
	h = (struct head *)piece;
	piece += whole;
	left -= whole;
	return h;
}

/* Whether a caller may hold a lock, so that this thread must not call the driver. */
static int is_running(void)
{
	return df_cuda_daemon_started() || __atomic_load_n(&reserved, __ATOMIC_RELAXED);
}

void *df_cuda_pinned(size_t bytes, int zero)
{
	int running = is_running();
	uint32_t class = MIN_SHIFT;
	struct head *h;
	size_t whole;

	while (class < NR_CLASSES - 1 && ((size_t)1 << class) < bytes)
		class ++;
	whole = sizeof(*h) + ((size_t)1 << class);
	pthread_mutex_lock(&lock);
	h = free_list[class];
	if (h)
		free_list[class] = h->next;
	else
		h = cut(whole);
	if (running)
		refill_begin();
	pthread_mutex_unlock(&lock);
	if (!h && !running) {
		char *p = pin(DF_MAX(whole, PIECE_BYTES));

		h = (struct head *)p;
		if (p && whole < PIECE_BYTES) {
			pthread_mutex_lock(&lock);
			piece = p + whole;
			left = PIECE_BYTES - whole;
			pthread_mutex_unlock(&lock);
		}
	}
	if (!h)
		return NULL;
	h->class = class;
	if (zero)
		memset(h + 1, 0, bytes);
	return h + 1;
}

void df_cuda_reserve(void)
{
	uint64_t from = 0;
	int enough;

	__atomic_store_n(&reserved, 1, __ATOMIC_RELAXED);
	for (;;) {
		pthread_mutex_lock(&lock);
		enough = left >= RESERVE || spare;
		if (!enough)
			refill_begin();
		pthread_mutex_unlock(&lock);
		if (enough)
			return;
		if (!from)
			from = df_now_ns();
		/* an allocation that then finds no memory fails with a clear error */
		else if (df_now_ns() - from > RESERVE_NS)
			return;
		df_sleep_ns(50000);
	}
}

void df_cuda_pinned_free(void *p)
{
	struct head *h = (struct head *)p - 1;

	if (!p)
		return;
	pthread_mutex_lock(&lock);
	h->next = free_list[h->class];
	free_list[h->class] = h;
	pthread_mutex_unlock(&lock);
}
#endif
