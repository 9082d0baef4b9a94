/*
 * Executes the jobs of a group, or of one call outside of a group. Each communicator's jobs run in
 * a thread of their own, because in sequence they could wait for each other. For blocking
 * communicators the caller waits for them; for non-blocking ones they continue in the background.
 *
 * Locks: a run's mutex (leaf), held for flags only.
 */
#define _GNU_SOURCE /* for pthread_setname_np */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "interpose/nccl/nccl_group.h"
#include "interpose/nccl/nccl_job.h"
#include "interpose/nccl/nccl_status.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "trace/record/writer.h"

/* Jobs that are executed together. */
struct df_run {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct df_job *jobs;
	int left;
	int cancelled;
	long caller; /* the thread that waits for the run; 0 if none does */
};

/*
 * Aborts the communicators that the other jobs create. One job has failed, so the peers of these
 * communicators may never join.
 */
static void cancel(struct df_run *run)
{
	struct df_job *job;

	for (job = run->jobs; job; job = job->next) {
		struct df_handle *h = job->made;

		if (!h)
			continue;
		/* While this thread is inside, the handle is not freed: see df_handle_enter(). */
		if (!(df_handle_enter(h) & (DF_H_CLAIMED | DF_H_READY)) && h->comm)
			df_comm_abort(h->comm);
		df_handle_leave(h);
	}
}

static int is_cancelled(struct df_run *run)
{
	int cancelled;

	pthread_mutex_lock(&run->lock);
	cancelled = run->cancelled;
	pthread_mutex_unlock(&run->lock);
	return cancelled;
}

static void finish(struct df_run *run, struct df_job *job)
{
	pthread_mutex_lock(&run->lock);
	run->left--;
	if (job->result != ncclSuccess)
		run->cancelled = 1;
	pthread_cond_broadcast(&run->cond);
	pthread_mutex_unlock(&run->lock);
}

/* Executes the job and all later jobs of the same communicator, in order. */
static void *run_thread(void *arg)
{
	struct df_job *job = arg, *j;
	struct df_run *run = job->run;

	for (j = job; j; j = j->next) {
		if (j->on != job->on)
			continue;
		if (j->made && is_cancelled(run))
			df_job_cancel(j);
		else
			df_job_run(j);
		finish(run, j);
	}
	return NULL;
}

static void *part_thread(void *arg)
{
	const struct df_job *job = arg;
	char name[16];

	/*
	 * The thread's name shows the checker which thread waits for this one. A run in the
	 * background has inherited a name that shows that no thread waits.
	 */
	if (job->run->caller) {
		snprintf(name, sizeof(name), DF_PART_THREADS "%ld", job->run->caller);
		pthread_setname_np(pthread_self(), name);
	}
	return run_thread(arg);
}

static int is_first(const struct df_run *run, const struct df_job *job)
{
	const struct df_job *j;

	for (j = run->jobs; j != job; j = j->next)
		if (j->on == job->on)
			return 0;
	return 1;
}

/* Executes all jobs, then frees them and the run. Returns the first error in the order of issue. */
static ncclResult_t run_all(struct df_run *run)
{
	struct df_job *job, *next;
	ncclResult_t res = ncclSuccess;
	int nr_threads = 0;

	for (job = run->jobs; job; job = job->next) {
		job->run = run;
		run->left++;
		nr_threads += is_first(run, job);
	}
	if (nr_threads == 1) {
		run_thread(run->jobs);
	} else {
		for (job = run->jobs; job; job = job->next) {
			if (!is_first(run, job))
				continue;
			if (pthread_create(&job->thread, NULL, part_thread, job)) {
				DF_NCCL_WARN("ncclGroupEnd : no thread for a job of the group");
				cancel(run);
				pthread_mutex_lock(&run->lock);
				run->cancelled = 1;
				pthread_mutex_unlock(&run->lock);
				run_thread(job);
				continue;
			}
			job->has_thread = 1;
		}
		pthread_mutex_lock(&run->lock);
		while (run->left && !run->cancelled)
			pthread_cond_wait(&run->cond, &run->lock);
		pthread_mutex_unlock(&run->lock);
		if (is_cancelled(run))
			cancel(run);
		for (job = run->jobs; job; job = job->next)
			if (job->has_thread)
				pthread_join(job->thread, NULL);
	}
	for (job = run->jobs; job; job = next) {
		next = job->next;
		if (res == ncclSuccess)
			res = job->result;
		df_job_free(job);
	}
	pthread_cond_destroy(&run->cond);
	pthread_mutex_destroy(&run->lock);
	free(run);
	return res;
}

static void *background(void *arg)
{
	/* The name shows the checker that no thread of the application waits in these calls. */
	pthread_setname_np(pthread_self(), DF_OUR_THREADS "jobs");
	run_all(arg);
	return NULL;
}

void df_jobs_discard(struct df_job *jobs)
{
	struct df_job *next;

	for (; jobs; jobs = next) {
		next = jobs->next;
		df_job_undo(jobs);
		df_job_free(jobs);
	}
}

ncclResult_t df_jobs_launch(struct df_job *jobs)
{
	struct df_run *run = calloc(1, sizeof(*run));
	int blocking = -1;
	struct df_job *job;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	if (!run) {
		df_jobs_discard(jobs);
		return df_status_warn(-ENOMEM, "ncclGroupEnd");
	}
	pthread_mutex_init(&run->lock, NULL);
	pthread_cond_init(&run->cond, NULL);
	run->jobs = jobs;
	for (job = jobs; job; job = job->next) {
		if (job->kind == DF_JOB_DESTROY || job->kind == DF_JOB_ABORT)
			continue;
		if (blocking >= 0 && job->on->config.blocking != blocking) {
			DF_NCCL_WARN("Blocking and nonblocking communicators are not allowed in "
				     "the same group.");
			df_jobs_discard(jobs);
			free(run);
			return ncclInvalidArgument;
		}
		blocking = job->on->config.blocking;
	}
	if (blocking) {
		run->caller = syscall(SYS_gettid);
		return run_all(run);
	}
	for (job = jobs; job; job = job->next)
		if (job->kind != DF_JOB_DESTROY && job->kind != DF_JOB_ABORT)
			df_handle_set(job->on, DF_H_BUSY, 0, ncclInProgress);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, background, run);
	pthread_attr_destroy(&attr);
	if (!err)
		return ncclInProgress;
	DF_NCCL_WARN("ncclGroupEnd : no thread for the jobs of the group");
	for (job = jobs; job; job = job->next)
		df_handle_set(job->on, 0, DF_H_BUSY, ncclSystemError);
	df_jobs_discard(jobs);
	free(run);
	return ncclSystemError;
}
