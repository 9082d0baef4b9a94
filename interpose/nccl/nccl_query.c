/*
 * Queries about the library, a communicator, and the last error.
 *
 * Threads: any; ncclCommGetAsyncError may run during another call on the same communicator.
 */
#include "interpose/nccl/nccl_coll.h"
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_handle.h"
#include "interpose/nccl/nccl_api.h"
#include "interpose/real/real.h"
#include "interpose/real/traced.h"
#include "runtime/base/log.h"

ncclResult_t ncclGetVersion(int *version)
{
	if (!version)
		return ncclInvalidArgument;
	*version = df_real_version();
	return ncclSuccess;
}
DF_NCCL_EXPORT(ncclGetVersion);

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
	struct df_handle *h;
	ncclResult_t res;

	if (DF_FOREIGN(comm)) {
		res = DF_REAL(ncclCommGetAsyncError, comm, asyncError);
		if (res == ncclSuccess && asyncError)
			*asyncError = df_traced_settled(comm, *asyncError);
		return res;
	}
	res = df_comm_check(comm, "ncclGetAsyncError", "comm");
	if (res == ncclSuccess)
		res = df_ptr_check(asyncError, "ncclGetAsyncError", "asyncError");
	if (res != ncclSuccess)
		return res;
	h = (struct df_handle *)comm;
	*asyncError = df_handle_async(h);
	/*
	 * A thread that polls and gets ncclInProgress waits for the job. A thread that gets another
	 * result only checks for errors.
	 */
	df_call_polled(*asyncError == ncclInProgress ? __atomic_load_n(&h->call, __ATOMIC_RELAXED)
						     : 0);
	return res;
}
DF_NCCL_EXPORT(ncclCommGetAsyncError);

static ncclResult_t ask(const void *comm, const char *op, const int *out, const char *arg)
{
	ncclResult_t res = df_comm_check(comm, op, "comm");

	if (res == ncclSuccess)
		res = df_ptr_check(out, op, arg);
	return res == ncclSuccess ? df_handle_ready((struct df_handle *)comm) : res;
}

/* Defines a query that returns a number which is fixed when the communicator is created. */
#define ASK(fn, op, out, arg, value)                                                               \
	ncclResult_t fn(ncclComm_t comm, int *out)                                                 \
	{                                                                                          \
		ncclResult_t res;                                                                  \
		if (DF_FOREIGN(comm))                                                              \
			return DF_REAL(fn, comm, out);                                             \
		res = ask(comm, op, out, arg);                                                     \
		if (res == ncclSuccess)                                                            \
			*out = ((struct df_handle *)comm)->value;                                  \
		return res;                                                                        \
	}                                                                                          \
	DF_NCCL_EXPORT(fn);
ASK(ncclCommCount, "CommCount", count, "count", nranks)
ASK(ncclCommCuDevice, "CommCuDevice", device, "device", device)
ASK(ncclCommUserRank, "CommUserRank", rank, "rank", rank)

const char *ncclGetErrorString(ncclResult_t result)
{
	switch ((int)result) {
	case ncclSuccess:
		return "no error";
	case ncclUnhandledCudaError:
		return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
	case ncclSystemError:
		return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
	case ncclInternalError:
		return "internal error - please report this issue to the NCCL developers";
	case ncclInvalidArgument:
		return "invalid argument (run with NCCL_DEBUG=WARN for details)";
	case ncclInvalidUsage:
		return "invalid usage (run with NCCL_DEBUG=WARN for details)";
	case ncclRemoteError:
		return "remote process exited or there was a network error";
	case ncclInProgress:
		return "NCCL operation in progress";
	default:
		return "unknown result code";
	}
}
DF_NCCL_EXPORT(ncclGetErrorString);

const char *ncclGetLastError(ncclComm_t comm)
{
	/* This library's own messages have precedence, for example a failure to load NCCL. */
	const char *text = df_nccl_last_error();

	if (!*text && df_real_makes(df_front_now()) && df_real()->ncclGetLastError)
		return df_real()->ncclGetLastError(comm);
	return text;
}
DF_NCCL_EXPORT(ncclGetLastError);

void ncclResetDebugInit(void)
{
	df_log_reset();
	if (df_real_makes(df_front_now()) && df_real()->ncclResetDebugInit)
		df_real()->ncclResetDebugInit();
}
DF_NCCL_EXPORT(ncclResetDebugInit);

void ncclResetDebugInitInternal(void)
{
	df_log_reset();
	if (df_real_makes(df_front_now()) && df_real()->ncclResetDebugInitInternal)
		df_real()->ncclResetDebugInitInternal();
}
DF_NCCL_EXPORT(ncclResetDebugInitInternal);
