/*
 * Groups. The state is the thread's own: a pointer that is set while a group is open, so that a call
 * outside of one costs a single test. The outermost end carries everything out: first the jobs, each
 * communicator's in a thread of its own, then all operations with one df_submit().
 *
 * An error in any call of the group makes the end return it and drop everything else. Under
 * non-blocking communicators the jobs run in the background, the operations are submitted at once: they
 * never wait for a peer, and they concern other communicators than the jobs.
 *
 * Locks: a run's mutex (leaf), held for flags only.
 */
#define _GNU_SOURCE /* pthread_setname_np */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "interpose/group.h"
#include "interpose/coll.h"
#include "interpose/collconfig.h"
#include "interpose/nccl_api.h"
#include "interpose/real.h"
#include "interpose/status.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "trace/writer.h"

/* An event that is recorded at the launch. */
struct launch_event {
	struct df_handle *handle;
	cudaEvent_t event;
	cudaStream_t stream;
};

struct df_group {
	int depth;
	ncclResult_t error;
	size_t nr_ops, cap_ops;
	struct df_op *ops;
	struct df_handle **handles; /* of the operations */
	size_t nr_events;
	struct launch_event *events;
	int has_self;
	int real; /* a group of the real library is open too, for calls on its communicators */
	struct df_job *jobs, **jobs_end;
};

/* Jobs that are carried out together. */
struct df_run {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct df_job *jobs;
	int left;
	int cancelled;
	long caller; /* the thread that waits for it; 0 none does */
};

__thread struct df_group *df_group_cur __attribute__((tls_model("initial-exec")));

static pthread_key_t idle_key;
static pthread_once_t idle_once = PTHREAD_ONCE_INIT;

static void group_delete(void *arg)
{
	struct df_group *g = arg;

	free(g->ops);
	free(g->handles);
	free(g->events);
	free(g);
}

static void make_key(void)
{
	pthread_key_create(&idle_key, group_delete);
}

ncclResult_t df_group_error(ncclResult_t res)
{
	if (df_unlikely(res != ncclSuccess) && res != ncclInProgress && df_group_cur)
		df_group_cur->error = res;
	return res;
}

ncclResult_t df_group_start(void)
{
	struct df_group *g = df_group_cur;

	if (!g) {
		/* One per thread, kept between groups. */
		pthread_once(&idle_once, make_key);
		g = pthread_getspecific(idle_key);
		if (!g) {
			g = calloc(1, sizeof(*g));
			if (!g || pthread_setspecific(idle_key, g)) {
				free(g);
				return df_status_warn(-ENOMEM, "ncclGroupStart");
			}
		}
		g->error = ncclSuccess;
		g->nr_ops = g->nr_events = 0;
		g->has_self = 0;
		g->real = 0;
		g->jobs = NULL;
		g->jobs_end = &g->jobs;
		df_group_cur = g;
	}
	g->depth++;
	return ncclSuccess;
}

void df_group_real(void)
{
	struct df_group *g = df_group_cur;

	if (!g || g->real || !df_real()->ncclGroupStart || !df_real()->ncclGroupEnd)
		return;
	if (df_real()->ncclGroupStart() == ncclSuccess)
		g->real = 1;
}

/* The real library's part of the group ends; it drops everything if ours does. */
static ncclResult_t end_real(struct df_group *g)
{
	ncclResult_t res;
	uint64_t serial;

	if (!g->real)
		return g->error;
	g->real = 0;
	/* A call that fails spoils a group: the only way to have one dropped. */
	if (g->error != ncclSuccess)
		(void)df_real()->ncclAllReduce(NULL, NULL, 0, ncclInt8, ncclSum, NULL, NULL);
	serial = df_traced_enter(DF_CALL_GROUP_END, NULL, 0, 0, NULL);
	res = df_real()->ncclGroupEnd();
	df_traced_leave(serial, DF_CALL_GROUP_END, res);
	return g->error != ncclSuccess ? g->error : res;
}

void df_group_forked(void)
{
	if (df_group_cur) {
		df_group_cur->depth = 0;
		df_group_cur = NULL;
	}
}

static ncclResult_t append(struct df_group *g, struct df_handle *h, const struct df_op *op)
{
	if (g->nr_ops == g->cap_ops) {
		size_t cap = g->cap_ops ? 2 * g->cap_ops : 64;
		struct df_op *ops = realloc(g->ops, cap * sizeof(*ops));
		struct df_handle **handles;

		if (ops)
			g->ops = ops;
		handles = ops ? realloc(g->handles, cap * sizeof(*handles)) : NULL;
		if (!handles)
			return df_status_warn(-ENOMEM, "ncclGroupEnd");
		g->handles = handles;
		g->cap_ops = cap;
	}
	if ((op->kind == DF_COLL_SEND || op->kind == DF_COLL_RECV) && op->root == h->rank)
		g->has_self = 1;
	g->ops[g->nr_ops] = *op;
	g->handles[g->nr_ops++] = h;
	return ncclSuccess;
}

ncclResult_t df_group_add(struct df_handle *h, const struct df_op *op)
{
	return append(df_group_cur, h, op);
}

ncclResult_t df_group_launch_event(struct df_handle *h, cudaEvent_t event, cudaStream_t stream)
{
	struct df_group *g = df_group_cur;
	struct launch_event *v;
	size_t i;

	for (i = 0; i < g->nr_events; i++)
		if (g->events[i].handle == h) {
			DF_NCCL_WARN("Only one launch-completion event may be provided in one "
				     "NCCL group");
			return ncclInvalidUsage;
		}
	v = realloc(g->events, (g->nr_events + 1) * sizeof(*v));
	if (!v)
		return df_status_warn(-ENOMEM, "ncclGroupEnd");
	g->events = v;
	g->events[g->nr_events++] = (struct launch_event){h, event, stream};
	return ncclSuccess;
}

/* ---- operations --------------------------------------------------------------------------------- */

/* Puts `op` before the operation at `at` (which may be the end). */
static ncclResult_t insert(struct df_group *g, size_t at, struct df_handle *h,
			   const struct df_op *op)
{
	ncclResult_t res = append(g, h, op);
	size_t nr = g->nr_ops - 1 - at;

	if (res != ncclSuccess)
		return res;
	memmove(&g->ops[at + 1], &g->ops[at], nr * sizeof(g->ops[0]));
	memmove(&g->handles[at + 1], &g->handles[at], nr * sizeof(g->handles[0]));
	g->ops[at] = *op;
	g->handles[at] = h;
	return ncclSuccess;
}

static void erase(struct df_group *g, size_t at)
{
	g->nr_ops--;
	memmove(&g->ops[at], &g->ops[at + 1], (g->nr_ops - at) * sizeof(g->ops[0]));
	memmove(&g->handles[at], &g->handles[at + 1], (g->nr_ops - at) * sizeof(g->handles[0]));
}

/* The first operation from `at` on of that kind, to the communicator's own rank. */
static size_t find_self(const struct df_group *g, size_t at, enum df_coll_kind kind,
			const struct df_handle *h)
{
	for (; at < g->nr_ops; at++)
		if (g->ops[at].kind == kind && g->ops[at].root == g->handles[at]->rank &&
		    (!h || g->handles[at] == h))
			break;
	return at;
}

/*
 * Sends to oneself are matched with the receives from oneself of the same group, in order, and become
 * copies. When the two are on different streams, the copy runs on the receive's; a copy of the source onto
 * itself before and after, on the send's stream, makes each stream wait for the other by the rule of
 * overlapping buffers.
 */
static ncclResult_t match_self(struct df_group *g)
{
	size_t s, r;

	while ((s = find_self(g, 0, DF_COLL_SEND, NULL)) < g->nr_ops) {
		struct df_op send = g->ops[s], both, touch;
		uint64_t send_bytes, recv_bytes;
		ncclResult_t res;

		r = find_self(g, 0, DF_COLL_RECV, g->handles[s]);
		if (r == g->nr_ops) {
			DF_NCCL_WARN("Trying to send to self without a matching recv");
			return ncclInvalidUsage;
		}
		both = g->ops[r];
		send_bytes = send.count * df_type_bytes(send.type);
		recv_bytes = both.count * df_type_bytes(both.type);
		both.kind = DF_COLL_SENDRECV_SELF;
		both.send = send.send;
		if (send_bytes < recv_bytes) {
			both.count = send_bytes;
			both.type = DF_INT8;
		}
		g->ops[r] = both;
		touch = send;
		touch.kind = DF_COLL_SENDRECV_SELF;
		touch.recv = (void *)send.send;
		if (send.stream == both.stream || !send.count || send.send == both.recv) {
			erase(g, s);
			continue;
		}
		/* The send's place becomes one touch, behind both comes the other. */
		g->ops[s] = touch;
		if (s > r) {
			g->ops[s] = both;
			g->ops[r] = touch;
			r = s;
		}
		res = insert(g, r + 1, g->handles[r], &touch);
		if (res != ncclSuccess)
			return res;
	}
	if (find_self(g, 0, DF_COLL_RECV, NULL) < g->nr_ops) {
		DF_NCCL_WARN("Trying to recv to self without a matching send");
		return ncclInvalidUsage;
	}
	return ncclSuccess;
}

static ncclResult_t submit(struct df_group *g)
{
	ncclResult_t res = ncclSuccess;
	size_t i, entered;
	int err;

	if (g->has_self)
		res = match_self(g);
	for (entered = 0; res == ncclSuccess && entered < g->nr_ops; entered++) {
		struct df_handle *h = g->handles[entered];

		if (df_handle_enter(h) != DF_H_READY) {
			df_handle_leave(h);
			res = df_handle_unusable(h, "ncclGroupEnd");
			break;
		}
	}
	for (i = 0; res == ncclSuccess && i < g->nr_events; i++)
		res = df_collconfig_record(g->events[i].event, g->events[i].stream);
	if (res == ncclSuccess && g->nr_ops) {
		err = df_submit(g->ops, g->nr_ops);
		if (err) {
			res = df_status_warn(err, "ncclGroupEnd");
			for (i = 0; i < g->nr_ops; i++)
				if (!g->handles[i]->config.blocking)
					df_handle_set(g->handles[i], 0, 0, res);
		}
	}
	for (i = 0; i < entered; i++)
		df_handle_leave(g->handles[i]);
	return res;
}

/* ---- jobs ---------------------------------------------------------------------------------------- */

/* Ends what the other jobs wait for: one of them has failed, so their peers may never come. */
static void cancel(struct df_run *run)
{
	struct df_job *job;

	for (job = run->jobs; job; job = job->next) {
		struct df_handle *h = job->made;

		if (!h)
			continue;
		/* Being inside keeps it from being freed: see df_handle_enter(). */
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

/* Carries out the job and all later ones of the same communicator, in order. */
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

	/* So the checker knows for whom. In the background the name that it has from its maker says that already. */
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

/* Carries out all jobs; frees them and the run. The first error, in the order of issue. */
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
	/* By this name the checker knows that no host waits in what it does: the caller has gone on. */
	pthread_setname_np(pthread_self(), DF_OUR_THREADS "jobs");
	run_all(arg);
	return NULL;
}

static void discard(struct df_job *jobs)
{
	struct df_job *next;

	for (; jobs; jobs = next) {
		next = jobs->next;
		df_job_undo(jobs);
		df_job_free(jobs);
	}
}

/* Blocking: carries the jobs out. Otherwise starts them: ncclInProgress. */
static ncclResult_t launch(struct df_job *jobs)
{
	struct df_run *run = calloc(1, sizeof(*run));
	int blocking = -1;
	struct df_job *job;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	if (!run) {
		discard(jobs);
		return df_status_warn(-ENOMEM, "ncclGroupEnd");
	}
	pthread_mutex_init(&run->lock, NULL);
	pthread_cond_init(&run->cond, NULL);
	run->jobs = jobs;
	for (job = jobs; job; job = job->next) {
		if (job->kind == DF_JOB_DESTROY || job->kind == DF_JOB_ABORT)
			continue;
		if (blocking >= 0 && job->on->config.blocking != blocking) {
			DF_NCCL_WARN(
				"Blocking and nonblocking communicators are not allowed in the same "
				"group.");
			discard(jobs);
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
	discard(jobs);
	free(run);
	return ncclSystemError;
}

ncclResult_t df_group_job(struct df_job *job)
{
	struct df_group *g = df_group_cur;

	if (!g)
		return launch(job);
	*g->jobs_end = job;
	g->jobs_end = &job->next;
	return ncclSuccess;
}

/* ---- the ends ------------------------------------------------------------------------------------- */

/* Closes one level. 1: that was the outermost. */
static int close_level(ncclResult_t *res)
{
	struct df_group *g = df_group_cur;

	*res = ncclSuccess;
	if (!g) {
		DF_NCCL_WARN("ncclGroupEnd: not in a group call.");
		*res = ncclInvalidUsage;
		return 0;
	}
	if (--g->depth)
		return 0;
	df_group_cur = NULL;
	return 1;
}

ncclResult_t df_group_end(uint32_t site)
{
	struct df_group *g = df_group_cur;
	uint64_t serial;
	ncclResult_t res, ops, real;

	if (!close_level(&res))
		return res;
	if (g->error != ncclSuccess) {
		discard(g->jobs);
		return end_real(g);
	}
	if (!g->jobs && !g->nr_ops)
		return end_real(g);
	serial = df_trace_serial();
	df_trace(DF_REC_CALL_ENTER, -1, 0, -1, serial, DF_CALL_GROUP_END, 0, g->nr_ops, site);
	res = g->jobs ? launch(g->jobs) : ncclSuccess;
	if (res == ncclSuccess || res == ncclInProgress) {
		ops = submit(g);
		if (ops != ncclSuccess)
			res = ops;
	}
	/* Ours are submitted and wait for nobody by now; the real library's may block here. */
	if (res != ncclSuccess && res != ncclInProgress)
		g->error = res;
	real = end_real(g);
	if (res == ncclSuccess)
		res = real;
	df_trace(DF_REC_CALL_EXIT, -1, 0, -1, serial, DF_CALL_GROUP_END, (uint64_t)res, 0, site);
	return res;
}

ncclResult_t df_group_simulate_end(ncclSimInfo_t *info)
{
	struct df_group *g = df_group_cur;
	ncclResult_t res;
	ncclSimInfo_t mine;
	size_t size;

	if (!close_level(&res))
		return res;
	res = g->error;
	if (res == ncclSuccess && info) {
		memset(&mine, 0, sizeof(mine));
		memcpy(&size, info, sizeof(size));
		if (size > sizeof(mine))
			size = sizeof(mine);
		memcpy(&mine, info, size);
		if (mine.magic != DF_NCCL_SIM_MAGIC) {
			DF_NCCL_WARN("ncclSimInfo_t argument not initialized via "
				     "NCCL_SIM_INFO_INITIALIZER");
			res = ncclInvalidArgument;
		} else {
			/* There is no model of the time here: "undefined" is what NCCL says then. */
			mine.estimatedTime = -1.0f;
			memcpy(info, &mine, size);
		}
	}
	discard(g->jobs);
	/* The group ends without running, and so does the real library's. */
	if (g->real && df_real()->ncclGroupSimulateEnd)
		(void)df_real()->ncclGroupSimulateEnd(NULL);
	return res;
}
