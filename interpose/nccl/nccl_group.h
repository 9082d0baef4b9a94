/*
 * Groups: collect the calls between ncclGroupStart and ncclGroupEnd. The outermost end executes
 * them. A call outside of any group is executed the same way.
 */
#ifndef DF_INTERPOSE_NCCL_NCCL_GROUP_H
#define DF_INTERPOSE_NCCL_NCCL_GROUP_H

#include <pthread.h>
#include "interpose/nccl/nccl_handle.h"

struct df_job;

/* The group of the calling thread; NULL outside of groups. */
extern __thread struct df_group *df_group_cur
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Does what NCCL's ncclGroupErrCheck does: an error inside a group fails the group. Returns res. */
ncclResult_t df_group_error(ncclResult_t res);

/* Adds an operation to this thread's group, which must exist. */
ncclResult_t df_group_add(struct df_handle *h, const struct df_op *op);

/*
 * Records the event on the stream when the group's operations are enqueued. As in NCCL, a second
 * event for one communicator is ncclInvalidUsage.
 */
ncclResult_t df_group_launch_event(struct df_handle *h, cudaEvent_t event, cudaStream_t stream);

/*
 * Takes ownership of the job. Inside a group, adds it to the group. Outside, executes it: for a
 * blocking communicator in this thread, else in the background (returns ncclInProgress).
 */
ncclResult_t df_group_job(struct df_job *job);

/*
 * nccl_group_jobs.c: executes the jobs of blocking communicators and starts the others in the
 * background (returns ncclInProgress). Takes ownership of the jobs in any case.
 */
ncclResult_t df_jobs_launch(struct df_job *jobs);
/* Undoes and frees jobs that must not be executed. */
void df_jobs_discard(struct df_job *jobs);

/* The group calls. The caller handles groups of the real library. */
ncclResult_t df_group_start(void);
ncclResult_t df_group_end(uint32_t site);
ncclResult_t df_group_simulate_end(ncclSimInfo_t *info);

/*
 * Call before a call goes to the real library: inside a group of ours, begins a group of the real
 * library, too.
 */
void df_group_real(void);

/* Call in the child of a fork: the thread is in no group any more. */
void df_group_forked(void);

#endif
