/*
 * Writes the plugin's records into libdfshim.so's trace if that is in the process, else into a
 * trace of its own in DFSHIM_TRACE, like that of DFSHIM_MODE=trace. The trace stays open as long as
 * the process: NCCL unloads the plugin with its last communicator, so the library keeps itself
 * loaded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "interpose/profiler/profiler.h"
#include "interpose/real/profiled.h"
#include "runtime/base/env.h"
#include "runtime/base/launcher.h"
#include "runtime/base/log.h"
#include "runtime/base/net/sockaddr.h"
#include "trace/record/writer.h"

/* Set once, before the first record. */
static const struct df_profiled_ring *shared;
static int is_open;

static int open_own(void)
{
	const struct df_env *env = df_env();
	int world;
	struct df_trace_config config = {
		.dir = env->trace,
		.mb = env->trace_mb,
		.rank = df_launcher_rank(&world),
		.host = df_addr_host_hash(),
		.mode = DF_MODE_TRACE,
	};
	int rc;

	if (!env->trace || !env->trace[0] || env->mode == DF_MODE_OFF)
		return 0;
	config.world = world;
	rc = df_trace_open(&config);
	/* df_trace_open() has already reported a limit on the size of files. */
	if (rc && rc != -EFBIG)
		df_warn("cannot write the trace to DFSHIM_TRACE=%s (%s): NCCL's events are not "
			"recorded",
			env->trace, strerror(-rc));
	return !rc;
}

int df_profiler_ring_open(void)
{
	static int tried;
	df_profiled_ring_fn *get;
	int rc;

	df_mutex_lock(&df_profiler_lock);
	if (!tried) {
		tried = 1;
		get = (df_profiled_ring_fn *)dlsym(RTLD_DEFAULT, DF_PROFILED_RING);
		if (get) {
			/* libdfshim.so reports wrong settings already. */
			df_env_quiet();
			shared = get(DF_PROFILED_VERSION);
		}
		is_open = shared || open_own();
	}
	rc = is_open;
	df_mutex_unlock(&df_profiler_lock);
	return rc;
}

int df_profiler_ring_shared(void)
{
	return shared != NULL;
}

void df_profiler_put(enum df_rec_type type, uint32_t comm, int rank, uint64_t op, uint64_t a,
		     uint64_t b, uint64_t c, uint32_t site)
{
	(shared ? shared->put : df_trace)(type, -1, comm, rank, op, a, b, c, site);
}

uint64_t df_profiler_issuing(uint32_t *comm, int *rank)
{
	*comm = 0;
	return shared ? shared->issuing(comm, rank) : 0;
}

/* Runs when the process exits. */
__attribute__((destructor)) static void close_own(void)
{
	if (!shared)
		df_trace_close();
}
