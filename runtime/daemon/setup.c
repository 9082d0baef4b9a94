/*
 * The daemon's start in a process: its settings, the user's programs, and the blocks of each
 * device.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "runtime/backend.h"
#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/coll/far.h"
#include "runtime/comm/process.h"
#include "runtime/coll/dev.h"
#include "runtime/daemon/engine.h"
#include "runtime/daemon/sched.h"
#include "runtime/daemon/setup.h"
#include "runtime/program/build/cost.h"
#include "runtime/program/build/tuner.h"
#include "runtime/program/file/algofile.h"
#include "runtime/program/plan.h"
#include "runtime/program/program_names.h"

static int cores(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return DF_MAX(CPU_COUNT(&set), 1);
}

static void algo_refused(void *arg, const struct df_perr *err)
{
	char text[512];

	(void)arg;
	df_warn("DFSHIM_ALGO: %s; the built-in program is used",
		df_perr_str(err, text, sizeof(text)));
}

/*
 * Reads NCCL_ALGO or NCCL_PROTO. Returns -EINVAL if the value cannot be used and the settings are
 * strict.
 */
static int nccl_variable(const struct df_env *env, enum df_nccl_var var, enum df_env_row row,
			 const char *value)
{
	char bad[64], ignored[128];

	if (!value || !*value)
		return 0;
	if (df_tuner_env(df_rt.tuner, var, value, bad, ignored, sizeof(bad))) {
		df_warn("%s=%s: \"%s\" is not known; allowed are %s", df_env_name(row), value, bad,
			df_tuner_env_allowed(var));
		if (!env->strict)
			return 0;
		snprintf(df_rt.reason, sizeof(df_rt.reason), "%s cannot be used", df_env_name(row));
		return -EINVAL;
	}
	if (*ignored)
		df_info("%s=%s: nothing here for %s", df_env_name(row), value, ignored);
	return 0;
}

/* Reads DFSHIM_NET_SPEED, which overrides the tuner file's values for other nodes. */
static int net_speed(const struct df_env *env)
{
	struct df_cost *c = &df_rt.tuner->cost;
	int ret = df_far_parse(env->net_speed, c);

	if (ret < 0) {
		df_warn("DFSHIM_NET_SPEED=%s cannot be used: allowed are auto, default, and "
			"LATENCY:BANDWIDTH or LATENCY:BANDWIDTH:MESSAGE in us and MB/s, e.g. "
			"20:1000",
			env->net_speed);
		if (env->strict) {
			snprintf(df_rt.reason, sizeof(df_rt.reason),
				 "DFSHIM_NET_SPEED cannot be used");
			return ret;
		}
	}
	df_rt.measures_far = ret && !df_rt.tuner->has_cost;
	df_rt.settings = df_hash_u64(df_rt.settings, (uint64_t)df_rt.measures_far);
	df_rt.settings = df_hash_bytes(&c->far_ns, sizeof(c->far_ns), df_rt.settings);
	df_rt.settings = df_hash_bytes(&c->far_inst_ns, sizeof(c->far_inst_ns), df_rt.settings);
	df_rt.settings = df_hash_bytes(&c->far_byte_ns, sizeof(c->far_byte_ns), df_rt.settings);
	return 0;
}

static uint32_t setting(long value, uint32_t otherwise)
{
	return value != DF_AUTO ? (uint32_t)value : otherwise;
}

/*
 * Reads the user's programs and choices. The outcome must be equal on all ranks, so it is hashed
 * into df_rt.settings.
 */
static int algorithms(const struct df_env *env)
{
	struct df_perr err = {0};
	char text[512], *file;
	size_t bytes;
	int ret;

	df_rt.settings = df_hash_u64(df_rt.slots, df_rt.slot_bytes);
	df_rt.settings = df_hash_u64(df_rt.settings, df_rt.far_slots);
	df_rt.settings = df_hash_u64(df_rt.settings, df_rt.far_slot_bytes);
	if (env->host_node_devices != DF_AUTO)
		df_rt.settings = df_hash_u64(df_rt.settings, (uint64_t)env->host_node_devices);
	if (env->algo && df_algo_table_load(env->algo, algo_refused, NULL, &df_rt.algos) == 0)
		df_rt.settings = df_hash_u64(df_rt.settings, df_rt.algos->hash);
	if (env->tuner) {
		file = df_algo_slurp(env->tuner, &bytes, &err);
		if (!file || df_tuner_parse(file, bytes, &df_rt.tuner, &err)) {
			df_warn("DFSHIM_TUNER=%s: %s; the file is not used", env->tuner,
				df_perr_str(&err, text, sizeof(text)));
			df_rt.tuner = NULL;
		}
		free(file);
	}
	if (!df_rt.tuner &&
	    df_tuner_create(df_blocks->gpu ? &df_cost_gpu : &df_cost_host, &df_rt.tuner))
		return -ENOMEM;
	ret = nccl_variable(env, DF_NCCL_ALGO, DF_ENV_ROW_nccl_algo, env->nccl_algo);
	if (!ret)
		ret = nccl_variable(env, DF_NCCL_PROTO, DF_ENV_ROW_nccl_proto, env->nccl_proto);
	df_rt.settings = df_hash_u64(df_rt.settings, df_rt.tuner->hash);
	return ret ? ret : net_speed(env);
}

/*
 * A sixteenth of the machine's memory is more than most jobs need, and leaves room for eight ranks.
 * GPU memory holds most connectors where there is some; programs use nearly all of it, so a
 * thirty-second of it.
 */
static uint64_t auto_conn_budget(void)
{
	uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 16;
	uint64_t gpu;
	int i;

	for (i = 0; df_blocks->far_bytes && i < df_backend->device_count(); i++) {
		gpu = df_blocks->far_bytes(i) / 32;
		most = gpu ? DF_MIN(most, gpu) : most;
	}
	return most;
}

/* The blocks of every device. */
static int devices(const struct df_env *env)
{
	uint32_t blocks = env->blocks != DF_AUTO ? (uint32_t)env->blocks : df_blocks->blocks();
	int i, ret;

	df_rt.execs.v = calloc((size_t)DF_MAX(df_rt.nr_devs, 1), sizeof(struct df_exec *));
	if (!df_rt.execs.v)
		return -ENOMEM;
	df_rt.execs.nr = df_rt.nr_devs;
	df_rt.execs.hooks = &df_engine_hooks;
	for (i = 0; i < df_rt.nr_devs; i++) {
		df_rt.execs.v[i] = &df_rt.devs[i].exec;
		ret = df_dev_init(&df_rt.devs[i], blocks);
		if (ret) {
			snprintf(df_rt.reason, sizeof(df_rt.reason), "no memory for the daemon");
			return ret;
		}
		df_policy_init(&df_rt.devs[i].exec.d.policy, env, df_blocks->gpu);
	}
	return 0;
}

int df_engine_setup(void)
{
	const struct df_env *env = df_env();
	int ret = df_blocks->able(df_rt.reason, sizeof(df_rt.reason));

	if (ret)
		return ret;
	df_rt.execs.nr_cores = cores();
	/*
	 * A slot holds a slice. A GPU needs some microseconds for a slice of any size, and so does
	 * a network.
	 */
	df_rt.slots = setting(env->slots, 4);
	df_rt.slot_bytes = setting(env->slot_kb, df_blocks->gpu ? 512 : 128) * 1024;
	df_rt.far_slots = setting(env->slots, df_blocks->gpu ? 4 : 2);
	df_rt.far_slot_bytes = setting(env->slot_kb, 512) * 1024;
	df_rt.conn_budget = env->connector_mb == DF_AUTO ? auto_conn_budget()
							 : (uint64_t)env->connector_mb << 20;
	ret = algorithms(env);
	return ret ? ret : devices(env);
}
