/*
 * Submits the operations of a group to the executor, as instances of their collectives. These rules
 * decide the order:
 *
 * - An operation waits for all earlier work of its stream. If this work consists only of
 *   operations in flight, it waits only for those whose buffers overlap its own.
 * - The same holds for operations of one communicator on different streams.
 * - The stream waits for the operation only when other work is enqueued on it
 *   (runtime/order/stream.c). Under strict order it waits at once.
 *
 * Nothing here waits for a peer. No lock is held while the driver is asked about a stream or
 * enqueues on it, because a driver call may take long.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/executor.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/flights.h"
#include "runtime/comm/polls.h"
#include "runtime/comm/process.h"
#include "runtime/devs.h"
#include "runtime/dfshim.h"
#include "runtime/order/order.h"
#include "runtime/order/stream.h"
#include "runtime/order/submit.h"
#include "runtime/order/sync.h"
#include "runtime/order/waits.h"
#include "runtime/program/program_names.h"
#include "runtime/watch/debt.h"
#include "trace/record/writer.h"

/* ---- signatures ------------------------------------------------------------------------------ */

/*
 * As in NCCL, collectives that only move data match if their element widths are equal,
 * point-to-point operations if their bytes are.
 */
void df_submit_sig(const struct df_op *op, struct df_sig *sig)
{
	static const uint32_t by_width[9] = {
		[1] = DF_INT8, [2] = DF_FLOAT16, [4] = DF_INT32, [8] = DF_INT64};
	uint32_t eb = df_type_bytes(op->type);
	int type = (int)op->type;

	memset(sig, 0, sizeof(*sig));
	sig->kind = op->kind;
	sig->root = -1;
	sig->count = op->count;
	sig->id = op->id;
	switch (op->kind) {
	case DF_COLL_ALLREDUCE:
	case DF_COLL_REDUCESCATTER:
	case DF_COLL_REDUCE:
		sig->type = op->type;
		sig->redop = op->redop;
		break;
	case DF_COLL_SEND:
	case DF_COLL_RECV:
	case DF_COLL_SENDRECV_SELF:
		sig->type = DF_INT8;
		sig->count = op->count * eb;
		type = -1;
		break;
	default:
		sig->type = by_width[eb];
	}
	if (df_coll_rooted(op->kind) || op->kind == DF_COLL_SEND || op->kind == DF_COLL_RECV)
		sig->root = op->root;
	if (df_backend->skips_data)
		sig->no_data = (uint32_t)df_backend->skips_data(type, op->count * eb);
}

/* ---- first pass: can all operations be accepted? --------------------------------------------- */

static int stream_of(const struct df_op *op, struct df_stream_info *si)
{
	int dev = op->comm->dev->index, cur, ret;

	/* The default streams are those of the communicator's device, as in NCCL. */
	if ((uintptr_t)op->stream > 2)
		return df_backend->stream_info(op->stream, si);
	cur = df_backend->get_device();
	if (cur == dev)
		return df_backend->stream_info(op->stream, si);
	df_backend->set_device(dev);
	ret = df_backend->stream_info(op->stream, si);
	df_backend->set_device(cur);
	return ret;
}

int df_submit_prepare(const struct df_op *op, struct df_prep *p, const struct df_stream_info *si)
{
	struct df_comm *comm = op->comm;
	int ret = df_comm_error(comm);

	if (ret)
		return ret;
	if (__atomic_load_n(&comm->state, __ATOMIC_RELAXED) != DF_COMM_READY)
		return -ECANCELED;
	if (si)
		p->si = *si;
	else if (op->stream == DF_NO_STREAM)
		memset(&p->si, 0, sizeof(p->si));
	else
		ret = stream_of(op, &p->si);
	if (ret)
		return ret;
	if (p->si.stream && p->si.device != comm->dev->index)
		return -EINVAL;
	df_submit_sig(op, &p->sig);
	p->strict = df_rt.strict || (p->si.legacy && !df_stream_is_legacy(comm->dev, &p->si));
	p->launch = 0;
	p->in_place = op->send == op->recv;
	p->shown = df_executor->shown(comm, df_op_in(op), df_op_out(op),
				      op->count * df_type_bytes(op->type));
	p->late.done = NULL;
	p->captured = 0;
	p->approached = 0;
	p->idle = 0;
	p->ready = (struct df_kwait){NULL, 0};
	p->on = NULL;
	p->other = NULL;
	return 0;
}

static int prepare(const struct df_op *op, struct df_prep *p)
{
	return df_submit_prepare(op, p, NULL);
}

/* ---- second pass ----------------------------------------------------------------------------- */

/*
 * The state of an operation between the steps of the second pass. All steps hold the lock of the
 * operation's device; step reach may drop it.
 */
struct way {
	struct df_launch l; /* l.after is `few`, or allocated */
	struct df_prep *p;
	const struct df_replay *replay; /* NULL unless a graph replays the operation */
	struct df_stream *stream;	/* NULL if there is none, or for a replay */
	struct df_flight *f;
	struct df_before few[DF_PREP_FEW];
};

/*
 * Step check: finds out whether the operation may run and which executor runs it. Returns 0 or
 * -errno.
 */
static int check(struct way *w)
{
	struct df_comm *comm = w->l.comm;

	/*
	 * Check again under the lock: an abort sets the state first and then ends the operations
	 * that it finds.
	 */
	if (__atomic_load_n(&comm->state, __ATOMIC_RELAXED) != DF_COMM_READY)
		return comm->error ? comm->error : -ECANCELED;
	if (df_unlikely(df_backend->submitting != NULL))
		df_backend->submitting(comm->rank, comm->index);
	return df_executor->prepare(&w->l);
}

/*
 * Step reach: orders the operation's stream after everything that the communicator's next operation
 * must follow. If the stream is busy, enqueues the write of the stream's ready word. Returns 0 or
 * -errno.
 */
static int reach(struct way *w)
{
	struct df_prep *p = w->p;
	struct df_stream *s;
	int ret = 0;

	w->stream = NULL;
	if (w->replay)
		w->l.ready = w->replay->ready;
	if (w->replay || !p->si.stream)
		return 0;
	w->stream = s = p->on ? p->on : df_stream_get(w->l.dev, &p->si);
	if (!s)
		return -ENOMEM;
	if (!p->approached)
		ret = df_order_inherit(w->l.comm, s);
	p->idle &= ret == 0;
	if (ret >= 0 && !p->idle && !p->ready.addr) {
		df_stream_filled(s);
		p->ready.addr = s->ready.word;
		ret = df_executor->mark(&w->l.dev->lock, &s->ready, p->si.stream, &p->ready.value);
	}
	w->l.ready = p->ready;
	return DF_MIN(ret, 0);
}

/*
 * Finds the earlier operations that the operation must wait for. Returns their number and stores at
 * most `max`.
 */
static uint32_t conflicts(const struct way *w, uint32_t max)
{
	const struct df_order_comm *of = &w->l.comm->order;
	uint32_t nr;

	if (w->stream) {
		/*
		 * df_order_inherit() has added the communicator's other operations to the stream's.
		 */
		nr = df_flights_conflicts(&w->stream->pending, UINT64_MAX, w->f, w->l.after, max);
	} else {
		nr = df_flights_conflicts(&of->pending, UINT64_MAX, w->f, w->l.after, max);
		if (of->latest.stream)
			nr += df_flights_conflicts(&of->latest.stream->pending, of->latest.at, w->f,
						   w->l.after + DF_MIN(nr, max),
						   max - DF_MIN(nr, max));
	}
	if (df_debt_any())
		nr += df_debt_conflicts(w->f, w->l.after + DF_MIN(nr, max), max - DF_MIN(nr, max));
	return nr;
}

/* Step order: stores the operations that the operation waits for in w->l. Returns 0 or -errno. */
static int order(struct way *w)
{
	uint32_t max = DF_PREP_FEW;
	int ret;

	if (w->stream && w->p->si.legacy && !w->p->strict) {
		ret = df_stream_meet(w->stream);
		if (ret)
			return ret;
	}
	w->f->queue = w->l.queue;
	df_order_ranges(w->l.op, w->f);
	while ((w->l.nr_after = conflicts(w, max)) > max) {
		if (w->l.after != w->few)
			free(w->l.after);
		max = w->l.nr_after;
		w->l.after = malloc(max * sizeof(*w->l.after));
		if (!w->l.after)
			return -ENOMEM;
	}
	if (w->stream && !w->p->strict && w->stream->pending.nr) {
		const struct df_flights *s = &w->stream->pending;

		df_flights_prune(&w->stream->pending);
		w->l.dev->reordered +=
			s->nr > w->l.nr_after && s->v[s->nr - 1].at > w->stream->fenced;
	}
	return 0;
}

/*
 * Step place: gives the operation its end, and the points that it waits for (runtime/executor.h).
 * Returns 0 or -errno.
 */
static int place(struct way *w)
{
	struct df_launch *l = &w->l;
	int ret;

	if (w->stream) {
		l->behind = &w->stream->pending;
		l->fenced = w->stream->fenced;
	}
	if (w->replay) {
		/* A replay waits for all that the communicator's latest operation waited for. */
		l->latest = (struct df_kwait){w->l.comm->order.latest.ready,
					      w->l.comm->order.latest.value};
		l->previous = w->replay->previous;
		l->gate = w->replay->gate;
	}
	ret = df_executor->place(l);
	if (ret)
		return ret;
	w->f->done = l->done;
	w->f->value = l->value;
	if (w->replay)
		*w->replay->opens = l->opens;
	return 0;
}

/* Step record: traces the operation before it can end. */
static void record(const struct way *w, uint64_t group)
{
	const struct df_op *op = w->l.op;
	const struct df_comm *comm = w->l.comm;
	const struct df_trace_op issued = {
		.op = w->f->op,
		.count = op->count,
		.stream = w->p->si.id,
		.send = op->send,
		.recv = op->recv,
		.comm = comm->trace,
		.group = (uint32_t)(w->p->launch ? w->p->launch : group),
		.site = op->site,
		.program = w->l.program,
		.proto = w->l.proto,
		.device = w->l.dev->index,
		.rank = comm->rank,
		.peer = op->root,
		.kind = (uint8_t)op->kind,
		.type = (uint8_t)op->type,
		.redop = (uint8_t)op->redop,
		.matched = 1,
		.sig = w->l.key,
		.inst = w->l.number,
		.index = comm->index,
		.after = w->l.nr_after ? w->l.after[0].op : 0,
	};
	uint32_t i;

	df_trace_op(&issued);
	for (i = 1; i < w->l.nr_after; i++)
		df_trace(DF_REC_OP_DEP, w->l.dev->index, comm->trace, comm->rank, w->f->op,
			 w->l.after[i].op, 0, 0, 0);
}

/* Step note: adds the operation to the sets that order later operations. Returns 0 or -errno. */
static int note(struct way *w)
{
	struct df_stream *s = w->stream;
	int ret = 0;

	df_flights_add(&w->l.comm->order.pending, w->f);
	if (w->l.op->ticket && !w->replay) {
		w->l.op->ticket->done = w->f->done;
		w->l.op->ticket->value = w->f->value;
	}
	if (s && w->p->strict)
		w->p->late = *w->f;
	else if (s)
		ret = df_flights_add(&s->pending, w->f);
	if (s)
		df_stream_legacy_note(s);
	df_order_issued(w->l.comm, s, &w->l.ready);
	return ret;
}

int df_submit_issue(const struct df_op *op, struct df_prep *p, const struct df_replay *replay,
		    uint64_t group, int alone, struct df_flight *f)
{
	struct way w;
	int ret;

	memset(f, 0, sizeof(*f));
	f->group = group;
	/*
	 * The only operation of a group shares the group's serial, because drawing another one
	 * costs as much as writing a record.
	 */
	f->op = alone ? group : df_trace_serial();
	/*
	 * The fields are set one by one, because clearing all of `l` would take a noticeable part
	 * of the call.
	 */
	w.l.op = op;
	w.l.comm = op->comm;
	w.l.dev = op->comm->dev;
	w.l.sig = &p->sig;
	w.l.serial = f->op;
	w.l.group = group;
	w.l.in_place = p->in_place;
	w.l.stream_priority = p->si.priority;
	w.l.shown = p->shown;
	w.l.after = w.few;
	w.l.ready = (struct df_kwait){NULL, 0};
	w.l.behind = NULL;
	w.l.replay = replay != NULL;
	w.l.latest.addr = NULL;
	w.l.gate = NULL;
	w.p = p;
	w.replay = replay;
	w.f = f;
	ret = reach(&w);
	if (!ret)
		ret = check(&w);
	if (ret)
		return ret;
	ret = order(&w);
	if (!ret)
		ret = place(&w);
	if (ret) {
		df_executor->drop(&w.l);
	} else {
		record(&w, group);
		df_executor->launch(&w.l);
		ret = note(&w);
	}
	if (w.l.after != w.few)
		free(w.l.after);
	return ret;
}

/* Under strict order: makes the stream wait for the operation. Stores an error in *ret. */
static void late_wait(const struct df_op *op, const struct df_prep *p, int *ret)
{
	int err = df_waits_put(p->si.device, p->si.stream, &p->late, 1);

	df_trace(DF_REC_STREAM_FENCE, op->comm->dev->index, 0, -1, p->late.op, 0, 0, p->si.id, 0);
	if (!*ret)
		*ret = err;
}

/* ---- before and after a group ---------------------------------------------------------------- */

/*
 * Returns the index of the first operation of the group on the same communicator. The group is
 * launched on the stream of that operation.
 */
static size_t main_of(const struct df_op *ops, const struct df_prep *p, size_t i)
{
	size_t j;

	for (j = 0; j < i; j++)
		if (ops[j].comm == ops[i].comm && p[j].si.stream && !p[j].si.capturing)
			break;
	return j;
}

/*
 * Before a group: orders its streams after everything that the group must follow. Returns 0 or
 * -errno.
 */
static int approach(const struct df_op *ops, struct df_prep *p, size_t nr_ops)
{
	size_t i, m;
	int ret = 0;

	/* For a group of one, df_submit_issue() does this: it takes the lock anyway. */
	if (nr_ops == 1 && !p[0].strict)
		return 0;
	for (i = 0; i < nr_ops && !ret; i++) {
		struct df_dev *dev = ops[i].comm->dev;
		struct df_stream *s;

		if (!p[i].si.stream || p[i].si.capturing)
			continue;
		p[i].approached = 1;
		if (p[i].si.legacy && p[i].strict)
			df_stream_fence_blocking(dev);
		m = main_of(ops, p, i);
		df_mutex_lock(&dev->lock);
		p[i].on = s = df_stream_get(dev, &p[i].si);
		if (!s)
			ret = -ENOMEM;
		else if (p[i].si.legacy && !p[i].strict)
			ret = df_stream_meet(s);
		if (!ret && m == i) {
			ret = DF_MIN(df_order_inherit(ops[i].comm, s), 0);
		} else if (!ret && p[m].si.stream != p[i].si.stream) {
			ret = df_order_meet(p[m].on, s);
			p[i].si = p[m].si;
			p[i].on = p[m].on;
			p[i].other = s;
		}
		df_mutex_unlock(&dev->lock);
		if (!ret && p[m].si.legacy && p[m].strict)
			df_stream_fence(p[m].on);
	}
	return ret;
}

/* After a group: makes its other streams follow it. Returns 0 or -errno. */
static int part(const struct df_op *ops, const struct df_prep *p, size_t nr_ops)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < nr_ops && !ret; i++) {
		struct df_dev *dev = ops[i].comm->dev;

		if (!p[i].other)
			continue;
		df_mutex_lock(&dev->lock);
		ret = df_order_part(ops[i].comm, p[i].on, p[i].other);
		df_stream_legacy_note(p[i].other);
		df_mutex_unlock(&dev->lock);
		if (!ret && p[i].strict && (p[i].si.legacy || p[i].other->info.legacy))
			df_stream_fence(p[i].other);
	}
	return ret;
}

/* ---- the entry ------------------------------------------------------------------------------- */

/*
 * Waits here until the stream has space for more entries. Otherwise enqueueing on a stream that
 * waits could block in the driver.
 */
static void make_room(const struct df_prep *p)
{
	struct df_stream *s = p->si.stream && !p->si.capturing ? df_stream_of(&p->si) : NULL;

	/* RELAXED: a count that is some entries old is good enough. */
	if (s && __atomic_load_n(&s->behind, __ATOMIC_RELAXED) >= DF_STREAM_ROOM)
		df_sync_room(s);
}

/*
 * Whether operation i is on the same stream as the operation before it. Nothing is enqueued between
 * the operations of a group, so the facts that are known about the stream are still valid.
 */
static int follows(const struct df_prep *p, size_t i)
{
	return i && p[i].si.stream && p[i].si.stream == p[i - 1].si.stream && !p[i].si.capturing;
}

/* Notes which streams have no unfinished work. */
static void look(struct df_prep *p, size_t nr_ops)
{
	size_t i;

	for (i = 0; i < nr_ops; i++)
		if (p[i].si.stream && !p[i].si.capturing)
			p[i].idle = follows(p, i) ? p[i - 1].idle
						  : df_backend->stream_idle(p[i].si.stream);
}

int df_submit_all(const struct df_op *ops, struct df_prep *p, size_t nr_ops, int ret)
{
	struct df_dev *locked = NULL;
	uint64_t group = df_trace_serial();
	size_t i, j, issued = 0;

	df_polls_act();
	df_executor->reserve();
	for (i = 0; i < nr_ops && !ret; i++)
		make_room(&p[i]);
	if (!ret)
		ret = approach(ops, p, nr_ops);
	if (!ret)
		look(p, nr_ops);
	df_trace_hold_time();
	for (i = 0; i < nr_ops && !ret; i++, issued += !ret) {
		struct df_flight f;

		if (p[i].si.capturing) {
			ret = p[i].captured ? 0 : df_submit_capture(ops, p, i, nr_ops);
			continue;
		}
		if (locked != ops[i].comm->dev) {
			if (locked)
				df_mutex_unlock(&locked->lock);
			locked = ops[i].comm->dev;
			df_mutex_lock(&locked->lock);
		}
		if (follows(p, i))
			p[i].ready = p[i - 1].ready;
		ret = df_submit_issue(&ops[i], &p[i], NULL, group, nr_ops == 1, &f);
	}
	if (locked)
		df_mutex_unlock(&locked->lock);
	if (locked)
		df_executor->first_turns(locked, nr_ops == 1 && issued
							 ? ops[0].count * df_type_bytes(ops[0].type)
							 : UINT64_MAX);
	/*
	 * This is done only now, because the operations of a group start together: no stream may
	 * wait for one of them before all are submitted.
	 */
	for (j = 0; j < i; j++)
		if (p[j].late.done)
			late_wait(&ops[j], &p[j], &ret);
	if (!ret)
		ret = part(ops, p, nr_ops);
	df_trace_let_time();
	if (ret == -ECONNRESET && i)
		/* A member's process has died: the asynchronous error must report this too. */
		df_comm_end(ops[i - 1].comm, ret, 2);
	if (ret && issued)
		/*
		 * Some operations of the group are submitted and others are not, so its
		 * communicators may no longer match their peers'.
		 */
		for (i = 0; i < nr_ops; i++)
			df_comm_end(ops[i].comm, ret, 1);
	df_executor->submitted();
	return ret;
}

struct df_prep *df_prep_alloc(struct df_prep *few, size_t nr_ops)
{
	return nr_ops > DF_PREP_FEW ? malloc(nr_ops * sizeof(*few)) : few;
}

int df_submit(const struct df_op *ops, size_t nr_ops)
{
	struct df_prep few[DF_PREP_FEW], *p = df_prep_alloc(few, nr_ops);
	size_t i;
	int ret = 0;

	if (!p)
		return -ENOMEM;
	for (i = 0; i < nr_ops && !ret; i++)
		ret = prepare(&ops[i], &p[i]);
	ret = df_submit_all(ops, p, ret ? 0 : nr_ops, ret);
	if (p != few)
		free(p);
	return ret;
}
