/*
 * Decides the mode of this process (prevent, trace, off). If dfshim cannot start, NCCL executes the
 * job with one warning, and it is recorded and watched as in mode trace. With DFSHIM_STRICT=1 the
 * job fails instead. So a job never runs worse than without dfshim, and never unwatched.
 *
 * With the CUDA runtime on the CPU, plain NCCL cannot be used: it would pass CPU memory to a GPU.
 * There, mode trace means that our runtime executes and records, and mode off is refused. If the
 * NCCL below us can use that memory (libdfnccl.so, df_real_on_cpu()), the modes are as usual.
 *
 * Any thread. The first one decides, and holds no lock meanwhile, because df_start() calls the
 * driver. The others wait for it (df_once), so df_start() must not call NCCL.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_coll.h"
#include "interpose/real/real_lanes.h"
#include "interpose/real/real.h"
#include "interpose/real/traced.h"
#include "runtime/base/ascii.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/once.h"
#include "runtime/dfshim.h"

static struct df_once decided;
static enum df_front front;
static char reason[640];
static pid_t trace_pid; /* id of the process that records what NCCL executes; atomic */

static enum df_front refuse(const char *why)
{
	snprintf(reason, sizeof(reason), "%s", why);
	return DF_FRONT_REFUSE;
}

int df_front_unload(void)
{
	/*
	 * ACQUIRE pairs with the RELEASE in record(): df_record_stop() sees what df_record_start()
	 * has made.
	 */
	pid_t pid = __atomic_load_n(&trace_pid, __ATOMIC_ACQUIRE);

	/* A forked child shares the parent's file, and must not close it. */
	if (!pid || pid != getpid())
		return 0;
	df_record_stop();
	return 1;
}

static void record(void)
{
	/* RELEASE pairs with the ACQUIRE in df_front_unload(), which says why. */
	if (!df_record_start(df_traced_nccl()))
		__atomic_store_n(&trace_pid, getpid(), __ATOMIC_RELEASE);
}

static enum df_front decide(void)
{
	const struct df_env *env;
	int host = df_on_hostcuda();
	enum df_front now;
	int err;

	if (host)
		df_env_quiet(); /* libdfhost.so prints the warning */
	env = df_env();

	if (env->mode == DF_MODE_OFF)
		return host ? refuse("DFSHIM_MODE=off under libdfhost.so: NCCL cannot use memory "
				     "of the CUDA runtime on the CPU")
			    : DF_FRONT_PLAIN;
	if (env->mode == DF_MODE_TRACE && (!host || df_real_on_cpu())) {
		record();
		return DF_FRONT_TRACE;
	}
	df_lanes_set(df_real_lanes);
	err = df_start();
	if (!err && (!env->strict || !env->nr_errors))
		return DF_FRONT_OWN;
	snprintf(reason, sizeof(reason), "dfshim cannot start: %s",
		 err ? df_start_reason()
		     : "a variable of the environment has a value that cannot be used");
	if (host || env->strict)
		return DF_FRONT_REFUSE;
	df_warn("%s; NCCL executes the job, which is recorded and watched as with "
		"DFSHIM_MODE=trace",
		reason);
	now = df_start_unable() ? DF_FRONT_TRACE : DF_FRONT_UNABLE;
	/* After df_start_unable(), which gives up the devices that recording needs. */
	record();
	return now;
}

const char *df_front_bound(void)
{
	const struct df_nccl_real *real;

	if (df_on_hostcuda())
		return "NCCL cannot use memory of the CPU";
	if (df_env()->strict)
		return "DFSHIM_STRICT=1";
	if (df_env()->handover == DF_HANDOVER_OFF)
		return "DFSHIM_HANDOVER=off";
	real = df_real();
	return real->ncclGetUniqueId && real->ncclCommInitRankConfig ? NULL : "no libnccl.so.2";
}

const char *df_front_absent(void)
{
	switch (df_front_now()) {
	case DF_FRONT_TRACE:
		return df_env()->mode == DF_MODE_TRACE ? "it runs with DFSHIM_MODE=trace"
						       : df_start_reason();
	case DF_FRONT_PLAIN:
		return "it runs with DFSHIM_MODE=off";
	case DF_FRONT_REFUSE:
		return *df_start_reason() ? df_start_reason() : reason;
	default:
		return NULL;
	}
}

enum df_front df_front_now(void)
{
	/*
	 * ACQUIRE pairs with the RELEASE in df_front(): without it unfinished results of df_start()
	 * could be visible.
	 */
	return __atomic_load_n(&front, __ATOMIC_ACQUIRE);
}

enum df_front df_front(void)
{
	if (df_once_begin(&decided, "The start of dfshim")) {
		/* RELEASE pairs with the ACQUIRE in df_front_now(), which does not use df_once. */
		__atomic_store_n(&front, decide(), __ATOMIC_RELEASE);
		df_once_end(&decided);
	}
	return front;
}

ncclResult_t df_front_refused(const char *what)
{
	DF_NCCL_WARN("%s : %s", what, reason);
	return ncclSystemError;
}

void df_front_show_version(int rank)
{
	static int shown;
	const char *debug = df_env()->nccl_debug;
	int v, len, plain;
	char line[80];

	if (!debug || __atomic_load_n(&shown, __ATOMIC_RELAXED))
		return;
	plain = !df_strcasecmp(debug, "VERSION") || !df_strcasecmp(debug, "WARN");
	if (plain ? rank != 0 : !df_nccl_info_enabled(~0u))
		return;
	if (__atomic_exchange_n(&shown, 1, __ATOMIC_RELAXED))
		return;
	v = df_real_version();
	len = snprintf(line, sizeof(line), "NCCL version %d.%d.%d+dfshim\n", v / 10000,
		       v / 100 % 100, v % 100);
	if (plain)
		df_log_raw(line, (size_t)len);
	else
		df_nccl_info(~0u, "%.*s", len - 1, line);
}

/* In the child of a fork the runtime's threads do not exist, and CUDA cannot be used either. */
void df_front_forked(void)
{
	/* The thread that was starting the runtime does not exist in this process. */
	int begun = decided.state == DF_ONCE_BEGUN;

	if (begun)
		decided.state = DF_ONCE_DONE;
	if (begun || front == DF_FRONT_OWN)
		front = refuse("this process was forked from one in which dfshim had started; CUDA "
			       "and NCCL cannot be used in it (fork before the first CUDA call, or "
			       "use spawn)");
}
