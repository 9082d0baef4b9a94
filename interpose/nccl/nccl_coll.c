/*
 * Collectives and point-to-point operations: NCCL's checks in NCCL's order, then df_submit().
 * Outside of a group this path takes no lock, allocates nothing, and makes no system call of its
 * own.
 *
 * Threads: any, but one per communicator at a time. An abort may happen concurrently: see
 * nccl_handle.h.
 */
#include "interpose/nccl/nccl_coll.h"
#include "interpose/nccl/nccl_collconfig.h"
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_group.h"
#include "interpose/nccl/nccl_api.h"
#include "interpose/real/real.h"
#include "interpose/nccl/nccl_redop.h"
#include "interpose/nccl/nccl_status.h"
#include "interpose/real/traced.h"
#include "runtime/base/env.h"
#include "runtime/base/log.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

/* The arguments of a call of any kind. */
struct call {
	enum df_coll_kind kind;
	const char *name; /* the call's name in NCCL's messages */
	const void *send;
	void *recv;
	size_t count;
	ncclDataType_t type;
	int redop;
	int root;
	cudaStream_t stream;
	cudaEvent_t event; /* the launch event, or NULL */
};

/* For NCCL_CHECK_POINTERS=1: checks that CUDA knows the buffers that this rank uses. */
static ncclResult_t check_pointers(const struct df_handle *h, const struct call *c)
{
	int at_root = h->rank == c->root;
	int p2p = c->kind == DF_COLL_SEND || c->kind == DF_COLL_RECV;
	int send = c->kind != DF_COLL_RECV && (c->kind != DF_COLL_BROADCAST || at_root) &&
		   (c->kind != DF_COLL_SCATTER || at_root);
	int recv = c->kind != DF_COLL_SEND && (c->kind != DF_COLL_REDUCE || at_root) &&
		   (c->kind != DF_COLL_GATHER || at_root);

	if (p2p && !c->count)
		return ncclSuccess;
	if (send && !df_mem_known(c->send)) {
		DF_NCCL_WARN("%s : %s %p is not a valid pointer", c->name,
			     p2p ? "buff" : "sendbuff", c->send);
		return ncclInvalidArgument;
	}
	if (recv && !df_mem_known(c->recv)) {
		DF_NCCL_WARN("%s : %s %p is not a valid pointer", c->name,
			     p2p ? "buff" : "recvbuff", c->recv);
		return ncclInvalidArgument;
	}
	return ncclSuccess;
}

/* Does what NCCL's ArgsCheck does. Also fills in the operator. */
static inline ncclResult_t check(struct df_handle *h, const struct call *c, struct df_op *op)
{
	if (df_unlikely((unsigned)c->root >= (unsigned)h->nranks)) {
		DF_NCCL_WARN("%s : invalid root %d (root should be in the 0..%d range)", c->name,
			     c->root, h->nranks);
		return ncclInvalidArgument;
	}
	if (df_unlikely((unsigned)c->type >= ncclNumTypes)) {
		DF_NCCL_WARN("%s : invalid type %d", c->name, (int)c->type);
		return ncclInvalidArgument;
	}
	if (df_likely(c->redop == ncclSum)) {
		op->redop = DF_SUM;
		op->redop_arg = 0;
		op->redop_ptr = NULL;
	} else {
		ncclResult_t res = df_redop_lower(h, c->name, c->redop, c->type, op);

		if (res != ncclSuccess)
			return res;
	}
	return df_unlikely(df_env()->nccl_check_pointers) ? check_pointers(h, c) : ncclSuccess;
}

static void log_call(const struct df_handle *h, const struct call *c)
{
	int p2p = c->kind == DF_COLL_SEND || c->kind == DF_COLL_RECV;

	df_nccl_info(DF_SUBSYS_COLL,
		     "%s: opCount %lx sendbuff %p recvbuff %p count %zu datatype %d op %d root %d "
		     "comm %p [nranks=%d] stream %p",
		     c->name, (unsigned long)__atomic_load_n(&h->op_count, __ATOMIC_RELAXED),
		     p2p ? NULL : c->send, c->kind == DF_COLL_SEND ? c->send : c->recv, c->count,
		     (int)c->type, c->redop, c->root, (const void *)h, h->nranks,
		     (void *)c->stream);
}

/* Issues an operation on a handle of ours in any state. The caller has called df_handle_enter(). */
static inline ncclResult_t enqueue_in(struct df_handle *h, uint32_t flags, const struct call *c,
				      const void *pc)
{
	struct df_op op;
	ncclResult_t res;
	int self;

	if (df_unlikely(flags != DF_H_READY)) {
		res = df_handle_unusable(h, c->name);
		if (res != ncclSuccess)
			return res;
	}
	res = check(h, c, &op);
	if (df_unlikely(res != ncclSuccess))
		return res;
	if (df_unlikely(df_nccl_info_enabled(DF_SUBSYS_COLL)))
		log_call(h, c);
	self = c->kind == DF_COLL_SEND || c->kind == DF_COLL_RECV;
	if (df_unlikely(c->event != NULL)) {
		res = df_group_cur ? df_group_launch_event(h, c->event, c->stream)
				   : df_collconfig_record(c->event, c->stream);
		if (res != ncclSuccess)
			return res;
	}
	if (!c->count && !self)
		return ncclSuccess;
	op.kind = c->kind;
	op.comm = h->comm;
	op.send = c->send;
	op.recv = c->recv;
	op.count = c->count;
	op.type = (uint32_t)c->type;
	op.root = c->root;
	op.stream = c->stream;
	op.site = df_trace_site(pc);
	op.id = 0;
	op.priority = 0;
	op.ticket = NULL;
	/*
	 * RELAXED: the number is only for the log. Threads that share the communicator may lose a
	 * count.
	 */
	__atomic_store_n(&h->op_count, __atomic_load_n(&h->op_count, __ATOMIC_RELAXED) + 1,
			 __ATOMIC_RELAXED);
	if (df_unlikely(df_group_cur != NULL))
		return df_group_add(h, &op);
	if (df_unlikely(self && c->root == h->rank)) {
		DF_NCCL_WARN("Trying to %s to self without a matching %s",
			     c->kind == DF_COLL_SEND ? "send" : "recv",
			     c->kind == DF_COLL_SEND ? "recv" : "send");
		return ncclInvalidUsage;
	}
	return df_handle_result(h, df_submit(&op, 1), c->name);
}

static inline ncclResult_t enqueue(ncclComm_t comm, const struct call *c, const void *pc)
{
	struct df_handle *h = (struct df_handle *)comm;
	ncclResult_t res = ncclInvalidArgument;

	if (df_likely(df_is_ours(comm))) {
		res = enqueue_in(h, df_handle_enter(h), c, pc);
		if (df_unlikely(res != ncclSuccess) && !h->config.blocking &&
		    !(df_handle_flags(h) & (DF_H_BUSY | DF_H_FAILED | DF_H_CLAIMED)))
			df_handle_set(h, 0, 0, res);
		df_handle_leave(h);
	} else {
		res = df_comm_check(comm, c->name, "comm");
	}
	return df_group_error(res);
}

#define UNPAREN(...) __VA_ARGS__

/*
 * Defines a call of the API. For our communicators it is a `struct call` (kind, name, send, recv,
 * count, type, operator, root). For other communicators the real library gets the call, which is
 * recorded unless dfshim is off. COLL also defines the form with a configuration.
 */
#define PLAIN(fn, params, args, ...) CALL(fn, params, args, (void)0, __VA_ARGS__)
#define COLL(fn, params, args, ...)                                                                \
	CALL(fn, params, args, (void)0, __VA_ARGS__)                                               \
	CALL(fn##Config, (UNPAREN params, const ncclCollConfig_t *config), (UNPAREN args, config), \
	     res_ = df_collconfig_parse(config, &c_.event), __VA_ARGS__)

#define CALL(fn, params, args, parse, ...)                                                         \
	ncclResult_t fn params                                                                     \
	{                                                                                          \
		struct call c_ = {__VA_ARGS__, stream, NULL};                                      \
		const void *pc_ = __builtin_return_address(0);                                     \
		ncclResult_t res_ = ncclSuccess;                                                   \
		if (DF_FOREIGN(comm)) {                                                            \
			if (!df_real()->fn)                                                        \
				return df_real_missing(#fn);                                       \
			struct df_traced_op o_;                                                    \
			begin(&o_, &c_, comm, pc_);                                                \
			res_ = df_real()->fn args;                                                 \
			return df_group_error(df_traced_end(&o_, res_));                           \
		}                                                                                  \
		parse;                                                                             \
		return res_ == ncclSuccess ? enqueue(comm, &c_, pc_) : df_group_error(res_);       \
	}                                                                                          \
	DF_NCCL_EXPORT(fn);

static void begin(struct df_traced_op *o, const struct call *c, ncclComm_t comm, const void *pc)
{
	df_traced_begin(o,
			&(struct df_traced_call){c->kind, c->send, c->recv, c->count, (int)c->type,
						 c->redop, c->root, c->stream},
			comm, pc);
}

/* clang-format off */
COLL(ncclAllReduce,
     (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
      ncclComm_t comm, cudaStream_t stream),
     (sendbuff, recvbuff, count, datatype, op, comm, stream),
     DF_COLL_ALLREDUCE, "AllReduce", sendbuff, recvbuff, count, datatype, (int)op, 0)

COLL(ncclReduce,
     (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
      int root, ncclComm_t comm, cudaStream_t stream),
     (sendbuff, recvbuff, count, datatype, op, root, comm, stream),
     DF_COLL_REDUCE, "Reduce", sendbuff, recvbuff, count, datatype, (int)op, root)

COLL(ncclBroadcast,
     (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
      ncclComm_t comm, cudaStream_t stream),
     (sendbuff, recvbuff, count, datatype, root, comm, stream),
     DF_COLL_BROADCAST, "Broadcast", sendbuff, recvbuff, count, datatype, 0, root)

PLAIN(ncclBcast,
     (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
      cudaStream_t stream),
     (buff, count, datatype, root, comm, stream),
     DF_COLL_BROADCAST, "Broadcast", buff, buff, count, datatype, 0, root)

COLL(ncclReduceScatter,
     (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream),
     (sendbuff, recvbuff, recvcount, datatype, op, comm, stream),
     DF_COLL_REDUCESCATTER, "ReduceScatter", sendbuff, recvbuff, recvcount, datatype, (int)op, 0)

COLL(ncclAllGather,
     (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
      ncclComm_t comm, cudaStream_t stream),
     (sendbuff, recvbuff, sendcount, datatype, comm, stream),
     DF_COLL_ALLGATHER, "AllGather", sendbuff, recvbuff, sendcount, datatype, 0, 0)

COLL(ncclAlltoAll,
     (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
      cudaStream_t stream),
     (sendbuff, recvbuff, count, datatype, comm, stream),
     DF_COLL_ALLTOALL, "AlltoAll", sendbuff, recvbuff, count, datatype, 0, 0)

COLL(ncclGather,
     (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
      ncclComm_t comm, cudaStream_t stream),
     (sendbuff, recvbuff, count, datatype, root, comm, stream),
     DF_COLL_GATHER, "Gather", sendbuff, recvbuff, count, datatype, 0, root)

COLL(ncclScatter,
     (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
      ncclComm_t comm, cudaStream_t stream),
     (sendbuff, recvbuff, count, datatype, root, comm, stream),
     DF_COLL_SCATTER, "Scatter", sendbuff, recvbuff, count, datatype, 0, root)

PLAIN(ncclSend,
     (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
      cudaStream_t stream),
     (sendbuff, count, datatype, peer, comm, stream),
     DF_COLL_SEND, "Send", sendbuff, NULL, count, datatype, 0, peer)

PLAIN(ncclRecv,
     (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
      cudaStream_t stream),
     (recvbuff, count, datatype, peer, comm, stream),
     DF_COLL_RECV, "Recv", NULL, recvbuff, count, datatype, 0, peer)
/* clang-format on */

ncclResult_t ncclGroupStart(void)
{
	enum df_front front = df_front();

	if (df_unlikely(df_real_groups(front))) {
		if (front == DF_FRONT_TRACE)
			df_traced_group_start();
		return DF_REAL(ncclGroupStart);
	}
	return df_group_start();
}
DF_NCCL_EXPORT(ncclGroupStart);

ncclResult_t ncclGroupEnd(void)
{
	enum df_front front = df_front();

	if (df_unlikely(df_real_groups(front))) {
		if (!df_real()->ncclGroupEnd)
			return df_real_missing(__func__);
		return front == DF_FRONT_TRACE
			       ? df_traced_group_end(df_trace_site(__builtin_return_address(0)))
			       : df_real()->ncclGroupEnd();
	}
	return df_group_end(df_trace_site(__builtin_return_address(0)));
}
DF_NCCL_EXPORT(ncclGroupEnd);

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
	enum df_front front = df_front();

	if (df_real_groups(front)) {
		if (front == DF_FRONT_TRACE)
			df_traced_group_dropped();
		return DF_REAL(ncclGroupSimulateEnd, simInfo);
	}
	return df_group_simulate_end(simInfo);
}
DF_NCCL_EXPORT(ncclGroupSimulateEnd);
