/*
 * Queries of a communicator, and the functions of NCCL that concern neither communicators nor
 * operations: memory, registration, operators of the user, windows, texts. Threads: any.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "interpose/hostnccl/hn_api.h"
#include "kernels/reduce.h"
#include "runtime/base/log.h"

typedef int cudaError_t;
cudaError_t cudaMalloc(void **ptr, size_t bytes) __attribute__((weak));
cudaError_t cudaFree(void *ptr) __attribute__((weak));

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
	struct df_hn_comm *c = (struct df_hn_comm *)comm;

	if (!c || c->magic != DF_NCCL_COMM_MAGIC || !error)
		return ncclInvalidArgument;
	/*
	 * ACQUIRE pairs with the end of a background call: without it a caller that gets success
	 * could miss what the call has made.
	 */
	if (__atomic_load_n(&c->in_progress, __ATOMIC_ACQUIRE) && !DF_HN_GET(&c->error))
		*error = ncclInProgress;
	else
		*error = DF_HN_GET(&c->revoked) ? ncclSuccess : df_hn_error(c);
	return ncclSuccess;
}
DF_HN_NAME(ncclCommGetAsyncError);

#define ASK(name, member)                                                                          \
	ncclResult_t p##name(const ncclComm_t comm, int *out)                                      \
	{                                                                                          \
		const struct df_hn_comm *c = (const struct df_hn_comm *)comm;                      \
                                                                                                   \
		if (!c || c->magic != DF_NCCL_COMM_MAGIC || !out)                                  \
			return ncclInvalidArgument;                                                \
		*out = c->member;                                                                  \
		return ncclSuccess;                                                                \
	}                                                                                          \
	DF_HN_NAME(name)

ASK(ncclCommCount, nranks);
ASK(ncclCommUserRank, rank);
ASK(ncclCommCuDevice, device);

const char *pncclGetErrorString(ncclResult_t result)
{
	static const char *const texts[] = {
		"no error",
		"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
		"unhandled system error (run with NCCL_DEBUG=INFO for details)",
		"internal error - please report this issue to the NCCL developers",
		"invalid argument (run with NCCL_DEBUG=WARN for details)",
		"invalid usage (run with NCCL_DEBUG=WARN for details)",
		"remote process exited or there was a network error",
		"NCCL operation in progress",
	};

	return (size_t)result < sizeof(texts) / sizeof(texts[0]) ? texts[result]
								 : "unknown result code";
}
DF_HN_NAME(ncclGetErrorString);

const char *pncclGetLastError(ncclComm_t comm)
{
	(void)comm;
	return df_nccl_last_error();
}
DF_HN_NAME(ncclGetLastError);

ncclResult_t pncclMemAlloc(void **ptr, size_t size)
{
	return ptr && cudaMalloc && !cudaMalloc(ptr, size) ? ncclSuccess : ncclUnhandledCudaError;
}
DF_HN_NAME(ncclMemAlloc);

ncclResult_t pncclMemFree(void *ptr)
{
	return cudaFree && !cudaFree(ptr) ? ncclSuccess : ncclUnhandledCudaError;
}
DF_HN_NAME(ncclMemFree);

/* Registration has no effect here; a handle is any word that is not NULL. */
ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
	ncclResult_t res = df_hn_check(comm, "CommRegister");

	(void)size;
	if (!res && handle)
		*handle = buff;
	return res;
}
DF_HN_NAME(ncclCommRegister);

ncclResult_t pncclCommDeregister(const ncclComm_t comm, void *handle)
{
	(void)handle;
	return df_hn_check(comm, "CommDeregister");
}
DF_HN_NAME(ncclCommDeregister);

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
				       ncclScalarResidence_t residence, ncclComm_t comm)
{
	struct df_hn_comm *c = (struct df_hn_comm *)comm;
	ncclResult_t res = df_hn_check(c, "RedOpCreatePreMulSum");
	struct df_hn_redop r = {.type = datatype}, *v;

	if (res)
		return res;
	if (!op || !scalar || (unsigned)datatype >= ncclNumTypes)
		return ncclInvalidArgument;
	if (residence == ncclScalarDevice)
		r.at = scalar;
	else
		memcpy(&r.scalar, scalar, dfk_type_bytes((uint32_t)datatype));
	pthread_mutex_lock(&c->lock);
	v = realloc(c->redops, (size_t)(c->nr_redops + 1) * sizeof(*v));
	if (v) {
		c->redops = v;
		*op = (ncclRedOp_t)(ncclNumOps + c->nr_redops);
		v[c->nr_redops++] = r;
	}
	pthread_mutex_unlock(&c->lock);
	return v ? ncclSuccess : ncclSystemError;
}
DF_HN_NAME(ncclRedOpCreatePreMulSum);

/* Issued operations keep the operator's value; its number is not reused. */
ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
	struct df_hn_comm *c = (struct df_hn_comm *)comm;
	ncclResult_t res = df_hn_check(c, "RedOpDestroy");
	int own = (int)op - ncclNumOps;

	if (res)
		return res;
	pthread_mutex_lock(&c->lock);
	if (own >= 0 && own < c->nr_redops && c->redops[own].type >= 0)
		c->redops[own].type = -1;
	else
		res = ncclInvalidArgument;
	pthread_mutex_unlock(&c->lock);
	return res;
}
DF_HN_NAME(ncclRedOpDestroy);

/* ---- suspend and resume: there is no device memory to release ------------------------------- */

ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags)
{
	(void)flags;
	return df_hn_check(comm, "CommSuspend");
}
DF_HN_NAME(ncclCommSuspend);

ncclResult_t pncclCommResume(ncclComm_t comm)
{
	return df_hn_check(comm, "CommResume");
}
DF_HN_NAME(ncclCommResume);

ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value)
{
	ncclResult_t res = df_hn_check(comm, "CommMemStats");

	(void)stat;
	if (res || !value)
		return res ? res : ncclInvalidArgument;
	*value = 0;
	return ncclSuccess;
}
DF_HN_NAME(ncclCommMemStats);

/*
 * ---- windows: NCCL's results where memory cannot be symmetric ---------------------------------
 */

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
				     int flags)
{
	ncclResult_t res = df_hn_check(comm, "CommWindowRegister");

	(void)buff;
	(void)size;
	(void)flags;
	if (res || !win)
		return res ? res : ncclInvalidArgument;
	*win = NULL;
	return ncclSuccess;
}
DF_HN_NAME(ncclCommWindowRegister);

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
	ncclResult_t res = df_hn_check(comm, "CommWindowDeregister");

	if (res || !win)
		return res;
	DF_NCCL_WARN("CommWindowDeregister : %p is no window of this communicator", (void *)win);
	return ncclInvalidArgument;
}
DF_HN_NAME(ncclCommWindowDeregister);

ncclResult_t pncclDevCommCreate(ncclComm_t comm, ncclDevCommRequirements_t const *reqs,
				ncclDevComm_t *out)
{
	ncclResult_t res = df_hn_check(comm, "DevCommCreate");

	(void)reqs;
	(void)out;
	if (res)
		return res;
	DF_NCCL_WARN("Communicator does not support symmetric memory!");
	return ncclInvalidUsage;
}
DF_HN_NAME(ncclDevCommCreate);

/* ---- the log -------------------------------------------------------------------------------- */

void pncclResetDebugInit(void)
{
	df_log_reset();
}
DF_HN_NAME(ncclResetDebugInit);

void pncclResetDebugInitInternal(void)
{
	df_log_reset();
}
DF_HN_NAME(ncclResetDebugInitInternal);
