/* Chooses the executor of this process. */
#include "runtime/base/env.h"
#include "runtime/daemon/engine.h"
#include "runtime/exec/nccl/lane.h"
#include "runtime/executor.h"
#include "trace/record/format.h"

const struct df_executor *df_executor = &df_daemon_executor;

unsigned df_executor_choose(int by_lanes)
{
	if (!by_lanes)
		return DF_BY_DAEMON;
	df_executor = &df_lane_executor;
	return df_env()->nccl_order == DF_NCCL_ORDER_AGREE ? DF_BY_AGREED_LANES : DF_BY_LANES;
}
