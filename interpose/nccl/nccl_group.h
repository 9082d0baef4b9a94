/*
 * Groups: what the calls between ncclGroupStart and ncclGroupEnd collect, and how the outermost end (or a
 * call outside of any group) carries it out.
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

/* Something that may take long: one communicator's coming, going, or dividing. */
struct df_job {
	struct df_job *next;
	enum df_job_kind kind;
	struct df_handle *on; /* whose state shows that it runs: the communicator, or the parent */
	struct df_handle *made; /* INIT, SPLIT, SHRINK: the new one (NULL: no color) */
	ncclComm_t *out;	/* where the new one goes */
	int inside;		/* counted in on->users, from the call to the end of the job */
	const char *func;
	uint32_t site;
	int nranks, rank; /* INIT */
	void *context;	  /* INIT, where the runtime could not start: df_context_get() */
	int nr_ids;
	unsigned char (*ids)[DF_ID_BYTES];
	int color, key;	       /* SPLIT */
	int nr_exclude, abort; /* SHRINK */
	int *exclude;
	ncclResult_t (*then)(
		struct df_job *); /* HAND_OVER: the call that the real library now gets */
	const void *in;		  /* its arguments: what it reads, */
	void *out2;		  /* and what it writes */
	size_t bytes;
	int flags;
	ncclResult_t result;
	struct df_run *run;
	pthread_t thread;
	int has_thread;
};

struct df_group;

/* The group of the calling thread, NULL outside. */
extern __thread struct df_group *df_group_cur
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* NCCL's ncclGroupErrCheck: an error inside a group spoils the group. Returns res. */
ncclResult_t df_group_error(ncclResult_t res);

/* Adds an operation to the group of this thread (there is one). */
ncclResult_t df_group_add(struct df_handle *h, const struct df_op *op);

/*
 * Records the event on the stream when the group's operations are put on theirs. NCCL takes one for each communicator:
 * ncclInvalidUsage for a second.
 */
ncclResult_t df_group_launch_event(struct df_handle *h, cudaEvent_t event, cudaStream_t stream);

/* A zeroed job, or NULL; df_job_free() for one that was never handed over. */
struct df_job *df_job_new(enum df_job_kind kind, struct df_handle *on, const char *func,
			  uint32_t site);
void df_job_free(struct df_job *job);

/*
 * Takes the job: into the group if there is one, else carries it out, in this thread for a blocking
 * communicator, else in the background (ncclInProgress).
 */
ncclResult_t df_group_job(struct df_job *job);

/* nccl_group_jobs.c: blocking: carries the jobs out. Otherwise starts them: ncclInProgress. Takes them in any case. */
ncclResult_t df_jobs_launch(struct df_job *jobs);
/* Undoes and frees jobs that are not to be carried out. */
void df_jobs_discard(struct df_job *jobs);

/* The four calls; foreign groups are the caller's matter. */
ncclResult_t df_group_start(void);
ncclResult_t df_group_end(uint32_t site);
ncclResult_t df_group_simulate_end(ncclSimInfo_t *info);

/* A call for the real library is about to be made: inside a group of ours, its group is opened too. */
void df_group_real(void);

/* In the child of a fork: the thread is in no group. */
void df_group_forked(void);

/* Carries out one job in the calling thread (nccl_job.c); the result is in job->result. */
void df_job_run(struct df_job *job);
/* Instead of df_job_run() for one whose group has failed meanwhile. */
void df_job_cancel(struct df_job *job);
/* The group was given up: undoes what the call did. The job stays. */
void df_job_undo(struct df_job *job);

#endif
