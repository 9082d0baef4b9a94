/*
 * The daemon's kernel on each device, and the device's poller. The poller is a thread. It launches
 * the kernel when there is work (launch.c decides), asks it to leave in quiet times, and notes
 * completions. Only the poller launches. It sleeps on a futex while nothing is in flight. Each
 * device has a poller of its own: the driver may keep a thread that launches waiting until that
 * device is idle, and for that the device may need the daemon of another device.
 *
 * The request to leave is df_kdaemon.quit, which the kernel reads over the bus. When the kernel has
 * left, its stream writes a word. So the poller needs no call of the driver while nothing happens.
 * No lock is held across a call of the driver, except the one that only df_cuda_daemon_prepare()
 * uses.
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
#define MAX_THREADS  512     /* the value with which kernels/daemon_cuda.cu is compiled */
#define LEAVE_NS     1000000 /* limit of waiting for the kernel to leave in a quiet time */
#define SPINS	     64
#define NAP_NS	     20000
#define IDLE_WAIT_NS 200000000
#define QUERY_NS     5000000	  /* how often the driver is asked whether the kernel failed */
#define STAY_NS	     1000000	  /* limit of waiting for a kernel that stays */
#define STAY_QUIT_NS (1ull << 50) /* df_policy.quit_ns of a kernel that stays: 13 days */
#define STOP_NS	     (10 * DF_NS_PER_S) /* df_cuda_daemon_stop() waits at least this long */

struct daemon {
	CUstream stream;
	CUfunction fn;
	struct df_launch l;
	uint32_t quiet; /* threads in calls that may wait for the device */
	uint32_t stops; /* threads that need the device without a kernel */
	uint32_t state; /* copy of l.state for other threads */
	uint32_t ready; /* whether stream and function exist: set by df_cuda_daemon_prepare() */
	uint32_t told;
	uint64_t *left;	 /* the stream writes the number of a launch here after its kernel */
	uint64_t number; /* number of the last launch */
	/* when the driver was last asked whether the kernel has left; 0: ask each time */
	uint64_t asked;
	uint64_t quit_ns; /* df_policy.quit_ns of a kernel that does not stay; 0: not known yet */
	/* whether the kernel is asked to stay: streams are about to take all hardware queues */
	uint32_t stay;
	uint32_t stays; /* whether a kernel that stays is on the device */
	/* whether the kernel did not leave in time, so nothing more is launched */
	uint32_t lost;
	uint32_t work_seq; /* futex: incremented when there may be work */
	uint32_t sleeping;
	uint32_t polled; /* whether the device has its poller; guarded by start_lock */
	uint64_t rounds; /* number of rounds that the poller's loop has made */
};

static struct daemon daemons[DF_CUDA_DEVICES_MAX];
static const struct df_execs *execs; /* atomic; NULL: there is no poller */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t launches;

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
	 * Only this function takes the lock, so it may be held across calls of the driver: a second
	 * caller has to wait for the result anyway.
	 */
	pthread_mutex_lock(&preparing[device]);
	entered = df_cuda_enter(df_cuda_ctx(device));
	if (entered < 0)
		r = CUDA_ERROR_INVALID_CONTEXT;
	else if (!d->ready)
		r = df_cuda_queue(device, &d->stream, &d->fn, KERNEL, df_cuda_fatbin());
	if (r == CUDA_SUCCESS && !d->ready)
		df_cuda_near_make(device, d->stream);
	if (r == CUDA_SUCCESS && !d->left)
		d->left = df_cuda_pinned(sizeof(*d->left), 1);
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
	CUresult r;

	give_lines((int)(d - daemons), k);
	if (!d->quit_ns)
		d->quit_ns = k->policy.quit_ns;
	k->policy.quit_ns = d->l.stays ? STAY_QUIT_NS : d->quit_ns;
	/* RELAXED: the launch orders it before the kernel. */
	__atomic_store_n(&k->quit, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&k->leave, 0, __ATOMIC_RELAXED);
	r = df_drv.launch(d->fn, DF_MIN(d->l.width, k->nr_blocks), 1, 1, threads, 1, 1, 0,
			  d->stream, params, NULL);
	if (r != CUDA_SUCCESS)
		return r;
	/* If the stream does not write the word, the driver is asked in each round. */
	d->asked = 0;
	d->number++;
	if (d->left && df_drv.stream_write64(d->stream, (CUdeviceptr)(uintptr_t)d->left, d->number,
					     CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS)
		d->asked = df_now_ns();
	return r;
}

/*
 * Returns whether the kernel has left the device, or df_cuda_enter()'s error if the context is
 * gone. Sets *r to the driver's answer if the driver is asked, which is every QUERY_NS. The answer
 * also shows whether the kernel has failed.
 */
static int exited(int device, uint64_t now, CUresult *r)
{
	struct daemon *d = &daemons[device];
	int entered;

	/*
	 * ACQUIRE pairs with the stream's write: without it data that the blocks have written could
	 * be missed.
	 */
	if (d->asked && __atomic_load_n(d->left, __ATOMIC_ACQUIRE) == d->number)
		return 1;
	if (d->asked && now - d->asked < QUERY_NS)
		return 0;
	if (d->asked)
		d->asked = now;
	entered = df_cuda_enter(df_cuda_ctx(device));
	if (entered < 0)
		return entered;
	*r = df_drv.stream_query(d->stream);
	df_cuda_leave(entered);
	return *r == CUDA_SUCCESS;
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
 * Returns how many blocks, from the first, are needed. Counts only operations that their streams
 * have reached: a block that waits for a stream occupies a multiprocessor that the stream's work
 * needs.
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

/* Publishes the state for threads that wait for a change of it. */
static void publish(struct daemon *d)
{
	/*
	 * SEQ_CST, both: pairs with df_cuda_daemon_stop(), df_cuda_quiet() and
	 * df_cuda_daemon_stay(), which make their request and then read.
	 */
	__atomic_store_n(&d->state, d->l.state, __ATOMIC_SEQ_CST);
	__atomic_store_n(&d->stays, d->l.stays && d->l.state == DF_LAUNCH_RUNNING,
			 __ATOMIC_SEQ_CST);
}

/* Returns whether the kernel must stay, because streams still wait. */
static int stays(int device)
{
	struct daemon *d = &daemons[device];

	/* SEQ_CST pairs with df_cuda_daemon_stay(), whose caller has counted its stream. */
	if (!__atomic_load_n(&d->stay, __ATOMIC_SEQ_CST))
		return 0;
	if (execs->hooks->crowded(device))
		return 1;
	/*
	 * SEQ_CST, both: pairs with df_cuda_daemon_stay(). A stream that was counted after the
	 * first call of crowded() needs a kernel that stays again.
	 */
	__atomic_store_n(&d->stay, 0, __ATOMIC_SEQ_CST);
	if (execs->hooks->crowded(device))
		__atomic_store_n(&d->stay, 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&d->stay, __ATOMIC_SEQ_CST) != 0;
}

/* Handles the end of the context or of the driver. */
static void gone(int device, int ret)
{
	/*
	 * After exit() the driver ends before this thread. That is no error, and nothing is left to
	 * do.
	 */
	if (ret == -ESHUTDOWN)
		daemons[device].l.state = DF_LAUNCH_DEAD;
	else
		give_up(device, "its context is gone", CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

/* Launches. Returns df_cuda_enter()'s error if the context is gone. */
static int act_launch(int device, struct df_kdaemon *k, uint64_t now)
{
	struct daemon *d = &daemons[device];
	int entered = df_cuda_enter(df_cuda_ctx(device));
	CUresult r;

	if (entered < 0)
		return entered;
	r = launch(d, k);
	df_cuda_leave(entered);
	if (r == CUDA_SUCCESS) {
		__atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
		return 0;
	}
	df_launch_failed(&d->l, now, fatal(r));
	if (d->l.state == DF_LAUNCH_DEAD)
		give_up(device, "the daemon cannot be launched", r);
	return 0;
}

/* Examines one device. */
static void look(int device, struct df_exec *x)
{
	struct df_kdaemon *k = &x->d;
	struct daemon *d = &daemons[device];
	/*
	 * SEQ_CST pairs with df_cuda_daemon_stop(), which increments it and then reads the state: a
	 * round that begins after the request sees it.
	 */
	uint32_t stops = __atomic_load_n(&d->stops, __ATOMIC_SEQ_CST);
	int stay = !stops && stays(device), ret = 0;
	struct df_launch_in in = {
		.now_ns = df_now_ns(),
		.outstanding = !stops && (stay || outstanding(x)),
		.width = stay ? x->d.nr_blocks : width(device, x),
		.slices = slices(x),
		/*
		 * SEQ_CST pairs with df_cuda_quiet(), as for stops: a quiet time that has begun is
		 * seen before a launch.
		 */
		.quiet = stops || (!stay && __atomic_load_n(&d->quiet, __ATOMIC_SEQ_CST) != 0),
		.stay = stay,
	};
	uint64_t sleep_ns = 0;
	CUresult r = CUDA_SUCCESS;

	/* RELAXED: once df_cuda_daemon_stop() has set it, it stays set. */
	if (__atomic_load_n(&d->lost, __ATOMIC_RELAXED)) {
		d->l.state = DF_LAUNCH_DEAD;
		/*
		 * RELAXED: as below. It is set again, because a launch that was under way has
		 * cleared it.
		 */
		__atomic_store_n(&k->quit, 1, __ATOMIC_RELAXED);
	}
	if (d->l.state == DF_LAUNCH_RUNNING || d->l.state == DF_LAUNCH_LEAVING) {
		ret = exited(device, in.now_ns, &r);
		in.exited = ret > 0;
		if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY)
			give_up(device, "the daemon's kernel ended", r);
	}
	/* progress() reads many words, and the result is not needed while the kernel runs. */
	if (in.exited || d->l.state == DF_LAUNCH_GONE)
		in.progress = progress(x);
	if (ret >= 0)
		switch (df_launch_step(&d->l, &in, &sleep_ns)) {
		case DF_LAUNCH_LAUNCH:
			ret = act_launch(device, k, in.now_ns);
			break;
		case DF_LAUNCH_ASK:
			/*
			 * RELAXED: the request carries no data, and blocks save nothing because of
			 * it.
			 */
			__atomic_store_n(&k->quit, 1, __ATOMIC_RELAXED);
			break;
		case DF_LAUNCH_NOTHING:
			break;
		}
	if (ret < 0)
		gone(device, ret);
	publish(d);
}

static void rest(struct daemon *d, int active, uint32_t seen, uint32_t *idle)
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
	__atomic_store_n(&d->sleeping, 1, __ATOMIC_SEQ_CST);
	df_futex_wait(&d->work_seq, seen, IDLE_WAIT_NS, 0);
	__atomic_store_n(&d->sleeping, 0, __ATOMIC_RELAXED);
}

static void *poller(void *arg)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct daemon *d = arg;
	int device = (int)(d - daemons), active, moved, held;
	struct df_exec *x = execs->v[device];
	CUcontext ctx = df_cuda_ctx(device);
	uint32_t idle = 0, seen;

	df_drv.capture_mode(&mode);
	/* With the context current, df_cuda_enter() uses it or reports why that fails. */
	if (ctx)
		df_drv.ctx_set(ctx);
	/* Otherwise each sleep of this thread would last up to 50 us longer. */
	prctl(PR_SET_TIMERSLACK, 1ul, 0, 0, 0);
	for (;;) {
		/*
		 * SEQ_CST pairs with df_cuda_daemon_wake(): work that is submitted after this load
		 * changes the word, so no wake-up is missed.
		 */
		seen = __atomic_load_n(&d->work_seq, __ATOMIC_SEQ_CST);
		moved = execs->hooks->chores(device);
		look(device, x);
		active = outstanding(x) || d->l.state == DF_LAUNCH_LEAVING ||
			 d->l.state == DF_LAUNCH_RUNNING || df_cuda_graph_poll(&held) > 0;
		/* SEQ_CST pairs with df_cuda_daemon_stop(): earlier requests have been seen. */
		__atomic_add_fetch(&d->rounds, 1, __ATOMIC_SEQ_CST);
		if (moved)
			idle = 0;
		else
			rest(d, active, seen, &idle);
	}
	return NULL;
}

int df_cuda_daemon_start(const struct df_execs *all)
{
	int i, ret = 0;

	pthread_mutex_lock(&start_lock);
	/* RELAXED: other threads only check that there are pollers. */
	__atomic_store_n(&execs, all, __ATOMIC_RELAXED);
	for (i = 0; i < all->nr && !ret; i++) {
		if (!__atomic_load_n(&all->v[i]->used, __ATOMIC_RELAXED) || daemons[i].polled)
			continue;
		ret = df_thread_start("dfshim-poller", 0, poller, &daemons[i]);
		daemons[i].polled = !ret;
	}
	pthread_mutex_unlock(&start_lock);
	return ret ? -ENOMEM : 0;
}

int df_cuda_daemon_started(void)
{
	return __atomic_load_n(&execs, __ATOMIC_RELAXED) != NULL;
}

static void wake(struct daemon *d, int needed)
{
	/* SEQ_CST pairs with rest(), which says why. */
	__atomic_add_fetch(&d->work_seq, 1, __ATOMIC_SEQ_CST);
	if (needed && __atomic_load_n(&d->sleeping, __ATOMIC_SEQ_CST))
		df_futex_wake(&d->work_seq, 1, 0);
}

void df_cuda_daemon_wake(void)
{
	const struct df_execs *all = __atomic_load_n(&execs, __ATOMIC_RELAXED);
	int i;

	/* A poller without work is left asleep, because waking all of them takes long. */
	for (i = 0; all && i < all->nr; i++)
		if (__atomic_load_n(&all->v[i]->used, __ATOMIC_RELAXED))
			wake(&daemons[i], outstanding(all->v[i]));
}

uint64_t df_cuda_daemon_launches(void)
{
	return __atomic_load_n(&launches, __ATOMIC_RELAXED);
}

void df_cuda_daemon_frugal(void)
{
	const struct df_execs *all = __atomic_load_n(&execs, __ATOMIC_RELAXED);

	if (all)
		all->hooks->frugal();
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

/*
 * Returns how long the kernel may take to leave. It may have to wait for a long kernel of the
 * application.
 */
static uint64_t stop_bound(void)
{
	return DF_MAX((uint64_t)df_env()->timeout_ms * DF_NS_PER_MS, STOP_NS);
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

int df_cuda_daemon_stay(int device)
{
	const struct df_execs *all = __atomic_load_n(&execs, __ATOMIC_RELAXED);
	struct daemon *d = &daemons[device];
	uint64_t until = df_now_ns() + STAY_NS;

	/* Nothing is launched on this device. */
	if (!all || device >= all->nr || !__atomic_load_n(&all->v[device]->used, __ATOMIC_RELAXED))
		return 1;
	/* SEQ_CST pairs with stays() and publish(). */
	__atomic_store_n(&d->stay, 1, __ATOMIC_SEQ_CST);
	wake(d, 1);
	while (!__atomic_load_n(&d->stays, __ATOMIC_SEQ_CST)) {
		if (df_now_ns() > until)
			return 0;
		pause_ns(5000);
	}
	return 1;
}

/*
 * Called when the device's kernel did not leave in time: nothing more is executed on this
 * device.
 */
static int lose(int device)
{
	struct daemon *d = &daemons[device];

	if (__atomic_exchange_n(&d->lost, 1, __ATOMIC_RELAXED))
		return 2;
	/* RELAXED: a block that begins later leaves after its first turn. */
	__atomic_store_n(&execs->v[device]->d.quit, 1, __ATOMIC_RELAXED);
	df_log(DF_LOG_WARN,
	       "GPU %d: the daemon's kernel has not left after %ld s, as a communicator's end "
	       "needs: the GPU or the driver does not answer, or a kernel of the application does "
	       "not end. Nothing more runs there",
	       device, (long)(stop_bound() / DF_NS_PER_S));
	execs->hooks->failed(device);
	return 2;
}

int df_cuda_daemon_stop(int device)
{
	struct daemon *d = &daemons[device];
	uint64_t from, until = df_now_ns() + stop_bound();

	/*
	 * SEQ_CST pairs with look() and the count of rounds: a round that begins after this sees
	 * the request.
	 */
	__atomic_add_fetch(&d->stops, 1, __ATOMIC_SEQ_CST);
	from = __atomic_load_n(&d->rounds, __ATOMIC_SEQ_CST);
	/*
	 * SEQ_CST pairs with poller(). A round that had begun may still launch; the next one sees
	 * our request. A block reads it every few turns, none of which waits. If the device is
	 * lost, the state shows it.
	 */
	while (__atomic_load_n(&d->rounds, __ATOMIC_SEQ_CST) < from + 2 || on_device(device)) {
		if (__atomic_load_n(&d->lost, __ATOMIC_RELAXED) || df_now_ns() > until)
			return lose(device);
		wake(d, 1);
		pause_ns(5000);
	}
	if (__atomic_load_n(&d->lost, __ATOMIC_RELAXED))
		return 2;
	return __atomic_load_n(&d->state, __ATOMIC_RELAXED) == DF_LAUNCH_DEAD;
}

void df_cuda_daemon_resume(int device)
{
	/* SEQ_CST pairs with look(): the host's changes of the queues precede the next launch. */
	__atomic_sub_fetch(&daemons[device].stops, 1, __ATOMIC_SEQ_CST);
	wake(&daemons[device], 1);
}
#endif
