/*
 * Runs calls of the driver that may take long (allocating, pinning, opening other processes'
 * memory) on threads of their own. So no call waits for another, and no holder of a lock waits for
 * a call. They are rare, because memory is taken in large pieces. Any thread.
 */
#if __has_include(<cuda.h>)
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/base/futex.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/device/cuda/cuda_daemon.h"
#include "runtime/device/cuda/cuda_int.h"

struct job {
	void (*fn)(void *arg);
	void *arg;
};

static void *thread(void *arg)
{
	struct job job = *(struct job *)arg;

	free(arg);
	job.fn(job.arg);
	/* A caller that was refused earlier tries again. */
	df_cuda_daemon_wake();
	return NULL;
}

int df_cuda_aside(void (*fn)(void *arg), void *arg)
{
	struct job *job = malloc(sizeof(*job));

	if (!job)
		return -ENOMEM;
	*job = (struct job){fn, arg};
	if (df_thread_start("dfshim-driver", 0, thread, job)) {
		free(job);
		return -ENOMEM;
	}
	return 0;
}

/*
 * Which streams this thread keeps from waiting until its call is over: those of a device (its
 * number plus 2), of all devices (1), or none (0).
 */
static __thread int alone;

int df_cuda_alone_enter(int device, int wait)
{
	if (!df_cuda_hooks->waits_stop || alone)
		return 1;
	if (!df_cuda_hooks->waits_stop(device, wait))
		return 0;
	alone = device + 2;
	return 1;
}

void df_cuda_alone_leave(void)
{
	int device = alone - 2;

	if (!alone)
		return;
	alone = 0;
	df_cuda_hooks->waits_go(device);
}

#define NAP_NS (100 * DF_NS_PER_US)

void df_cuda_alone(int enter)
{
	if (!enter) {
		df_cuda_quiet(-1, 0);
		df_cuda_alone_leave();
		return;
	}
	while (!df_cuda_alone_enter(-1, 0))
		df_sleep_ns(NAP_NS);
	df_cuda_quiet(-1, 1);
}

/* ---- the arena of connectors in host memory -------------------------------------------------- */

int df_cuda_show(void *base, uint64_t bytes)
{
	int in = df_cuda_enter(df_cuda_ctx_any());
	CUresult r;

	if (in < 0)
		return in;
	df_cuda_quiet(-1, 1);
	r = df_drv.host_register(base, bytes,
				 CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	df_cuda_quiet(-1, 0);
	df_cuda_leave(in);
	if (r != CUDA_SUCCESS)
		df_warn_once("cannot register %llu MiB of connectors with the GPU: %s",
			     (unsigned long long)(bytes >> 20), df_drv_name(r));
	return df_drv_errno(r);
}

void df_cuda_hide(void *base)
{
	int device = df_cuda_device_any(), in = df_cuda_enter(df_cuda_ctx(device));

	if (in < 0)
		return;
	df_cuda_alone(1);
	df_drv.host_unregister(base);
	df_cuda_alone(0);
	df_cuda_leave(in);
}
#endif
