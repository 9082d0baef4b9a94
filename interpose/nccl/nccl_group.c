/*
 * Groups. The state belongs to the thread: a pointer that is set while a group is open, so that a
 * call outside of a group costs a single test. The outermost end executes everything: first the
 * jobs (nccl_group_jobs.c), then all operations with one df_submit().
 *
 * An error in any call of the group makes the end return that error and drop everything else. For
 * non-blocking communicators the jobs run in the background. The operations are submitted at once:
 * they never wait for a peer, and their communicators are not those of the jobs.
 *
 * No locks.
 */
#include <stdlib.h>
#include <string.h>
#include "interpose/nccl/nccl_group.h"
#include "interpose/nccl/nccl_job.h"
#include "interpose/nccl/nccl_coll.h"
#include "interpose/nccl/nccl_collconfig.h"
#include "interpose/nccl/nccl_api.h"
#include "interpose/real/real.h"
#include "interpose/nccl/nccl_status.h"
#include "interpose/real/traced.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/vec.h"
#include "trace/record/writer.h"

/* An event to record at the launch. */
struct launch_event {
	struct df_handle *handle;
	cudaEvent_t event;
	cudaStream_t stream;
};

struct df_group {
	int depth;
	ncclResult_t error;
	size_t nr_ops, cap_ops, cap_handles;
	struct df_op *ops;
	struct df_handle **handles; /* communicators of the operations */
	size_t nr_events;
	struct launch_event *events;
	int has_self;
	/* whether a group of the real library is open too, for the real library's communicators */
	int real;
	struct df_job *jobs, **jobs_end;
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
		/* Each thread has one group, which is kept for its next use. */
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
	if (df_real()->ncclGroupStart() != ncclSuccess)
		return;
	g->real = 1;
	df_traced_group_start();
}

/* Ends the real library's part of the group. Drops that part if ours has failed. */
static ncclResult_t end_real(struct df_group *g, uint32_t site)
{
	ncclResult_t res;

	if (!g->real)
		return g->error;
	g->real = 0;
	/*
	 * NCCL has no call that drops a group. But if a call inside the group has failed,
	 * ncclGroupEnd() drops everything.
	 */
	if (g->error != ncclSuccess)
		(void)df_real()->ncclAllReduce(NULL, NULL, 0, ncclInt8, ncclSum, NULL, NULL);
	res = df_traced_group_end(site);
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
	if (DF_VEC_ROOM(g->ops, g->cap_ops, g->nr_ops + 1) ||
	    DF_VEC_ROOM(g->handles, g->cap_handles, g->nr_ops + 1))
		return df_status_warn(-ENOMEM, "ncclGroupEnd");
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

/* ---- operations ----------------------------------------------------------------------------- */

/* Inserts `op` before the operation at `at`, which may be the end. */
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

/*
 * Returns the first operation of that kind, at or after `at`, whose peer is its own rank. If h is
 * not NULL, only operations on this communicator count.
 */
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
 * Matches sends to the own rank with receives from it in the same group, in order. Each pair
 * becomes a copy. If the two are on different streams, the copy runs on the receive's stream. On
 * the send's stream, a copy of the source onto itself is inserted before and after it. By the rule
 * of overlapping buffers, these make each stream wait for the other.
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
		/* Put one of these copies in place of the send, and the other after the pair. */
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

/* ---- jobs ----------------------------------------------------------------------------------- */

ncclResult_t df_group_job(struct df_job *job)
{
	struct df_group *g = df_group_cur;

	if (!g)
		return df_jobs_launch(job);
	*g->jobs_end = job;
	g->jobs_end = &job->next;
	return ncclSuccess;
}

/* ---- ending a group ------------------------------------------------------------------------- */

/* Closes one level of the group. Returns 1 if it was the outermost. */
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
		df_jobs_discard(g->jobs);
		return end_real(g, site);
	}
	if (!g->jobs && !g->nr_ops)
		return end_real(g, site);
	serial = df_trace_serial();
	df_trace(DF_REC_CALL_ENTER, -1, 0, -1, serial, DF_CALL_GROUP_END, 0, g->nr_ops, site);
	res = g->jobs ? df_jobs_launch(g->jobs) : ncclSuccess;
	if (res == ncclSuccess || res == ncclInProgress) {
		ops = submit(g);
		if (ops != ncclSuccess)
			res = ops;
	}
	/*
	 * Our operations are submitted before the real library's group ends, because that may
	 * block.
	 */
	if (res != ncclSuccess && res != ncclInProgress)
		g->error = res;
	real = end_real(g, site);
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
			/*
			 * dfshim has no model of the time. NCCL reports "undefined" in that
			 * case.
			 */
			mine.estimatedTime = -1.0f;
			memcpy(info, &mine, size);
		}
	}
	df_jobs_discard(g->jobs);
	/* The group ends without running, and so does the real library's group. */
	if (g->real)
		df_traced_group_dropped();
	if (g->real && df_real()->ncclGroupSimulateEnd)
		(void)df_real()->ncclGroupSimulateEnd(NULL);
	return res;
}
