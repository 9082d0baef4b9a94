/*
 * Implements the slow steps in the life of a communicator as jobs. They wait for peers, so a group
 * runs each in a thread of its own, and a non-blocking communicator runs them in the background.
 *
 * Threads: the one that runs the job. Any other thread may call ncclCommAbort, which makes the
 * waits of the job return. Jobs of one communicator never run at the same time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_group.h"
#include "interpose/nccl/nccl_handover.h"
#include "interpose/nccl/nccl_api.h"
#include "interpose/nccl/nccl_job.h"
#include "interpose/nccl/nccl_status.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "trace/record/writer.h"

/*
 * The calls whose records this file writes. The runtime records the calls of the other jobs
 * itself.
 */
static const enum df_call calls[] = {
	[DF_JOB_REVOKE] = DF_CALL_COMM_ABORT,
	[DF_JOB_ABORT] = DF_CALL_COMM_ABORT,
};

struct df_job *df_job_new(enum df_job_kind kind, struct df_handle *on, const char *func,
			  uint32_t site)
{
	struct df_job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	job->kind = kind;
	job->on = on;
	job->func = func;
	job->site = site;
	if (kind != DF_JOB_DESTROY && kind != DF_JOB_ABORT) {
		df_handle_enter(on);
		job->inside = 1;
	}
	return job;
}

static void leave(struct df_job *job)
{
	if (job->inside)
		df_handle_leave(job->on);
	job->inside = 0;
}

void df_job_free(struct df_job *job)
{
	leave(job);
	free(job->ids);
	free(job->exclude);
	free(job);
}

static void made(struct df_handle *h)
{
	h->nranks = df_comm_nranks(h->comm);
	h->rank = df_comm_rank(h->comm);
	h->hash = df_comm_hash(h->comm);
	df_handle_set(h, DF_H_READY, DF_H_BUSY, ncclSuccess);
}

static ncclResult_t run_init(struct df_job *job)
{
	struct df_handle *h = job->made;
	ncclResult_t res;
	int err;

	df_nccl_info(DF_SUBSYS_INIT,
		     "%s comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %x commId "
		     "0x%llx - Init START",
		     job->func, (void *)h, job->rank, job->nranks, h->device, h->device, 0,
		     (unsigned long long)df_id_hash(job->ids[0]));
	err = df_comm_join(h->comm, job->nr_ids, (const unsigned char(*)[DF_ID_BYTES])job->ids,
			   job->nranks, job->rank);
	if (err && df_front_now() == DF_FRONT_REFUSE)
		return df_front_refused(job->func);
	if (err < 0)
		return df_status_warn(err, job->func);
	if (err == DF_JOIN_UNABLE) {
		h->nranks = job->nranks;
		h->rank = job->rank;
		h->hash = df_comm_hash(h->comm);
		df_context_set(job->context);
		res = df_hand_over_at_start(h, job->func);
		if (res != ncclSuccess)
			return res;
	}
	made(h);
	df_nccl_info(
		DF_SUBSYS_INIT,
		"%s comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %x commId 0x%llx - Init "
		"COMPLETE",
		job->func, (void *)h, h->rank, h->nranks, h->device, h->device, 0,
		(unsigned long long)h->hash);
	return ncclSuccess;
}

static ncclResult_t run_child(struct df_job *job)
{
	struct df_handle *parent = job->on, *h = job->made;
	struct df_comm *comm = h ? h->comm : NULL;
	int err;

	if (h)
		df_nccl_info(
			DF_SUBSYS_INIT,
			"%s comm %p cudaDev %d parent %p splitCount %d color %d key %d- Init START",
			job->func, (void *)h, h->device, (void *)parent, parent->child_count,
			job->color, job->key);
	pthread_mutex_lock(&parent->lock);
	parent->child = h;
	pthread_mutex_unlock(&parent->lock);
	if (job->kind == DF_JOB_SPLIT)
		err = df_comm_join_split(comm, parent->comm, job->color, job->key);
	else if (job->kind == DF_JOB_SHRINK)
		err = df_comm_join_shrink(comm, parent->comm, job->exclude, job->nr_exclude,
					  job->abort);
	else
		err = df_comm_join_grown(comm, parent->comm, job->nr_ids ? job->ids[0] : NULL,
					 job->nranks);
	pthread_mutex_lock(&parent->lock);
	parent->child = NULL;
	pthread_mutex_unlock(&parent->lock);
	if (err == -EINVAL && job->kind == DF_JOB_GROW) {
		DF_NCCL_WARN("%s : no rank has made an id (ncclCommGetUniqueId)", job->func);
		return ncclInvalidUsage;
	}
	if (err)
		return df_status_warn(err, job->func);
	if (!h)
		return ncclSuccess;
	made(h);
	df_nccl_info(DF_SUBSYS_INIT,
		     "%s comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %x parent %p "
		     "splitCount %d color %d key %d - Init COMPLETE",
		     job->func, (void *)h, h->rank, h->nranks, h->device, h->device, 0,
		     (void *)parent, parent->child_count, job->color, job->key);
	*job->out = (ncclComm_t)h;
	return ncclSuccess;
}

static ncclResult_t run_end(struct df_job *job)
{
	struct df_handle *h = job->on;
	int rank = h->rank, nranks = h->nranks;
	int err;

	if (job->kind == DF_JOB_FINALIZE) {
		err = df_comm_finalize(h->comm);
		return err ? df_status_warn(err, "CommFinalize") : ncclSuccess;
	}
	if (job->kind == DF_JOB_REVOKE) {
		err = df_comm_revoke(h->comm);
		df_nccl_info(DF_SUBSYS_INIT,
			     "comm %p rank %d nRanks %d cudaDev %d busId %x - Revoke "
			     "COMPLETE, result %d",
			     (void *)h, rank, nranks, h->device, 0, df_status(err));
		return err ? df_status_warn(err, "CommRevoke") : ncclSuccess;
	}
	if (job->kind == DF_JOB_DESTROY) {
		uint32_t flags = df_handle_enter(h);

		if (flags & DF_H_READY && !(flags & (DF_H_FINALIZED | DF_H_FAILED | DF_H_ABORTED)))
			(void)df_comm_finalize(h->comm);
		df_handle_leave(h);
	}
	df_handle_free(h);
	df_nccl_info(DF_SUBSYS_INIT, "comm %p rank %d nranks %d cudaDev %d busId %x - %s COMPLETE",
		     (void *)h, rank, nranks, h->device, 0,
		     job->kind == DF_JOB_ABORT ? "Abort" : "Destroy");
	return ncclSuccess;
}

/*
 * Publishes the result. A communicator that could not be made is freed, except a non-blocking one
 * from init, which its owner has to abort. For a non-blocking communicator this must be the last
 * step: once it is not busy, its owner may free it.
 */
static void settle(struct df_job *job)
{
	struct df_handle *on = job->on;
	int blocking = on->config.blocking, init = job->kind == DF_JOB_INIT;
	int drop = job->result != ncclSuccess && job->made;

	if (drop && !init)
		df_handle_free(job->made);
	if (!blocking)
		df_handle_set(on, 0, DF_H_BUSY, job->result);
	leave(job);
	if (drop && init && blocking) {
		*job->out = NULL;
		df_handle_free(on);
	}
}

void df_job_run(struct df_job *job)
{
	struct df_handle *on = job->on;
	enum df_call call = calls[job->kind];
	uint64_t serial = call ? df_trace_serial() : 0;
	uint64_t *shown = on->config.blocking ? NULL : &on->call;
	int device = on->device, old = df_device_get();
	ncclResult_t res;

	if (call)
		df_trace(DF_REC_CALL_ENTER, device, 0, -1, serial, call, on->hash, 0, job->site);
	df_call_about(job->site, shown);
	if (shown)
		__atomic_store_n(shown, serial, __ATOMIC_RELAXED);
	if (old != device)
		df_device_set(device);
	df_log_set_device(device);
	switch (job->kind) {
	case DF_JOB_INIT:
		res = run_init(job);
		break;
	case DF_JOB_SPLIT:
	case DF_JOB_SHRINK:
	case DF_JOB_GROW:
		res = run_child(job);
		break;
	case DF_JOB_HAND_OVER:
		res = df_hand_over(on, job->func);
		if (res == ncclSuccess)
			res = job->then(job);
		break;
	default:
		res = run_end(job);
		break;
	}
	if (old != device && old >= 0) {
		df_device_set(old);
		df_log_set_device(old);
	}
	df_call_about(0, NULL);
	if (call)
		df_trace(DF_REC_CALL_EXIT, device, 0, -1, serial, call, (uint64_t)res, 0,
			 job->site);
	job->result = res;
	if (job->inside)
		settle(job);
}

void df_job_cancel(struct df_job *job)
{
	job->result = ncclInternalError;
	settle(job);
}

void df_job_undo(struct df_job *job)
{
	switch (job->kind) {
	case DF_JOB_INIT:
		*job->out = NULL;
		leave(job);
		df_handle_free(job->made);
		break;
	case DF_JOB_SPLIT:
	case DF_JOB_SHRINK:
	case DF_JOB_GROW:
		if (job->made)
			df_handle_free(job->made);
		break;
	case DF_JOB_FINALIZE:
	case DF_JOB_DESTROY:
		df_handle_set(job->on, 0,
			      job->kind == DF_JOB_FINALIZE ? DF_H_FINALIZED : DF_H_DESTROYED,
			      df_handle_async(job->on));
		break;
	case DF_JOB_HAND_OVER:
		break;
	case DF_JOB_REVOKE:
	case DF_JOB_ABORT:
		/* The call has already begun to abort, which cannot be undone. */
		df_job_run(job);
		break;
	}
}
