/*
 * Records the operations that NCCL executes: in mode trace all of them, otherwise those of
 * communicators that were handed to it. This file records operations as they are issued, and
 * groups. traced_comm.c records communicators. In mode trace the runtime also observes the start
 * and end of operations (runtime/record/record.c). For a group this happens when the group ends,
 * because NCCL puts its operations on their streams then.
 *
 * NCCL calls some of its own functions by their exported names. Those calls pass through here too
 * and are not recorded: df_record_inside counts the depth.
 *
 * Any thread. The data that a group has collected belongs to its thread.
 */
#include <stdlib.h>
#include <string.h>
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_api.h"
#include "interpose/real/profiled.h"
#include "interpose/real/real.h"
#include "interpose/real/traced_int.h"
#include "runtime/base/vec.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

/* The data of a thread's open NCCL group. */
struct batch {
	int depth;
	uint64_t serial; /* serial of the group's record */
	struct df_record_op *ops;
	size_t nr_ops, cap_ops;
	struct made *made;
	size_t nr_made, cap_made;
	struct traced *first; /* a communicator whose first operation is in this group */
};

static __thread struct batch batch __attribute__((tls_model("initial-exec")));

/*
 * Records these operations after NCCL's call that puts them on their streams has returned. If NCCL
 * continues the call, they are kept until the communicator is ready.
 */
static void called(struct df_record_op *ops, size_t nr, ncclResult_t res)
{
	size_t i, left = 0;

	for (i = 0; i < nr; i++)
		if (res != ncclInProgress || !ops[i].seen || !df_traced_defer(&ops[i]))
			ops[left++] = ops[i];
	df_record_after(ops, left, res == ncclSuccess);
}

int df_traced_made_later(const struct made *m)
{
	struct batch *b = &batch;
	struct made *v;

	if (!b->depth)
		return 0;
	v = DF_VEC_PUSH(b->made, b->nr_made, b->cap_made);
	if (v)
		*v = *m;
	return v != NULL;
}

/* ---- groups ---------------------------------------------------------------------------------- */

void df_traced_group_start(void)
{
	if (df_record_inside)
		return;
	if (!batch.depth++)
		batch.serial = df_trace_serial() & UINT32_MAX;
}

/*
 * Records the wait at the end of a group as a nested call. The group waits for the other ranks of
 * the communicators that it makes, which the first of these represents, or else of those whose
 * first operation it contains.
 */
static struct behind enter_inner(uint32_t site)
{
	struct batch *b = &batch;
	struct behind in = {0};
	const struct traced *on = NULL;
	size_t i;

	if (b->nr_made) {
		in.call = b->made[0].call;
		on = b->made[0].parent;
	} else if (b->first) {
		in.call = DF_CALL_CONNECT;
		on = b->first;
	}
	if (on) {
		in.serial = df_record_enter(in.call, on->comm, on->rank, on->device, on->hash,
					    on == b->first, site);
	} else if (b->nr_made) {
		in.serial = df_record_enter(in.call, 0, -1, df_record_device(), b->made[0].hash,
					    (uint64_t)b->made[0].nranks, site);
		for (i = 0; i < b->nr_made; i++)
			if (!b->made[i].parent)
				df_traced_note_init(in.serial, b->made[i].hash, b->made[i].nranks,
						    b->made[i].rank);
	}
	return in;
}

/* Records the communicators that the group has made, or that NCCL is still making. */
static void made_by_group(struct behind inner, ncclResult_t res)
{
	struct batch *b = &batch;
	const struct made *m = b->made;
	struct traced *t;

	for (; m < b->made + b->nr_made && (res == ncclSuccess || res == ncclInProgress); m++) {
		if (m->parent && res == ncclInProgress)
			df_traced_expect(m);
		else if (*m->comm)
			df_traced_comm_add(*m->comm, m->hash, m->nranks, m->rank,
					   m->parent ? m->parent->hash : 0, m->name);
	}
	if (res != ncclInProgress)
		return;
	/* All of them become ready together, so the first one represents the others. */
	m = b->made;
	t = m->parent ? m->parent : df_traced_slot(*m->comm, 0);
	if (t)
		df_traced_go_on(t, inner);
	else
		df_record_leave(inner.serial, inner.call, 0);
}

/*
 * Notes that NCCL has returned from the communicator's first collective. RELAXED: it means only
 * that; several threads may set it.
 */
static void has_first(struct traced *t)
{
	__atomic_store_n(&t->connected, 1, __ATOMIC_RELAXED);
}

/* Free it now, because nothing frees it when the thread ends. */
static void forget_group(void)
{
	struct batch *b = &batch;

	free(b->ops);
	free(b->made);
	memset(b, 0, sizeof(*b));
}

void df_traced_group_dropped(void)
{
	if (!df_record_inside && batch.depth && !--batch.depth)
		forget_group();
}

ncclResult_t df_traced_group_end(uint32_t site)
{
	struct batch *b = &batch;
	struct behind inner;
	uint64_t serial;
	ncclResult_t res;

	if (!df_traced_recording() || b->depth > 1) {
		b->depth -= df_traced_recording() && b->depth > 0;
		df_record_inside++;
		res = df_real()->ncclGroupEnd();
		df_record_inside--;
		return res;
	}
	b->depth = 0;
	serial = df_traced_enter(DF_CALL_GROUP_END, NULL, 0, b->nr_ops, site);
	inner = enter_inner(site);
	df_record_before(b->ops, b->nr_ops);
	res = df_traced_result(b->first, df_real()->ncclGroupEnd());
	called(b->ops, b->nr_ops, res);
	if (inner.serial && !b->nr_made)
		df_traced_returned(inner, b->first, res);
	else if (inner.serial && res == ncclInProgress)
		df_record_goes_on(inner.serial, inner.call);
	else if (inner.serial)
		df_record_leave(inner.serial, inner.call, (uint64_t)res);
	if (b->first)
		has_first(b->first);
	df_traced_leave(serial, DF_CALL_GROUP_END, res);
	if (b->nr_made)
		made_by_group(inner, res);
	forget_group();
	return res;
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct df_record_call describe(const struct df_traced_call *c, const struct traced *t,
				      uint32_t site)
{
	int peers = c->kind == DF_COLL_SEND || c->kind == DF_COLL_RECV ||
		    c->kind == DF_COLL_BROADCAST || c->kind == DF_COLL_REDUCE ||
		    c->kind == DF_COLL_GATHER || c->kind == DF_COLL_SCATTER;

	return (struct df_record_call){
		.kind = c->kind,
		.type = c->type,
		.redop = c->redop,
		.peer = peers ? c->root : -1,
		.count = c->count,
		.send = c->send,
		.recv = c->recv,
		.comm = t->comm,
		.site = site,
		.rank = t->rank,
		.device = t->device,
	};
}

/* Records the operation as issued. Returns 0 if nothing has to be done around its call. */
static int issue(const struct df_traced_call *c, struct traced *t, struct df_record_op *op,
		 uint32_t site, uint64_t serial)
{
	struct df_record_call call = describe(c, t, site);

	call.serial = serial;
	if (!df_record_issue(&call, c->stream, batch.depth ? batch.serial : 0, op))
		return 0;
	op->owner = t;
	return 1;
}

/* Keeps the operation until its group ends. */
static int later(const struct df_record_op *op)
{
	struct df_record_op *v = DF_VEC_PUSH(batch.ops, batch.nr_ops, batch.cap_ops);

	if (v)
		*v = *op;
	return v != NULL;
}

/*
 * Whether the call connects all ranks of the communicator, as its first collective does. Several
 * threads may get this answer. A message connects two ranks only, and NCCL executes AlltoAll,
 * Gather and Scatter as messages.
 */
static int connects(const struct df_traced_call *c, struct traced *t)
{
	int messages = c->kind == DF_COLL_SEND || c->kind == DF_COLL_RECV ||
		       c->kind == DF_COLL_ALLTOALL || c->kind == DF_COLL_GATHER ||
		       c->kind == DF_COLL_SCATTER;

	return !messages && t->nranks > 1 && !__atomic_load_n(&t->connected, __ATOMIC_RELAXED);
}

/*
 * Records that the thread will issue an operation after it has connected ranks. Returns 0 if the
 * operation must be recorded in the usual way.
 */
static int intend(struct df_traced_op *o, const struct df_traced_call *c, struct traced *t,
		  uint32_t site)
{
	struct df_record_call call = describe(c, t, site);

	o->serial = df_record_enter(DF_CALL_CONNECT, t->comm, t->rank, t->device, t->hash, 1, site);
	if (!df_record_intend(&call, c->stream, o->serial)) {
		df_record_leave(o->serial, DF_CALL_CONNECT, 0);
		return 0;
	}
	o->t = t;
	o->call = DF_CALL_CONNECT;
	o->intended = 1;
	o->reserved = df_trace_serial();
	df_profiled_issue(t->comm, t->rank, o->reserved);
	o->site = site;
	o->what = *c;
	return 1;
}

void df_traced_begin(struct df_traced_op *o, const struct df_traced_call *c, ncclComm_t comm,
		     const void *pc)
{
	struct traced *t = df_traced_recording() ? df_traced_slot(comm, 0) : NULL;
	uint32_t site;
	int issued;

	o->t = NULL;
	o->on = t;
	o->serial = 0;
	o->intended = 0;
	df_record_inside++;
	if (!t)
		return;
	site = df_trace_site(pc);
	if (connects(c, t) && !batch.depth && intend(o, c, t, site))
		return;
	issued = issue(c, t, &o->op, site, 0);
	if (issued)
		df_profiled_issue(t->comm, t->rank, o->op.op);
	if (batch.depth) {
		if (connects(c, t) && !batch.first)
			batch.first = t;
		if (!issued || later(&o->op))
			return;
	}
	o->t = t;
	o->call = connects(c, t) ? DF_CALL_CONNECT : DF_CALL_NCCL_OP;
	o->serial = df_record_enter(o->call, t->comm, t->rank, t->device, t->hash, 1, site);
	df_record_before(&o->op, 1);
}

ncclResult_t df_traced_end(struct df_traced_op *o, ncclResult_t result)
{
	df_record_inside--;
	df_profiled_issue(0, -1, 0);
	result = df_traced_result(o->on, result);
	if (!o->t)
		return result;
	if (o->intended) {
		memset(&o->op, 0, sizeof(o->op));
		if (result == ncclSuccess || result == ncclInProgress)
			issue(&o->what, o->t, &o->op, o->site, o->reserved);
	}
	called(&o->op, 1, result);
	df_traced_returned((struct behind){o->serial, o->call},
			   o->call == DF_CALL_CONNECT ? o->t : NULL, result);
	if (o->call == DF_CALL_CONNECT)
		has_first((struct traced *)o->t);
	if (result != ncclSuccess && result != ncclInProgress)
		df_trace(DF_REC_OP_FAILED, o->op.device, o->op.comm, o->op.rank, 0, 0,
			 (uint64_t)result, 0, 0);
	return result;
}
