/*
 * Turns calls into launches: collects a group, sets up connections, and makes launches, for which
 * the streams of the group wait. The first use of a communicator or of a pair of ranks sets up its
 * connections, which blocks the calling thread until the other ranks have arrived. The launches of
 * a CUDA graph are here too. A non-blocking communicator enqueues its work on the streams some time
 * after the call.
 *
 * Threads: any. A group belongs to its thread. Tickets and the streams' words are assigned under
 * the communicator's lock, so that streams reach launches in the order of their numbers.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "interpose/hostnccl/hn_api.h"
#include "kernels/reduce.h"
#include "runtime/base/inverse.h"
#include "runtime/base/log.h"
#include "runtime/base/vec.h"

#define LATER_US 10000 /* delay after which a non-blocking communicator enqueues its work */

typedef int cudaError_t;
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) __attribute__((weak));
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) __attribute__((weak));
cudaError_t cudaEventDestroy(cudaEvent_t event) __attribute__((weak));
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
	__attribute__((weak));

static __thread struct {
	int depth;
	ncclResult_t failed; /* result of the first call in the group that was refused */
	struct df_hn_op *ops;
	int nr, cap;
	struct df_hn_job *jobs;
	int nr_jobs, cap_jobs;
} group;

/* ---- launches ------------------------------------------------------------------------------- */

static struct df_hn_launch *launch_new(const struct df_hn_op *ops, int nr)
{
	struct df_hn_launch *l = calloc(1, sizeof(*l) + (size_t)nr * sizeof(l->streams[0]));

	if (!l)
		return NULL;
	l->ops = malloc((size_t)nr * sizeof(*ops));
	if (!l->ops) {
		free(l);
		return NULL;
	}
	memcpy(l->ops, ops, (size_t)nr * sizeof(*ops));
	l->comm = ops[0].comm;
	l->nr = nr;
	return l;
}

/* Returns the communicator's lane for a stream. The caller holds the communicator's lock. */
static struct df_hn_lane *lane_of(struct df_hn_comm *c, const struct df_stream_info *s)
{
	struct df_hn_lane *l = c->lanes;

	while (l && l->stream != s->id)
		l = l->next;
	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->stream = s->id;
	l->next = c->lanes;
	c->lanes = l;
	return l;
}

/* Collects the distinct streams of the operations. Returns their number. */
static int streams_of(const struct df_hn_op *ops, int nr, struct df_stream_info *out)
{
	struct df_stream_info s;
	int i, k, n = 0;

	for (i = 0; i < nr; i++) {
		if (df_hn_cuda()->stream_info(ops[i].stream, &s))
			return -1;
		for (k = 0; k < n && out[k].id != s.id; k++)
			;
		if (k == n)
			out[n++] = s;
	}
	return n;
}

/*
 * Returns the number of a new launch. The caller holds the communicator's lock. RELAXED: other
 * threads and processes only compare the number with that of finished launches.
 */
static uint64_t ticket(struct df_hn_comm *c)
{
	return __atomic_fetch_add(&df_hn_seat(c)->given, 1, __ATOMIC_RELAXED);
}

static ncclResult_t launch_now(struct df_hn_launch *l, const struct df_stream_info *streams, int nr)
{
	struct df_hn_comm *c = l->comm;
	struct df_hn_lane *lane;
	int i;

	pthread_mutex_lock(&c->lock);
	for (i = 0; i < nr; i++) {
		lane = lane_of(c, &streams[i]);
		if (!lane || df_hn_cuda()->stream_write(streams[i].stream, &lane->ready, NULL,
							lane->given + 1)) {
			pthread_mutex_unlock(&c->lock);
			free(l->ops);
			free(l);
			return ncclSystemError;
		}
		l->streams[i].word = &lane->ready;
		l->streams[i].value = ++lane->given;
	}
	l->nr_streams = nr;
	l->ticket = ticket(c);
	for (i = 0; i < nr; i++)
		df_hn_cuda()->stream_wait(streams[i].stream, &c->done, l->ticket + 1);
	df_hn_submit(l);
	pthread_mutex_unlock(&c->lock);
	return ncclSuccess;
}

/* ---- graphs --------------------------------------------------------------------------------- */

static int replay(void *arg, const struct df_arrival *a, struct df_replayed *turn)
{
	const struct df_hn_launch *of = arg;
	struct df_hn_comm *c = of->comm;
	struct df_hn_launch *l = launch_new(of->ops, of->nr);

	if (!l)
		return -1;
	l->nr_streams = 1;
	l->streams[0].word = a->ready;
	l->streams[0].value = a->value;
	turn->done = &c->done;
	pthread_mutex_lock(&c->lock);
	l->ticket = ticket(c);
	turn->value = l->ticket + 1;
	df_hn_submit(l);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

static void forget(void *arg)
{
	struct df_hn_launch *l = arg;

	free(l->ops);
	free(l);
}

static int join(cudaStream_t from, cudaStream_t to)
{
	cudaEvent_t e;
	int bad;

	if (cudaEventCreateWithFlags(&e, 2))
		return -1;
	bad = cudaEventRecord(e, from) || cudaStreamWaitEvent(to, e, 0);
	cudaEventDestroy(e);
	return bad ? -1 : 0;
}

/* Captures a launch as one node for all streams of the group. */
static ncclResult_t capture(struct df_hn_launch *l, const struct df_stream_info *first)
{
	static const struct df_capture_ops ops = {.launch = replay, .destroy = forget};
	cudaStream_t stream = l->ops[0].stream, *other;
	void *arg = l;
	int i, bad = 0, nr = l->nr;

	other = malloc((size_t)nr * sizeof(cudaStream_t));
	if (!other) {
		forget(l);
		return ncclSystemError;
	}
	for (i = 0; i < nr; i++)
		other[i] = l->ops[i].stream;
	for (i = 1; i < nr && !bad; i++)
		bad = other[i] != stream && join(other[i], stream);
	if (bad)
		forget(l);
	if (bad || df_hn_cuda()->capture_nodes(&first->stream, &ops, &arg, 1)) {
		free(other);
		return ncclUnhandledCudaError;
	}
	for (i = 1; i < nr && !bad; i++)
		bad = other[i] != stream && join(stream, other[i]);
	free(other);
	return bad ? ncclUnhandledCudaError : ncclSuccess;
}

/* ---- issue ---------------------------------------------------------------------------------- */

/*
 * Enqueues a group's operations on one communicator: one launch, for which all their streams wait.
 */
static ncclResult_t put(const struct df_hn_op *ops, int nr)
{
	struct df_stream_info *streams = malloc((size_t)nr * sizeof(*streams));
	struct df_hn_launch *l = launch_new(ops, nr);
	ncclResult_t res = ncclSystemError;
	int n = streams && l ? streams_of(ops, nr, streams) : -1;

	if (n < 0) {
		if (streams && l)
			res = ncclInvalidArgument;
		if (l)
			forget(l);
	} else if (streams[0].capturing) {
		res = capture(l, &streams[0]);
	} else {
		res = launch_now(l, streams, n);
	}
	free(streams);
	return res;
}

enum { SENDS = 1, RECEIVES = 2 };

/*
 * Returns an operation's messages with a peer. NCCL executes AlltoAll, Gather and Scatter as
 * messages.
 */
static int messages(const struct df_hn_op *o, int peer)
{
	int rank = o->comm->rank, is_root = rank == o->root;

	if (peer == rank)
		return 0;
	switch (o->kind) {
	case DF_HN_SEND:
		return peer == o->root ? SENDS : 0;
	case DF_HN_RECV:
		return peer == o->root ? RECEIVES : 0;
	case DF_HN_ALLTOALL:
		return SENDS | RECEIVES;
	case DF_HN_GATHER:
	case DF_HN_SCATTER:
		if (!is_root && peer != o->root)
			return 0;
		return is_root == (o->kind == DF_HN_SCATTER) ? SENDS : RECEIVES;
	default:
		return 0;
	}
}

/* Connects this end of a message, or waits for the other end. */
static ncclResult_t connect_end(struct df_hn_comm *c, int peer, int what, int wait)
{
	int sends = what == SENDS;
	uint32_t *ends = &df_hn_pair(c, sends ? c->rank : peer, sends ? peer : c->rank)->ends;

	if (wait)
		return df_hn_wait(c, ends, 3);
	/* RELEASE pairs with the ACQUIRE in df_hn_wait(), which says why. */
	__atomic_fetch_or(ends, sends ? 1 : 2, __ATOMIC_RELEASE);
	return ncclSuccess;
}

/* Connects the ends of all messages of the operation or, if `wait`, waits for the other ends. */
static ncclResult_t connect_ends(const struct df_hn_op *o, int wait)
{
	ncclResult_t res = ncclSuccess;
	int peer, what;

	for (peer = 0; peer < o->comm->nranks && !res; peer++) {
		what = messages(o, peer);
		if (what & SENDS)
			res = connect_end(o->comm, peer, SENDS, wait);
		if (what & RECEIVES && !res)
			res = connect_end(o->comm, peer, RECEIVES, wait);
	}
	return res;
}

/*
 * Sets up the connections of a group. The first collective of a communicator waits for all its
 * ranks. The first message from one rank to another waits for the call at the other end. Both
 * happen at once for all communicators and messages of the group. AlltoAll, Gather and Scatter are
 * messages here.
 */
static ncclResult_t connect(const struct df_hn_op *ops, int nr)
{
	ncclResult_t res = ncclSuccess;
	int i;

	for (i = 0; i < nr; i++)
		if (ops[i].kind < DF_HN_ALLTOALL)
			df_hn_connect(ops[i].comm);
	for (i = 0; i < nr && !res; i++)
		if (ops[i].kind < DF_HN_ALLTOALL)
			res = df_hn_wait(ops[i].comm, &ops[i].comm->share->connected,
					 (uint32_t)ops[i].comm->nranks);
	for (i = 0; i < nr && !res; i++)
		res = connect_ends(&ops[i], 0);
	for (i = 0; i < nr && !res; i++)
		res = connect_ends(&ops[i], 1);
	return res;
}

/*
 * Sorts a group's operations so that those of one communicator are adjacent, in the order of their
 * first operations.
 */
static int by_comm(struct df_hn_op *ops, int nr, int *first)
{
	struct df_hn_op *sorted = malloc((size_t)nr * sizeof(*sorted));
	int i, k, n = 0, groups = 0;

	for (i = 0; sorted && i < nr; i++) {
		struct df_hn_comm *c = ops[i].comm;

		for (k = 0; k < i && ops[k].comm != c; k++)
			;
		if (k < i)
			continue;
		first[groups++] = n;
		for (k = i; k < nr; k++)
			if (ops[k].comm == c)
				sorted[n++] = ops[k];
	}
	if (sorted)
		memcpy(ops, sorted, (size_t)nr * sizeof(*ops));
	free(sorted);
	first[groups] = nr;
	return sorted ? groups : -1;
}

static ncclResult_t put_all(struct df_hn_op *ops, int nr)
{
	int *first = malloc((size_t)(nr + 1) * sizeof(*first)), groups, i;
	ncclResult_t res = connect(ops, nr);

	groups = first && !res ? by_comm(ops, nr, first) : -1;
	if (groups < 0 && !res)
		res = ncclSystemError;
	for (i = 0; i < groups && !res; i++)
		res = put(ops + first[i], first[i + 1] - first[i]);
	free(first);
	return res;
}

/* The work of a non-blocking communicator: a thread of its own enqueues it some time later. */
struct later {
	int nr;
	struct df_hn_op ops[];
};

static void *put_later(void *arg)
{
	struct later *l = arg;
	ncclResult_t res;
	int i;

	usleep(LATER_US);
	res = put_all(l->ops, l->nr);
	for (i = 0; i < l->nr; i++) {
		if (res)
			__atomic_store_n(&l->ops[i].comm->error, res, __ATOMIC_RELAXED);
		/* RELEASE pairs with the ACQUIRE in pncclCommGetAsyncError(). */
		__atomic_fetch_sub(&l->ops[i].comm->in_progress, 1, __ATOMIC_RELEASE);
	}
	free(l);
	return NULL;
}

static ncclResult_t put_now(struct df_hn_op *ops, int nr)
{
	struct later *l;
	pthread_t t;
	int i, later = 0;

	for (i = 0; i < nr; i++)
		later |= ops[i].comm->nonblocking;
	if (!later)
		return put_all(ops, nr);
	l = malloc(sizeof(*l) + (size_t)nr * sizeof(*ops));
	if (!l)
		return ncclSystemError;
	l->nr = nr;
	memcpy(l->ops, ops, (size_t)nr * sizeof(*ops));
	for (i = 0; i < nr; i++)
		__atomic_fetch_add(&ops[i].comm->in_progress, 1, __ATOMIC_RELAXED);
	if (pthread_create(&t, NULL, put_later, l)) {
		put_later(l);
		return ncclSuccess;
	}
	pthread_detach(t);
	return ncclInProgress;
}

/* ---- operations ----------------------------------------------------------------------------- */

/* Sets how the operation combines elements. Returns 0, or NCCL's error. */
static ncclResult_t lower(struct df_hn_op *o, const char *name)
{
	static const enum df_redop plain[] = {DF_SUM, DF_PROD, DF_MAX, DF_MIN};
	struct df_hn_comm *c = o->comm;
	int own = o->redop - ncclNumOps;
	ncclResult_t res = ncclInvalidArgument;

	if (o->redop >= 0 && o->redop < ncclAvg) {
		o->reduce = plain[o->redop];
		return ncclSuccess;
	}
	if (o->redop == ncclAvg) {
		o->reduce = o->type <= ncclUint64 ? DF_SUMPOSTDIV : DF_PREMULSUM;
		o->arg = df_inverse((unsigned)o->type, c->nranks);
		return ncclSuccess;
	}
	pthread_mutex_lock(&c->lock);
	if (own >= 0 && own < c->nr_redops && c->redops[own].type == o->type) {
		o->reduce = DF_PREMULSUM;
		o->arg = c->redops[own].scalar;
		o->arg_at = c->redops[own].at;
		res = ncclSuccess;
	}
	pthread_mutex_unlock(&c->lock);
	if (res)
		DF_NCCL_WARN("%s : invalid reduction operation %d", name, o->redop);
	return res;
}

static ncclResult_t check_op(struct df_hn_op *o, const char *name)
{
	int rooted = o->kind == DF_HN_REDUCE || o->kind == DF_HN_BROADCAST ||
		     o->kind == DF_HN_GATHER || o->kind == DF_HN_SCATTER;

	if (o->type < 0 || o->type >= ncclNumTypes) {
		DF_NCCL_WARN("%s : invalid type %d", name, o->type);
		return ncclInvalidArgument;
	}
	if ((rooted || o->kind >= DF_HN_SEND) && (o->root < 0 || o->root >= o->comm->nranks)) {
		DF_NCCL_WARN("%s : invalid root %d (root should be in the 0..%d range)", name,
			     o->root, o->comm->nranks);
		return ncclInvalidArgument;
	}
	o->bytes = o->count * dfk_type_bytes((uint32_t)o->type);
	o->no_data = df_hn_cuda()->skips_data &&
		     df_hn_cuda()->skips_data(o->kind >= DF_HN_SEND ? -1 : o->type, o->bytes);
	if (o->kind == DF_HN_ALLREDUCE || o->kind == DF_HN_REDUCE || o->kind == DF_HN_REDUCESCATTER)
		return lower(o, name);
	return ncclSuccess;
}

static ncclResult_t issue(struct df_hn_op o, const char *name)
{
	ncclResult_t res = df_hn_check(o.comm, name);

	if (!res)
		res = check_op(&o, name);
	if (!res && df_hn_cuda()->submitting)
		df_hn_cuda()->submitting(
			o.comm->rank, __atomic_fetch_add(&o.comm->nr_issued, 1, __ATOMIC_RELAXED));
	if (!res && group.depth && DF_VEC_ROOM(group.ops, group.cap, group.nr + 1))
		res = ncclSystemError;
	if (res || !group.depth) {
		if (group.depth && !group.failed)
			group.failed = res;
		/* An empty collective is not executed. */
		return res || (!o.count && o.kind < DF_HN_SEND) ? res : put_now(&o, 1);
	}
	if (o.count || o.kind >= DF_HN_SEND)
		group.ops[group.nr++] = o;
	return ncclSuccess;
}

#define COLL(name, params, what, dt, op, rt, in_, out_, n)                                         \
	ncclResult_t p##name params                                                                \
	{                                                                                          \
		return issue((struct df_hn_op){.kind = what,                                       \
					       .type = (int)(dt),                                  \
					       .redop = (int)(op),                                 \
					       .root = rt,                                         \
					       .in = in_,                                          \
					       .out = out_,                                        \
					       .count = n,                                         \
					       .comm = (struct df_hn_comm *)comm,                  \
					       .stream = stream},                                  \
			     #name);                                                               \
	}                                                                                          \
	DF_HN_NAME(name)

COLL(ncclAllReduce,
     (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
      ncclComm_t comm, cudaStream_t stream),
     DF_HN_ALLREDUCE, datatype, op, 0, sendbuff, recvbuff, count);
COLL(ncclReduce,
     (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
      int root, ncclComm_t comm, cudaStream_t stream),
     DF_HN_REDUCE, datatype, op, root, sendbuff, recvbuff, count);
COLL(ncclBroadcast,
     (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
      ncclComm_t comm, cudaStream_t stream),
     DF_HN_BROADCAST, datatype, 0, root, sendbuff, recvbuff, count);
COLL(ncclBcast,
     (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
      cudaStream_t stream),
     DF_HN_BROADCAST, datatype, 0, root, buff, buff, count);
COLL(ncclAllGather,
     (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
      ncclComm_t comm, cudaStream_t stream),
     DF_HN_ALLGATHER, datatype, 0, 0, sendbuff, recvbuff, sendcount);
COLL(ncclReduceScatter,
     (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream),
     DF_HN_REDUCESCATTER, datatype, op, 0, sendbuff, recvbuff, recvcount);
COLL(ncclAlltoAll,
     (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
      cudaStream_t stream),
     DF_HN_ALLTOALL, datatype, 0, 0, sendbuff, recvbuff, count);
COLL(ncclGather,
     (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
      ncclComm_t comm, cudaStream_t stream),
     DF_HN_GATHER, datatype, 0, root, sendbuff, recvbuff, count);
COLL(ncclScatter,
     (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
      ncclComm_t comm, cudaStream_t stream),
     DF_HN_SCATTER, datatype, 0, root, sendbuff, recvbuff, count);
COLL(ncclSend,
     (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
      cudaStream_t stream),
     DF_HN_SEND, datatype, 0, peer, sendbuff, NULL, count);
COLL(ncclRecv,
     (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
      cudaStream_t stream),
     DF_HN_RECV, datatype, 0, peer, NULL, recvbuff, count);

/* ---- groups --------------------------------------------------------------------------------- */

static ncclResult_t run_job(struct df_hn_job *j)
{
	struct df_hn_comm *c = j->comm;
	ncclResult_t res = j->fn(j);

	if (res && c && c->nonblocking)
		__atomic_store_n(&c->error, res, __ATOMIC_RELAXED);
	free(j->without);
	return res;
}

static void *run_in_group(void *arg)
{
	struct df_hn_job *j = arg;

	j->result = run_job(j);
	return NULL;
}

static void *run_behind(void *arg)
{
	struct df_hn_job *j = arg;
	struct df_hn_comm *c = j->comm;

	run_job(j);
	free(j);
	/*
	 * RELEASE pairs with the ACQUIRE in pncclCommGetAsyncError(): without it the new
	 * communicator might not be visible.
	 */
	__atomic_fetch_sub(&c->in_progress, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Runs the job in the background; the call returns at once. */
static ncclResult_t start_behind(const struct df_hn_job *job)
{
	struct df_hn_job *j = malloc(sizeof(*j));
	pthread_t t;

	if (!j)
		return ncclSystemError;
	*j = *job;
	__atomic_fetch_add(&j->comm->in_progress, 1, __ATOMIC_RELAXED);
	if (pthread_create(&t, NULL, run_behind, j)) {
		run_behind(j);
		return ncclSuccess;
	}
	pthread_detach(t);
	return ncclInProgress;
}

static int is_behind(const struct df_hn_job *j)
{
	return j->comm->nonblocking && !j->frees;
}

ncclResult_t df_hn_job_start(const struct df_hn_job *job)
{
	struct df_hn_job j = *job;

	if (group.depth) {
		if (DF_VEC_ROOM(group.jobs, group.cap_jobs, group.nr_jobs + 1))
			return ncclSystemError;
		group.jobs[group.nr_jobs++] = j;
		return ncclSuccess;
	}
	return is_behind(&j) ? start_behind(&j) : run_job(&j);
}

/* Runs all jobs at once, each in a thread, because in sequence they could deadlock. */
static ncclResult_t run_jobs(struct df_hn_job *jobs, int nr)
{
	ncclResult_t res = ncclSuccess, one;
	int i, behind = 0;

	for (i = 0; i < nr; i++)
		behind |= is_behind(&jobs[i]);
	for (i = 0; i < nr && behind; i++) {
		one = is_behind(&jobs[i]) ? start_behind(&jobs[i]) : run_job(&jobs[i]);
		res = res && res != ncclInProgress ? res : one;
	}
	if (behind)
		return res;
	for (i = 1; i < nr; i++)
		if (pthread_create(&jobs[i].thread, NULL, run_in_group, &jobs[i]))
			jobs[i].thread = 0;
	run_in_group(&jobs[0]);
	for (i = 1; i < nr; i++)
		if (jobs[i].thread)
			pthread_join(jobs[i].thread, NULL);
		else
			run_in_group(&jobs[i]);
	for (i = 0; i < nr && !res; i++)
		res = jobs[i].result;
	return res;
}

ncclResult_t pncclGroupStart(void)
{
	group.depth++;
	return ncclSuccess;
}
DF_HN_NAME(ncclGroupStart);

/* Makes the communicators, and issues the operations if `run` is set. */
static ncclResult_t end_group(int run, const char *name)
{
	struct df_hn_op *ops = group.ops;
	struct df_hn_job *jobs = group.jobs;
	int nr = group.nr, nr_jobs = group.nr_jobs;
	ncclResult_t res = group.failed, made = ncclSuccess;

	if (!group.depth) {
		DF_NCCL_WARN("%s: not in a group call.", name);
		return ncclInvalidUsage;
	}
	if (--group.depth)
		return ncclSuccess;
	/*
	 * Nothing is kept after the end of a group, because nothing frees it when the thread ends.
	 */
	memset(&group, 0, sizeof(group));
	if (!res && nr_jobs)
		res = made = run_jobs(jobs, nr_jobs);
	if (nr && run && (!res || res == ncclInProgress))
		res = put_now(ops, nr);
	free(ops);
	free(jobs);
	return res ? res : made;
}

ncclResult_t pncclGroupEnd(void)
{
	return end_group(1, "ncclGroupEnd");
}
DF_HN_NAME(ncclGroupEnd);

/* The estimated time is "undefined": NCCL reports that if it has no model of the time. */
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *info)
{
	ncclResult_t res = end_group(0, "ncclGroupSimulateEnd");

	if (res || !info)
		return res;
	if (info->magic != DF_NCCL_SIM_MAGIC) {
		DF_NCCL_WARN(
			"ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
		return ncclInvalidArgument;
	}
	info->estimatedTime = -1.0f;
	return ncclSuccess;
}
DF_HN_NAME(ncclGroupSimulateEnd);
