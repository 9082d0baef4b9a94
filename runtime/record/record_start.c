/*
 * Starts recording (mode trace): opens the trace, installs the hooks in the CUDA backend if there
 * is one, and starts the watching thread. Runs once, at the start of the process.
 */
#include "runtime/backend.h"
#include "runtime/blocks.h"
#include "runtime/base/connections.h"
#include "runtime/base/env.h"
#include "runtime/base/launcher.h"
#include "runtime/base/log.h"
#include "runtime/base/net/sockaddr.h"
#include "runtime/dfshim.h"
#include "runtime/record/record.h"
#include "trace/record/writer.h"

int df_record_start(const struct df_record_nccl *nccl)
{
	const struct df_env *env = df_env();
	int world;
	struct df_trace_config config = {
		.dir = env->trace,
		.mb = env->trace_mb,
		.rank = df_launcher_rank(&world),
		.host = df_addr_host_hash(),
		.mode = DF_MODE_TRACE, /* NCCL executes, whatever DFSHIM_MODE is */
	};
	char reason[256] = "DFSHIM_TRACE_CUDA=0";
	int ret, cuda = env->trace_cuda && !df_device_open_any(reason, sizeof(reason));

	config.world = world;
	/*
	 * It is known how streams share hardware queues if there is only one queue, and with the
	 * CPU backend.
	 */
	if (cuda && nccl->slot_waits)
		config.queues = (uint32_t)env->host_queues;
	else if (df_connections() == 1)
		config.queues = 1;
	if (cuda && df_backend->device_count())
		config.sms = (uint32_t)df_blocks->ctas(0);
	ret = df_trace_open(&config);
	if (ret) {
		df_warn("cannot write the trace to DFSHIM_TRACE=%s: the job runs without a trace",
			env->trace ? env->trace : "");
		return ret;
	}
	if (!cuda) {
		df_info("mode trace: calls of CUDA and ends of operations are not recorded: %s",
			reason);
	} else {
		df_record_behind(df_backend, (int)config.queues);
	}
	return df_record_watch_start(nccl);
}
