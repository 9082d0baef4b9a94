/*
 * The native interface. A context has a communicator, a table of registered collectives, and a
 * thread that polls the completion words of the runs in flight and calls their callbacks.
 *
 * Any thread may call these functions. The context's mutex guards its table and its list of runs;
 * it is held neither during a submission nor during a callback. The completion thread sleeps while
 * no run is in flight.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "interpose/dfccl.h"
#include "interpose/real/front.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/inverse.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/dfshim.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

#define EXPORT	   __attribute__((visibility("default")))
#define NAP_MIN_NS 5000
#define NAP_MAX_NS 200000

struct coll {
	int id;
	struct df_op op; /* each run fills in its buffers */
};

struct run {
	struct run *next;
	int id;
	struct df_ticket ticket;
	dfcclCallback_t callback;
	void *arg;
};

struct dfcclContext {
	struct df_comm *comm;
	int nranks, rank;
	struct df_mutex lock;
	pthread_cond_t wake; /* signalled when a run is in flight, or at the end */
	pthread_cond_t idle; /* signalled when no run is in flight */
	struct coll *colls;
	size_t nr_colls;
	struct run *runs;
	/* runs that are submitted or soon will be, and whose callback has not returned */
	uint64_t nr_runs;
	int stop;
	pthread_t thread;
};

/* ---- completions ----------------------------------------------------------------------------- */

static int is_done(const struct run *r)
{
	/*
	 * ACQUIRE pairs with the daemon's release of the completion word: without it the callback
	 * could read results before they are visible.
	 */
	return __atomic_load_n(r->ticket.done, __ATOMIC_ACQUIRE) >= r->ticket.value;
}

/*
 * Removes the finished runs from the list. The list has its newest run first; the result has its
 * oldest run first.
 */
static struct run *take_done(struct dfcclContext *c)
{
	struct run **at = &c->runs, *r, *done = NULL;

	while ((r = *at)) {
		if (!is_done(r)) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		r->next = done;
		done = r;
	}
	return done;
}

static void *complete(void *arg)
{
	struct dfcclContext *c = arg;
	struct timespec nap = {0, NAP_MIN_NS};
	struct run *r, *next;

	df_mutex_lock(&c->lock);
	while (!c->stop || c->nr_runs) {
		if (!c->runs) {
			df_cond_wait(&c->wake, &c->lock, -1);
			continue;
		}
		r = take_done(c);
		df_mutex_unlock(&c->lock);
		if (!r) {
			nanosleep(&nap, NULL);
			nap.tv_nsec = DF_MIN(2 * nap.tv_nsec, NAP_MAX_NS);
		} else {
			nap.tv_nsec = NAP_MIN_NS;
		}
		for (; r; r = next) {
			next = r->next;
			if (r->callback)
				r->callback(r->id, df_comm_error(c->comm), r->arg);
			free(r);
			df_mutex_lock(&c->lock);
			if (!--c->nr_runs)
				pthread_cond_broadcast(&c->idle);
			df_mutex_unlock(&c->lock);
		}
		df_mutex_lock(&c->lock);
	}
	df_mutex_unlock(&c->lock);
	return NULL;
}

/* ---- contexts -------------------------------------------------------------------------------- */

/*
 * Contexts need the daemon, because the collectives of one communicator may be issued in different
 * orders.
 */
static int is_served(void)
{
	int own = df_front() == DF_FRONT_OWN;

	if (own && df_on_lanes())
		df_warn_once(
			"NCCL executes on lanes, which do not serve the native API (dfccl.h): set "
			"DFSHIM_EXECUTOR=daemon");
	return own && !df_on_lanes();
}

EXPORT int dfcclGetUniqueId(dfcclUniqueId *id)
{
	if (!id)
		return -EINVAL;
	if (!is_served())
		return -EOPNOTSUPP;
	return df_id_create((unsigned char *)id->internal);
}

EXPORT int dfcclInit(dfcclContext_t *context, int nranks, dfcclUniqueId id, int rank, int device)
{
	struct df_comm_config config = {.name = "dfccl"};
	unsigned char bytes[1][DF_ID_BYTES];
	struct dfcclContext *c;
	int err;

	if (!context || nranks < 1 || rank < 0 || rank >= nranks)
		return -EINVAL;
	if (!is_served())
		return -EOPNOTSUPP;
	if (device < 0 || device >= df_device_count())
		return -EINVAL;
	memcpy(bytes[0], id.internal, DF_ID_BYTES);
	if (!df_id_is_ours(bytes[0]))
		return -EPROTO;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->nranks = nranks;
	c->rank = rank;
	err = df_comm_create(device, &config, &c->comm);
	if (err)
		goto err_free;
	err = df_comm_join(c->comm, 1, (const unsigned char(*)[DF_ID_BYTES])bytes, nranks, rank);
	if (err)
		goto err_comm;
	df_mutex_init(&c->lock, DF_RANK_GROUP, "dfccl context");
	df_cond_init(&c->wake);
	df_cond_init(&c->idle);
	err = -pthread_create(&c->thread, NULL, complete, c);
	if (err)
		goto err_lock;
	*context = c;
	return 0;

err_lock:
	pthread_cond_destroy(&c->idle);
	pthread_cond_destroy(&c->wake);
	df_mutex_fini(&c->lock);
err_comm:
	df_comm_destroy(c->comm);
err_free:
	free(c);
	return err;
}

EXPORT int dfcclWait(dfcclContext_t c)
{
	int err;

	if (!c)
		return -EINVAL;
	df_mutex_lock(&c->lock);
	while (c->nr_runs)
		df_cond_wait(&c->idle, &c->lock, -1);
	df_mutex_unlock(&c->lock);
	err = df_comm_error(c->comm);
	return err;
}

EXPORT int dfcclAbort(dfcclContext_t c)
{
	if (!c)
		return -EINVAL;
	df_comm_abort(c->comm);
	return 0;
}

EXPORT int dfcclDestroy(dfcclContext_t c)
{
	int err;

	if (!c)
		return -EINVAL;
	err = dfcclWait(c);
	df_mutex_lock(&c->lock);
	c->stop = 1;
	pthread_cond_broadcast(&c->wake);
	df_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	if (!err)
		err = df_comm_finalize(c->comm);
	df_comm_destroy(c->comm);
	pthread_cond_destroy(&c->idle);
	pthread_cond_destroy(&c->wake);
	df_mutex_fini(&c->lock);
	free(c->colls);
	free(c);
	return err;
}

/* ---- registration ---------------------------------------------------------------------------- */

static struct coll *find(struct dfcclContext *c, int id)
{
	size_t lo = 0, hi = c->nr_colls, mid;

	/*
	 * The table is sorted by number. Finds the position of the number, whether it is registered
	 * or not.
	 */
	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (c->colls[mid].id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return c->colls ? &c->colls[lo] : NULL;
}

static int add(struct dfcclContext *c, int id, enum df_coll_kind kind, size_t count,
	       dfcclDataType_t type, int redop, int root, int priority)
{
	static const uint32_t lowered[] = {DF_SUM, DF_PROD, DF_MAX, DF_MIN};
	struct coll new = {.id = id}, *t;
	size_t at;

	if (!c || id < 0 || (unsigned)type >= dfcclNumTypes || redop < 0 || redop >= dfcclNumOps ||
	    root < 0 || root >= c->nranks)
		return -EINVAL;
	new.op.kind = kind;
	new.op.comm = c->comm;
	new.op.count = count;
	new.op.type = (uint32_t)type;
	new.op.root = root;
	new.op.stream = DF_NO_STREAM;
	new.op.id = (uint32_t)id + 1;
	new.op.priority = priority;
	if (redop == dfcclAvg) {
		new.op.redop = type <= dfcclUint64 ? DF_SUMPOSTDIV : DF_PREMULSUM;
		new.op.redop_arg = df_inverse((unsigned)type, c->nranks);
	} else {
		new.op.redop = lowered[redop];
	}
	df_mutex_lock(&c->lock);
	t = find(c, id);
	at = t ? (size_t)(t - c->colls) : 0;
	if (at < c->nr_colls && c->colls[at].id == id) {
		df_mutex_unlock(&c->lock);
		return -EEXIST;
	}
	t = realloc(c->colls, (c->nr_colls + 1) * sizeof(*t));
	if (t) {
		c->colls = t;
		memmove(&t[at + 1], &t[at], (c->nr_colls - at) * sizeof(*t));
		t[at] = new;
		c->nr_colls++;
	}
	df_mutex_unlock(&c->lock);
	return t ? 0 : -ENOMEM;
}

EXPORT int dfcclRegisterAllReduce(dfcclContext_t c, int id, size_t count, dfcclDataType_t type,
				  dfcclRedOp_t op, int priority)
{
	return add(c, id, DF_COLL_ALLREDUCE, count, type, (int)op, 0, priority);
}

EXPORT int dfcclRegisterReduce(dfcclContext_t c, int id, size_t count, dfcclDataType_t type,
			       dfcclRedOp_t op, int root, int priority)
{
	return add(c, id, DF_COLL_REDUCE, count, type, (int)op, root, priority);
}

EXPORT int dfcclRegisterBroadcast(dfcclContext_t c, int id, size_t count, dfcclDataType_t type,
				  int root, int priority)
{
	return add(c, id, DF_COLL_BROADCAST, count, type, 0, root, priority);
}

EXPORT int dfcclRegisterAllGather(dfcclContext_t c, int id, size_t sendcount, dfcclDataType_t type,
				  int priority)
{
	return add(c, id, DF_COLL_ALLGATHER, sendcount, type, 0, 0, priority);
}

EXPORT int dfcclRegisterReduceScatter(dfcclContext_t c, int id, size_t recvcount,
				      dfcclDataType_t type, dfcclRedOp_t op, int priority)
{
	return add(c, id, DF_COLL_REDUCESCATTER, recvcount, type, (int)op, 0, priority);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void give_up(struct dfcclContext *c, struct run *r)
{
	free(r);
	df_mutex_lock(&c->lock);
	if (!--c->nr_runs)
		pthread_cond_broadcast(&c->idle);
	df_mutex_unlock(&c->lock);
}

static int run(struct dfcclContext *c, int id, enum df_coll_kind kind, const void *send, void *recv,
	       dfcclCallback_t callback, void *arg, const void *pc)
{
	struct run *r;
	struct coll *coll;
	struct df_op op;
	int err = 0;

	if (!c)
		return -EINVAL;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->id = id;
	r->callback = callback;
	r->arg = arg;
	df_mutex_lock(&c->lock);
	coll = find(c, id);
	if (!coll || coll == c->colls + c->nr_colls || coll->id != id || coll->op.kind != kind)
		err = -EINVAL;
	else
		op = coll->op;
	c->nr_runs++;
	df_mutex_unlock(&c->lock);
	if (!err && !op.count) {
		/* No data moves and no rank waits for another, so the run ends at once. */
		static const uint64_t over;

		r->ticket.done = &over;
	} else if (!err) {
		op.send = send;
		op.recv = recv;
		op.site = df_trace_site(pc);
		op.ticket = &r->ticket;
		err = df_submit(&op, 1);
	}
	if (err) {
		give_up(c, r);
		return err;
	}
	df_mutex_lock(&c->lock);
	if (!c->runs)
		pthread_cond_signal(&c->wake);
	r->next = c->runs;
	c->runs = r;
	df_mutex_unlock(&c->lock);
	return 0;
}

#define RUN(name, kind)                                                                            \
	EXPORT int dfcclRun##name(dfcclContext_t c, int id, const void *send, void *recv,          \
				  dfcclCallback_t callback, void *arg)                             \
	{                                                                                          \
		return run(c, id, kind, send, recv, callback, arg, __builtin_return_address(0));   \
	}
RUN(AllReduce, DF_COLL_ALLREDUCE)
RUN(Reduce, DF_COLL_REDUCE)
RUN(Broadcast, DF_COLL_BROADCAST)
RUN(AllGather, DF_COLL_ALLGATHER)
RUN(ReduceScatter, DF_COLL_REDUCESCATTER)

EXPORT const char *dfcclErrorString(int result)
{
	switch (result) {
	case 0:
		return "no error";
	case -EINVAL:
		return "an argument is wrong, or nothing of that kind is registered under the "
		       "number";
	case -EEXIST:
		return "the number is taken by another collective";
	case -ENOMEM:
		return "out of memory";
	case -EPROTO:
		return "the ranks do not agree, or the id was not made by dfcclGetUniqueId";
	case -ECONNRESET:
		return "a rank has died";
	case -ECANCELED:
		return "the context was aborted";
	case -ETIMEDOUT:
		return "no progress within the time-out";
	case -EOPNOTSUPP:
		return "dfshim cannot run in this process (its warning says why)";
	default:
		return "an error of the system";
	}
}
