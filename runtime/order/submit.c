/*
 * From a call to the daemon: the operations of one group become instances of their collectives. The order of
 * everything here decides what may run when:
 *
 *   - an operation waits for what its stream has been given before it, unless that is nothing but
 *     operations in flight: of those it waits only for the ones whose buffers overlap its own;
 *   - the same between the operations of one communicator on different streams;
 *   - the stream is not made to wait for the operation now, but when something else is put on it
 *     (runtime/order/stream.c). Under strict order and NCCL's rules it waits at once.
 *
 * Nothing here waits for a peer.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/connector.h"
#include "runtime/coll/rules.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/comm/stats.h"
#include "runtime/daemon/dev.h"
#include "runtime/daemon/engine.h"
#include "runtime/daemon/sched.h"
#include "runtime/dfshim.h"
#include "runtime/order/debt.h"
#include "runtime/order/flights.h"
#include "runtime/order/order.h"
#include "runtime/order/stream.h"
#include "runtime/order/submit.h"
#include "runtime/program/program.h"
#include "trace/record/writer.h"

#define SAMPLE 64 /* every so many submissions are timed, for DFSHIM_STATS */

/* ---- what an operation is ------------------------------------------------------------------------------- */

/* Data that is only moved matches by width, point-to-point by bytes, as in NCCL. */
void df_submit_sig(const struct df_op *op, struct df_sig *sig)
{
	static const uint32_t by_width[9] = {
		[1] = DF_INT8, [2] = DF_FLOAT16, [4] = DF_INT32, [8] = DF_INT64};
	uint32_t eb = df_type_bytes(op->type);

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
		break;
	default:
		sig->type = by_width[eb];
	}
	if (op->kind == DF_COLL_BROADCAST || op->kind == DF_COLL_REDUCE ||
	    op->kind == DF_COLL_GATHER || op->kind == DF_COLL_SCATTER || op->kind == DF_COLL_SEND ||
	    op->kind == DF_COLL_RECV)
		sig->root = op->root;
}

/* DFSHIM_HOST_FAULT=kill:rank=R,op=N: ends the process at the N-th operation of a rank. */
static void fault(const struct df_comm *comm)
{
	static int parsed, rank = -1;
	static unsigned long at;

	if (!__atomic_load_n(&parsed,
			     __ATOMIC_ACQUIRE)) { /* pairs with the RELEASE below: rank, at set */
		const char *f = df_env()->host_fault;
		int r;
		unsigned long n;

		if (f && sscanf(f, "kill:rank=%d,op=%lu", &r, &n) == 2) {
			at = n;
			rank = r;
		} else if (f) {
			df_warn("DFSHIM_HOST_FAULT=%s: cannot be used; known is kill:rank=R,op=N",
				f);
		}
		/* RELEASE pairs with the ACQUIRE above: rank and at are seen set. */
		__atomic_store_n(&parsed, 1, __ATOMIC_RELEASE);
	}
	if (rank >= 0 && comm->rank == rank && comm->index == at)
		kill(getpid(), SIGKILL);
}

/* ---- first pass: can all of them be taken? ---------------------------------------------------------------- */

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

/* si: the stream, NULL: the one that the operation names. */
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
	p->strict = df_rt.strict || df_rt.rules == DF_RULES_NCCL ||
		    (p->si.legacy && !df_stream_is_legacy(comm->dev, &p->si));
	p->launch = 0;
	p->in_place = op->send == op->recv;
	p->late.done = NULL;
	p->captured = 0;
	p->approached = 0;
	p->other = NULL;
	return 0;
}

static int prepare(const struct df_op *op, struct df_prep *p)
{
	return df_submit_prepare(op, p, NULL);
}

/* ---- second pass ----------------------------------------------------------------------------------------------- */

static void trace_op(const struct df_op *op, const struct df_coll *coll, uint64_t serial,
		     uint64_t instance, uint64_t stream, uint64_t group)
{
	struct df_comm *comm = op->comm;
	int dev = comm->dev->index;

	df_trace(DF_REC_OP_ISSUE, dev, comm->trace, comm->rank, serial,
		 (uint64_t)op->kind | (uint64_t)op->type << 8 | (uint64_t)op->redop << 16 |
			 (uint64_t)coll->pick.proto << 32,
		 op->count, stream, op->site);
	df_trace(DF_REC_OP_ARGS, dev, comm->trace, comm->rank, serial, (uintptr_t)op->send,
		 (uintptr_t)op->recv, (uint32_t)(op->root + 1) | group << 32, op->site);
	df_trace(DF_REC_OP_MATCH, dev, comm->trace, comm->rank, serial, coll->key, instance,
		 comm->index, op->site);
	df_trace_comm_issued(comm->trace, (unsigned)op->kind);
}

/* Gives the instance to the blocks. dev->lock. */
static void launch(struct df_coll *coll, struct df_kinst *inst)
{
	struct df_comm *comm = coll->comm;
	struct df_dev *dev = coll->dev;
	uint32_t b;

	comm->index++;
	__atomic_store_n(&comm->issued, comm->issued + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&dev->exec.issued, dev->exec.issued + 1, __ATOMIC_RELAXED);
	df_dev_needs(coll, 1);
	for (b = 0; b < coll->prog->nr_blocks; b++) {
		struct df_sqe e = {&coll->k.ctx[b], inst};

		if (coll->k.ctx[b].nr_inst)
			df_sq_push(dev, b % dev->exec.d.nr_blocks, &e);
	}
	if (!coll->k.nr_blocks) {
		/* Nothing to be done on this rank. RELEASE as dfk_finish(): pairs with df_flight_done(). */
		__atomic_store_n(coll->k.done, inst->done_value, __ATOMIC_RELEASE);
		df_coll_retire(coll);
	}
}

/* The earlier operations that this one must wait for. s: its stream, NULL for a replay. */
static uint32_t all_conflicts(const struct df_comm *comm, const struct df_stream *s,
			      const struct df_flight *f, struct df_before *deps, uint32_t max)
{
	const struct df_stream *last = comm->order.latest.stream;
	uint32_t nr = 0;

	if (s) {
		/* The communicator's other operations are among the stream's: df_order_inherit(). */
		nr = df_order_conflicts(&s->pending, UINT64_MAX, f, deps, max);
	} else {
		nr = df_order_conflicts(&comm->order.pending, UINT64_MAX, f, deps, max);
		if (last)
			nr += df_order_conflicts(&last->pending, comm->order.latest.at, f,
						 deps + DF_MIN(nr, max), max - DF_MIN(nr, max));
	}
	if (df_debt_any())
		nr += df_debt_conflicts(f, deps + DF_MIN(nr, max), max - DF_MIN(nr, max));
	return nr;
}

/* replay: an extra word to wait for (graph replays), or NULL. alone: its group is it. dev->lock held. */
int df_submit_issue(const struct df_op *op, struct df_prep *p, const struct df_kwait *replay,
		    uint64_t group, int alone, struct df_flight *f)
{
	struct df_comm *comm = op->comm;
	struct df_dev *dev = comm->dev;
	struct df_before few[DF_PREP_FEW], *deps = few;
	struct df_kwait ready = {NULL, 0};
	int nccl = df_rt.rules == DF_RULES_NCCL;
	int strict = p->strict;
	uint32_t nr, i, max = DF_PREP_FEW;
	struct df_stream *s = NULL;
	struct df_kinst *inst;
	struct df_coll *coll;
	int ret;

	/* Looked at again under the lock: an abort sets it first and then ends what it finds. */
	if (__atomic_load_n(&comm->state, __ATOMIC_RELAXED) != DF_COMM_READY)
		return comm->error ? comm->error : -ECANCELED;
	fault(comm);
	ret = df_coll_get(comm, &p->sig, p->in_place, &coll);
	if (ret)
		return ret;
	if (df_unlikely(coll->parked)) {
		ret = df_coll_reconnect(coll);
		if (ret)
			return ret;
	}
	if (coll->node.next != &dev->colls) {
		/* Used last: the last to be recycled. */
		df_list_del(&coll->node);
		df_list_add_tail(&dev->colls, &coll->node);
	}
	if (!replay && p->si.stream) {
		s = df_stream_get(dev, &p->si);
		if (!s)
			return -ENOMEM;
		if (!p->approached && !nccl)
			ret = df_order_inherit(comm, s);
		if (!ret && p->si.legacy && !strict)
			ret = df_stream_meet(s);
		if (ret)
			return ret;
	}
	memset(f, 0, sizeof(*f));
	f->group = group;
	f->coll = coll;
	df_order_ranges(op, f);
	for (;;) {
		nr = all_conflicts(comm, s, f, deps, max);
		if (nr <= max)
			break;
		if (deps != few)
			free(deps);
		max = nr;
		deps = malloc(max * sizeof(*deps));
		if (!deps)
			return -ENOMEM;
	}
	inst = df_coll_instance(coll, nr + 3);
	if (!inst) {
		ret = -ENOMEM;
		goto out;
	}
	/* A group of one has one serial: counting costs as much as a record. */
	f->op = alone ? group : df_trace_serial();
	f->done = coll->k.done;
	inst->in = op->send ? op->send : op->recv;
	inst->out = op->recv ? op->recv : (void *)(uintptr_t)op->send;
	if (dev->exec.d.policy.order)
		/* CUDA's priorities are better the lower they are. */
		inst->priority = op->priority - p->si.priority +
				 df_priority_of(df_env()->priority, comm->config.name,
						df_coll_kind_name(op->kind));
	inst->redop_arg = op->redop_arg;
	inst->redop_ptr = op->redop_ptr;
	inst->op = f->op;
	trace_op(op, coll, f->op, coll->issued, p->si.id, p->launch ? p->launch : group);
	for (i = 0; i < nr; i++) {
		inst->waits[inst->nr_waits++] = deps[i].wait;
		df_trace(DF_REC_OP_DEP, dev->index, comm->trace, comm->rank, f->op, deps[i].op, 0,
			 0, 0);
	}
	if (s && !strict && s->pending.nr) {
		df_flights_prune(&s->pending);
		dev->reordered +=
			s->pending.nr > nr && s->pending.v[s->pending.nr - 1].at > s->fenced;
	}
	if (replay) {
		ready = *replay;
		/* What the communicator's latest operation came after, the replay does too. */
		if (comm->order.latest.ready) {
			inst->waits[inst->nr_waits].addr = comm->order.latest.ready;
			inst->waits[inst->nr_waits++].value = comm->order.latest.value;
		}
	} else if (s && !df_backend->stream_idle(s->info.stream)) {
		ret = df_backend->stream_write(s->info.stream, s->ready, s->ready_seq + 1);
		if (ret) {
			df_coll_instance_free(inst);
			goto out;
		}
		ready.addr = s->ready;
		ready.value = ++s->ready_seq;
	}
	if (ready.addr)
		inst->waits[inst->nr_waits++] = ready;
	if (coll->no_scratch)
		inst->waits[inst->nr_waits++] =
			(struct df_kwait){coll->scratch_word, coll->scratch_from + 1};
	df_coll_append(coll, inst);
	f->value = inst->done_value;
	if (nccl) {
		inst->waits[inst->nr_waits].addr = &inst->gate;
		inst->waits[inst->nr_waits++].value = 1;
		ret = df_rules_hold(comm, inst, &ready, f);
		if (ret)
			goto out;
	}
	if (dev->exec.issued % SAMPLE == 0) {
		uint64_t t = df_now_ns();

		launch(coll, inst);
		df_stats_sample(DF_SAMPLE_SQE, df_now_ns() - t);
	} else {
		launch(coll, inst);
	}
	df_flights_add(&comm->order.pending, f);
	if (op->ticket && !replay) {
		op->ticket->done = f->done;
		op->ticket->value = f->value;
	}
	if (s && strict)
		p->late = *f;
	else if (s)
		ret = df_flights_add(&s->pending, f);
	if (s)
		df_stream_legacy_note(s);
	df_order_issued(comm, s, &ready);
out:
	if (deps != few)
		free(deps);
	return ret;
}

/* Under NCCL's rules the group's launches may start only when it is complete. */
void df_submit_close(const struct df_op *ops, size_t nr_ops)
{
	size_t i;

	for (i = 0; i < nr_ops; i++) {
		df_mutex_lock(&ops[i].comm->dev->lock);
		df_rules_close(ops[i].comm);
		df_mutex_unlock(&ops[i].comm->dev->lock);
	}
}

/* Strict order: the stream goes on when the operation has finished. */
static void late_wait(const struct df_op *op, const struct df_prep *p, int *ret)
{
	int err = df_backend->stream_wait(p->si.stream, p->late.done, p->late.value);

	df_trace(DF_REC_STREAM_FENCE, op->comm->dev->index, 0, -1, p->late.op, 0, 0, p->si.id, 0);
	if (!*ret)
		*ret = err;
}

/* ---- before and after a group ------------------------------------------------------------------------------- */

/* The first operation of the group on the same communicator: its stream is where the launch is. */
static size_t main_of(const struct df_op *ops, const struct df_prep *p, size_t i)
{
	size_t j;

	for (j = 0; j < i; j++)
		if (ops[j].comm == ops[i].comm && p[j].si.stream && !p[j].si.capturing)
			break;
	return j;
}

/* The streams come behind what the group comes after. Under NCCL's rules rules.c does that. */
static int approach(const struct df_op *ops, struct df_prep *p, size_t nr_ops)
{
	size_t i, m;
	int ret = 0;

	/* The common case does it when it has the lock anyway. */
	if (df_rt.rules == DF_RULES_NCCL || (nr_ops == 1 && !p[0].strict))
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
		s = df_stream_get(dev, &p[i].si);
		if (!s)
			ret = -ENOMEM;
		else if (p[i].si.legacy && !p[i].strict)
			ret = df_stream_meet(s);
		if (ret)
			;
		else if (m == i)
			ret = df_order_inherit(ops[i].comm, s);
		else if (p[m].si.stream != p[i].si.stream) {
			ret = df_order_meet(df_stream_get(dev, &p[m].si), s);
			p[i].si = p[m].si;
			p[i].other = s;
		}
		df_mutex_unlock(&dev->lock);
		if (!ret && p[m].si.legacy && p[m].strict)
			df_stream_fence(df_stream_get(dev, &p[m].si));
	}
	return ret;
}

/* ... and what is put on any of them later comes after the group. */
static int part(const struct df_op *ops, const struct df_prep *p, size_t nr_ops)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < nr_ops && !ret; i++) {
		struct df_dev *dev = ops[i].comm->dev;

		if (!p[i].other)
			continue;
		df_mutex_lock(&dev->lock);
		ret = df_order_part(ops[i].comm, df_stream_get(dev, &p[i].si), p[i].other);
		df_stream_legacy_note(p[i].other);
		df_mutex_unlock(&dev->lock);
		if (!ret && p[i].strict && (p[i].si.legacy || p[i].other->info.legacy))
			df_stream_fence(p[i].other);
	}
	return ret;
}

/* ---- the entry ------------------------------------------------------------------------------------------------- */

/* All operations of a group that are not captured, each prepared. */
int df_submit_all(const struct df_op *ops, struct df_prep *p, size_t nr_ops, int ret)
{
	struct df_dev *locked = NULL;
	uint64_t group = df_trace_serial();
	size_t i, j, issued = 0;

	df_backend->reserve();
	if (!ret)
		ret = approach(ops, p, nr_ops);
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
		ret = df_submit_issue(&ops[i], &p[i], NULL, group, nr_ops == 1, &f);
	}
	if (locked)
		df_mutex_unlock(&locked->lock);
	if (nr_ops == 1 && issued &&
	    ops[0].count * df_type_bytes(ops[0].type) <= DF_FIRST_TURNS_BYTES && locked)
		df_backend->first_turns(locked->index);
	/* Only now: a group's operations start together, so none stands behind the wait for another. */
	for (j = 0; j < i; j++)
		if (p[j].late.done)
			late_wait(&ops[j], &p[j], &ret);
	if (!ret)
		ret = part(ops, p, nr_ops);
	df_trace_let_time();
	if (df_rt.rules == DF_RULES_NCCL)
		df_submit_close(ops, nr_ops);
	if (ret == -ECONNRESET && i)
		/* A member's process is gone: whoever asks for the asynchronous error has to see it too. */
		df_comm_end(ops[i - 1].comm, ret, 2);
	if (ret && issued)
		/* Some of the group are on their way: its communicators can't be trusted to match any more. */
		for (i = 0; i < nr_ops; i++)
			df_comm_end(ops[i].comm, ret, 1);
	df_backend->submitted();
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
	if (!ret && df_rt.rules == DF_RULES_NCCL)
		ret = df_rules_connect(ops, nr_ops);
	ret = df_submit_all(ops, p, ret ? 0 : nr_ops, ret);
	if (p != few)
		free(p);
	return ret;
}
