/*
 * GPUs as executors of blocks (struct df_blocks). The daemon's data is in pinned memory. The kernel
 * executes the blocks, and the poller notes completions. Application threads that wait do nothing
 * else. Any thread.
 */
#if __has_include(<cuda.h>)
#define _GNU_SOURCE
#include <sched.h>
#include <time.h>
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/device/cuda/cuda_daemon.h"
#include "runtime/device/cuda/cuda_int.h"

#define SPINS	   2000
#define NAP_MIN_NS 10000
#define NAP_MAX_NS 200000

/* Lets the poller do the work: the caller yields its core to it. */
int df_cuda_pass(int device)
{
	(void)device;
	df_cuda_daemon_wake();
	sched_yield();
	return 0;
}

void df_cuda_wait(int device, int (*ready)(void *arg), void *arg)
{
	struct timespec nap = {0, NAP_MIN_NS};
	uint32_t n = 0;

	(void)device;
	df_cuda_daemon_wake();
	while (!ready(arg)) {
		if (n++ < SPINS) {
			if (n % 16 == 0)
				sched_yield();
			continue;
		}
		nanosleep(&nap, NULL);
		nap.tv_nsec = DF_MIN(nap.tv_nsec * 2, NAP_MAX_NS);
	}
}

/* Does nothing: the kernel takes new operations by itself. */
void df_cuda_first_turns(int device)
{
	(void)device;
}

uint64_t df_cuda_device_id(int device)
{
	CUuuid uuid = {{0}};

	/*
	 * The device's number would not do, because it differs between processes
	 * (CUDA_VISIBLE_DEVICES).
	 */
	if (df_drv.device_uuid(&uuid, df_cudevs[device].device) != CUDA_SUCCESS)
		return 0;
	return df_hash_bytes(&uuid, sizeof(uuid), 0);
}

/*
 * A block uses all registers of a multiprocessor, and moves about as much data as one
 * multiprocessor can. Large operations use all blocks and small ones a single block (the cost model
 * decides). The other multiprocessors are left to the application.
 */
#define MULTIPROCESSORS_A_BLOCK 4
#define BLOCKS_MAX		32

uint32_t df_cuda_blocks(void)
{
	int least = BLOCKS_MAX * MULTIPROCESSORS_A_BLOCK, nr;

	for (int i = 0; i < df_nr_cudevs; i++) {
		nr = df_cuda_multiprocessors(i);
		if (nr > 0)
			least = DF_MIN(least, nr);
	}
	return (uint32_t)DF_MAX(least / MULTIPROCESSORS_A_BLOCK, 1);
}

/*
 * Returns the number of CTAs of NCCL's kernels that fit on the device. From compute capability 9.0
 * on NCCL launches them in clusters of 4. A cluster lies within a group of multiprocessors (a GPC),
 * so 1 or 2 multiprocessors of some groups have room for no cluster. An eighth of the device is
 * left out, which is more than these.
 */
long df_cuda_ctas(int device)
{
	int nr = df_cuda_multiprocessors(device), major = 0;

	if (df_drv.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
				    df_cudevs[device].device) == CUDA_SUCCESS &&
	    major >= 9)
		nr -= (nr + 7) / 8;
	return DF_MAX(nr, 1);
}
#endif
