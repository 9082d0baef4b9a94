/*
 * The calls by which the application ends communicators: finalize, destroy, abort, revoke. Steps
 * that wait for peers are jobs (nccl_job.c).
 *
 * Threads: any; ncclCommAbort may run during another call on the same communicator.
 */
#include "interpose/nccl/nccl_coll.h"
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_group.h"
#include "interpose/nccl/nccl_handover.h"
#include "interpose/nccl/nccl_api.h"
#include "interpose/nccl/nccl_job.h"
#include "interpose/real/real.h"
#include "interpose/nccl/nccl_status.h"
#include "interpose/real/traced.h"
#include "runtime/base/log.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

#define SITE() df_trace_site(__builtin_return_address(0))

/*
 * Makes a recorded call of the real library that ends a communicator. Evaluates to the call's
 * result.
 */
#define REAL_END(fn, enum_call, comm, ...)                                                         \
	({                                                                                         \
		uint64_t serial_ = df_traced_enter(enum_call, comm, 0, 0,                          \
						   df_trace_site(__builtin_return_address(0)));    \
		ncclResult_t res_ = DF_REAL(fn, __VA_ARGS__);                                      \
		df_traced_ended(comm, enum_call, serial_, res_);                                   \
		df_group_error(res_);                                                              \
	})

/* Starts a job on an existing communicator, after setting the flag `mark`. */
static ncclResult_t end_job(enum df_job_kind kind, struct df_handle *h, uint32_t mark,
			    const char *func, uint32_t site)
{
	struct df_job *job = df_job_new(kind, h, func, site);

	if (!job)
		return df_status_warn(-ENOMEM, func);
	if (mark)
		/*
		 * This pairs with df_handle_enter() and df_handle_flags(): without it a call that
		 * starts now could miss the flag. Sequentially consistent, as all changes of the
		 * flags are.
		 */
		__atomic_fetch_or(&h->flags, mark, __ATOMIC_SEQ_CST);
	return df_group_job(job);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	struct df_handle *h = (struct df_handle *)comm;
	ncclResult_t res;

	if (DF_FOREIGN(comm))
		return REAL_END(ncclCommFinalize, DF_CALL_COMM_FINALIZE, comm, comm);
	if (!comm)
		return ncclSuccess;
	res = df_comm_check(comm, "CommFinalize", "comm");
	if (res == ncclSuccess)
		res = df_handle_ready(h);
	if (res == ncclSuccess &&
	    df_handle_flags(h) & (DF_H_FINALIZED | DF_H_REVOKED | DF_H_DESTROYED))
		res = ncclInvalidArgument;
	if (res == ncclSuccess)
		res = end_job(DF_JOB_FINALIZE, h, DF_H_FINALIZED, __func__, SITE());
	return df_group_error(res);
}
DF_NCCL_EXPORT(ncclCommFinalize);

/*
 * Call when the real library's communicator of a handle has ended. Returns 1 if the handle is ours:
 * then our part has to be ended as usual, and a second call fails as for any handle of ours.
 */
static int take_back(struct df_handle *h)
{
	if (!df_is_ours(h))
		return 0;
	__atomic_store_n(&h->real, NULL, __ATOMIC_RELAXED);
	return 1;
}

/* Whether the handle is a tombstone or another call is destroying it. */
static int is_gone(struct df_handle *h)
{
	if (!(df_handle_flags(h) & (DF_H_CLAIMED | DF_H_DESTROYED | DF_H_ABORTED)))
		return 0;
	DF_NCCL_WARN("comm %p has already been destroyed", (void *)h);
	return 1;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	struct df_handle *h = (struct df_handle *)comm;
	ncclResult_t res;

	if (DF_FOREIGN(comm)) {
		res = REAL_END(ncclCommDestroy, DF_CALL_COMM_DESTROY, comm, comm);
		if (!take_back(h) || res != ncclSuccess)
			return res;
		comm = (ncclComm_t)h;
	}
	if (!comm)
		return ncclSuccess;
	if (df_is_ours(comm))
		res = is_gone(h) ? ncclInvalidArgument : ncclSuccess;
	else
		res = df_comm_check(comm, "CommDestroy", "comm");
	/* A communicator that has failed can be destroyed too. */
	if (res == ncclSuccess && df_handle_async(h) == ncclInProgress)
		res = df_handle_ready(h);
	if (res == ncclSuccess)
		res = end_job(DF_JOB_DESTROY, h, DF_H_DESTROYED, __func__, SITE());
	return df_group_error(res);
}
DF_NCCL_EXPORT(ncclCommDestroy);

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	struct df_handle *h = (struct df_handle *)comm;
	ncclResult_t res;
	uint32_t old;

	if (DF_FOREIGN(comm)) {
		res = REAL_END(ncclCommAbort, DF_CALL_COMM_ABORT, comm, comm);
		if (!take_back(h) || res != ncclSuccess)
			return res;
		comm = (ncclComm_t)h;
	}
	if (!comm)
		return ncclSuccess;
	if (!df_is_ours(comm))
		return df_group_error(df_comm_check(comm, "CommAbort", "comm"));
	/*
	 * While this thread is inside, the call that this abort interrupts cannot free the
	 * communicator.
	 */
	df_handle_enter(h);
	/*
	 * This pairs with df_handle_enter(), as every change of the flags does: without it later
	 * calls could miss the flag.
	 */
	old = __atomic_fetch_or(&h->flags, DF_H_ABORTED, __ATOMIC_SEQ_CST);
	if (old & (DF_H_CLAIMED | DF_H_ABORTED)) {
		df_handle_leave(h);
		DF_NCCL_WARN("comm %p has already been destroyed", comm);
		return df_group_error(ncclInvalidArgument);
	}
	df_nccl_info(DF_SUBSYS_INIT, "comm %p rank %d nRanks %d cudaDev %d busId %x - Abort START",
		     (void *)comm, h->rank, h->nranks, h->device, 0);
	if (h->comm)
		df_comm_abort(h->comm);
	pthread_mutex_lock(&h->lock);
	if (h->child && !(df_handle_flags(h->child) & DF_H_CLAIMED))
		df_comm_abort(h->child->comm);
	pthread_mutex_unlock(&h->lock);
	df_handle_leave(h);
	return df_group_error(end_job(DF_JOB_ABORT, h, 0, __func__, SITE()));
}
DF_NCCL_EXPORT(ncclCommAbort);

ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
	struct df_handle *h = (struct df_handle *)comm;
	ncclResult_t res;

	if (DF_FOREIGN(comm))
		return REAL_END(ncclCommRevoke, DF_CALL_COMM_ABORT, comm, comm, revokeFlags);
	if (!comm)
		return ncclSuccess;
	if (revokeFlags)
		return ncclInvalidArgument;
	res = df_comm_check(comm, "CommRevoke", "comm");
	if (res != ncclSuccess)
		return df_group_error(res);
	if (df_handle_flags(h) & (DF_H_DESTROYED | DF_H_FINALIZED | DF_H_REVOKED))
		return ncclInvalidArgument;
	df_nccl_info(DF_SUBSYS_INIT, "comm %p rank %d nRanks %d cudaDev %d busId %x - Revoke START",
		     (void *)comm, h->rank, h->nranks, h->device, 0);
	return df_group_error(end_job(DF_JOB_REVOKE, h, DF_H_REVOKED, __func__, SITE()));
}
DF_NCCL_EXPORT(ncclCommRevoke);
