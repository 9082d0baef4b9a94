/*
 * The runtime on a GPU (struct df_machine): what the daemon looks at lies in pinned memory, the kernel executes
 * the blocks, the poller takes note of what they did, and host threads that wait only wait. Any thread.
 */
#if __has_include(<cuda.h>)
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include "runtime/base/hash.h"
#include "runtime/device/cuda/cuda_daemon.h"
#include "runtime/device/cuda/mem/cuda_far.h"
#include "runtime/device/cuda/cuda_int.h"
#include "runtime/device/device.h"
#include "runtime/rt.h"
#include "runtime/transport/arena.h"

#define SPINS	   2000
#define NAP_MIN_NS 10000
#define NAP_MAX_NS 200000

/* ---- for the poller ---------------------------------------------------------------------------------------------- */

static int nr_devices(void)
{
	return df_rt.nr_devs;
}

static struct df_kdaemon *daemon_of(int device)
{
	struct df_dev *dev = &df_rt.devs[device];

	return __atomic_load_n(&dev->used, __ATOMIC_RELAXED) ? &dev->d : NULL;
}

static int outstanding(int device)
{
	struct df_dev *dev = &df_rt.devs[device];

	/* SEQ_CST pairs with df_cuda_daemon_wake(), which comes after the submission counted here. */
	/* SEQ_CST pairs with the submission that bumps it before it looks whether the daemon is asleep. */
	return __atomic_load_n(&dev->issued, __ATOMIC_SEQ_CST) !=
	       __atomic_load_n(&dev->retired, __ATOMIC_RELAXED);
}

static uint32_t width(int device)
{
	struct df_dev *dev = &df_rt.devs[device];
	uint32_t b = dev->d.nr_blocks;

	while (b && !__atomic_load_n(&dev->needs[b - 1], __ATOMIC_RELAXED))
		b--;
	return b;
}

static uint64_t progress(int device)
{
	struct df_dev *dev = &df_rt.devs[device];
	/* The words, too: a stream that has come to an operation must not wait until the poller has napped long enough. */
	uint64_t sum = __atomic_load_n(&dev->issued, __ATOMIC_RELAXED) + df_words_sum();
	uint32_t b;

	for (b = 0; b < dev->d.nr_blocks; b++)
		sum += __atomic_load_n(&dev->blocks[b].stats.slices, __ATOMIC_RELAXED);
	return sum;
}

static int chores(int device)
{
	return df_engine_chores(&df_rt.devs[device]);
}

/* The device is lost: its communicators end, on a thread of their own, because ending waits for the poller. */
static void *end_all(void *arg)
{
	struct df_dev *dev = arg;
	struct df_comm *comm, *found;

	do {
		found = NULL;
		df_mutex_lock(&df_rt.lock);
		df_list_each(comm, &df_rt.comms,
			     node) if (comm->dev == dev &&
				       __atomic_load_n(&comm->state, __ATOMIC_RELAXED) !=
					       DF_COMM_ABORTED) found = comm;
		/* Under the lock, so that it can't be destroyed meanwhile; as df_comm_death(). */
		if (found)
			df_comm_end(found, -EIO, 1);
		df_mutex_unlock(&df_rt.lock);
	} while (found);
	return NULL;
}

static void failed(int device, const char *why)
{
	pthread_t t;

	(void)why; /* has been logged */
	if (pthread_create(&t, NULL, end_all, &df_rt.devs[device]) == 0)
		pthread_detach(t);
}

static const struct df_daemon_ops daemon_ops = {
	.nr_devices = nr_devices,
	.daemon = daemon_of,
	.outstanding = outstanding,
	.width = width,
	.progress = progress,
	.chores = chores,
	.failed = failed,
};

void df_cuda_strict(void)
{
	df_rt.strict = 1;
}

/* ---- for the runtime --------------------------------------------------------------------------------------------- */

static int prepare(int device, char *reason, size_t reason_bytes)
{
	return df_cuda_daemon_prepare(device, reason, reason_bytes);
}

static int start(void)
{
	return df_cuda_daemon_start(&daemon_ops);
}

/* The poller does it; the caller lends it the core. */
static int pass(void)
{
	df_cuda_daemon_wake();
	sched_yield();
	return 0;
}

static void wait(int (*ready)(void *arg), void *arg)
{
	struct timespec nap = {0, NAP_MIN_NS};
	uint32_t n = 0;

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

static int stop(struct df_dev *dev)
{
	return df_cuda_daemon_stop(dev->index);
}

static void resume(struct df_dev *dev)
{
	df_cuda_daemon_resume(dev->index);
}

static uint64_t device_id(int device)
{
	CUuuid uuid = {{0}};

	/* Not by number: which GPU that is differs between processes (CUDA_VISIBLE_DEVICES). */
	if (df_drv.device_uuid(&uuid, df_cudevs[device].device) != CUDA_SUCCESS)
		return 0;
	return df_hash_bytes(&uuid, sizeof(uuid), 0);
}

/*
 * A block is a whole multiprocessor's registers, and moves about what that can. Large operations use all of them,
 * small ones one (the cost model); what is left is the application's.
 */
#define MULTIPROCESSORS_A_BLOCK 8
#define BLOCKS_MAX		16

static uint32_t blocks(void)
{
	int least = BLOCKS_MAX * MULTIPROCESSORS_A_BLOCK, nr;

	for (int i = 0; i < df_nr_cudevs; i++) {
		nr = df_cuda_multiprocessors(i);
		if (nr > 0)
			least = DF_MIN(least, nr);
	}
	return (uint32_t)DF_MAX(least / MULTIPROCESSORS_A_BLOCK, 1);
}

static const struct df_machine machine = {
	.alloc = df_cuda_pinned,
	.free = df_cuda_pinned_free,
	.prepare = prepare,
	.start = start,
	.submitted = df_cuda_daemon_wake,
	.pass = pass,
	.wait = wait,
	.stop = stop,
	.resume = resume,
	.launches = df_cuda_daemon_launches,
	.blocks = blocks,
	.device_id = device_id,
	.meet = df_cuda_meet,
	.scratch = df_cuda_scratch,
	.scratch_free = df_cuda_scratch_free,
	.reserve = df_cuda_reserve,
};

const struct df_machine *df_cuda_machine(void)
{
	df_arena_device = &df_cuda_arena_device;
	df_far = &df_cuda_far_ops;
	return &machine;
}
#endif
