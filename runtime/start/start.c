/*
 * Starts and ends the runtime in a process: chooses the backend, counts devices, reads settings,
 * and connects the modules that learn of one another's events. Started once, at the first NCCL call
 * that needs it. Threads are started when the first communicator is joined.
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/launcher.h"
#include "runtime/base/err.h"
#include "runtime/base/exit_status.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/net/sockaddr.h"
#include "runtime/base/once.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/comm/stats.h"
#include "runtime/ctl/ctl.h"
#include "runtime/devs.h"
#include "runtime/executor.h"
#include "runtime/dfshim.h"
#include "runtime/order/stream.h"
#include "runtime/transport/transport.h"
#include "runtime/watch/death.h"
#include "runtime/watch/debt.h"
#include "runtime/watch/metrics.h"
#include "runtime/watch/release.h"
#include "runtime/watch/snapshot.h"
#include "runtime/watch/watchdog.h"
#include "trace/record/writer.h"

static struct df_once start_once;
static struct df_mutex unable_lock = DF_MUTEX_INIT(DF_RANK_PROCESS, "start without a daemon");

static void message(uint64_t from, uint32_t kind, const void *data, size_t bytes)
{
	if (kind == DF_MSG_EXECUTOR)
		df_executor->heard(data, bytes);
	else
		df_snapshot_message(from, kind, data, bytes);
}

static const struct df_ctl_events ctl_events = {message, df_death, df_comm_lost};

/*
 * Whether the runtime runs in this process: a forked child has none of our threads, and locks may
 * be held by threads that it lacks.
 */
static int is_running(void)
{
	/*
	 * ACQUIRE pairs with the RELEASE in df_start(): exit() may be called by a thread that has
	 * never called df_start().
	 */
	return __atomic_load_n(&df_rt.started, __ATOMIC_ACQUIRE) == 1 &&
	       df_rt.self.pid == (uint32_t)getpid();
}

/*
 * The program takes operations that a released wait has skipped for finished, so the exit waits for
 * them. If some never finish, the process exits with an error, whatever status the program chose.
 * Waits for at most half of the time-out: it runs for the other processes too, and they must see
 * that this one has exited.
 */
static void settle(void)
{
	uint64_t start = df_now_ns(), bound = (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS / 2;
	int said = 0;

	while (df_debt_count() && !df_debt_broken() && df_now_ns() - start < bound) {
		if (!said && df_now_ns() - start > DF_NS_PER_S) {
			df_warn("the exit of this process waits: %u operations that a released "
				"wait has left behind are unfinished",
				df_debt_count());
			said = 1;
		}
		df_sleep_ns(DF_NS_PER_MS / 4);
	}
	if (!df_debt_count() && !df_debt_broken())
		return;
	df_warn("this process ends although operations that a released wait has left behind never "
		"finished: the program takes their results for valid");
	df_exit_status_failed(DF_EXIT_MISSING);
}

/*
 * Waits until everything sent has been received. A process that exits with an error without having
 * destroyed its communicators leaves at once, so that the others notice. Only once: what is not
 * received within the limit is given up.
 */
static void linger(int status)
{
	static int done;

	df_release_log(0);
	if (!status && !__atomic_load_n(&done, __ATOMIC_RELAXED))
		settle();
	df_executor->linger(!status && !__atomic_exchange_n(&done, 1, __ATOMIC_RELAXED));
}

/*
 * exit() has been called. CUDA registered its exit handler first, so it runs after this one, and
 * frees memory that peers may not have read yet.
 */
static void before_exit(int status, void *arg)
{
	(void)arg;
	if (!is_running())
		return;
	linger(status);
	df_tl_end();
}

/*
 * Registered again after another library was loaded, so that it runs before that library's exit
 * handler.
 */
static void before_exit_again(void)
{
	(void)on_exit(before_exit, NULL);
}

static int start(void)
{
	const struct df_env *env = df_env();
	int world;
	struct df_trace_config trace = {
		.dir = env->trace,
		.mb = env->trace_mb,
		.rank = df_launcher_rank(&world),
		.host = df_addr_host_hash(),
		.mode = (uint32_t)env->mode,
	};
	int i, ret;

	trace.world = world;
	if (env->strict && env->nr_errors) {
		snprintf(df_rt.reason, sizeof(df_rt.reason),
			 "%d variable%s a value that cannot be used", env->nr_errors,
			 env->nr_errors == 1 ? " has" : "s have");
		return -EINVAL;
	}
	if (env->ports && df_ports_parse(env->ports, &i, &ret)) {
		df_warn("DFSHIM_PORTS=%s cannot be used: allowed is FIRST-LAST, of 1 to 65535",
			env->ports);
		if (env->strict) {
			snprintf(df_rt.reason, sizeof(df_rt.reason), "DFSHIM_PORTS cannot be used");
			return -EINVAL;
		}
	}
	ret = df_device_open(df_rt.reason, sizeof(df_rt.reason));
	if (ret)
		return ret;
	/* If this fails, at_exit() waits for what lingers. */
	(void)on_exit(before_exit, NULL);
	df_tl_on_library(before_exit_again);
	df_rt.strict = env->stream_order == DF_STREAM_STRICT;
	df_rt.nr_devs = df_backend->device_count();
	df_rt.devs = df_kalloc((size_t)DF_MAX(df_rt.nr_devs, 1) * sizeof(*df_rt.devs));
	if (!df_rt.devs)
		return -ENOMEM;
	for (i = 0; i < df_rt.nr_devs; i++)
		df_dev_begin(&df_rt.devs[i], i);
	trace.executor = df_executor_choose(df_device_lanes());
	ret = df_executor->setup();
	if (ret)
		return ret;
	if (df_rt.nr_devs)
		trace.sms = (uint32_t)df_blocks->ctas(0);
	ret = df_trace_open(&trace);
	if (ret)
		df_warn("cannot write traces to DFSHIM_TRACE=%s (%s): nothing is recorded",
			env->trace ? env->trace : "", strerror(-ret));
	ret = df_ctl_self(&df_rt.self);
	if (ret) {
		snprintf(df_rt.reason, sizeof(df_rt.reason), "control plane: %s", strerror(-ret));
		return ret;
	}
	for (i = 0; i < df_rt.nr_devs; i++)
		df_rt.devs[i].exec.d.self = df_rt.self.proc + (uint64_t)i;
	df_ctl_set_events(&ctl_events);
	df_net_on_event(df_death_net_event);
	df_shm_on_no_file(df_death_no_file);
	df_backend->set_hooks(&df_stream_hooks);
	df_comm_on_join(df_watchdog_start);
	return 0;
}

int df_start(void)
{
	int ret;

	if (df_once_begin(&start_once, "The start of the runtime")) {
		ret = start();
		/* RELEASE pairs with the ACQUIRE in is_running(), which does not use df_once. */
		__atomic_store_n(&df_rt.started, ret ? ret : 1, __ATOMIC_RELEASE);
		df_once_end(&start_once);
	}
	ret = df_rt.started;
	return ret > 0 ? 0 : ret;
}

int df_start_unable(void)
{
	int ret = 0;

	df_mutex_lock(&unable_lock);
	if (df_rt.started >= 0)
		ret = -EINVAL;
	if (!ret && !df_rt.unable) {
		struct df_member self;
		struct df_dev *dev;

		/*
		 * The backend stays open. A communicator needs a device, even one that executes
		 * nothing.
		 */
		df_device_none();
		/*
		 * The control plane first: if it failed later, the device could not be given back.
		 */
		ret = df_ctl_self(&self);
		dev = ret ? NULL : df_kalloc(sizeof(*dev));
		if (!ret)
			ret = dev ? 0 : -ENOMEM;
		if (!ret) {
			df_dev_begin(dev, 0);
			df_rt.devs = dev;
			df_rt.nr_devs = 1;
			/* RELEASE pairs with the ACQUIRE in is_unable(): the device is set. */
			__atomic_store_n(&df_rt.unable, 1, __ATOMIC_RELEASE);
		}
	}
	df_mutex_unlock(&unable_lock);
	return ret;
}

static int is_unable(void)
{
	/* ACQUIRE pairs with the RELEASE in df_start_unable(). */
	return __atomic_load_n(&df_rt.unable, __ATOMIC_ACQUIRE);
}

const char *df_start_reason(void)
{
	return df_rt.reason;
}

void df_stop(void)
{
	static int stopped;
	void *words;
	size_t bytes;

	if (is_unable() && !__atomic_exchange_n(&stopped, 1, __ATOMIC_RELAXED))
		df_ctl_goodbye(NULL, 0, UINT64_MAX);
	if (!is_running() || __atomic_exchange_n(&stopped, 1, __ATOMIC_RELAXED))
		return;
	/* after _exit(), before_exit() has not run */
	linger(df_exit_status());
	df_stats_write();
	df_metrics_stop();
	words = df_snapshot_words(&bytes);
	df_trace_close();
	df_net_goodbye();
	df_ctl_goodbye(words, bytes, UINT64_MAX);
	free(words);
}

void df_stop_at_exit(void)
{
	if (is_running())
		df_watchdog_stop();
}

/* Frees nothing, because threads of the application may still run. */
__attribute__((destructor)) static void at_exit(void)
{
	int mine = is_running();

	df_stop();
	if (mine)
		df_exit_status_enforce();
}

int df_on_host(void)
{
	return !df_blocks->gpu;
}

int df_on_lanes(void)
{
	return df_device_lanes();
}

int df_device_get(void)
{
	return is_unable() ? 0 : df_backend->get_device();
}

int df_device_set(int device)
{
	return is_unable() ? 0 : df_backend->set_device(device);
}

int df_device_count(void)
{
	return df_rt.nr_devs;
}
