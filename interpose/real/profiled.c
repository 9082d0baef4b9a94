/*
 * Serves NCCL's profiler plugin, which adds what NCCL reports of itself to this library's trace.
 * Any thread. The operation that a thread passes to NCCL is its own data.
 */
#include "interpose/real/front.h"
#include "interpose/real/profiled.h"
#include "trace/record/writer.h"

static __thread struct {
	uint64_t op;
	uint32_t comm;
	int rank;
} issued __attribute__((tls_model("initial-exec")));

void df_profiled_issue(uint32_t comm, int rank, uint64_t op)
{
	issued.op = op;
	issued.comm = comm;
	issued.rank = rank;
}

static uint64_t issuing(uint32_t *comm, int *rank)
{
	*comm = issued.comm;
	*rank = issued.rank;
	return issued.op;
}

__attribute__((visibility("default"))) const struct df_profiled_ring *
dfshim_profiled_ring(int version)
{
	static const struct df_profiled_ring ring = {.put = df_trace, .issuing = issuing};
	enum df_front front = df_front_now();

	return version == DF_PROFILED_VERSION && front != DF_FRONT_UNDECIDED &&
			       front != DF_FRONT_PLAIN && front != DF_FRONT_REFUSE
		       ? &ring
		       : NULL;
}
