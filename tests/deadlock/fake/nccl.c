/*
 * A stand-in for NCCL that really executes, on the memory of libdfhost.so, by NCCL's rules: operations of one
 * communicator in their order of issue, one of DFSHIM_HOST_SLOTS slots of the device held from start to end, a
 * first use and a set-up that block the host until all ranks have come, implicit synchronisation of the device in the
 * set-up; a communicator that does not block (config.blocking = 0) puts its work on the streams a while after the call,
 * and so is set up, divided and finalized.
 * It knows nothing of dfshim and knows of CUDA only what a program may: an operation is a host function
 * on its stream, so it waits there for its peers as a kernel of NCCL's waits on a GPU.
 *
 * Ranks are threads or processes: what they share lies in a file that the unique id names, in the test's folder (T), which goes with what a killed job left. Sums and
 * maxima of 32-bit integers are right; of other types only the waiting is. Where ranks do not agree on an operation
 * it waits for ever.
 *
 * Everything else that NCCL exports comes from tests/interpose/dl/fake_nccl.c.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "fake.h"

typedef struct CUevent_st *cudaEvent_t;
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*fn)(void *), void *arg);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int *status);
cudaError_t cudaMalloc(void **ptr, size_t bytes);
cudaError_t cudaFree(void *ptr);

/* dfshim's question whether we can use the memory of the CUDA runtime on the CPU. */
__attribute__((visibility("default"))) const int dfshim_nccl_on_cpu = 1;

struct launch {
	struct comm *comm;
	uint64_t ticket; /* UINT64_MAX: captured, drawn at each run */
	uint64_t issued;
	struct launch *next_waiting;
	int nr;
	struct op ops[];
};

static __thread struct {
	int depth, nr, cap, nr_inits;
	struct op *ops;
	struct job *inits[64]; /* threads make them at the end, at the same time */
} group;

static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t slots_used[64];
static struct launch *waiting[64];
static uint64_t nr_issued;
static uint32_t nr_ids;

/* ---- a launch on its stream ---------------------------------------------------------------------------------- */

static uint32_t max_slots(void)
{
	const char *v = getenv("DFSHIM_HOST_SLOTS");

	return v && atoi(v) > 0 ? (uint32_t)atoi(v) : 4;
}

/*
 * Of the launches that wait for a slot of the device the one that was issued first gets it; a little is waited
 * for others that come at the same time, because threads start them here.
 */
static void take_slot(struct launch *l)
{
	struct comm *c = l->comm;
	int d = c->device & 63, first = 0;
	struct launch *w;

	pthread_mutex_lock(&slots_lock);
	l->next_waiting = waiting[d];
	waiting[d] = l;
	pthread_mutex_unlock(&slots_lock);
	usleep(40000);
	while (!first && !fake_aborted(c)) {
		pthread_mutex_lock(&slots_lock);
		first = slots_used[d] < max_slots();
		for (w = waiting[d]; w; w = w->next_waiting)
			first &= w->issued >= l->issued;
		slots_used[d] += first ? 1 : 0;
		pthread_mutex_unlock(&slots_lock);
		if (!first)
			fake_nap();
	}
	pthread_mutex_lock(&slots_lock);
	for (struct launch **p = &waiting[d]; *p; p = &(*p)->next_waiting)
		if (*p == l) {
			*p = l->next_waiting;
			break;
		}
	pthread_mutex_unlock(&slots_lock);
}

static void execute(void *arg)
{
	struct launch *l = arg;
	struct comm *c = l->comm;
	uint64_t ticket = l->ticket;
	int i, left = 1;

	if (ticket == UINT64_MAX)
		ticket = __atomic_fetch_add(&c->next, 1, __ATOMIC_ACQ_REL);
	while (GET(&c->turn) != ticket && !fake_aborted(c))
		fake_nap();
	take_slot(l);
	if (fake_aborted(c))
		return;
	for (i = 0; i < l->nr; i++) {
		struct op *o = &l->ops[i];

		o->step = 0;
		o->index = o->kind == SEND   ? c->sent[o->root]++
			   : o->kind == RECV ? c->got[o->root]++
					     : c->nr_coll++;
	}
	while (left && !fake_aborted(c)) {
		for (left = 0, i = 0; i < l->nr; i++) {
			if (l->ops[i].step != 2)
				fake_step(&l->ops[i]);
			left += l->ops[i].step != 2;
		}
		if (left)
			fake_nap();
	}
	pthread_mutex_lock(&slots_lock);
	slots_used[c->device & 63]--;
	pthread_mutex_unlock(&slots_lock);
	PUT(&c->turn, ticket + 1);
}

/* All that the group puts on this communicator: one kernel, for which all its streams wait. */
static void put(struct comm *c, struct op *ops, int nr)
{
	struct launch *l = malloc(sizeof(*l) + (size_t)nr * sizeof(*ops));
	cudaEvent_t e;
	int i, n = 0, capturing = 0;

	for (i = 0; i < nr; i++)
		if (ops[i].comm == c)
			l->ops[n++] = ops[i];
	l->comm = c;
	l->nr = n;
	l->issued = __atomic_add_fetch(&nr_issued, 1, __ATOMIC_RELAXED);
	cudaStreamIsCapturing(l->ops[0].stream, &capturing);
	l->ticket = capturing ? UINT64_MAX : __atomic_fetch_add(&c->next, 1, __ATOMIC_ACQ_REL);
	for (i = 1; i < n; i++) {
		if (l->ops[i].stream == l->ops[0].stream)
			continue;
		cudaEventCreateWithFlags(&e, 2);
		cudaEventRecord(e, l->ops[i].stream);
		cudaStreamWaitEvent(l->ops[0].stream, e, 0);
	}
	cudaLaunchHostFunc(l->ops[0].stream, execute, l);
	for (i = 1; i < n; i++) {
		if (l->ops[i].stream == l->ops[0].stream)
			continue;
		cudaEventCreateWithFlags(&e, 2);
		cudaEventRecord(e, l->ops[0].stream);
		cudaStreamWaitEvent(l->ops[i].stream, e, 0);
	}
}

static void put_all(struct op *ops, int nr)
{
	int i, k;

	/* The first use of a communicator waits for its ranks, of all communicators of the group at once. */
	for (i = 0; i < nr; i++)
		if (!ops[i].comm->connected++)
			__atomic_fetch_add(&ops[i].comm->r->connected, 1, __ATOMIC_ACQ_REL);
	for (i = 0; i < nr; i++)
		while (GET(&ops[i].comm->r->connected) < (uint32_t)ops[i].comm->nranks &&
		       !fake_aborted(ops[i].comm))
			fake_nap();
	for (i = 0; i < nr; i++) {
		for (k = 0; k < i && ops[k].comm != ops[i].comm; k++)
			;
		if (k == i)
			put(ops[i].comm, ops, nr);
	}
}

/* A non-blocking communicator: from a thread of its own, some time later. */
struct later {
	int nr;
	struct op ops[];
};

static void *put_later(void *arg)
{
	struct later *l = arg;
	int i;

	usleep(30000);
	put_all(l->ops, l->nr);
	for (i = 0; i < l->nr; i++)
		__atomic_sub_fetch(&l->ops[i].comm->in_progress, 1, __ATOMIC_RELEASE);
	free(l);
	return NULL;
}

static ncclResult_t put_now(struct op *ops, int nr)
{
	struct later *l;
	pthread_t t;
	int i, later = 0;

	for (i = 0; i < nr; i++)
		later |= ops[i].comm->nonblocking;
	if (!later) {
		put_all(ops, nr);
		return ncclSuccess;
	}
	l = malloc(sizeof(*l) + (size_t)nr * sizeof(*ops));
	l->nr = nr;
	memcpy(l->ops, ops, (size_t)nr * sizeof(*ops));
	for (i = 0; i < nr; i++)
		__atomic_add_fetch(&ops[i].comm->in_progress, 1, __ATOMIC_RELEASE);
	pthread_create(&t, NULL, put_later, l);
	pthread_detach(t);
	return ncclInProgress;
}

static const unsigned char type_bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

static ncclResult_t enqueue(struct op o)
{
	o.bytes = o.count * type_bytes[o.type % 12];
	if (!group.depth)
		return put_now(&o, 1);
	if (group.nr == group.cap)
		group.ops = realloc(group.ops, (size_t)(group.cap += 64) * sizeof(o));
	group.ops[group.nr++] = o;
	return ncclSuccess;
}

#define EXPORT __attribute__((visibility("default")))

EXPORT ncclResult_t pncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t t,
				   ncclRedOp_t op, ncclComm_t c, cudaStream_t s)
{
	return enqueue((struct op){AR, in, out, n, 0, t, op, 0, (struct comm *)c, s, 0, 0});
}
EXPORT ncclResult_t pncclReduce(const void *in, void *out, size_t n, ncclDataType_t t,
				ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t s)
{
	return enqueue((struct op){RED, in, out, n, 0, t, op, root, (struct comm *)c, s, 0, 0});
}
EXPORT ncclResult_t pncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t t, int root,
				   ncclComm_t c, cudaStream_t s)
{
	return enqueue((struct op){BC, in, out, n, 0, t, 0, root, (struct comm *)c, s, 0, 0});
}
EXPORT ncclResult_t pncclAllGather(const void *in, void *out, size_t n, ncclDataType_t t,
				   ncclComm_t c, cudaStream_t s)
{
	return enqueue((struct op){AG, in, out, n, 0, t, 0, 0, (struct comm *)c, s, 0, 0});
}
EXPORT ncclResult_t pncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t t,
				       ncclRedOp_t op, ncclComm_t c, cudaStream_t s)
{
	return enqueue((struct op){RS, in, out, n, 0, t, op, 0, (struct comm *)c, s, 0, 0});
}
EXPORT ncclResult_t pncclAlltoAll(const void *in, void *out, size_t n, ncclDataType_t t,
				  ncclComm_t c, cudaStream_t s)
{
	return enqueue((struct op){A2A, in, out, n, 0, t, 0, 0, (struct comm *)c, s, 0, 0});
}
EXPORT ncclResult_t pncclSend(const void *in, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
			      cudaStream_t s)
{
	return enqueue((struct op){SEND, in, NULL, n, 0, t, 0, peer, (struct comm *)c, s, 0, 0});
}
EXPORT ncclResult_t pncclRecv(void *out, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
			      cudaStream_t s)
{
	return enqueue((struct op){RECV, NULL, out, n, 0, t, 0, peer, (struct comm *)c, s, 0, 0});
}

EXPORT ncclResult_t pncclGroupStart(void)
{
	group.depth++;
	return ncclSuccess;
}

/* ---- communicators ------------------------------------------------------------------------------------------- */

/* NCCL allocates when it sets up, and that waits for the device. */
static void allocate(void)
{
	void *p;

	if (!cudaMalloc(&p, 4096))
		cudaFree(p);
}

EXPORT ncclResult_t pncclGetVersion(int *version)
{
	*version = 22809;
	return ncclSuccess;
}

EXPORT ncclResult_t pncclGetUniqueId(ncclUniqueId *id)
{
	memset(id, 0, sizeof(*id));
	snprintf(id->internal, 64, "fakenccl.%d.%u", (int)getpid(),
		 __atomic_add_fetch(&nr_ids, 1, __ATOMIC_RELAXED));
	return ncclSuccess;
}

/* A call that waits for other ranks: the set-up of a communicator, by an id or from its parent, or its end. */
struct job {
	enum { INIT, DIVIDE, FINALIZE } what;
	struct comm *c; /* the parent, if there is one */
	int color, key;
	unsigned without; /* ranks that a shrink leaves out */
	ncclComm_t *out;
	int nonblocking; /* of the child */
	int begun;	 /* counted in c->in_progress */
};

static ncclResult_t divide(struct job *j)
{
	struct comm *c = j->c, *child;
	uint64_t round = c->nr_split++, mine, it;
	int k, n = 0, rank = 0;
	char name[96];

	mine = (round + 1) << 40 | (uint64_t)(j->color & 0xffff) << 16 |
	       (uint64_t)(j->key & 0xffff);
	PUT(&c->r->split[round % COLLS][c->rank], mine);
	for (k = 0; k < c->nranks; k++) {
		if (j->without >> k & 1)
			continue;
		while ((it = GET(&c->r->split[round % COLLS][k])) >> 40 != round + 1)
			if (fake_aborted(c))
				return ncclInternalError;
			else
				fake_nap();
		if ((it >> 16 & 0xffff) != (mine >> 16 & 0xffff))
			continue;
		n++;
		rank += (it & 0xffff) < (mine & 0xffff) ||
			((it & 0xffff) == (mine & 0xffff) && k < c->rank);
	}
	if (j->color < 0)
		return ncclSuccess;
	snprintf(name, sizeof(name), "%.60s.%u.%d", c->name, (unsigned)round, j->color);
	child = fake_open(name, n, rank);
	child->device = c->device;
	child->nonblocking = j->nonblocking;
	fake_wait_all(child);
	__atomic_store_n(j->out, (ncclComm_t)child, __ATOMIC_RELEASE);
	return ncclSuccess;
}

static ncclResult_t do_job(struct job *j)
{
	ncclResult_t res = ncclSuccess;
	struct comm *c = j->c;

	if (j->what == INIT)
		fake_wait_all(c);
	else if (j->what == DIVIDE)
		res = divide(j);
	else
		while (GET(&c->turn) != GET(&c->next) && !fake_aborted(c))
			fake_nap();
	if (j->begun)
		__atomic_sub_fetch(&c->in_progress, 1, __ATOMIC_RELEASE);
	free(j);
	return res;
}

static void *run_job(void *arg)
{
	do_job(arg);
	return NULL;
}

/* In a group at its end, else now; without waiting for it if the communicator does not block. */
static ncclResult_t start_job(struct job job)
{
	struct job *j = malloc(sizeof(*j));
	pthread_t t;

	*j = job;
	if (group.depth && job.what != FINALIZE && group.nr_inits < 64) {
		group.inits[group.nr_inits++] = j;
		return ncclSuccess;
	}
	if (!j->c->nonblocking)
		return do_job(j);
	j->begun = 1;
	__atomic_add_fetch(&j->c->in_progress, 1, __ATOMIC_RELEASE);
	pthread_create(&t, NULL, run_job, j);
	pthread_detach(t);
	return ncclInProgress;
}

static ncclResult_t init(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, int nonblocking)
{
	struct comm *c;

	if (nranks > MAX_RANKS)
		return ncclInvalidArgument;
	allocate();
	c = fake_open(id.internal, nranks, rank);
	c->nonblocking = nonblocking;
	*comm = (ncclComm_t)c;
	return start_job((struct job){.what = INIT, .c = c});
}

EXPORT ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
	return init(comm, nranks, id, rank, 0);
}

EXPORT ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
					    ncclConfig_t *config)
{
	return init(comm, nranks, id, rank, config && config->blocking == 0);
}

EXPORT ncclResult_t pncclGroupEnd(void)
{
	int i, nr = group.nr, nr_inits = group.nr_inits, nonblocking = 0;
	ncclResult_t res;
	pthread_t t[64];

	if (--group.depth)
		return ncclSuccess;
	group.nr_inits = group.nr = 0;
	/* All at once, each by a thread. */
	for (i = 0; i < nr_inits; i++) {
		struct job *j = group.inits[i];

		nonblocking |= j->c->nonblocking;
		j->begun = 1;
		__atomic_add_fetch(&j->c->in_progress, 1, __ATOMIC_RELEASE);
	}
	for (i = 0; i < nr_inits; i++)
		pthread_create(&t[i], NULL, run_job, group.inits[i]);
	for (i = 0; i < nr_inits; i++)
		if (nonblocking)
			pthread_detach(t[i]);
		else
			pthread_join(t[i], NULL);
	res = nr ? put_now(group.ops, nr) : ncclSuccess;
	return nonblocking ? ncclInProgress : res;
}

static ncclResult_t child_of(ncclComm_t comm, struct job j, ncclConfig_t *config)
{
	struct comm *c = (struct comm *)comm;

	allocate();
	*j.out = NULL;
	j.what = DIVIDE;
	j.c = c;
	j.nonblocking = config && config->blocking != INT_MIN ? !config->blocking : c->nonblocking;
	return start_job(j);
}

EXPORT ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
				   ncclConfig_t *config)
{
	return child_of(comm, (struct job){.color = color, .key = key, .out = out}, config);
}

EXPORT ncclResult_t pncclCommShrink(ncclComm_t comm, int *exclude, int nr, ncclComm_t *out,
				    ncclConfig_t *config, int flags)
{
	unsigned without = 0;
	int i;

	(void)flags;
	for (i = 0; i < nr; i++)
		without |= 1u << exclude[i];
	return child_of(
		comm,
		(struct job){.key = ((struct comm *)comm)->rank, .without = without, .out = out},
		config);
}

EXPORT ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
	return start_job((struct job){.what = FINALIZE, .c = (struct comm *)comm});
}

EXPORT ncclResult_t pncclCommAbort(ncclComm_t comm)
{
	/* Streams may still be in it: it is never freed. */
	PUT(&((struct comm *)comm)->aborted, 1);
	return ncclSuccess;
}

EXPORT ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
	struct comm *c = (struct comm *)comm;

	while (GET(&c->turn) != GET(&c->next) && !fake_aborted(c))
		fake_nap();
	return pncclCommAbort(comm);
}

EXPORT ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
	*error = GET(&((struct comm *)comm)->in_progress) ? ncclInProgress : ncclSuccess;
	return ncclSuccess;
}

EXPORT ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
	*count = ((const struct comm *)comm)->nranks;
	return ncclSuccess;
}

EXPORT ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
	*rank = ((const struct comm *)comm)->rank;
	return ncclSuccess;
}

EXPORT ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int *device)
{
	*device = ((const struct comm *)comm)->device;
	return ncclSuccess;
}

EXPORT const char *pncclGetErrorString(ncclResult_t result)
{
	return result == ncclSuccess ? "no error" : "an error";
}

EXPORT const char *pncclGetLastError(ncclComm_t comm)
{
	(void)comm;
	return "";
}
