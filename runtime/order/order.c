/*
 * Decides which earlier work an operation must follow, and for which part of it the operation has
 * to wait.
 *
 * Three things order operations:
 *   - their stream;
 *   - their communicator: NCCL starts each of its operations when the one before has finished,
 *     whatever streams they are on;
 *   - their group: its operations on one communicator start when all its streams have reached the
 *     group, and hold all of these streams until all have finished.
 *
 * An operation has to wait for an earlier one only if both touch the same bytes. So order is kept
 * as sets: a stream must not overtake its pending operations. When a communicator moves from one
 * stream to another, the second stream takes over the set of the first as it was at the
 * communicator's latest operation, and waits for the stream's work before that operation (its ready
 * word). This keeps order transitive.
 *
 * All state here is guarded by the device's lock.
 */
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/executor.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/flights.h"
#include "runtime/comm/process.h"
#include "runtime/dfshim.h"
#include "runtime/order/order.h"
#include "runtime/order/stream.h"
#include "runtime/program/program.h"
#include "trace/record/writer.h"

void df_order_ranges(const struct df_op *op, struct df_flight *f)
{
	uint64_t one = op->count * df_type_bytes(op->type);
	uint64_t all = one * (uint64_t)op->comm->nranks, in = one, out = one;
	int root = op->comm->rank == op->root;

	switch (op->kind) {
	case DF_COLL_BROADCAST:
		in = root ? one : 0;
		break;
	case DF_COLL_REDUCE:
		out = root ? one : 0;
		break;
	case DF_COLL_ALLGATHER:
		out = all;
		break;
	case DF_COLL_REDUCESCATTER:
		in = all;
		break;
	case DF_COLL_ALLTOALL:
		in = out = all;
		break;
	case DF_COLL_GATHER:
		out = root ? all : 0;
		break;
	case DF_COLL_SCATTER:
		in = root ? all : 0;
		break;
	case DF_COLL_SEND:
		out = 0;
		break;
	case DF_COLL_RECV:
		in = 0;
		break;
	default:
		break;
	}
	f->in = (uintptr_t)op->send;
	f->in_end = f->in + in;
	f->out = (uintptr_t)op->recv;
	f->out_end = f->out + out;
}

static int reached(const uint64_t *word, uint64_t value)
{
	/*
	 * ACQUIRE pairs with the stream's write of its ready word: without it the stream's earlier
	 * work might not be visible.
	 */
	return !word || __atomic_load_n(word, __ATOMIC_ACQUIRE) >= value;
}

/*
 * Traces the operations that the stream has taken over since `before`. The operation for which it
 * did so may finish long before these, and nothing else in the trace would show that later work on
 * the stream waits for them.
 */
static void taken_over(const struct df_stream *s, uint64_t before)
{
	for (uint32_t i = 0; i < s->pending.nr; i++)
		if (s->pending.v[i].at > before)
			df_trace(DF_REC_STREAM_FENCE, s->dev->index, 0, -1, s->pending.v[i].op, 1,
				 0, s->info.id, 0);
}

int df_order_inherit(struct df_comm *comm, struct df_stream *s)
{
	struct df_stream *from = comm->order.latest.stream;
	const uint64_t *word = comm->order.latest.ready;
	uint64_t before = s->pending.added, value = comm->order.latest.value;
	int ret;

	if (from == s && !comm->order.latest.replayed)
		return 0;
	ret = df_flights_join(&s->pending, &comm->order.pending);
	if (!ret && from && from != s)
		ret = df_flights_join_part(&s->pending, &from->pending, 0, comm->order.latest.at);
	taken_over(s, before);
	if (ret || from == s || reached(word, value))
		return ret;
	ret = df_stream_wait(s->dev, s->info.stream, from, word, value);
	return ret ? ret : 1;
}

void df_order_issued(struct df_comm *comm, struct df_stream *s, const struct df_kwait *ready)
{
	if (!s) {
		comm->order.latest.replayed = 1;
		return;
	}
	comm->order.latest.stream = s;
	comm->order.latest.at = s->pending.added;
	comm->order.latest.ready = ready->addr ? s->ready.word : NULL;
	comm->order.latest.value = ready->value;
	comm->order.latest.replayed = 0;
}

void df_order_stream_gone(struct df_stream *s)
{
	struct df_comm *comm;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		if (comm->dev != s->dev)
			continue;
		df_mutex_lock(&s->dev->lock);
		if (comm->order.latest.stream == s) {
			/*
			 * If this fails, a later operation of the communicator may overtake
			 * operations that this stream had before it.
			 */
			if (df_flights_join_part(&comm->order.pending, &s->pending, 0,
						 comm->order.latest.at))
				df_warn_once("out of memory: cannot keep the order of a destroyed "
					     "stream");
			comm->order.latest.stream = NULL;
		}
		df_mutex_unlock(&s->dev->lock);
	}
	df_mutex_unlock(&df_rt.lock);
}

/* Makes `later` wait until `first` has reached its present end. Returns as df_order_meet() does. */
static int follow(struct df_stream *later, struct df_stream *first)
{
	int ret = df_flights_join(&later->pending, &first->pending), idle;
	struct df_dev *dev = first->dev;
	uint64_t value;

	if (ret)
		return ret;
	df_mutex_unlock(&dev->lock);
	idle = df_backend->stream_idle(first->info.stream);
	df_mutex_lock(&dev->lock);
	if (idle)
		return 0;
	ret = df_executor->mark(&dev->lock, &first->ready, first->info.stream, &value);
	if (ret)
		return ret;
	return df_stream_wait(dev, later->info.stream, first, first->ready.word, value);
}

int df_order_meet(struct df_stream *main, struct df_stream *other)
{
	return follow(main, other);
}

int df_order_part(struct df_comm *comm, struct df_stream *main, struct df_stream *other)
{
	int ret = follow(other, main);

	/*
	 * Under strict order the group's operations are not in the stream's set, because the stream
	 * itself waits for them.
	 */
	return ret ? ret : df_flights_join(&other->pending, &comm->order.pending);
}
