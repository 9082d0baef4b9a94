/*
 * Groups: collect the calls between ncclGroupStart and ncclGroupEnd. The outermost end executes
 * them. A call outside of any group is executed the same way.
 */
#ifndef DF_INTERPOSE_NCCL_NCCL_GROUP_H
#define DF_INTERPOSE_NCCL_NCCL_GROUP_H

#include <pthread.h>
#include "interpose/nccl/nccl_handle.h"

enum df_job_kind {
	DF_JOB_INIT,
	DF_JOB_SPLIT,
	DF_JOB_SHRINK,
	DF_JOB_REVOKE,
	DF_JOB_FINALIZE,
	DF_JOB_DESTROY,
	DF_JOB_ABORT,
	DF_JOB_HAND_OVER,
};

/* A step that may take long: one communicator is created, divided or ended. */
struct df_job {
	struct df_job *next;
	enum df_job_kind kind;
	struct df_handle *on; /* its state shows the running job: the communicator, or the parent */
	struct df_handle *made; /* INIT, SPLIT, SHRINK: the new one; NULL: no color */
	ncclComm_t *out;	/* where to store the new one */
	int inside;		/* counted in on->users from the call to the end of the job */
	const char *func;
	uint32_t site;
	int nranks, rank; /* INIT */
	void *context;	  /* INIT, if the runtime could not start: df_context_get() */
	int nr_ids;
	unsigned char (*ids)[DF_ID_BYTES];
	int color, key;	       /* SPLIT */
	int nr_exclude, abort; /* SHRINK */
	int *exclude;
	ncclResult_t (*then)(
		struct df_job *); /* HAND_OVER: the call to forward to the real library */
	const void *in;		  /* its input */
	void *out2;		  /* its output */
	size_t bytes;
	int flags;
	ncclResult_t result;
	struct df_run *run;
	pthread_t thread;
	int has_thread;
};

struct df_group;

/* The group of the calling thread; NULL outside of groups. */
extern __thread struct df_group *df_group_cur
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* NCCL's ncclGroupErrCheck: an error inside a group fails the group. Returns res. */
ncclResult_t df_group_error(ncclResult_t res);

/* Adds an operation to this thread's group, which must exist. */
ncclResult_t df_group_add(struct df_handle *h, const struct df_op *op);

/*
 * Records the event on the stream when the group's operations are enqueued. As in NCCL, a second
 * event for one communicator is ncclInvalidUsage.
 */
ncclResult_t df_group_launch_event(struct df_handle *h, cudaEvent_t event, cudaStream_t stream);

/* Returns a zeroed job, or NULL. df_job_free() frees one that was not passed on. */
struct df_job *df_job_new(enum df_job_kind kind, struct df_handle *on, const char *func,
			  uint32_t site);
void df_job_free(struct df_job *job);

/*
 * Takes over the job. Inside a group, adds it to the group. Outside, executes it: for a blocking
 * communicator in this thread, else in the background (ncclInProgress).
 */
ncclResult_t df_group_job(struct df_job *job);

/*
 * nccl_group_jobs.c: executes the jobs of blocking communicators, starts the others in the
 * background (ncclInProgress). Takes over the jobs in any case.
 */
ncclResult_t df_jobs_launch(struct df_job *jobs);
/* Undoes and frees jobs that must not be executed. */
void df_jobs_discard(struct df_job *jobs);

/* The group calls. The caller handles groups of the real library. */
ncclResult_t df_group_start(void);
ncclResult_t df_group_end(uint32_t site);
ncclResult_t df_group_simulate_end(ncclSimInfo_t *info);

/* A call is about to go to the real library: inside a group of ours, begins a group there too. */
void df_group_real(void);

/* In the child of a fork: the thread is in no group. */
void df_group_forked(void);

/* Executes one job in the calling thread (nccl_job.c). The result is in job->result. */
void df_job_run(struct df_job *job);
/* Replaces df_job_run() for a job whose group has failed meanwhile. */
void df_job_cancel(struct df_job *job);
/* Undoes the effect of the call after its group was dropped. Does not free the job. */
void df_job_undo(struct df_job *job);

#endif
