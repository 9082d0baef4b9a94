/*
 * Kernel launches of the application for which the daemon leaves at once, instead of when nothing
 * makes progress. These are the first launch of a function that the driver loads lazily, because
 * loading may wait for the device; and cooperative launches, whose blocks must be on the device
 * together, if the daemon's blocks leave too little room.
 *
 * The driver loads while it holds its context's lock, which the launch of the daemon needs. So the
 * calling thread first waits until no stream waits for our operations, while the daemon runs.
 * Otherwise the load would wait for a stream, the stream for the daemon, and the daemon's launch
 * for the lock.
 *
 * The driver is not asked whether a function is loaded: the handle may be a CUkernel, which
 * cuFuncIsLoaded() is not documented to accept. So the first launch that we see of each function
 * counts, loaded or not. Any thread, no lock.
 */
#if __has_include(<cuda.h>)
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/device/cuda/cuda_daemon.h"
#include "runtime/device/cuda/cuda_int.h"
#include "runtime/device/cuda/front/cuda_front.h"
#include "runtime/device/device.h"
#include "runtime/recorded.h"

#define LAZY   2 /* CU_MODULE_LAZY_LOADING of cuda.h 11.7 */
#define SEEN   8192
#define PROBES 16

/* Launched functions. If there is no room for one, each of its launches counts as the first. */
static void *seen[SEEN];

static int is_lazy(void)
{
	static int known; /* 1 for no, 2 for yes; two threads may both find out */
	CUresult (*ask)(int *mode);
	int k = __atomic_load_n(&known, __ATOMIC_RELAXED), mode = LAZY;

	if (k)
		return k == 2;
	*(void **)&ask = df_drv_find("cuModuleGetLoadingMode", 11070);
	if (!ask || ask(&mode) != CUDA_SUCCESS)
		mode = LAZY;
	__atomic_store_n(&known, mode == LAZY ? 2 : 1, __ATOMIC_RELAXED);
	return mode == LAZY;
}

/* Whether the function is in the table; note: adds it. */
static int is_seen(void *fn, int note)
{
	uint64_t at = df_hash_bytes(&fn, sizeof(fn), 0);
	int i;

	for (i = 0; i < PROBES; i++) {
		void **slot = &seen[(at + (uint64_t)i) % SEEN];
		void *v = __atomic_load_n(slot, __ATOMIC_RELAXED);

		if (v == fn)
			return 1;
		if (v)
			continue;
		if (!note)
			return 0;
		if (__atomic_compare_exchange_n(slot, &v, fn, 0, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED) ||
		    v == fn)
			return 1;
	}
	return 0;
}

/* Whether it fits beside this number of blocks, each of which takes a multiprocessor. */
static int fits(int device, const struct df_cuda_launch *l, uint32_t beside)
{
	CUresult (*occupancy)(int *, CUfunction, int, size_t);
	int nr = 0, each = 0;

	*(void **)&occupancy = df_drv_find("cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050);
	if (!occupancy ||
	    occupancy(&each, (CUfunction)l->fn, (int)l->threads, l->shared) != CUDA_SUCCESS ||
	    df_drv.device_attribute(&nr, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
				    df_cudevs[device].device) != CUDA_SUCCESS)
		return 0;
	return (uint32_t)nr > beside &&
	       l->together <= (uint64_t)((uint32_t)nr - beside) * (uint64_t)each;
}

/* NCCL's kernels do not leave before their peers have launched theirs. */
static void warn_on_lanes(int device, const struct df_cuda_launch *l)
{
	long least;

	if (!df_device_lanes() || fits(device, l, (uint32_t)df_env_lane_ctas(&least)))
		return;
	df_warn_once(
		"a cooperative kernel of %llu blocks does not fit on device %d beside NCCL's "
		"kernels: it waits for them, and they may wait for it on other devices. dfshim "
		"does not prevent that deadlock on lanes (DFSHIM_EXECUTOR=daemon does)",
		(unsigned long long)l->together, device);
}

int df_cuda_launch_enter(const struct df_cuda_launch *l)
{
	int loads = l->fn && is_lazy() && !is_seen(l->fn, 0), device;
	CUdevice dev;

	if (df_likely(!loads && !l->together))
		return -1;
	/* NCCL has loaded its own kernels when it made the communicator. */
	if (df_cuda_recording || df_record_inside || df_drv.ctx_device(&dev) != CUDA_SUCCESS)
		return -1;
	device = df_cuda_api.get_device();
	if (l->together)
		warn_on_lanes(device, l);
	if (!loads && fits(device, l, df_cuda_daemon_blocks(device)))
		return -1;
	if (loads)
		df_cuda_alone_enter(device, 1);
	df_cuda_quiet(device, 1);
	return device;
}

void df_cuda_launch_leave(const struct df_cuda_launch *l, int token, int launched)
{
	if (df_likely(token < 0))
		return;
	df_cuda_quiet(token, 0);
	df_cuda_alone_leave();
	if (launched)
		is_seen(l->fn, 1);
}
#endif
