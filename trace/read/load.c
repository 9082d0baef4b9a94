/*
 * Sorts the records of a trace into arrays, in one pass. Linear: operations and calls are found by
 * serial in an open-addressed table whose slots follow the serials, which mostly ascend.
 */
#include <string.h>
#include "runtime/base/clean_text.h"
#include "trace/read/load.h"
#include "trace/record/names.h"
#include "runtime/base/vec.h"

#define NO_OP	   UINT32_MAX
#define MAX_PROBES 512
#define MAX_NOTES  (1u << 20)

void df_load_init(struct df_load *l)
{
	memset(l, 0, sizeof(*l));
}

void df_load_fini(struct df_load *l)
{
	free(l->ops);
	free(l->calls);
	free(l->items);
	free(l->threads);
	free(l->streams);
	free(l->notes);
	free(l->comms);
	free(l->map);
	df_map_fini(&l->threads_at);
	df_map_fini(&l->streams_at);
	memset(l, 0, sizeof(*l));
}

/* A slot holds index * 2 for an operation, index * 2 + 1 for a call. */
static uint64_t entry_serial(const struct df_load *l, uint32_t e)
{
	return e & 1 ? l->calls[e >> 1].serial : l->ops[e >> 1].serial;
}

static size_t slot_of(const struct df_load *l, uint64_t serial)
{
	return (size_t)(serial + (serial >> 20) * 0x9e3779b1u) & (l->map_size - 1);
}

static int map_put(struct df_load *l, uint64_t serial, uint32_t e)
{
	size_t at;

	if (l->map_used * 2 >= l->map_size) {
		size_t old_size = l->map_size, size = old_size ? old_size * 2 : 1u << 10;
		uint32_t *old = l->map, *fresh = malloc(size * sizeof(*fresh));

		if (!fresh)
			return -ENOMEM;
		memset(fresh, 0xff, size * sizeof(*fresh));
		l->map = fresh;
		l->map_size = size;
		l->map_used = 0;
		for (size_t i = 0; i < old_size; i++)
			if (old[i] != NO_OP)
				map_put(l, entry_serial(l, old[i]), old[i]);
		free(old);
	}
	at = slot_of(l, serial);
	for (int probe = 0; probe < MAX_PROBES; probe++, at = (at + 1) & (l->map_size - 1)) {
		if (l->map[at] == NO_OP) {
			l->map[at] = e;
			l->map_used++;
			return 0;
		}
	}
	return 0; /* only a forged trace gets here: the entry cannot be found by serial */
}

static uint32_t map_get(const struct df_load *l, uint64_t serial, uint32_t is_call)
{
	size_t at;

	if (!l->map_size)
		return NO_OP;
	at = slot_of(l, serial);
	for (int probe = 0; probe < MAX_PROBES; probe++, at = (at + 1) & (l->map_size - 1)) {
		uint32_t e = l->map[at];

		if (e == NO_OP)
			return NO_OP;
		if ((e & 1) == is_call && entry_serial(l, e) == serial)
			return e >> 1;
	}
	return NO_OP;
}

struct df_lop *df_load_op(const struct df_load *l, uint64_t serial)
{
	uint32_t i = map_get(l, serial, 0);

	return i == NO_OP ? NULL : &l->ops[i];
}

struct df_lcall *df_load_call(const struct df_load *l, uint64_t serial)
{
	uint32_t i = map_get(l, serial, 1);

	return i == NO_OP ? NULL : &l->calls[i];
}

struct df_lthread *df_load_thread(const struct df_load *l, uint32_t tid)
{
	const uint64_t *at = df_map_find(&l->threads_at, tid, 0);

	return at && *at ? &l->threads[*at - 1] : NULL;
}

static struct df_lthread *thread_of(struct df_load *l, uint32_t tid)
{
	struct df_lthread *t = df_load_thread(l, tid);
	uint64_t *at;

	if (t)
		return t;
	if (l->nr_threads >= 1u << 16)
		return &l->threads[0]; /* only a forged trace has this many */
	at = df_map_at(&l->threads_at, tid, 0);
	t = at ? DF_VEC_PUSH(l->threads, l->nr_threads, l->cap_threads) : NULL;
	if (!t)
		return NULL;
	*at = l->nr_threads;
	memset(t, 0, sizeof(*t));
	t->tid = tid;
	t->device = -1;
	return t;
}

static struct df_lcomm *comm_of(struct df_load *l, const struct df_reader *r, uint32_t comm)
{
	if (!comm || comm > r->nr_comms)
		return NULL;
	while (l->nr_comms < r->nr_comms) {
		struct df_lcomm *c = DF_VEC_PUSH(l->comms, l->nr_comms, l->cap_comms);

		if (!c)
			return NULL;
		memset(c, 0, sizeof(*c));
	}
	return &l->comms[comm - 1];
}

static void comm_thread(struct df_lcomm *c, uint32_t tid, int issues)
{
	uint32_t i = 0;

	while (i < c->nr_threads && c->threads[i] != tid)
		i++;
	if (i == DF_LCOMM_THREADS) {
		c->more_threads = 1;
		return;
	}
	c->threads[i] = tid;
	c->nr_threads += i == c->nr_threads;
	c->issued |= (uint8_t)(issues << i);
}

static int push_note(struct df_load *l, const struct df_rec *rec, uint64_t index)
{
	struct df_lnote *n;

	if (l->nr_notes >= MAX_NOTES)
		return 0;
	n = DF_VEC_PUSH(l->notes, l->nr_notes, l->cap_notes);
	if (!n)
		return -ENOMEM;
	n->rec = *rec;
	n->index = index;
	return 0;
}

static int push_item(struct df_load *l, const struct df_rec *rec, uint64_t index, uint32_t type,
		     uint64_t stream, uint64_t a, uint64_t b)
{
	struct df_litem *it = DF_VEC_PUSH(l->items, l->nr_items, l->cap_items);

	if (!it)
		return -ENOMEM;
	it->rec = index;
	it->stream = stream;
	it->time_ns = rec->time_ns;
	it->a = a;
	it->b = b;
	it->type = type;
	it->from = type == DF_ITEM_WORK ? rec->a >> 16 : 0;
	it->bytes = type == DF_ITEM_WORK ? rec->b >> 36 : 0;
	it->thread = rec->thread;
	it->device = rec->device == 0xffff ? -1 : rec->device;
	return 0;
}

static int on_issue(struct df_load *l, struct df_reader *r, const struct df_rec *rec,
		    uint64_t index, struct df_lthread *t)
{
	struct df_lcomm *c = comm_of(l, r, rec->comm);
	struct df_lop *op;

	if (!c || l->nr_ops >= NO_OP / 2)
		return 0;
	op = DF_VEC_PUSH(l->ops, l->nr_ops, l->cap_ops);
	if (!op)
		return -ENOMEM;
	memset(op, 0, sizeof(*op));
	op->serial = rec->op;
	op->kind = (uint8_t)rec->a;
	op->type = (uint8_t)(rec->a >> 8);
	op->redop = (uint8_t)(rec->a >> 16);
	op->flags = (uint8_t)(rec->a >> 24);
	op->program = (uint32_t)(rec->a >> 40);
	if (l->h.mode == 1)
		op->flags |= DF_OP_BY_NCCL;
	l->nr_by_nccl += op->flags & DF_OP_BY_NCCL;
	op->count = rec->b;
	op->stream = rec->c;
	op->issue_ns = rec->time_ns;
	op->rec = index;
	op->rec_start = op->rec_slot = DF_NO_REC;
	op->comm = rec->comm;
	op->rank = rec->rank;
	op->peer = -1;
	/* It involves no other rank, and has no number among the collectives. */
	if (op->kind == DF_KIND_SENDRECV_SELF) {
		op->kind = DF_KIND_RECV;
		op->peer = op->rank;
		op->sends = 1;
	}
	op->device = rec->device == 0xffff ? -1 : rec->device;
	op->thread = rec->thread;
	op->site = rec->site;
	/* The operations of an outermost ncclGroupEnd are one group. */
	op->group = (uint32_t)t->in_group;
	t->nr_issued++;
	l->nr_open++;
	comm_thread(c, rec->thread, 1);
	if (op->kind == DF_KIND_SEND || op->kind == DF_KIND_RECV)
		op->cindex = c->nr_coll + c->nr_p2p++;
	else
		op->cindex = c->nr_p2p + c->nr_coll++;
	if (map_put(l, op->serial, (uint32_t)(l->nr_ops - 1) << 1))
		return -ENOMEM;
	return push_item(l, rec, index, DF_ITEM_OP, op->stream, l->nr_ops - 1, 0);
}

/*
 * Where NCCL itself executes, the return of a wait shows that all earlier operations have ended.
 * But an operation of another thread is recorded before that thread puts it on a stream, so the
 * wait may have begun in between. If such an operation has records of its own end, only these show
 * its end.
 */
static void synced(struct df_load *l, const struct df_lcall *c)
{
	int stream = c->call == DF_CALL_STREAM_SYNC;

	if (!l->nr_by_nccl || (!stream && c->call != DF_CALL_DEVICE_SYNC))
		return;
	for (size_t i = l->nr_ops; i-- > 0;) {
		struct df_lop *op = &l->ops[i];

		if (!(op->flags & DF_OP_BY_NCCL) || op->rec > c->rec ||
		    (stream && op->stream != c->object) ||
		    (!stream && c->device >= 0 && op->device != c->device))
			continue;
		if (op->thread != c->thread && !df_lop_blind(op))
			continue;
		if (op->state >= DF_OP_FINISHED)
			break;
		op->state = DF_OP_FINISHED;
		l->nr_open--;
		op->done_ns = c->exit_ns;
	}
}

static int on_call(struct df_load *l, const struct df_rec *rec, uint64_t index,
		   const struct df_lthread *t)
{
	struct df_lcall *c;
	uint32_t i;

	if (rec->type != DF_REC_CALL_ENTER) {
		i = map_get(l, rec->op, 1);
		if (i == NO_OP)
			return 0;
		c = &l->calls[i];
		if (rec->type == DF_REC_RELEASE) {
			c->released = 1;
		} else if (rec->b == DF_RESULT_IN_PROGRESS && c->open) {
			c->background = 1;
		} else {
			l->nr_open -= c->open;
			c->open = 0;
			c->exit_ns = rec->time_ns;
			synced(l, c);
		}
		return 0;
	}
	if (l->nr_calls >= NO_OP / 2)
		return 0;
	c = DF_VEC_PUSH(l->calls, l->nr_calls, l->cap_calls);
	if (!c)
		return -ENOMEM;
	memset(c, 0, sizeof(*c));
	c->serial = rec->op;
	c->call = rec->a < DF_CALL_NR ? (uint32_t)rec->a : DF_CALL_NONE;
	c->object = rec->b;
	c->detail = rec->c;
	c->rec = index;
	c->enter_ns = rec->time_ns;
	c->thread = rec->thread;
	c->comm = rec->comm;
	c->site = rec->site;
	c->rank = rec->rank;
	c->device = rec->device == 0xffff ? -1 : rec->device;
	c->open = 1;
	c->background = t->is_ours;
	l->nr_open++;
	return map_put(l, c->serial, (uint32_t)(l->nr_calls - 1) << 1 | 1) ? -ENOMEM : 0;
}

static void on_op(struct df_load *l, const struct df_rec *rec, uint64_t index)
{
	struct df_lop *op = l->nr_ops && l->ops[l->nr_ops - 1].serial == rec->op
				    ? &l->ops[l->nr_ops - 1]
				    : df_load_op(l, rec->op);

	if (!op)
		return;
	switch (rec->type) {
	case DF_REC_OP_ARGS:
		op->send = rec->a;
		op->recv = rec->b;
		op->peer = op->sends ? op->rank : df_rec_peer(rec->c);
		if (rec->c >> 32)
			op->group = (uint32_t)(rec->c >> 32);
		break;
	case DF_REC_OP_MATCH:
		op->sig = rec->a;
		op->inst = rec->b;
		op->cindex = rec->c;
		/* NCCL matches operations by their place, which write_image() has added. */
		if (op->flags & DF_OP_BY_NCCL)
			op->has_index = 1;
		else
			op->has_match = 1;
		break;
	case DF_REC_OP_SLOT:
		op->slot = rec->a ? 2 : 1;
		op->rec_slot = index;
		/*
		 * By mode trace's rules it counted as started, until this record showed that it
		 * waits.
		 */
		if (!rec->a && op->state == DF_OP_STARTED) {
			op->state = DF_OP_ISSUED;
			op->rec_start = DF_NO_REC;
		}
		if (!rec->a || op->state != DF_OP_ISSUED)
			break;
		/*
		 * By NCCL's rules an operation with a slot runs, whether it has moved data or not:
		 * a rank has started even if its algorithm begins with a wait for another rank.
		 */
		op->state = DF_OP_STARTED;
		op->start_ns = rec->time_ns;
		op->rec_start = index;
		break;
	case DF_REC_OP_START:
		op->start_ns = rec->time_ns;
		op->rec_start = index;
		if (op->state == DF_OP_ISSUED)
			op->state = DF_OP_STARTED;
		break;
	case DF_REC_PROXY:
		/*
		 * The record shows that an operation without records of its begin and end has
		 * started and has not ended.
		 */
		if (!df_lop_blind(op))
			break;
		op->flags |= DF_OP_END_SEEN;
		if (op->state == DF_OP_ISSUED)
			op->state = DF_OP_STARTED;
		break;
	case DF_REC_OP_DONE:
		if (rec->a == 2) {
			op->flags &= (uint8_t)~DF_OP_END_SEEN;
			break;
		}
		if (rec->a == 3) {
			op->flags |= DF_OP_END_SEEN;
			break;
		}
		op->done_ns = rec->time_ns;
		l->nr_open -= op->state < DF_OP_FINISHED;
		op->state = rec->a ? DF_OP_ABORTED : DF_OP_FINISHED;
		break;
	default:
		break;
	}
}

static int on_stream(struct df_load *l, uint64_t id, uint64_t device_flags)
{
	struct df_lstream *s;
	uint64_t *at;

	if (l->nr_streams >= 1u << 14)
		return 0;
	at = df_map_at(&l->streams_at, id, 0);
	if (!at)
		return -ENOMEM;
	if (*at)
		return 0;
	s = DF_VEC_PUSH(l->streams, l->nr_streams, l->cap_streams);
	if (!s)
		return -ENOMEM;
	*at = l->nr_streams;
	s->id = id;
	s->device = (int32_t)(uint32_t)device_flags;
	s->flags = (uint32_t)(device_flags >> 32) & 7;
	s->destroyed_rec = DF_NO_REC;
	return 0;
}

static void off_stream(struct df_load *l, uint64_t id, uint64_t index)
{
	const uint64_t *at = df_map_find(&l->streams_at, id, 0);

	if (at && *at)
		l->streams[*at - 1].destroyed_rec = index;
}

int df_load_stream_ended(const struct df_load *l, uint64_t id, uint64_t before)
{
	const uint64_t *at = df_map_find(&l->streams_at, id, 0);

	return at && *at && l->streams[*at - 1].destroyed_rec < before;
}

static int on_record(struct df_load *l, struct df_reader *r, const struct df_rec *rec,
		     uint64_t index, struct df_lthread *t)
{
	struct df_lcomm *c;

	switch (rec->type) {
	case DF_REC_OP_ISSUE:
		return on_issue(l, r, rec, index, t);
	case DF_REC_OP_ARGS:
	case DF_REC_OP_MATCH:
	case DF_REC_OP_SLOT:
	case DF_REC_OP_START:
	case DF_REC_OP_DONE:
		on_op(l, rec, index);
		return 0;
	case DF_REC_CALL_ENTER:
	case DF_REC_CALL_EXIT:
		if (rec->a == DF_CALL_GROUP_END)
			t->in_group = rec->type == DF_REC_CALL_ENTER ? rec->op : 0;
		return on_call(l, rec, index, t);
	case DF_REC_RELEASE:
		return on_call(l, rec, index, t);
	case DF_REC_POLLED:
		return df_load_polled(l, rec, index, t);
	case DF_REC_STREAM_WORK:
		/* The legacy stream, and a stream whose record is lost, are first named here. */
		return on_stream(l, rec->c, rec->b)
			       ?: push_item(l, rec, index, DF_ITEM_WORK, rec->c, rec->op,
					    (rec->a & 0xff) | (rec->b >> 35 & 1) * DF_WORK_EXACT);
	case DF_REC_STREAM_FENCE:
		return push_item(l, rec, index, DF_ITEM_FENCE, rec->c, rec->op, rec->a);
	case DF_REC_EVENT_RECORD:
		return push_item(l, rec, index, DF_ITEM_RECORD, rec->c, rec->a, rec->b);
	case DF_REC_EVENT_WAIT:
		return push_item(l, rec, index, DF_ITEM_WAIT, rec->c, rec->a, rec->b);
	case DF_REC_STREAM_CREATE:
		return on_stream(l, rec->a, rec->b);
	case DF_REC_STREAM_DESTROY:
		off_stream(l, rec->a, index);
		return 0;
	case DF_REC_HOST_AT:
		t = df_load_thread(l, (uint32_t)rec->a);
		if (t)
			df_load_host_at(t, rec, index);
		return 0;
	case DF_REC_THREAD:
		/* The watchdog recorded this about a thread that has written no records. */
		if (t->is_ours && rec->a != rec->thread) {
			t = thread_of(l, (uint32_t)rec->a);
			if (!t)
				return -ENOMEM;
			t->stranger = 1;
		} else {
			t->stranger = 0;
		}
		memcpy(t->name, &rec->b, 16);
		t->name[15] = 0;
		df_text_clean(t->name, strlen(t->name));
		t->is_ours = !strncmp(t->name, DF_OUR_THREADS, strlen(DF_OUR_THREADS));
		t->part_of = df_load_part_of(t->name);
		return 0;
	case DF_REC_CLOCK:
		l->h.real_ns = rec->a;
		l->h.mono_ns = rec->b;
		return 0;
	case DF_REC_COMM_INIT:
	case DF_REC_COMM_READY:
		c = comm_of(l, r, rec->comm);
		if (c && !t->is_ours)
			comm_thread(c, t->part_of ? t->part_of : rec->thread, 0);
		return push_note(l, rec, index);
	case DF_REC_OP_INTENT:
		c = comm_of(l, r, rec->comm);
		if (c)
			comm_thread(c, rec->thread, 1);
		return push_note(l, rec, index);
	case DF_REC_PROXY:
		on_op(l, rec, index);
		return push_note(l, rec, index);
	case DF_REC_OP_DEP:
	case DF_REC_OP_BEHIND:
	case DF_REC_COMM_MEMBER:
	case DF_REC_COMM_SPLIT:
	case DF_REC_COMM_FINALIZE:
	case DF_REC_COMM_DESTROY:
	case DF_REC_COMM_ABORT:
	case DF_REC_COMM_ERROR:
	case DF_REC_OP_FAILED:
	case DF_REC_PEER_DEAD:
	case DF_REC_STALL:
	case DF_REC_SITE:
	case DF_REC_MARK:
	case DF_REC_NET:
	case DF_REC_HARDWARE:
	case DF_REC_LAUNCH:
		return push_note(l, rec, index);
	default:
		return 0;
	}
}

/*
 * Whether a record of this type is about the device that its thread uses. Other records, such as an
 * operation's end, may belong to any device.
 */
static int is_asked(uint16_t type)
{
	switch (type) {
	case DF_REC_CALL_ENTER:
	case DF_REC_OP_ISSUE:
	case DF_REC_OP_INTENT:
	case DF_REC_STREAM_CREATE:
	case DF_REC_STREAM_WORK:
	case DF_REC_EVENT_RECORD:
	case DF_REC_EVENT_WAIT:
	case DF_REC_MEM_ALLOC:
	case DF_REC_MEM_FREE:
	case DF_REC_GRAPH_LAUNCH:
		return 1;
	default:
		return 0;
	}
}

static int is_progress(uint16_t type)
{
	switch (type) {
	case DF_REC_OP_ISSUE:
	case DF_REC_OP_START:
	case DF_REC_OP_DONE:
	case DF_REC_CALL_ENTER:
	case DF_REC_CALL_EXIT:
	case DF_REC_STREAM_WORK:
	case DF_REC_RELEASE:
	case DF_REC_COMM_READY:
		return 1;
	default:
		return 0;
	}
}

int df_load_trace(struct df_load *l, struct df_reader *r)
{
	uint64_t index, new_comm = DF_NO_REC;
	const struct df_rec *rec;
	struct df_lthread *t = NULL;
	enum df_still still = DF_STILL_NO;
	int rc = 0;

	l->h = r->h;
	l->began_ns = r->h.mono_ns;
	l->nr_ops = l->nr_calls = l->nr_items = l->nr_threads = l->nr_streams = l->nr_notes =
		l->nr_comms = 0;
	l->first_ns = l->last_ns = l->last_rec = l->last_progress_ns = 0;
	l->cut_rec = DF_NO_REC;
	l->cut_ns = 0;
	l->nr_open = 0;
	df_map_fini(&l->threads_at);
	df_map_fini(&l->streams_at);
	l->map_used = 0;
	if (l->map)
		memset(l->map, 0xff, l->map_size * sizeof(*l->map));
	df_reader_rewind(r);
	while (!rc && (rec = df_reader_next(r, &index))) {
		if (!l->first_ns)
			l->first_ns = rec->time_ns;
		if (rec->time_ns > l->last_ns && !(l->until_ns && rec->time_ns > l->until_ns))
			l->last_ns = rec->time_ns;
		l->last_rec = index;
		if (df_load_breaks_off(l, r, rec, index, still, &new_comm)) {
			l->cut_rec = index;
			if (rec->type == DF_REC_COMM_ABORT ||
			    (rec->type == DF_REC_CALL_ENTER && rec->a == DF_CALL_COMM_ABORT))
				l->cut_ns = rec->time_ns;
			/*
			 * Keep this record: the process may have died earlier and its death been
			 * noticed late, which only all traces together show.
			 */
			if (rec->type == DF_REC_PEER_DEAD && !rec->c)
				rc = push_note(l, rec, index);
			break;
		}
		if (!t || t->tid != rec->thread) {
			t = thread_of(l, rec->thread);
			if (!t)
				return -ENOMEM;
		}
		t->last_ns = rec->time_ns;
		t->last_rec = index;
		t->at = DF_AT_UNKNOWN;
		t->asks = 0;
		if (rec->device != 0xffff && is_asked(rec->type))
			t->device = rec->device;
		if (is_progress(rec->type))
			l->last_progress_ns = rec->time_ns;
		if (rec->comm && df_rec_has_comm(rec->type)) {
			struct df_lcomm *c = comm_of(l, r, rec->comm);

			if (c)
				c->last_ns = rec->time_ns;
		}
		if (rec->type == DF_REC_STALL)
			still = DF_STILL_STALL;
		else if (is_progress(rec->type))
			still = DF_STILL_NO;
		else if (rec->type == DF_REC_HOST_AT && !still)
			still = DF_STILL_LOOKED;
		rc = on_record(l, r, rec, index, t);
		/* The array of threads may have been reallocated. */
		if (rec->type == DF_REC_THREAD)
			t = NULL;
	}
	l->nr_recs = r->nr_valid;
	l->nr_torn = r->nr_torn;
	return rc ? rc : df_load_indices(l, r);
}

static struct df_range range_of(uint64_t base, uint64_t bytes)
{
	return (struct df_range){base, base && base + bytes > base ? base + bytes : base};
}

void df_load_buffers(const struct df_lop *op, uint64_t nranks, struct df_range *reads,
		     struct df_range *writes)
{
	uint64_t in = op->count * df_dtype_bytes(op->type), out = in;
	int root = op->peer == op->rank;

	switch (op->kind) {
	case DF_KIND_ALLGATHER:
		out *= nranks;
		break;
	case DF_KIND_REDUCESCATTER:
		in *= nranks;
		break;
	case DF_KIND_ALLTOALL:
		in *= nranks;
		out *= nranks;
		break;
	case DF_KIND_GATHER:
		out = root ? out * nranks : 0;
		break;
	case DF_KIND_SCATTER:
		in = root ? in * nranks : 0;
		break;
	case DF_KIND_BROADCAST:
		in = root ? in : 0;
		break;
	case DF_KIND_REDUCE:
		out = root ? out : 0;
		break;
	case DF_KIND_SEND:
		out = 0;
		break;
	case DF_KIND_RECV:
		in = op->sends ? in : 0;
		break;
	default:
		break;
	}
	*reads = range_of(op->send, in);
	*writes = range_of(op->recv, out);
}
