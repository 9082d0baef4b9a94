/*
 * Words in the memory of each device that its streams write and its blocks poll: near_words() of
 * struct df_blocks. They are allocated and cleared before the device's first communicator, when
 * nothing waits for us, and are never freed. A device without them uses pinned words. So do streams
 * of contexts other than the primary one, because they cannot write its memory.
 */
#if __has_include(<cuda.h>)
#include <sched.h>
#include "runtime/blocks.h"
#include "runtime/base/time.h"
#include "runtime/device/cuda/cuda_int.h"
#include "runtime/device/cuda/cuda_far.h"
#include "runtime/device/cuda/cuda_near.h"

#define CLEAR_NS DF_NS_PER_S /* kernels of the application may precede the clearing */

static uint64_t *words[DF_CUDA_DEVICES_MAX]; /* by device; atomic; NULL if the device has none */

void df_cuda_near_make(int device, CUstream stream)
{
	uint64_t until = df_now_ns() + CLEAR_NS;
	CUdeviceptr p;
	CUresult r;

	if (df_drv.mem_alloc(&p, DF_NEAR_BYTES) != CUDA_SUCCESS)
		return;
	r = df_drv.fill(p, 0, DF_NEAR_BYTES, stream);
	if (r == CUDA_SUCCESS)
		while ((r = df_drv.stream_query(stream)) == CUDA_ERROR_NOT_READY &&
		       df_now_ns() < until)
			sched_yield();
	if (r == CUDA_SUCCESS)
		/*
		 * RELEASE pairs with the ACQUIRE in df_cuda_near_words(): without it the words
		 * could be used before they are cleared.
		 */
		__atomic_store_n(&words[device], (uint64_t *)(uintptr_t)p, __ATOMIC_RELEASE);
	else if (r != CUDA_ERROR_NOT_READY)
		df_drv.mem_free(p);
}

uint64_t *df_cuda_near_words(const struct df_mstream *s)
{
	if (!s || s->device < 0 || s->ctx != df_cudevs[s->device].ctx)
		return NULL;
	/* ACQUIRE pairs with the RELEASE in df_cuda_near_make(), which says why. */
	return __atomic_load_n(&words[s->device], __ATOMIC_ACQUIRE);
}
#endif
