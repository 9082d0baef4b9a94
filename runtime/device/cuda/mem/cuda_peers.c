/*
 * Whose memory the application's kernels can reach: a kernel waits for what a released wait owes on those devices only
 * (runtime/order/debt.c). What the application asked the driver for is noted, never taken back, and where it may have asked
 * without being seen, all reach all. Any thread; a bit that is set late is no harm, because the thread that launches such
 * a kernel has to know of the access.
 */
#if __has_include(<cuda.h>)
#include "runtime/device/cuda/cuda_int.h"

static uint64_t reached[DF_CUDA_DEVICES_MAX]; /* by device: those whose memory it reaches */
static int unknown;			      /* somebody reaches something */

void df_cuda_peers_note(int device, int other)
{
	if (device < 0 || device >= DF_CUDA_DEVICES_MAX) {
		__atomic_store_n(&unknown, 1, __ATOMIC_RELAXED);
		return;
	}
	__atomic_or_fetch(&reached[device],
			  other < 0 || other >= DF_CUDA_DEVICES_MAX ? UINT64_MAX : 1ull << other,
			  __ATOMIC_RELAXED);
}

int df_cuda_reaches(int device, int other)
{
	return device == other || device < 0 || device >= DF_CUDA_DEVICES_MAX || other < 0 ||
	       other >= DF_CUDA_DEVICES_MAX ||
	       /* Nobody sees what the application asks for. */
	       __atomic_load_n(&df_cuda_captures, __ATOMIC_RELAXED) < 0 ||
	       __atomic_load_n(&unknown, __ATOMIC_RELAXED) || !df_cuda_peers_any ||
	       df_cuda_peers_any() ||
	       __atomic_load_n(&reached[device], __ATOMIC_RELAXED) >> other & 1;
}
#else
/* Without cuda.h nobody hooks the driver. */
typedef int df_no_peers;
#endif
