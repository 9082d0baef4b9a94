/*
 * Which devices' memory the application's kernels can access: a kernel waits only for skipped
 * operations (runtime/watch/debt.h) of those devices. Access that the application asked the driver
 * for is noted, and never removed; if it may have asked without being seen, all devices count as
 * accessible. Any thread. A bit that is set late does no harm, because the thread that launches
 * such a kernel must know of the access.
 */
#if __has_include(<cuda.h>)
#include "runtime/device/cuda/cuda_int.h"
#include "runtime/device/cuda/front/cuda_front.h"

/* by device: bits of the devices whose memory it can access */
static uint64_t reached[DF_CUDA_DEVICES_MAX];
/* whether some device can access others, not known which */
static int unknown;

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
	       /* the hook does not see what the application asks for */
	       __atomic_load_n(&df_cuda_captures, __ATOMIC_RELAXED) < 0 ||
	       __atomic_load_n(&unknown, __ATOMIC_RELAXED) || !df_cuda_hook ||
	       df_cuda_hook->peers_any() ||
	       __atomic_load_n(&reached[device], __ATOMIC_RELAXED) >> other & 1;
}
#endif
