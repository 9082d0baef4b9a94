/*
 * The real library's communicators behind ours, for the executor "nccl". The ranks exchange an id
 * over our control plane, and operations of ours become calls of the library. df_record_inside is
 * raised during these calls, so that the hooks do not take the library's use of CUDA for the
 * application's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "interpose/real/nccl_config.h"
#include "interpose/real/real_lanes.h"
#include "interpose/real/real.h"
#include "runtime/backend.h"
#include "runtime/base/env.h"
#include "runtime/base/futex.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/dfshim.h"

#define LOOK_NS (20 * DF_NS_PER_MS) /* interval of the checks whether the other ranks are alive */
#define OLDEST	21900		    /* 2.19.0 */
/* 2.22.0: from here on an abort in a group frees the communicator when the group ends */
#define GROUPS 22200

/* A rank's message to the others. Rank 0's has the id. */
struct row {
	int32_t version; /* 0 if the rank has no id */
	ncclUniqueId id;
};

static int status_errno(ncclResult_t res)
{
	switch (res) {
	case ncclSuccess:
	case ncclInProgress:
		return 0;
	case ncclRemoteError:
		return -ECONNRESET;
	case ncclInvalidArgument:
		return -EINVAL;
	case ncclInvalidUsage:
		return -EOPNOTSUPP;
	default:
		return -EIO;
	}
}

static int exchange(struct df_comm *comm, struct row *mine, ncclUniqueId *id)
{
	int i, nranks = df_comm_nranks(comm), ret;
	struct row *all = calloc((size_t)nranks, sizeof(*all));

	if (!all)
		return -ENOMEM;
	ret = df_comm_allgather(comm, mine, sizeof(*mine), all);
	*id = all[0].id;
	for (i = 0; !ret && i < nranks; i++)
		if (!all[i].version || all[i].version != all[0].version)
			ret = -EPROTO;
	free(all);
	if (ret == -EPROTO)
		df_warn("communicator %016llx: NCCL cannot execute it: a rank has no lane or no "
			"unique id, or its NCCL is of another version",
			(unsigned long long)df_comm_hash(comm));
	return ret;
}

/*
 * Sets NCCL_RUNTIME_CONNECT=0 while the library makes its first communicator, when it reads the
 * variable for all. With this setting ranks connect when a communicator is made, where all ranks
 * take part, and not at its first operation, which would block a thread of the application.
 * Afterwards the application's own value is restored.
 *
 * NCCL_LAUNCH_ORDER_IMPLICIT makes the kernels of a device wait for one another in the order of the
 * calls, which is the wait that lanes remove. The library reads it at its first operation, so it
 * stays 0.
 */
static struct {
	struct df_mutex lock;
	int is_set; /* whether it was set while a communicator was made */
} eager = {.lock = DF_MUTEX_INIT(DF_RANK_LEAF, "environment of NCCL")};

static ncclResult_t make_connected(ncclComm_t *made, int nranks, ncclUniqueId id, int rank,
				   ncclConfig_t *config)
{
	static const char name[] = "NCCL_RUNTIME_CONNECT",
			  implicit[] = "NCCL_LAUNCH_ORDER_IMPLICIT";
	const char *was;
	char *before = NULL;
	ncclResult_t res;
	int first;

	df_mutex_lock(&eager.lock);
	first = !eager.is_set;
	eager.is_set = 1;
	if (first) {
		was = getenv(name);
		before = was ? strdup(was) : NULL;
		setenv(name, "0", 1);
		was = getenv(implicit);
		if (was && strcmp(was, "0") != 0)
			df_warn("NCCL_LAUNCH_ORDER_IMPLICIT is set to 0: dfshim keeps operations "
				"of several communicators from waiting for one another");
		setenv(implicit, "0", 1);
	}
	df_mutex_unlock(&eager.lock);
	res = df_real()->ncclCommInitRankConfig(made, nranks, id, rank, config);
	if (first && before)
		setenv(name, before, 1);
	else if (first)
		unsetenv(name);
	free(before);
	if (first && res != ncclSuccess) {
		/*
		 * The library may have failed before it read the variable, so set it again next
		 * time.
		 */
		df_mutex_lock(&eager.lock);
		eager.is_set = 0;
		df_mutex_unlock(&eager.lock);
	}
	return res;
}

/*
 * State of a set-up. NCCL's set-up of a communicator waits for all ranks, even for one that has
 * died meanwhile. So it happens in a thread of its own, which is abandoned if the communicator
 * cannot be made.
 */
struct setup {
	int device, nranks, rank;
	ncclUniqueId id;
	struct df_config own; /* the names that `config` points to */
	ncclConfig_t config;
	ncclComm_t made;
	ncclResult_t res;
	uint32_t state; /* futex word: enum setup_state */
};

enum setup_state { UNDER_WAY, OVER, LEFT };

static void *set_up(void *arg)
{
	struct setup *s = arg;

	df_record_inside++;
	df_backend->set_device(s->device);
	s->res = make_connected(&s->made, s->nranks, s->id, s->rank, &s->config);
	/* ACQ_REL pairs with is_over(): without it the waiting thread could miss the result. */
	if (__atomic_exchange_n(&s->state, OVER, __ATOMIC_ACQ_REL) != LEFT) {
		/*
		 * The waiting thread may have freed *s. Then this wakes no thread, or one that
		 * checks its own condition again.
		 */
		df_futex_wake(&s->state, 1, 0);
	} else {
		if (s->made)
			(void)df_real()->ncclCommAbort(s->made);
		free(s);
	}
	df_record_inside--;
	return NULL;
}

static int is_over(const struct setup *s)
{
	/* ACQUIRE pairs with the exchange in set_up(), which says why. */
	return __atomic_load_n(&s->state, __ATOMIC_ACQUIRE) == OVER;
}

/*
 * Waits for the set-up. Returns 0 when it is over, or -errno if a rank has failed. In the second
 * case the other thread frees *s.
 */
static int wait_for(struct df_comm *comm, struct setup *s)
{
	int why = 0;

	while (!why && !is_over(s)) {
		(void)df_futex_wait(&s->state, UNDER_WAY, LOOK_NS, 0);
		why = df_comm_stopped(comm);
	}
	/*
	 * ACQ_REL pairs with the exchange in set_up(): either that thread frees *s, or its result
	 * is visible here.
	 */
	if (why && __atomic_exchange_n(&s->state, LEFT, __ATOMIC_ACQ_REL) == OVER)
		return 0;
	return why;
}

static int make(struct df_comm *comm, const void *given, int ctas, void **real)
{
	const struct df_config *config = given;
	struct row mine = {.version = df_real_version()};
	struct setup *s = calloc(1, sizeof(*s));
	int rank = df_comm_rank(comm), ret;
	ncclUniqueId id;

	df_record_inside++;
	if (!s || !config || (!rank && df_real()->ncclGetUniqueId(&mine.id) != ncclSuccess))
		mine.version = 0;
	ret = exchange(comm, &mine, &id);
	df_record_inside--;
	if (ret) {
		free(s);
		return ret;
	}
	s->own = *config;
	df_config_for_lane(&s->own, ctas, &s->config);
	s->device = df_backend->get_device();
	s->nranks = df_comm_nranks(comm);
	s->rank = rank;
	s->id = id;
	/*
	 * If no thread can be started, this thread does the set-up itself, because the other ranks
	 * wait for it.
	 */
	if (df_thread_start("dfshim-set-up", 0, set_up, s))
		(void)set_up(s);
	ret = wait_for(comm, s);
	if (ret) {
		df_warn("communicator %016llx, rank %d: NCCL's communicator is not made: %s",
			(unsigned long long)df_comm_hash(comm), rank,
			ret == -ECONNRESET ? "the process of another rank has ended"
					   : strerror(-ret));
		return ret;
	}
	*real = s->made;
	ret = status_errno(s->res);
	if (ret)
		df_warn("communicator %016llx, rank %d: NCCL cannot make it (result %d)",
			(unsigned long long)df_comm_hash(comm), rank, (int)s->res);
	free(s);
	return ret;
}

/*
 * Stores the operator for the call in *out. *own says whether it was made for this call. Returns
 * NCCL's result.
 */
static ncclResult_t redop_of(const struct df_op *op, ncclComm_t real, ncclRedOp_t *out, int *own)
{
	static const ncclRedOp_t plain[] = {[DF_SUM] = ncclSum,
					    [DF_PROD] = ncclProd,
					    [DF_MAX] = ncclMax,
					    [DF_MIN] = ncclMin,
					    [DF_SUMPOSTDIV] = ncclAvg};
	uint64_t scalar = op->redop_arg;

	*own = op->redop == DF_PREMULSUM;
	if (!*own) {
		*out = plain[op->redop];
		return ncclSuccess;
	}
	return df_real()->ncclRedOpCreatePreMulSum(
		out, op->redop_ptr ? (void *)(uintptr_t)op->redop_ptr : (void *)&scalar,
		(ncclDataType_t)op->type,
		op->redop_ptr ? ncclScalarDevice : ncclScalarHostImmediate, real);
}

static ncclResult_t reduces(const struct df_op *o, ncclComm_t real, cudaStream_t s)
{
	const struct df_nccl_real *r = df_real();
	ncclDataType_t type = (ncclDataType_t)o->type;
	ncclRedOp_t redop;
	ncclResult_t res;
	int own;

	res = redop_of(o, real, &redop, &own);
	if (res != ncclSuccess)
		return res;
	if (o->kind == DF_COLL_ALLREDUCE)
		res = r->ncclAllReduce(o->send, o->recv, o->count, type, redop, real, s);
	else if (o->kind == DF_COLL_REDUCE)
		res = r->ncclReduce(o->send, o->recv, o->count, type, redop, o->root, real, s);
	else
		res = r->ncclReduceScatter(o->send, o->recv, o->count, type, redop, real, s);
	/* The call has copied everything that it needs of the operator. */
	if (own)
		(void)r->ncclRedOpDestroy(redop, real);
	return res;
}

/*
 * Copies a message from a rank to itself. There is nothing to do if source and destination are the
 * same.
 */
static ncclResult_t copies(const struct df_op *o, ncclComm_t real, cudaStream_t s)
{
	ncclResult_t res, end;
	int self = df_comm_rank(o->comm);

	if (!o->count || o->send == o->recv)
		return ncclSuccess;
	res = df_real()->ncclGroupStart();
	if (res == ncclSuccess) {
		res = df_real()->ncclSend(o->send, o->count, (ncclDataType_t)o->type, self, real,
					  s);
		if (res == ncclSuccess)
			res = df_real()->ncclRecv(o->recv, o->count, (ncclDataType_t)o->type, self,
						  real, s);
		end = df_real()->ncclGroupEnd();
		res = res == ncclSuccess ? end : res;
	}
	return res;
}

static ncclResult_t put_one(const struct df_op *o, ncclComm_t real, cudaStream_t s)
{
	ncclDataType_t type = (ncclDataType_t)o->type;

	switch (o->kind) {
	case DF_COLL_ALLREDUCE:
	case DF_COLL_REDUCE:
	case DF_COLL_REDUCESCATTER:
		return reduces(o, real, s);
	case DF_COLL_BROADCAST:
		return DF_REAL(ncclBroadcast, o->send, o->recv, o->count, type, o->root, real, s);
	case DF_COLL_ALLGATHER:
		return DF_REAL(ncclAllGather, o->send, o->recv, o->count, type, real, s);
	case DF_COLL_ALLTOALL:
		return DF_REAL(ncclAlltoAll, o->send, o->recv, o->count, type, real, s);
	case DF_COLL_GATHER:
		return DF_REAL(ncclGather, o->send, o->recv, o->count, type, o->root, real, s);
	case DF_COLL_SCATTER:
		return DF_REAL(ncclScatter, o->send, o->recv, o->count, type, o->root, real, s);
	case DF_COLL_SEND:
		return DF_REAL(ncclSend, o->send, o->count, type, o->root, real, s);
	case DF_COLL_RECV:
		return DF_REAL(ncclRecv, o->recv, o->count, type, o->root, real, s);
	case DF_COLL_SENDRECV_SELF:
		return copies(o, real, s);
	default:
		return ncclInvalidUsage;
	}
}

/* Why the library has refused the operation. AlltoAll, Gather and Scatter are new in 2.28. */
static const char *reason_of(const struct df_op *o, ncclResult_t res)
{
	const struct df_nccl_real *r = df_real();
	const char *text;

	if (!r->ncclAlltoAll && (o->kind == DF_COLL_ALLTOALL || o->kind == DF_COLL_GATHER ||
				 o->kind == DF_COLL_SCATTER))
		return df_nccl_last_error();
	text = r->ncclGetLastError ? r->ncclGetLastError(NULL) : "";
	return *text || !r->ncclGetErrorString ? text : r->ncclGetErrorString(res);
}

static int put(void *real, const struct df_op *const *ops, size_t nr, const void *stream)
{
	cudaStream_t s = (cudaStream_t)(uintptr_t)stream;
	ncclResult_t res = ncclSuccess, end;
	size_t i, refused = 0;

	df_record_inside++;
	if (nr > 1)
		res = df_real()->ncclGroupStart();
	for (i = 0; res == ncclSuccess && i < nr; i++) {
		res = put_one(ops[i], real, s);
		refused = i;
	}
	if (nr > 1) {
		end = df_real()->ncclGroupEnd();
		res = res == ncclSuccess ? end : res;
	}
	df_record_inside--;
	if (status_errno(res))
		df_warn("communicator %016llx, rank %d: NCCL refuses an operation (result %d): %s",
			(unsigned long long)df_comm_hash(ops[0]->comm), df_comm_rank(ops[0]->comm),
			(int)res, reason_of(ops[refused], res));
	return status_errno(res);
}

static int error(void *real)
{
	ncclResult_t state = ncclSuccess;

	if (df_real()->ncclCommGetAsyncError(real, &state) != ncclSuccess)
		return -EIO;
	return status_errno(state);
}

/*
 * Aborts the real library's communicator. ncclCommAbort() frees the communicator, even if another
 * thread is in a call on it. In a group it only makes such calls return, and the end of the group
 * frees the communicator. An older NCCL does not do that in a group, so with it the calls must have
 * returned before.
 */
static void abort_real(void *real, void (*wait)(void *arg), void *arg)
{
	int groups = df_real_version() >= GROUPS;

	if (!groups && wait)
		wait(arg);
	df_record_inside++;
	if (groups)
		(void)df_real()->ncclGroupStart();
	(void)df_real()->ncclCommAbort(real);
	if (groups && wait)
		wait(arg);
	if (groups)
		(void)df_real()->ncclGroupEnd();
	df_record_inside--;
}

static void destroy(void *real)
{
	df_record_inside++;
	(void)df_real()->ncclCommDestroy(real);
	df_record_inside--;
}

const struct df_lane_calls *df_real_lanes(void)
{
	static const struct df_lane_calls calls = {
		.make = make, .put = put, .error = error, .abort = abort_real, .destroy = destroy};
	const struct df_nccl_real *r = df_real();

	if (df_on_hostcuda() && !df_real_on_cpu())
		return NULL;
	/* An older library has no maxCTAs, so its kernels cannot be made to fit. */
	if (df_real_version() < OLDEST)
		return NULL;
	return r->ncclGetUniqueId && r->ncclCommInitRankConfig && r->ncclRedOpCreatePreMulSum
		       ? &calls
		       : NULL;
}
