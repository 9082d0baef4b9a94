/*
 * Threads that call the user's host functions. A function may block on other threads of the
 * program, or on another stream's function, so each ready function gets a thread: the pool grows.
 * Threads stay for later functions, except a thread that its function ends. The lock guards the
 * pool and is a leaf.
 */
#include "interpose/hostcuda/internal.h"
#include "runtime/base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

struct job {
	struct df_list node;
	struct df_hstream *stream;
	struct df_hop *op;
};

static struct {
	struct df_mutex lock;
	pthread_cond_t cond;
	struct df_list jobs;
	unsigned nr_jobs, nr_idle;
} pool = {.lock = DF_MUTEX_INIT(DF_RANK_LEAF, "host functions"),
	  .cond = PTHREAD_COND_INITIALIZER,
	  .jobs = DF_LIST_INIT(pool.jobs)};

static void *worker(void *arg)
{
	struct job *job = arg, now;

	prctl(PR_SET_NAME, "df-host-fn");
	for (;;) {
		if (job) {
			now = *job;
			free(job);
			df_hstream_host_call(now.stream, now.op);
		}
		df_mutex_lock(&pool.lock);
		pool.nr_idle++;
		while (!pool.nr_jobs)
			pthread_cond_wait(&pool.cond, &pool.lock.mutex);
		pool.nr_idle--;
		pool.nr_jobs--;
		job = df_list_first(&pool.jobs, struct job, node);
		df_list_del(&job->node);
		df_mutex_unlock(&pool.lock);
	}
	return NULL;
}

int df_hostfn_start(struct df_hstream *s, struct df_hop *op)
{
	struct job *job = malloc(sizeof(*job));
	int ret;

	if (!job)
		return -ENOMEM;
	job->stream = s;
	job->op = op;
	df_mutex_lock(&pool.lock);
	if (pool.nr_idle > pool.nr_jobs) {
		df_list_add_tail(&pool.jobs, &job->node);
		pool.nr_jobs++;
		pthread_cond_signal(&pool.cond);
		df_mutex_unlock(&pool.lock);
		return 0;
	}
	df_mutex_unlock(&pool.lock);
	ret = df_thread_start(NULL, 0, worker, job);
	if (ret)
		free(job);
	return ret;
}
