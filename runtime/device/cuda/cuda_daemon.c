/*
 * The daemon's kernel on each device, and the poller, the thread that serves all devices: it
 * launches the kernel when there is work (launch.c decides), asks it to leave in quiet times, and
 * notes completions. Only the poller launches. It sleeps on a futex while nothing is in flight.
 *
 * The request to leave is df_kdaemon.quit, which the kernel reads over the bus. No lock is held
 * across a call of the driver.
 */
#if __has_include(<cuda.h>)
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include "kernels/abi.h"
#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/futex.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/device/cuda/cuda_daemon.h"
#include "runtime/device/cuda/cuda_far.h"
#include "runtime/device/cuda/cuda_int.h"
#include "runtime/device/cuda/launch.h"
#include "runtime/device/cuda/cuda_near.h"

#define KERNEL	     "dfk_daemon"
#define MAX_THREADS  512     /* as kernels/daemon_cuda.cu is compiled */
#define LEAVE_NS     1000000 /* limit of waiting for the kernel to leave in a quiet time */
#define SPINS	     64
#define NAP_NS	     20000
#define IDLE_WAIT_NS 200000000

struct daemon {
	CUstream stream;
	CUfunction fn;
	struct df_launch l;
	uint32_t quiet; /* threads in calls that may wait for the device */
	uint32_t stops; /* threads that need the device without a kernel */
	uint32_t state; /* copy of l.state for other threads */
	uint32_t ready; /* whether stream and function exist: set by df_cuda_daemon_prepare() */
	uint32_t told;
};

static struct daemon daemons[DF_CUDA_DEVICES_MAX];
static const struct df_execs *execs; /* atomic; NULL: there is no poller */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t work_seq; /* futex: incremented when there may be work */
static uint32_t sleeping;
static uint64_t launches;
static uint64_t rounds; /* of the poller's loop */

int df_cuda_daemon_check(char *reason, size_t reason_bytes)
{
	if (df_cuda_fatbin())
		return 0;
	snprintf(reason, reason_bytes,
		 "this libdfshim.so was built without nvcc and has no GPU code");
	return -EOPNOTSUPP;
}

static void give_up(int device, const char *what, CUresult r)
{
	struct daemon *d = &daemons[device];
	char why[240];

	d->l.state = DF_LAUNCH_DEAD;
	if (d->told++ || r == CUDA_ERROR_DEINITIALIZED)
		return;
	snprintf(why, sizeof(why), "GPU %d: %s: %s%s", device, what, df_drv_name(r),
		 df_cuda_mps(device)
			 ? " (under MPS a fault of any client ends all that share the GPU)"
			 : "");
	df_log(DF_LOG_WARN, "%s; nothing more runs there", why);
	execs->hooks->failed(device);
}

int df_cuda_daemon_prepare(int device, char *reason, unsigned long reason_bytes)
{
	static pthread_mutex_t preparing[DF_CUDA_DEVICES_MAX] = {[0 ... DF_CUDA_DEVICES_MAX - 1] =
									 PTHREAD_MUTEX_INITIALIZER};
	struct daemon *d = &daemons[device];
	CUresult r = CUDA_SUCCESS;
	int entered;

	/*
	 * Only this function takes the lock, so it may be held across the driver: a second caller
	 * wants the same.
	 */
	pthread_mutex_lock(&preparing[device]);
	entered = df_cuda_enter(df_cuda_ctx(device));
	if (entered < 0)
		r = CUDA_ERROR_INVALID_CONTEXT;
	else if (!d->ready)
		r = df_cuda_queue(device, &d->stream, &d->fn, KERNEL, df_cuda_fatbin());
	if (r == CUDA_SUCCESS && !d->ready)
		df_cuda_near_make(device, d->stream);
	df_cuda_leave(entered);
	d->ready = r == CUDA_SUCCESS;
	pthread_mutex_unlock(&preparing[device]);
	if (r == CUDA_SUCCESS)
		return 0;
	snprintf(reason, reason_bytes, "GPU %d: the daemon's kernel cannot be loaded: %s", device,
		 df_drv_name(r));
	return -EIO;
}

/*
 * Allocates GPU memory for contexts that do not fit into shared memory, before a launch. Without it
 * they are used in place.
 */
static void give_lines(int device, struct df_kdaemon *k)
{
	void *p;

	if (k->lines ||
	    df_cuda_scratch(device, (uint64_t)k->nr_blocks * DF_LINES * DF_LINE_BYTES, &p))
		return;
	k->lines = p;
	k->nr_lines = DF_LINES;
}

static CUresult launch(struct daemon *d, struct df_kdaemon *k)
{
	const struct df_env *env = df_env();
	unsigned int threads = env->threads == DF_AUTO
				       ? MAX_THREADS
				       : DF_MIN((unsigned int)env->threads / 32 * 32, MAX_THREADS);
	void *params[] = {&k};

	give_lines((int)(d - daemons), k);
	/* RELAXED: the launch orders it before the kernel. */
	__atomic_store_n(&k->quit, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&k->leave, 0, __ATOMIC_RELAXED);
	return df_drv.launch(d->fn, DF_MIN(d->l.width, k->nr_blocks), 1, 1, threads, 1, 1, 0,
			     d->stream, params, NULL);
}

/* Whether the context, or the whole device, is lost. */
static int fatal(CUresult r)
{
	return r != CUDA_ERROR_OUT_OF_MEMORY && r != CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES &&
	       r != CUDA_ERROR_NOT_READY;
}

/* Whether operations are in flight on the device. */
static int outstanding(const struct df_exec *x)
{
	/* SEQ_CST pairs with df_cuda_daemon_wake(), which follows the submission counted here. */
	return __atomic_load_n(&x->issued, __ATOMIC_SEQ_CST) !=
	       __atomic_load_n(&x->retired, __ATOMIC_RELAXED);
}

/*
 * Returns how many blocks, from the first, are needed. Only operations count whose streams have
 * reached them: a waiting block takes a multiprocessor from the work that it waits for.
 */
static uint32_t width(int device, const struct df_exec *x)
{
	uint32_t b = x->d.nr_blocks, ready;

	while (b && !__atomic_load_n(&x->needs[b - 1], __ATOMIC_RELAXED))
		b--;
	ready = b > 1 ? execs->hooks->width(device) : 0;
	return ready ? DF_MIN(b, ready) : b;
}

/* Returns a number that changes when a block moves data. */
static uint64_t slices(const struct df_exec *x)
{
	uint64_t sum = 0;
	uint32_t b;

	for (b = 0; b < x->d.nr_blocks; b++)
		sum += __atomic_load_n(&x->blocks[b].stats.slices, __ATOMIC_RELAXED);
	return sum;
}

static uint64_t progress(const struct df_exec *x)
{
	/*
	 * Includes the words: a stream that has reached an operation must not wait until the poller
	 * has slept long enough.
	 */
	return slices(x) + __atomic_load_n(&x->issued, __ATOMIC_RELAXED) + execs->hooks->words() +
	       df_cuda_graph_arrivals();
}

/* Examines one device. Returns for how long nothing can change there by itself. */
static uint64_t look(int device, struct df_exec *x)
{
	struct df_kdaemon *k = &x->d;
	struct daemon *d = &daemons[device];
	/*
	 * SEQ_CST pairs with df_cuda_daemon_stop(), which increments it and then reads the state: a
	 * round that begins after the request sees it.
	 */
	uint32_t stops = __atomic_load_n(&d->stops, __ATOMIC_SEQ_CST);
	struct df_launch_in in = {
		.now_ns = df_now_ns(),
		.outstanding = !stops && outstanding(x),
		.width = width(device, x),
		.slices = slices(x),
		/*
		 * SEQ_CST pairs with df_cuda_quiet(), as for stops: a quiet time that has begun is
		 * seen before a launch.
		 */
		.quiet = stops || __atomic_load_n(&d->quiet, __ATOMIC_SEQ_CST) != 0,
	};
	uint64_t sleep_ns = 0;
	CUresult r = CUDA_SUCCESS;
	int entered = df_cuda_enter(df_cuda_ctx(device));

	/*
	 * After exit() the driver ends before this thread. That is no error, and nothing is left to
	 * do.
	 */
	if (entered == -ESHUTDOWN) {
		d->l.state = DF_LAUNCH_DEAD;
		/* SEQ_CST pairs with df_cuda_daemon_stop() and df_cuda_quiet(), as below. */
		__atomic_store_n(&d->state, DF_LAUNCH_DEAD, __ATOMIC_SEQ_CST);
		return DF_LAUNCH_BACKOFF_MAX;
	}
	if (entered < 0) {
		give_up(device, "its context is gone", CUDA_ERROR_CONTEXT_IS_DESTROYED);
		return DF_LAUNCH_BACKOFF_MAX;
	}
	if (d->l.state == DF_LAUNCH_RUNNING || d->l.state == DF_LAUNCH_LEAVING) {
		r = df_drv.stream_query(d->stream);
		in.exited = r == CUDA_SUCCESS;
		if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY)
			give_up(device, "the daemon's kernel ended", r);
	}
	/* Reads many words; the result is not needed while the kernel runs. */
	if (in.exited || d->l.state == DF_LAUNCH_GONE)
		in.progress = progress(x);
	switch (df_launch_step(&d->l, &in, &sleep_ns)) {
	case DF_LAUNCH_LAUNCH:
		r = launch(d, k);
		if (r == CUDA_SUCCESS) {
			__atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
			break;
		}
		df_launch_failed(&d->l, in.now_ns, fatal(r));
		if (d->l.state == DF_LAUNCH_DEAD)
			give_up(device, "the daemon cannot be launched", r);
		break;
	case DF_LAUNCH_ASK:
		/* RELAXED: it carries no data; blocks save nothing because of it. */
		__atomic_store_n(&k->quit, 1, __ATOMIC_RELAXED);
		break;
	case DF_LAUNCH_NOTHING:
		break;
	}
	df_cuda_leave(entered);
	/*
	 * SEQ_CST pairs with df_cuda_daemon_stop() and df_cuda_quiet(), which make their request
	 * and then read the state.
	 */
	__atomic_store_n(&d->state, d->l.state, __ATOMIC_SEQ_CST);
	return sleep_ns;
}

static void rest(int active, uint32_t seen, uint32_t *idle)
{
	struct timespec nap = {0, NAP_NS};

	if (active && (*idle)++ < SPINS) {
		sched_yield();
		return;
	}
	if (active) {
		nanosleep(&nap, NULL);
		return;
	}
	/*
	 * SEQ_CST pairs with df_cuda_daemon_wake(): either it sees that this thread sleeps, or the
	 * word has changed and the kernel does not let it sleep. Without it a submission could find
	 * no thread awake.
	 */
	__atomic_store_n(&sleeping, 1, __ATOMIC_SEQ_CST);
	df_futex_wait(&work_seq, seen, IDLE_WAIT_NS, 0);
	__atomic_store_n(&sleeping, 0, __ATOMIC_RELAXED);
}

static void *poller(void *arg)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	uint32_t idle = 0;

	df_drv.capture_mode(&mode);
	/* Otherwise each of its naps lasts 50 us more. */
	prctl(PR_SET_TIMERSLACK, 1ul, 0, 0, 0);
	for (;;) {
		/*
		 * SEQ_CST pairs with df_cuda_daemon_wake(): work that is submitted after this load
		 * changes the word, so no wake-up is missed.
		 */
		uint32_t seen = __atomic_load_n(&work_seq, __ATOMIC_SEQ_CST);
		int i, active = 0, moved = 0, held;

		for (i = 0; i < execs->nr; i++) {
			struct df_exec *x = execs->v[i];

			if (!__atomic_load_n(&x->used, __ATOMIC_RELAXED))
				continue;
			moved |= execs->hooks->chores(i);
			look(i, x);
			active |= outstanding(x) || daemons[i].l.state == DF_LAUNCH_LEAVING ||
				  daemons[i].l.state == DF_LAUNCH_RUNNING;
		}
		active |= df_cuda_graph_poll(&held) > 0;
		/* SEQ_CST pairs with df_cuda_daemon_stop(): earlier requests have been seen. */
		__atomic_add_fetch(&rounds, 1, __ATOMIC_SEQ_CST);
		if (moved)
			idle = 0;
		else
			rest(active, seen, &idle);
	}
	return arg;
}

int df_cuda_daemon_start(const struct df_execs *all)
{
	int ret = 0;

	pthread_mutex_lock(&start_lock);
	if (!execs) {
		/* RELAXED: other threads only check that there is a poller. */
		__atomic_store_n(&execs, all, __ATOMIC_RELAXED);
		ret = df_thread_start("dfshim-poller", 0, poller, NULL);
		if (ret)
			__atomic_store_n(&execs, NULL, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&start_lock);
	return ret ? -ENOMEM : 0;
}

int df_cuda_daemon_started(void)
{
	return __atomic_load_n(&execs, __ATOMIC_RELAXED) != NULL;
}

void df_cuda_daemon_wake(void)
{
	/* SEQ_CST pairs with rest(), which says why. */
	__atomic_add_fetch(&work_seq, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&sleeping, __ATOMIC_SEQ_CST))
		df_futex_wake(&work_seq, 1, 0);
}

uint64_t df_cuda_daemon_launches(void)
{
	return __atomic_load_n(&launches, __ATOMIC_RELAXED);
}

uint32_t df_cuda_daemon_blocks(int device)
{
	const struct df_execs *all = __atomic_load_n(&execs, __ATOMIC_RELAXED);
	const struct df_exec *x = all && device < all->nr ? all->v[device] : NULL;

	return x && __atomic_load_n(&x->used, __ATOMIC_RELAXED) ? x->d.nr_blocks : 0;
}

static int on_device(int device)
{
	/*
	 * SEQ_CST pairs with the store in look(): either our request preceded it, or this load sees
	 * it.
	 */
	uint32_t state = __atomic_load_n(&daemons[device].state, __ATOMIC_SEQ_CST);

	return state == DF_LAUNCH_RUNNING || state == DF_LAUNCH_LEAVING;
}

static void pause_ns(long ns)
{
	struct timespec t = {0, ns};

	nanosleep(&t, NULL);
}

void df_cuda_quiet(int device, int enter)
{
	uint64_t until = df_now_ns() + LEAVE_NS;
	int i, first = device < 0 ? 0 : device, last = device < 0 ? df_nr_cudevs - 1 : device;

	if (!__atomic_load_n(&execs, __ATOMIC_RELAXED))
		return;
	for (i = first; i <= last; i++)
		/*
		 * SEQ_CST pairs with look(): either a launch sees this request, or on_device() sees
		 * the launch.
		 */
		__atomic_add_fetch(&daemons[i].quiet, enter ? 1 : -1, __ATOMIC_SEQ_CST);
	df_cuda_daemon_wake();
	if (!enter)
		return;
	/* Bounded: if the kernel does not leave, the driver call waits for it. */
	for (i = first; i <= last; i++)
		while (on_device(i) && df_now_ns() < until)
			pause_ns(5000);
}

int df_cuda_daemon_stop(int device)
{
	uint64_t from;

	/*
	 * SEQ_CST pairs with look() and the count of rounds: a round that begins after this sees
	 * the request.
	 */
	__atomic_add_fetch(&daemons[device].stops, 1, __ATOMIC_SEQ_CST);
	from = __atomic_load_n(&rounds, __ATOMIC_SEQ_CST);
	/*
	 * SEQ_CST pairs with poller(). A round that had begun may still launch; the next one sees
	 * our request. A block reads it every few turns, none of which waits, so this loop ends. If
	 * the device is lost, the state shows it.
	 */
	while (__atomic_load_n(&rounds, __ATOMIC_SEQ_CST) < from + 2 || on_device(device)) {
		df_cuda_daemon_wake();
		pause_ns(5000);
	}
	return __atomic_load_n(&daemons[device].state, __ATOMIC_RELAXED) == DF_LAUNCH_DEAD;
}

void df_cuda_daemon_resume(int device)
{
	/* SEQ_CST pairs with look(): the host's changes of the queues precede the next launch. */
	__atomic_sub_fetch(&daemons[device].stops, 1, __ATOMIC_SEQ_CST);
	df_cuda_daemon_wake();
}
#endif
