/* Jobs: steps of a call that may take long, executed at the end of a group or in the background. */
#ifndef DF_INTERPOSE_NCCL_NCCL_JOB_H
#define DF_INTERPOSE_NCCL_NCCL_JOB_H

#include <pthread.h>
#include <stdint.h>

#include "interpose/nccl/nccl_types.h"
#include "runtime/dfshim.h"

struct df_handle;
struct df_run;

enum df_job_kind {
	DF_JOB_INIT,
	DF_JOB_SPLIT,
	DF_JOB_SHRINK,
	DF_JOB_GROW,
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
	struct df_handle *on; /* the communicator, or the parent; its state shows that a job runs */
	/* For INIT, SPLIT, SHRINK and GROW: the new communicator. NULL: no color. */
	struct df_handle *made;
	ncclComm_t *out; /* where to store the new communicator */
	/* whether on->users counts the job, from the call to the end of the job */
	int inside;
	const char *func;
	uint32_t site;
	int nranks, rank; /* for INIT; nranks also for GROW */
	void *context;	  /* for INIT, if the runtime could not start: df_context_get() */
	int nr_ids;	  /* for INIT; for GROW 1 on the rank that made the id, else 0 */
	unsigned char (*ids)[DF_ID_BYTES];
	int color, key;	       /* for SPLIT */
	int nr_exclude, abort; /* for SHRINK */
	int *exclude;
	ncclResult_t (*then)(
		struct df_job *); /* for HAND_OVER: the call to forward to the real library */
	const void *in;		  /* input of this call */
	void *out2;		  /* output of this call */
	size_t bytes;
	int flags;
	ncclResult_t result;
	struct df_run *run;
	pthread_t thread;
	int has_thread;
};

struct df_group;

/*
 * Returns a zeroed job, or NULL if memory is short. df_job_free() frees a job that was not passed
 * on.
 */
struct df_job *df_job_new(enum df_job_kind kind, struct df_handle *on, const char *func,
			  uint32_t site);
void df_job_free(struct df_job *job);
/* Executes one job in the calling thread. The result is in job->result. */
void df_job_run(struct df_job *job);
/* Called instead of df_job_run() for a job whose group has failed meanwhile. */
void df_job_cancel(struct df_job *job);
/*
 * Undoes the effect of the call that made the job, because the call's group was dropped. Does not
 * free the job.
 */
void df_job_undo(struct df_job *job);

#endif
