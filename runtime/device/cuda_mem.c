/*
 * Memory that the host and all devices see under one address: rings, contexts, programs, words. Cut from large
 * pinned pieces, because pinning takes long and may wait for the device; what was cut is used again by size
 * class and never given back to the driver. Any thread; one lock, not held while a piece is pinned.
 */
#if __has_include(<cuda.h>)
#include <pthread.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/device/cuda_int.h"

#define PIECE_BYTES (4u << 20)
#define MIN_SHIFT   6
#define NR_CLASSES  40

/* In front of every block, on a line of its own. */
struct head {
	uint32_t class;
	struct head *next;
	uint64_t pad[6];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct head *free_list[NR_CLASSES];
static char *piece;
static size_t left;

static void *pin(size_t bytes)
{
	int in = df_cuda_enter(df_cuda_ctx(0));
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

void *df_cuda_pinned(size_t bytes)
{
	uint32_t class = MIN_SHIFT;
	struct head *h;
	size_t whole;

	while (class < NR_CLASSES - 1 && ((size_t)1 << class) < bytes)
		class ++;
	whole = sizeof(*h) + ((size_t)1 << class);
	pthread_mutex_lock(&lock);
	h = free_list[class];
	if (h) {
		free_list[class] = h->next;
	} else if (left >= whole) {
		h = (struct head *)piece;
		piece += whole;
		left -= whole;
	}
	pthread_mutex_unlock(&lock);
	if (!h && whole > PIECE_BYTES / 4) {
		h = pin(whole);
	} else if (!h) {
		char *p = pin(PIECE_BYTES);

		if (p) {
			pthread_mutex_lock(&lock);
			/* What is left of the last piece is lost: less than a quarter of it. */
			piece = p + whole;
			left = PIECE_BYTES - whole;
			pthread_mutex_unlock(&lock);
			h = (struct head *)p;
		}
	}
	if (!h)
		return NULL;
	h->class = class;
	memset(h + 1, 0, bytes);
	return h + 1;
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
