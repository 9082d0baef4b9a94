/*
 * Turns NCCL's events into records of the trace: calls of the application (from v5 on), operations,
 * the begin and end of their kernels, and the work of proxies for them.
 *
 * The stop of an operation's event only shows that the operation was launched. The operation has
 * ended when its kernel has ended on all its channels. The number of channels is not known for all
 * operations (a short message uses fewer channels than NCCL reports). Such an operation counts as
 * ended when its kernel has ended on all channels on which it began, and begins on no other one for
 * a while, or until a later operation ends. If no kernel was seen when a later operation of the
 * communicator ends, the operation's end cannot be seen.
 *
 * If libdfshim.so is in the process it records calls and operations; only proxies are added.
 *
 * Any thread; all under df_profiler_lock but the steps of proxies.
 */
#include <string.h>
#include <unistd.h>
#include "interpose/profiler/handles.h"
#include "interpose/profiler/nccl_profiler.h"
#include "interpose/profiler/profiler.h"
#include "trace/record/names.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

#define GROUP_END_STARTS 24 /* state of a group's event: its end begins */
/*
 * Maximum number of calls without a launch, and of launches without kernels, that a communicator
 * remembers.
 */
#define LINGERS 256
/*
 * Maximum number of calls in graphs that are remembered. A call that no replay has used for longer
 * loses its Python line.
 */
#define CAPTURED 16384

/* An outermost group of the application, or a call outside of groups. */
struct call {
	/* serial of the record of the group's end, which launches; 0 if there is none yet */
	uint64_t serial;
	/* serial of the nested record of set-up; 0 if no connections are set up */
	uint64_t connects;
	uint64_t comm;	     /* handle of the communicator */
	struct df_list apis; /* the call's operations */
	uint32_t call, site;
	uint32_t group; /* group of its operations; 0 if it has only one */
	int captured;
	int opened; /* whether the application opened it */
};

/* A call of a single operation. */
struct api {
	struct df_list at;	   /* link in its call or, after that, in its communicator */
	uint64_t self, comm, call; /* handles */
	/* serial of the record of its operation; 0 if there is none yet */
	uint64_t serial;
	struct df_profiler_event e;
	uint32_t site, group;
	int launched, intends;
	int blind; /* whether its operation is recorded as one whose end will not be seen */
};

static struct df_profiler_objects comms = {.bytes = sizeof(struct df_profiler_comm),
					   .kind = DF_HANDLE_COMM};
static struct df_profiler_objects calls = {.bytes = sizeof(struct call), .kind = DF_HANDLE_CALL};
static struct df_profiler_objects apis = {.bytes = sizeof(struct api), .kind = DF_HANDLE_API};
static struct df_profiler_objects ops = {.bytes = sizeof(struct df_profiler_op),
					 .kind = DF_HANDLE_OP};
static unsigned nr_calls; /* number of calls that threads are in */
static uint64_t moves;
struct df_mutex df_profiler_lock = DF_MUTEX_INIT(DF_RANK_LEAF, "NCCL's events");

/* ---- operations ------------------------------------------------------------------------------ */

static int sees_ends(const struct df_profiler_comm *c)
{
	return c->version >= 3;
}

/* Enters a communicator in the trace. Up to v3 its first event has its name. */
static void enter_comm(struct df_profiler_comm *c, uint64_t hash, const char *name)
{
	c->trace = df_trace_comm(hash, c->nranks, c->rank, c->device, 0, name);
	df_profiler_put(DF_REC_COMM_READY, c->trace, c->rank, 0, hash, (uint64_t)c->nranks,
			(uint64_t)(int64_t)c->device, 0);
}

static void issue(const struct df_profiler_comm *c, const struct df_profiler_event *e,
		  uint64_t serial, uint32_t group, uint32_t site)
{
	df_trace_op(&(struct df_trace_op){
		.op = serial,
		.count = e->count,
		.stream = e->stream,
		.send = e->send,
		.recv = e->recv,
		.comm = c->trace,
		.group = group,
		.site = site,
		.device = c->device,
		.rank = c->rank,
		.peer = e->peer,
		.kind = (uint8_t)e->kind,
		.type = (uint8_t)e->datatype,
		.redop = (uint8_t)e->redop,
		.flags = DF_OP_BY_NCCL | (sees_ends(c) ? DF_OP_END_SEEN : 0),
	});
}

/* Records the end of an operation. `a` is as in the record. */
static void ended(const struct df_profiler_comm *c, uint64_t serial, uint64_t a, int counted)
{
	if (df_profiler_ring_shared())
		return;
	df_profiler_put(DF_REC_OP_DONE, c->trace, c->rank, serial, a, 0, 0, 0);
	/*
	 * The operation counts as done even if its end is not seen: the rest of the count is what a
	 * reader misses.
	 */
	if (!counted)
		df_trace_comm_done(c->trace);
}

static void unlist(struct df_profiler_comm *c, struct df_profiler_op *op)
{
	df_list_del(&op->at);
	c->nr_open--;
	df_profiler_drop(&ops, op->self);
}

/* Whether the kernel has ended on all channels on which it began. */
static int rests(const struct df_profiler_op *op)
{
	return op->started == op->ended && !op->nr_proxies_live && op->ended + op->nr_proxies > 0;
}

static void finish(struct df_profiler_comm *c, struct df_profiler_op *op, int seen)
{
	if (seen || sees_ends(c))
		ended(c, op->serial, seen ? 0 : 2, (int)op->counted);
	unlist(c, op);
}

/*
 * Call when a later operation has ended: operations of earlier groups that are not in progress have
 * ended, too.
 */
static void finish_earlier(struct df_profiler_comm *c, const struct df_profiler_op *later)
{
	struct df_profiler_op *op, *next;

	df_list_each_safe(op, next, &c->open, at)
	{
		if (op == later || (later->group && op->group == later->group))
			break;
		if (rests(op) || (!op->started && !op->nr_proxies))
			finish(c, op, rests(op));
	}
}

static void over(uint64_t handle)
{
	struct df_profiler_op *op = df_profiler_find(&ops, handle);
	struct df_profiler_comm *c = op ? df_profiler_find(&comms, op->comm) : NULL;

	if (!c)
		return;
	finish_earlier(c, op);
	finish(c, op, 1);
}

/* Makes an operation. `counted` is as in struct df_profiler_op. */
static uint64_t new_op(uint64_t comm, struct df_profiler_comm *c, uint64_t serial, uint32_t group,
		       unsigned channels, int counted)
{
	struct df_profiler_op *op = df_list_first(&c->open, struct df_profiler_op, at);
	int kernels = sees_ends(c) && !df_profiler_ring_shared();
	void *object;
	uint64_t handle;

	/* The operation is known only by its proxies. */
	if (op && !kernels && !op->nr_proxies_live && c->nr_open >= LINGERS)
		finish(c, op, rests(op));
	handle = df_profiler_make(&ops, &object);
	if (!handle) {
		if (sees_ends(c))
			ended(c, serial, 2, counted);
		return 0;
	}
	op = object;
	op->self = handle;
	op->comm = comm;
	op->serial = serial;
	op->group = group;
	op->expected = kernels ? channels : 0;
	op->counted = (uint32_t)counted;
	df_list_add_tail(&c->open, &op->at);
	c->nr_open++;
	return handle;
}

/*
 * Records an operation that NCCL launches. From v5 on the event's parent is the call that issued
 * it. Returns the handle of its event, 0 if it is not recorded.
 */
static uint64_t launch(uint64_t comm, struct df_profiler_comm *c, const struct df_profiler_event *e,
		       uint32_t site)
{
	struct api *a = df_profiler_find(&apis, e->parent);
	struct df_profiler_event is = *e;
	uint32_t group = (uint32_t)e->group, trace = 0;
	uint64_t serial;
	int rank, late = 0;

	c->rank = c->rank < 0 ? e->rank : c->rank;
	if (df_profiler_ring_shared()) {
		serial = a ? a->serial : df_profiler_issuing(&trace, &rank);
		if (trace) {
			c->trace = trace;
			c->rank = rank;
		}
		return c->trace ? new_op(comm, c, serial, group, e->channels, 0) : 0;
	}
	if (!c->trace && c->version < 4)
		enter_comm(c, e->hash, e->name);
	/* The trace has no space for more communicators. */
	if (!c->trace)
		return 0;
	if (a) {
		const struct call *in = df_profiler_find(&calls, a->call);

		/*
		 * The call has the application's type and count; the launch may have bytes
		 * instead.
		 */
		is.count = a->e.count;
		is.datatype = a->e.datatype;
		is.stream = a->e.stream;
		/* A captured operation keeps its plan's group: a launch of a graph is one group. */
		if (!a->e.captured)
			group = in ? in->group : a->group;
		site = a->site;
		a->launched = 1;
		if (a->e.captured && !in) {
			df_list_del(&a->at);
			df_list_add(&c->captured, &a->at);
		}
	}
	c->connected |= !df_kind_is_p2p((uint32_t)e->kind);
	serial = a && a->serial && !a->e.captured ? a->serial : df_trace_serial();
	if (!a || serial != a->serial)
		issue(c, &is, serial, group, site);
	if (a) {
		late = a->blind;
		a->blind = 0;
		a->serial = serial;
	}
	/* The call did not wait for the operation, and recorded that its end will not be seen. */
	if (late)
		ended(c, serial, 3, 1);
	/* For a message to itself, NCCL reports the kernel only for the receive. */
	if (e->kind == DF_KIND_SEND && e->peer == c->rank) {
		if (sees_ends(c))
			ended(c, serial, 2, 0);
		return 0;
	}
	return new_op(comm, c, serial, group, e->channels, late);
}

/* ---- calls of the application ---------------------------------------------------------------- */

static uint64_t call_begins(uint64_t comm, const struct df_profiler_event *e, uint32_t site)
{
	struct call *k;
	void *object;
	uint64_t handle = df_profiler_make(&calls, &object);

	if (!handle)
		return 0;
	k = object;
	df_list_init(&k->apis);
	k->comm = comm;
	k->site = site;
	k->captured = e->captured;
	k->opened = e->depth > 1;
	k->group = k->opened ? (uint32_t)df_trace_serial() : 0;
	return handle;
}

/*
 * Records the operation that the call's thread is about to issue, because it may wait for other
 * ranks first.
 */
static void intend(const struct df_profiler_comm *c, const struct api *a, uint64_t call)
{
	df_profiler_put(DF_REC_OP_INTENT, c->trace, c->rank, call,
			(uint64_t)a->e.kind | (uint64_t)a->e.datatype << 8 |
				(uint64_t)a->e.redop << 16 |
				(uint64_t)(uint32_t)(a->e.peer + 1) << 32,
			a->e.count, a->e.stream, a->site);
}

/*
 * Records that the thread enters the end of its group, where NCCL sets up connections and launches.
 */
static void call_waits(struct call *k)
{
	const struct df_profiler_comm *c = df_profiler_find(&comms, k->comm), *first = NULL;
	const struct api *a;

	if (!c || k->serial || k->captured || df_profiler_ring_shared())
		return;
	nr_calls++;
	df_list_each(a, &k->apis, at)
	{
		const struct df_profiler_comm *on = df_profiler_find(&comms, a->comm);

		if (!first && on && !on->connected && on->nranks > 1 &&
		    !df_kind_is_p2p((uint32_t)a->e.kind))
			first = on;
	}
	k->serial = df_trace_serial();
	k->call = k->opened ? DF_CALL_GROUP_END : first ? DF_CALL_CONNECT : DF_CALL_NCCL_OP;
	c = k->call == DF_CALL_CONNECT ? first : c;
	df_profiler_put(DF_REC_CALL_ENTER, k->opened ? 0 : c->trace, k->opened ? -1 : c->rank,
			k->serial, k->call, 0, !k->opened, k->site);
	if (k->opened && first) {
		k->connects = df_trace_serial();
		df_profiler_put(DF_REC_CALL_ENTER, first->trace, first->rank, k->connects,
				DF_CALL_CONNECT, 0, 1, k->site);
	}
	df_list_each(a, &k->apis, at) if (a->intends && k->call == DF_CALL_CONNECT)
		intend(c, a, k->serial);
}

static uint64_t api_begins(uint64_t comm, struct df_profiler_comm *c,
			   const struct df_profiler_event *e, uint32_t site)
{
	struct call *k = df_profiler_find(&calls, e->parent);
	struct api *a;
	uint32_t trace;
	int rank;
	void *object;
	uint64_t handle = k ? df_profiler_make(&apis, &object) : 0;

	if (!handle)
		return 0;
	a = object;
	a->self = handle;
	a->comm = comm;
	a->call = e->parent;
	a->e = *e;
	a->site = site;
	/* A call of messages, such as ncclAlltoAll, is a group. */
	if (!k->group && !df_list_empty(&k->apis))
		k->group = (uint32_t)df_trace_serial();
	df_list_add_tail(&k->apis, &a->at);
	k->captured |= e->captured;
	if (df_profiler_ring_shared()) {
		a->serial = df_profiler_issuing(&trace, &rank);
		if (trace) {
			c->trace = trace;
			c->rank = rank;
		}
		return handle;
	}
	/*
	 * The peer of a message is known only when it is launched, and an operation of a graph runs
	 * later.
	 */
	if (e->captured || df_kind_is_p2p((uint32_t)e->kind))
		return handle;
	a->intends = !k->group && !c->connected && c->nranks > 1;
	if (!a->intends) {
		a->serial = df_trace_serial();
		issue(c, e, a->serial, k->group, site);
	}
	return handle;
}

static void forget(struct api *a)
{
	df_list_del(&a->at);
	df_profiler_drop(&apis, a->self);
}

/* Keeps the call for a launch that is reported later: of a graph, or by another thread. */
static void linger(struct df_profiler_comm *c, struct api *a)
{
	struct df_list *in = a->e.captured ? &c->captured : &c->late;
	unsigned *nr = a->e.captured ? &c->nr_captured : &c->nr_late;

	df_list_del(&a->at);
	df_list_add(in, &a->at);
	if (++*nr <= (a->e.captured ? CAPTURED : LINGERS))
		return;
	--*nr;
	forget(df_list_last(in, struct api, at));
}

/*
 * Ends a call. Its operations are launched, or they are never reported: operations of copy engines
 * and of kernels on registered memory have no events. Those are recorded without an end.
 */
static void call_ends(uint64_t handle)
{
	struct call *k = df_profiler_find(&calls, handle);
	struct df_profiler_comm *c;
	struct api *a, *next;

	if (!k)
		return;
	df_list_each_safe(a, next, &k->apis, at)
	{
		int shared = df_profiler_ring_shared(), p2p = df_kind_is_p2p((uint32_t)a->e.kind);

		a->group = k->group;
		c = df_profiler_find(&comms, a->comm);
		if (c && !shared && !a->launched && !a->e.captured && !p2p) {
			if (!a->serial) {
				a->serial = df_trace_serial();
				issue(c, &a->e, a->serial, k->group, a->site);
			}
			c->connected = 1;
			ended(c, a->serial, 2, 0);
			a->blind = 1;
		}
		if (c && (a->e.captured || !a->launched))
			linger(c, a);
		else
			forget(a);
	}
	if (k->connects)
		df_profiler_put(DF_REC_CALL_EXIT, 0, -1, k->connects, DF_CALL_CONNECT, 0, 0, 0);
	if (k->serial) {
		df_profiler_put(DF_REC_CALL_EXIT, 0, -1, k->serial, k->call, 0, 0, 0);
		nr_calls--;
	}
	df_profiler_drop(&calls, handle);
}

/* ---- the interface --------------------------------------------------------------------------- */

uint64_t df_profiler_open(const struct df_profiler_about *about, int *mask)
{
	struct df_profiler_comm *c;
	void *object;
	uint64_t handle = 0;

	if (!df_profiler_ring_open() || df_profiler_watch_start())
		return 0;
	df_mutex_lock(&df_profiler_lock);
	handle = df_profiler_make(&comms, &object);
	if (handle) {
		c = object;
		df_list_init(&c->open);
		df_list_init(&c->late);
		df_list_init(&c->captured);
		c->version = about->version;
		c->nranks = about->nranks;
		c->rank = about->version < 4 ? -1 : about->rank;
		c->device = -1;
		if (about->version >= 4 && !df_profiler_ring_shared())
			enter_comm(c, about->hash, about->name);
		/*
		 * One store of a value that depends only on the process: NCCL has one mask for all
		 * communicators, and other threads read it at the same time.
		 */
		*mask = DF_PROFILER_GROUP | DF_PROFILER_COLL | DF_PROFILER_P2P |
			DF_PROFILER_PROXY_OP | DF_PROFILER_PROXY_STEP | DF_PROFILER_GROUP_API |
			DF_PROFILER_COLL_API | DF_PROFILER_P2P_API |
			(df_profiler_ring_shared() ? 0 : DF_PROFILER_KERNEL_CH);
	}
	df_mutex_unlock(&df_profiler_lock);
	return handle;
}

/* Begins the work of a kernel on one channel. */
static uint64_t kernel_begins(uint64_t handle)
{
	struct df_profiler_op *op = df_profiler_find(&ops, handle);
	const struct df_profiler_comm *c = op ? df_profiler_find(&comms, op->comm) : NULL;

	if (!c)
		return 0;
	if (!op->started++ && !df_profiler_ring_shared())
		df_profiler_put(DF_REC_OP_START, c->trace, c->rank, op->serial, 0, 0, 0, 0);
	op->rested = 0;
	return df_profiler_handle_as(handle, DF_HANDLE_KERNEL, 0);
}

static void kernel_ends(uint64_t handle)
{
	uint64_t of = df_profiler_handle_as(handle, DF_HANDLE_OP, 0);
	struct df_profiler_op *op = df_profiler_find(&ops, of);

	if (op && ++op->ended == op->expected)
		over(of);
}

/* Begins a proxy. With PXN a proxy works for another process, whose handles are not valid here. */
static uint64_t proxy_begins(uint64_t context, const struct df_profiler_event *e)
{
	int ours = e->pid == getpid();
	struct df_profiler_op *op = ours ? df_profiler_find(&ops, e->parent) : NULL;
	const struct df_profiler_comm *c = ours ? df_profiler_find(&comms, context) : NULL;
	uint64_t handle = df_profiler_proxy_begin(op ? e->parent : 0, c ? c->trace : 0, e->rank,
						  op ? op->serial : 0, e);

	if (op && handle) {
		op->nr_proxies++;
		op->nr_proxies_live++;
		op->rested = 0;
	}
	return handle;
}

static void proxy_ends(uint64_t handle)
{
	struct df_profiler_op *op = df_profiler_find(&ops, df_profiler_proxy_end(handle));

	if (op)
		op->nr_proxies_live--;
}

uint64_t df_profiler_begin(uint64_t context, const struct df_profiler_event *e)
{
	const uint32_t asks = DF_PROFILER_GROUP_API | DF_PROFILER_COLL_API | DF_PROFILER_P2P_API;
	struct df_profiler_comm *c;
	uint64_t handle = 0;
	uint32_t site = 0;

	if (e->type == DF_PROFILER_PROXY_STEP)
		return df_profiler_step_begin(e->parent, e->step);
	/*
	 * This may take the loader's lock, so it precedes our lock. A launch has a call from v5
	 * on.
	 */
	if (!df_profiler_ring_shared() &&
	    (e->type & asks || (e->type & (DF_PROFILER_COLL | DF_PROFILER_P2P) &&
				df_profiler_handle_kind(e->parent) != DF_HANDLE_API)))
		site = df_trace_caller();
	df_mutex_lock(&df_profiler_lock);
	moves++;
	c = df_profiler_find(&comms, context);
	if (e->type == DF_PROFILER_PROXY_OP)
		handle = proxy_begins(context, e);
	else if (!c)
		handle = 0;
	else if (e->type == DF_PROFILER_KERNEL_CH)
		handle = kernel_begins(e->parent);
	else if (e->type == DF_PROFILER_GROUP)
		handle = df_profiler_handle_plain(DF_HANDLE_PLAN, (uint32_t)df_trace_serial());
	else if (e->type == DF_PROFILER_GROUP_API)
		handle = call_begins(context, e, site);
	else if (e->type & asks)
		handle = api_begins(context, c, e, site);
	else if (e->type & (DF_PROFILER_COLL | DF_PROFILER_P2P))
		handle = launch(context, c, e, site);
	df_mutex_unlock(&df_profiler_lock);
	return handle;
}

void df_profiler_state(uint64_t handle, int state)
{
	enum df_profiler_handle_kind kind = df_profiler_handle_kind(handle);
	struct call *k;

	if (kind == DF_HANDLE_STEP) {
		df_profiler_step_state(handle, state);
	} else if (kind == DF_HANDLE_CALL && state == GROUP_END_STARTS) {
		df_mutex_lock(&df_profiler_lock);
		k = df_profiler_find(&calls, handle);
		if (k)
			call_waits(k);
		moves++;
		df_mutex_unlock(&df_profiler_lock);
	}
}

void df_profiler_end(uint64_t handle)
{
	enum df_profiler_handle_kind kind = df_profiler_handle_kind(handle);

	if (kind == DF_HANDLE_STEP) {
		df_profiler_step_end(handle);
		return;
	}
	if (kind != DF_HANDLE_KERNEL && kind != DF_HANDLE_PROXY && kind != DF_HANDLE_CALL)
		return;
	df_mutex_lock(&df_profiler_lock);
	moves++;
	if (kind == DF_HANDLE_KERNEL)
		kernel_ends(handle);
	else if (kind == DF_HANDLE_PROXY)
		proxy_ends(handle);
	else
		call_ends(handle);
	df_mutex_unlock(&df_profiler_lock);
}

void df_profiler_close(uint64_t context)
{
	struct df_profiler_comm *c;
	struct df_profiler_op *op;
	struct api *a;
	int stuck = 0;

	df_mutex_lock(&df_profiler_lock);
	moves++;
	c = df_profiler_find(&comms, context);
	while (c && (op = df_list_first(&c->open, struct df_profiler_op, at))) {
		stuck |= df_profiler_watch_stalled();
		if (!df_profiler_watch_stalled())
			finish(c, op, rests(op));
		else
			unlist(c, op);
	}
	if (c)
		df_list_splice_tail(&c->captured, &c->late);
	while (c && (a = df_list_first(&c->captured, struct api, at)))
		forget(a);
	if (c && c->trace) {
		df_profiler_proxy_close(c->trace);
		if (!df_profiler_ring_shared())
			df_profiler_put(stuck ? DF_REC_COMM_ABORT : DF_REC_COMM_DESTROY, c->trace,
					c->rank, 0, 0, 0, 0, 0);
	}
	df_profiler_drop(&comms, context);
	df_mutex_unlock(&df_profiler_lock);
}

/* ---- for the watching thread ----------------------------------------------------------------- */

/* Ends operations that already rested at the last look, unless their kernels report the end. */
static void settle(struct df_profiler_comm *c)
{
	struct df_profiler_op *op, *next;

	df_list_each_safe(op, next, &c->open, at)
	{
		if (op->expected || !rests(op))
			continue;
		if (op->rested)
			finish(c, op, 1);
		else
			op->rested = 1;
	}
}

void df_profiler_look(struct df_profiler_left *left)
{
	uint64_t handle;

	for (uint32_t i = 0; i < comms.nr; i++) {
		struct df_profiler_comm *c = df_profiler_at(&comms, i, &handle);

		if (c)
			settle(c);
	}
	left->ops = 0;
	for (uint32_t i = 0; i < ops.nr; i++) {
		const struct df_profiler_op *op = df_profiler_at(&ops, i, &handle);
		const struct df_profiler_comm *c = op ? df_profiler_find(&comms, op->comm) : NULL;

		left->ops += c && sees_ends(c) && !df_profiler_ring_shared();
	}
	left->calls = nr_calls;
	left->moves = moves;
}
