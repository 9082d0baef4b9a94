/* The process's state, and the blocking calls of its threads. */
#include "kernels/abi.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/polls.h"
#include "runtime/comm/process.h"
#include "runtime/devs.h"
#include "runtime/dfshim.h"
#include "trace/record/writer.h"

struct df_rt df_rt = {.lock = DF_MUTEX_INIT(DF_RANK_COMM_TABLE, "communicators"),
		      .comms = DF_LIST_INIT(df_rt.comms)};

/* ---- blocking calls -------------------------------------------------------------------------- */

static __thread uint32_t call_site;
static __thread uint64_t *call_serial;

void df_call_about(uint32_t site, uint64_t *serial)
{
	call_site = site;
	call_serial = serial;
}

static uint64_t new_call(void)
{
	uint64_t serial = df_trace_serial();

	df_polls_act();
	__atomic_add_fetch(&df_rt.blocked, 1, __ATOMIC_RELAXED);
	if (call_serial)
		__atomic_store_n(call_serial, serial, __ATOMIC_RELAXED);
	return serial;
}

uint64_t df_call_enter(uint32_t call, int device, uint64_t object, uint64_t detail, uint32_t site)
{
	uint64_t serial = new_call();

	df_trace(DF_REC_CALL_ENTER, device, 0, -1, serial, call, object, detail,
		 site ? site : call_site);
	return serial;
}

uint64_t df_call_enter_comm(uint32_t call, const struct df_comm *comm, uint64_t detail,
			    uint32_t site)
{
	uint64_t serial = new_call();

	df_trace(DF_REC_CALL_ENTER, comm->dev->index, comm->trace, comm->rank, serial, call,
		 comm->hash, detail, site ? site : call_site);
	return serial;
}

void df_call_exit(uint64_t serial, uint32_t call, int device, uint64_t result)
{
	df_trace(DF_REC_CALL_EXIT, device, 0, -1, serial, call, result, 0, 0);
	__atomic_sub_fetch(&df_rt.blocked, 1, __ATOMIC_RELAXED);
}
