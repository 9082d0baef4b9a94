/*
 * Records what NCCL executes (mode trace). The hooks write to the trace and change nothing. NCCL
 * has no call-back for the start and end of operations, so each stream gets a tick before and after
 * an operation: a write of a counter to memory (cuStreamWriteValue64), which the GPU makes when all
 * earlier work of the stream is done. An operation can have started once its first tick is written,
 * and has ended once its second is. A tick waits for nothing and nothing waits for it. Ticks are
 * read from memory without a call of the driver, so reading them can neither block nor hold a lock
 * of the driver.
 *
 * On the legacy stream a tick is ordered with all blocking streams, just as NCCL's own work is. So
 * work that another thread puts on a blocking stream in between may be ordered with it, as it would
 * be if NCCL had been called a little later. A capturing stream gets no ticks, since they would
 * become part of the graph: the operations of a graph are recorded when it is launched
 * (record_graph.c), with ticks around the launch.
 *
 * Any thread. Streams and open operations are under one lock, which is not held across calls of
 * CUDA.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "runtime/backend.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/vec.h"
#include "runtime/coll/words.h"
#include "runtime/comm/polls.h"
#include "runtime/comm/process.h"
#include "runtime/dfshim.h"
#include "runtime/record/launches.h"
#include "runtime/record/record.h"
#include "trace/record/format.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

/* limit of operations that are watched at a time */
#define MAX_OPEN 65536
#define FEW_OPEN 256

struct rstream {
	struct df_list node; /* streams */
	struct df_mstream *stream;
	uint64_t id;
	int device;
	/*
	 * ticks.seq: the last tick put on the stream; *ticks.word: the last one that it has written
	 */
	struct df_mark ticks;
	uint64_t work_at; /* nr_blockers of the device when work on it was last recorded, plus 1 */
	uint8_t carries;  /* it has carried an operation, or waited for one */
	uint8_t dirty;	  /* work was put on it after the last tick */
	uint8_t legacy;	  /* the legacy stream: work on other streams counts as put on it */
	/* the stream that it last waited for by an event, and its turn then (EVENT_*) */
	uint64_t behind;
	struct df_launches launches;
};

/*
 * The word of a recorded event: whether recorded work precedes it; the turn of the stream's
 * launches, and its id. A stream with a larger id is not named.
 */
#define EVENT_WAITS	   1ULL
#define EVENT_TURN_MASK	   0x7fffffffu
#define EVENT_STREAM_SHIFT 32

struct open_op {
	struct df_record_op op;
	const uint64_t *word;
	uint64_t from, to; /* numbers of the ticks before and after it */
	uint8_t started, over;
};

__thread int df_record_inside __attribute__((tls_model("initial-exec")));

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_STREAM_TABLE, "recorded streams");
static struct df_list streams = DF_LIST_INIT(streams);
static struct open_op *open_ops;
static unsigned nr_open, cap_open;
/*
 * For each device, the number of operations put on its streams. If streams share hardware queues,
 * other waits of streams count too. A new number means that work is to be recorded again.
 */
static uint64_t nr_blockers[64];
static uint64_t progress;
static int hooked;
/* streams share hardware queues, so others may run between two operations of one stream */
static int shared_queues;

uint64_t df_record_progress(void)
{
	return __atomic_load_n(&progress, __ATOMIC_RELAXED);
}

static void moved(void)
{
	__atomic_add_fetch(&progress, 1, __ATOMIC_RELAXED);
}

/* Several threads may use one stream at the same time: either thread's value is correct. */
#define GET(p)	  __atomic_load_n(p, __ATOMIC_RELAXED)
#define PUT(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)

static struct rstream *known(const struct df_stream_info *info)
{
	/* ACQUIRE pairs with the RELEASE in stream_get(): the stream is initialised. */
	return info->user ? __atomic_load_n((struct rstream **)info->user, __ATOMIC_ACQUIRE) : NULL;
}

static struct rstream *stream_get(const struct df_stream_info *info)
{
	struct rstream *s = known(info), *other = NULL;

	if (s || !info->user)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->stream = info->stream;
	s->id = info->id;
	s->device = info->device;
	s->dirty = 1;
	s->legacy = info->legacy;
	df_mark_init(&s->ticks, NULL);
	/*
	 * RELEASE pairs with the ACQUIRE in known(): without it another thread could use an
	 * uninitialised stream. ACQUIRE is for the stream of a thread that was faster.
	 */
	if (__atomic_compare_exchange_n((struct rstream **)info->user, &other, s, 0,
					__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		df_mutex_lock(&lock);
		df_list_add_tail(&streams, &s->node);
		df_mutex_unlock(&lock);
		return s;
	}
	if (s->ticks.word)
		df_word_put(s->ticks.word);
	free(s);
	return other;
}

/* ---- hooks: what the application does with CUDA ---------------------------------------------- */

/*
 * After a wait: records which operations have ended, if there are few to check. So the trace has
 * their ends even if the process exits or is killed next.
 */
static void look_few(void)
{
	unsigned left, nr = __atomic_load_n(&nr_open, __ATOMIC_RELAXED);

	if (nr && nr <= FEW_OPEN)
		df_record_poll(&left);
}

static __thread struct {
	uint64_t serial;
	uint32_t call;
} waiting;
static uint32_t nr_waiting; /* threads */

static void wait_enter(uint32_t call, int device, uint64_t object, uint64_t detail)
{
	/* Calls nest: a copy is also a wait for its stream. Only the outer call is recorded. */
	if (waiting.serial)
		return;
	moved();
	__atomic_add_fetch(&nr_waiting, 1, __ATOMIC_RELAXED);
	waiting.call = call;
	waiting.serial = df_call_enter(call, device, object, detail, df_trace_caller());
}

static void wait_done(int device)
{
	if (!waiting.serial)
		return;
	look_few();
	moved();
	df_call_exit(waiting.serial, waiting.call, device, 0);
	__atomic_sub_fetch(&nr_waiting, 1, __ATOMIC_RELAXED);
	waiting.serial = 0;
}

static uint64_t blockers_on(int device)
{
	return __atomic_load_n(&nr_blockers[device & 63], __ATOMIC_RELAXED);
}

/* The last tick that the stream has written. */
static uint64_t reached(const struct rstream *s)
{
	/* ACQUIRE pairs with the stream's write of its tick, as in df_record_poll(). */
	return GET(&s->ticks.word) ? __atomic_load_n(s->ticks.word, __ATOMIC_ACQUIRE) : 0;
}

static void note_launch(struct rstream *s, enum df_work kind, const char *name)
{
	df_launches_note(&s->launches, kind, name, GET(&s->ticks.seq), reached(s));
}

static void before_kernel(const struct df_stream_info *info, const char *name)
{
	struct rstream *s = df_record_inside || info->capturing ? NULL : stream_get(info);

	if (s)
		note_launch(s, DF_WORK_KERNEL, name);
}

/*
 * Records only the first work on a stream after an operation: later work on it is done only after
 * that. So a program with many kernels is recorded at the cost of its operations.
 */
static void before_work(const struct df_stream_info *info, enum df_work kind,
			const struct df_touch *t)
{
	struct rstream *s;
	uint64_t now;

	if (df_record_inside)
		return; /* NCCL's own work */
	if (kind == DF_WORK_GRAPH)
		df_record_graph_begin(info);
	if (kind == DF_WORK_ALLOC || info->capturing)
		return;
	s = stream_get(info);
	if (!s)
		return;
	now = blockers_on(info->device) + 1;
	PUT(&s->dirty, 1);
	if (kind != DF_WORK_KERNEL)
		note_launch(s, kind, NULL);
	if (GET(&s->work_at) == now && kind != DF_WORK_GRAPH)
		return;
	PUT(&s->work_at, now);
	df_trace(DF_REC_STREAM_WORK, info->device, 0, -1, df_trace_serial(),
		 kind | (t ? df_rec_reads_from(t->in, t->in_end) : 0),
		 (uint64_t)info->device | (uint64_t)df_stream_flags(info) << 32 |
			 (t ? df_rec_reads_bytes(t->in, t->in_end) : 0),
		 info->id, 0);
}

/*
 * Whether work that is put on the stream now may have to wait for an operation: the stream carries
 * one, or it is ordered after other streams, by CUDA or because they share a hardware queue.
 */
static int may_wait(const struct rstream *s, const struct df_stream_info *info)
{
	return (s && GET(&s->carries)) || info->legacy || shared_queues;
}

static int event_record(const struct df_event_info *e, const struct df_stream_info *info)
{
	const struct rstream *s = known(info);
	int waits = may_wait(s, info), before;
	uint64_t word = waits ? EVENT_WAITS : 0;

	if (df_record_inside || info->capturing || !e->user)
		return 0;
	before = (uintptr_t)*e->user & EVENT_WAITS;
	if (s && s->id <= UINT32_MAX)
		word |= s->id << EVENT_STREAM_SHIFT |
			(uint64_t)(GET(&s->launches.turn) & EVENT_TURN_MASK) << 1;
	*e->user = (void *)(uintptr_t)word;
	if (!waits && !before)
		return 0;
	df_trace(DF_REC_EVENT_RECORD, info->device, 0, -1, 0, e->id, 0, info->id, 0);
	return 0;
}

static void event_wait(const struct df_stream_info *info, const struct df_event_info *e)
{
	struct rstream *s;

	if (df_record_inside || info->capturing)
		return;
	s = stream_get(info);
	if (!s)
		return;
	PUT(&s->dirty, 1);
	if (e->user && *e->user)
		PUT(&s->behind, (uintptr_t)*e->user);
	if (!e->user || !((uintptr_t)*e->user & EVENT_WAITS))
		return;
	PUT(&s->carries, 1);
	PUT(&s->work_at, 0);
	/*
	 * The next work of other streams on the same queue runs after this wait, so it must be
	 * recorded anew.
	 */
	if (shared_queues)
		__atomic_add_fetch(&nr_blockers[info->device & 63], 1, __ATOMIC_RELAXED);
	df_trace(DF_REC_EVENT_WAIT, info->device, 0, -1, 0, e->id, 0, info->id, 0);
}

static int event_query(const struct df_event_info *e)
{
	if (df_record_inside)
		return 0;
	if (e->user && (uintptr_t)*e->user & EVENT_WAITS)
		df_polls_note(DF_POLLED_EVENT, e->id);
	else
		df_polls_ask(DF_POLLED_EVENT);
	return 0;
}

static void event_sync(const struct df_event_info *e)
{
	if (!df_record_inside)
		wait_enter(DF_CALL_EVENT_SYNC, e->device, e->id,
			   e->user ? (uintptr_t)*e->user >> EVENT_STREAM_SHIFT : 0);
}

static void event_destroy(const struct df_event_info *e)
{
	if (e->user)
		*e->user = NULL;
}

static void stream_create(const struct df_stream_info *info)
{
	if (!df_record_inside)
		df_trace(DF_REC_STREAM_CREATE, info->device, 0, -1, 0, info->id,
			 (uint64_t)info->device | (uint64_t)df_stream_flags(info) << 32,
			 (uint64_t)(int64_t)info->priority, 0);
}

static void stream_sync(const struct df_stream_info *info)
{
	if (!df_record_inside)
		wait_enter(DF_CALL_STREAM_SYNC, info->device, info->id, 0);
}

static int stream_query(const struct df_stream_info *info)
{
	const struct rstream *s = known(info);

	if (df_record_inside)
		return 0;
	if (may_wait(s, info))
		df_polls_note(DF_POLLED_STREAM, info->id);
	else
		df_polls_ask(DF_POLLED_STREAM);
	return 0;
}

/* Do not reuse the word of its ticks: the stream may still have to write it. */
static void stream_destroy(const struct df_stream_info *info)
{
	struct rstream *s = known(info);

	if (!s)
		return;
	df_trace(DF_REC_STREAM_DESTROY, info->device, 0, -1, 0, info->id, 0, 0, 0);
	*info->user = NULL;
	df_mutex_lock(&lock);
	df_list_del(&s->node);
	df_mutex_unlock(&lock);
	free(s);
}

/*
 * Recorded inside NCCL too, because some deadlocks arise when NCCL's set-up waits for the device.
 */
static int device_sync(int device, enum df_sync_kind kind, const void *ptr)
{
	static const uint32_t calls[DF_SYNC_NR] = {
		[DF_SYNC_DEVICE] = DF_CALL_DEVICE_SYNC,
		[DF_SYNC_FREE] = DF_CALL_FREE,
		[DF_SYNC_HOST_ALLOC] = DF_CALL_HOST_ALLOC,
		[DF_SYNC_HOST_REGISTER] = DF_CALL_HOST_REGISTER,
		[DF_SYNC_MEMCPY] = DF_CALL_MEMCPY,
		[DF_SYNC_RESET] = DF_CALL_DEVICE_RESET,
		[DF_SYNC_DRIVER] = DF_CALL_DRIVER,
		[DF_SYNC_LOAD] = DF_CALL_DRIVER,
	};

	wait_enter(calls[kind], device, (uintptr_t)ptr, 0);
	return 0;
}

static int free_mem(void *ptr, const struct df_mem_info *info)
{
	(void)ptr;
	(void)info;
	return 0;
}

static int help(void)
{
	return 0;
}

static const struct df_hooks record_hooks = {
	.before_work = before_work,
	.before_kernel = before_kernel,
	.after_graph = df_record_graph_end,
	.event_record = event_record,
	.event_wait = event_wait,
	.event_query = event_query,
	.event_sync = event_sync,
	.event_destroy = event_destroy,
	.stream_create = stream_create,
	.stream_sync = stream_sync,
	.stream_query = stream_query,
	.queried = df_polls_answer,
	.stream_destroy = stream_destroy,
	.device_sync = device_sync,
	.free = free_mem,
	.help = help,
	.sync_done = wait_done,
};

/* ---- operations ------------------------------------------------------------------------------ */

/* Puts a tick on the stream and returns its number, or 0 if that failed. */
static uint64_t tick(struct rstream *s)
{
	uint64_t to;
	int failed;

	df_mutex_lock(&lock);
	failed = df_word_mark(&lock, &s->ticks, s->stream, &to);
	df_mutex_unlock(&lock);
	if (failed) {
		df_warn_once("cannot put a write to memory on a stream: the end of an operation "
			     "is recorded only when a wait for it returns");
		return 0;
	}
	return to;
}

static struct rstream *on_stream(const struct df_record_op *op)
{
	struct df_stream_info info;
	struct rstream *s = op->on;

	if (!s && (!hooked || df_backend->stream_info(op->stream, &info) || info.capturing))
		return NULL;
	if (!s)
		s = stream_get(&info);
	return s && s->ticks.word ? s : NULL;
}

struct rstream *df_record_put_on(const struct df_stream_info *info)
{
	struct rstream *s = stream_get(info);

	if (s) {
		PUT(&s->carries, 1);
		PUT(&s->work_at, 0);
	}
	__atomic_add_fetch(&nr_blockers[info->device & 63], 1, __ATOMIC_RELAXED);
	moved();
	return s;
}

void df_record_note(const struct df_record_call *c, uint64_t stream, uint64_t group, int seen,
		    struct df_record_op *op)
{
	op->op = c->serial ? c->serial : df_trace_serial();
	op->comm = c->comm;
	op->rank = c->rank;
	op->device = c->device;
	op->group = group;
	op->seen = seen;
	df_trace_op(&(struct df_trace_op){
		.op = op->op,
		.count = c->count,
		.stream = stream,
		.send = c->send,
		.recv = c->recv,
		.comm = c->comm,
		.group = (uint32_t)group,
		.site = c->site,
		.device = c->device,
		.rank = c->rank,
		.peer = c->peer,
		.kind = (uint8_t)c->kind,
		.type = (uint8_t)c->type,
		.redop = (uint8_t)c->redop,
		.flags = DF_OP_BY_NCCL | (seen ? DF_OP_END_SEEN : 0),
	});
}

int df_record_intend(const struct df_record_call *c, const void *stream, uint64_t call)
{
	struct df_stream_info info;
	uint64_t id = (uintptr_t)stream;

	if (hooked && !df_backend->stream_info(stream, &info)) {
		if (info.capturing)
			return 0;
		id = info.id;
	}
	df_trace(DF_REC_OP_INTENT, c->device, c->comm, c->rank, call,
		 (uint64_t)c->kind | (uint64_t)(c->type & 0xff) << 8 |
			 (uint64_t)(c->redop & 0xff) << 16 |
			 (uint64_t)(uint32_t)(c->peer + 1) << 32,
		 c->count, id, c->site);
	return 1;
}

int df_record_issue(const struct df_record_call *c, const void *stream, uint64_t group,
		    struct df_record_op *op)
{
	struct df_stream_info info;
	struct rstream *s = NULL;
	uint64_t id = (uintptr_t)stream;

	memset(op, 0, sizeof(*op));
	if (hooked && !df_backend->stream_info(stream, &info)) {
		if (info.capturing) {
			df_record_capture(c, &info);
			return 0;
		}
		id = info.id;
		s = df_record_put_on(&info);
	}
	op->stream = stream;
	df_record_note(c, id, group, s && s->ticks.word, op);
	return 1;
}

/*
 * Returns the tick that precedes an operation. If the stream's last work was an operation, the tick
 * after that one serves for both, unless streams share a queue.
 */
static uint64_t begin(struct rstream *s)
{
	uint64_t from = GET(&s->dirty) ? tick(s) : GET(&s->ticks.seq);

	PUT(&s->dirty, (uint8_t)(s->legacy | shared_queues));
	return from;
}

void df_record_before(struct df_record_op *ops, size_t nr)
{
	struct rstream *s;
	size_t i;

	for (i = 0; i < nr; i++) {
		s = ops[i].seen ? on_stream(&ops[i]) : NULL;
		ops[i].from = s ? begin(s) : 0;
		ops[i].behind = s ? GET(&s->behind) : 0;
	}
}

static struct open_op *new_open(void)
{
	if (nr_open == MAX_OPEN || DF_VEC_ROOM(open_ops, cap_open, nr_open + 1))
		return NULL;
	__atomic_store_n(&nr_open, nr_open + 1, __ATOMIC_RELAXED);
	return &open_ops[nr_open - 1];
}

/*
 * Traces that the end of the operation will not be noticed; otherwise it would look as if it never
 * ended.
 */
static void unseen(const struct df_record_op *op)
{
	df_trace(DF_REC_OP_DONE, op->device, op->comm, op->rank, op->op, 2, 0, 0, 0);
}

void df_record_after(struct df_record_op *ops, size_t nr, int begun)
{
	struct rstream *s;
	struct open_op *o;
	size_t i, k;
	uint64_t to;

	for (i = 0; i < nr; i++) {
		if (!ops[i].seen)
			continue;
		s = begun ? on_stream(&ops[i]) : NULL;
		ops[i].on = s;
		to = 0;
		/* Put one tick for all operations of the group that are on the same stream. */
		for (k = 0; s && k < i && !to; k++)
			if (ops[k].on == s)
				to = ops[k].to;
		if (s && !to)
			to = tick(s);
		ops[i].to = to;
		if (!to) {
			unseen(&ops[i]);
			continue;
		}
		df_mutex_lock(&lock);
		o = new_open();
		if (o)
			*o = (struct open_op){ops[i], s->ticks.word, ops[i].from, to, 0, 0};
		df_mutex_unlock(&lock);
		if (!o)
			unseen(&ops[i]);
	}
	df_record_wake();
}

/*
 * Whether an earlier operation of its communicator has not ended: NCCL keeps them in order,
 * whatever their streams.
 */
static int is_behind(const struct open_op *o)
{
	const struct open_op *b;

	for (b = o; b-- > open_ops;)
		if (b->op.comm == o->op.comm && !b->over)
			return !(o->op.group && b->op.group == o->op.group && b->started);
	return 0;
}

void df_record_no_slot(uint32_t comm)
{
	const struct df_record_op *first = NULL;
	unsigned i;

	df_mutex_lock(&lock);
	for (i = 0; i < nr_open; i++) {
		const struct open_op *o = &open_ops[i];

		/* ACQUIRE pairs with the stream's write of its tick, as in df_record_poll(). */
		if (o->op.comm != comm || __atomic_load_n(o->word, __ATOMIC_ACQUIRE) >= o->to)
			continue;
		/*
		 * A communicator's launches run one after the other; its operations in one group
		 * are one launch.
		 */
		if (first && !(first->group && o->op.group == first->group))
			continue;
		first = first ? first : &o->op;
		df_trace(DF_REC_OP_SLOT, o->op.device, o->op.comm, o->op.rank, o->op.op, 0,
			 (uint64_t)o->op.device, 0, 0);
	}
	df_mutex_unlock(&lock);
}

unsigned df_record_poll(unsigned *left)
{
	unsigned i, n = 0, changed = 0;

	df_mutex_lock(&lock);
	for (i = 0; i < nr_open; i++) {
		struct open_op *o = &open_ops[i];
		/*
		 * ACQUIRE pairs with the stream's write of its tick: the record of the end is made
		 * after the end. Without it the record could be older.
		 */
		uint64_t now = __atomic_load_n(o->word, __ATOMIC_ACQUIRE);
		const struct df_record_op *op = &o->op;

		o->over = now >= o->to;
		if (!o->started && (o->over || (now >= o->from && !is_behind(o)))) {
			o->started = 1;
			changed++;
			df_trace(DF_REC_OP_START, op->device, op->comm, op->rank, op->op, 0, 0, 0,
				 0);
		}
		if (o->over) {
			changed++;
			df_trace(DF_REC_OP_DONE, op->device, op->comm, op->rank, op->op, 0, 0, 0,
				 0);
			df_trace_comm_done(op->comm);
		}
	}
	for (i = 0; i < nr_open; i++)
		if (!open_ops[i].over)
			open_ops[n++] = open_ops[i];
	__atomic_store_n(&nr_open, n, __ATOMIC_RELAXED);
	*left = n;
	df_mutex_unlock(&lock);
	if (changed)
		__atomic_add_fetch(&progress, changed, __ATOMIC_RELAXED);
	return changed;
}

uint64_t df_record_first(void)
{
	uint64_t op;

	df_mutex_lock(&lock);
	op = nr_open ? open_ops[0].op.op : 0;
	df_mutex_unlock(&lock);
	return op;
}

/* The operation that its stream executes next, or executes; NULL: none. Needs the lock. */
static const struct open_op *front_of(const struct rstream *s)
{
	for (unsigned i = 0; i < nr_open; i++)
		if (s->ticks.word && open_ops[i].word == s->ticks.word &&
		    reached(s) < open_ops[i].to)
			return &open_ops[i];
	return NULL;
}

void df_record_launches(void)
{
	struct rstream *s, *b;

	df_mutex_lock(&lock);
	df_list_each(s, &streams, node)
	{
		const struct open_op *o = front_of(s);
		struct df_launches_want want = {.reached = reached(s),
						.before = o ? o->from : UINT64_MAX,
						.op = o ? o->op.op : 0,
						.stream = s->id,
						.device = s->device};

		df_launches_record(&s->launches, &want);
		if (!o || want.reached >= o->from)
			continue;
		/* Frameworks put operations on a stream of their own, which waits by an event. */
		df_list_each(b, &streams, node)
		{
			if (b == s || b->id != o->op.behind >> EVENT_STREAM_SHIFT)
				continue;
			want = (struct df_launches_want){.reached = reached(b),
							 .before = UINT64_MAX,
							 .by_turn = 1,
							 .turn = (uint32_t)(o->op.behind >> 1) &
								 EVENT_TURN_MASK,
							 .op = o->op.op,
							 .stream = b->id,
							 .device = b->device};
			df_launches_record(&b->launches, &want);
		}
	}
	df_mutex_unlock(&lock);
}

void df_record_waits(uint64_t ms)
{
	char text[512] = "";
	struct rstream *s;
	size_t n = 0;

	if (!__atomic_load_n(&nr_waiting, __ATOMIC_RELAXED))
		return;
	df_mutex_lock(&lock);
	df_list_each(s, &streams, node) n =
		df_launches_kernels(&s->launches, reached(s), text, n, sizeof(text));
	df_mutex_unlock(&lock);
	if (n)
		df_warn("no progress for %llu ms: a thread waits for the device, and no operation "
			"of NCCL is unfinished in this process. Kernels of its own that may not "
			"have ended: %s",
			(unsigned long long)ms, text);
}

/* ---- calls of NCCL --------------------------------------------------------------------------- */

uint64_t df_record_enter(uint32_t call, uint32_t comm, int rank, int device, uint64_t object,
			 uint64_t detail, uint32_t site)
{
	uint64_t serial = df_trace_serial();

	moved();
	__atomic_add_fetch(&df_rt.blocked, 1, __ATOMIC_RELAXED);
	df_trace(DF_REC_CALL_ENTER, device, comm, rank, serial, call, object, detail, site);
	return serial;
}

void df_record_leave(uint64_t serial, uint32_t call, uint64_t result)
{
	moved();
	df_trace(DF_REC_CALL_EXIT, -1, 0, -1, serial, call, result, 0, 0);
	__atomic_sub_fetch(&df_rt.blocked, 1, __ATOMIC_RELAXED);
}

void df_record_goes_on(uint64_t serial, uint32_t call)
{
	moved();
	df_trace(DF_REC_CALL_EXIT, -1, 0, -1, serial, call, DF_RESULT_IN_PROGRESS, 0, 0);
}

int df_record_device(void)
{
	return hooked ? df_backend->get_device() : -1;
}

/* ---- start ----------------------------------------------------------------------------------- */

void df_record_behind(const struct df_backend *cu, int queues)
{
	shared_queues = queues > 0;
	df_backend = cu;
	hooked = 1;
	cu->set_hooks(&record_hooks);
}
