/*
 * Adds operations on their streams: what each must wait for before it starts, by the rules of its
 * process, and which operations hold its resources.
 */
#include <string.h>
#include "trace/record/names.h"
#include "runtime/base/vec.h"
#include "trace/graph/walk.h"

static void behind_stream(struct walk *w, struct df_uop *u, struct place before,
			  enum df_edge_kind kind)
{
	/*
	 * By NCCL's rules a stream executes in order. By dfshim's rules only work that is not a
	 * collective delays an operation.
	 */
	if (w->nccl) {
		df_graph_edge(w->g, u->start, before.all, kind, DF_W_BASE | DF_W_NORES, u->l.rec);
		df_graph_edge(w->g, u->start, before.other, DF_E_WORK, DF_W_P | DF_W_SI | DF_W_SE,
			      u->l.rec);
	} else {
		df_graph_edge(w->g, u->start, before.other, DF_E_WORK, DF_W_ALL, u->l.rec);
	}
}

static struct queue *queue_of(struct walk *w, uint64_t stream, int32_t device)
{
	uint64_t key = (uint64_t)(uint32_t)device << 32 | (stream % w->t->h.queues);
	struct queue *q = NULL;

	for (size_t i = 0; i < w->nr_queues; i++)
		if (w->queues[i].key == key)
			return &w->queues[i];
	q = DF_VEC_PUSH(w->queues, w->nr_queues, w->cap_queues);
	if (q)
		*q = (struct queue){.key = key, .done = DF_NONE, .before = DF_NONE};
	else
		w->g->failed = 1;
	return q;
}

static void behind_queue(struct walk *w, struct df_uop *u)
{
	struct queue *q = queue_of(w, u->l.stream, u->l.device);

	if (!q)
		return;
	if (!u->l.group || q->group != u->l.group) {
		q->before = q->done;
		q->stream_before = q->stream;
	}
	if (u->l.state == DF_OP_ISSUED && q->stream_before != u->l.stream)
		df_graph_edge(w->g, u->start, q->before, DF_E_QUEUE, DF_W_BASE, u->l.rec);
	q->done = u->done;
	q->group = u->l.group;
	q->stream = u->l.stream;
}

void df_walk_queue(struct walk *w, struct stream *s, int after, uint64_t rec)
{
	struct queue *q = w->nccl && w->t->h.queues ? queue_of(w, s->id, s->device) : NULL;

	if (!q)
		return;
	if (!after) {
		if (q->stream != s->id)
			s->at.all = df_walk_join(w, s->at.all, q->done, DF_E_QUEUE, DF_W_BASE, rec);
		return;
	}
	if (s->at.all == DF_NONE)
		return;
	q->done = s->at.all;
	q->group = 0;
	q->stream = s->id;
}

/*
 * Returns the entry of the operation's communicator. Its `before` is the last operation before this
 * one or before its group.
 */
static struct last *last_of(struct walk *w, const struct df_uop *u)
{
	struct last *last = NULL;

	for (size_t i = 0; i < w->nr_comms && !last; i++)
		if (w->comms[i].comm == u->l.comm)
			last = &w->comms[i];
	if (!last) {
		last = DF_VEC_PUSH(w->comms, w->nr_comms, w->cap_comms);
		if (!last) {
			w->g->failed = 1;
			return NULL;
		}
		*last = (struct last){.comm = u->l.comm, .done = DF_NONE, .at = NOWHERE};
	}
	if (!u->l.group || last->group != u->l.group) {
		last->before = last->done;
		last->at_before = last->at;
	}
	return last;
}

static struct place join_places(struct walk *w, struct place a, struct place b, uint64_t rec)
{
	return (struct place){
		.all = df_walk_join(w, a.all, b.all, DF_E_COMM, DF_W_ALL, rec),
		.other = df_walk_join(w, a.other, b.other, DF_E_COMM, DF_W_ALL, rec),
		.fenced = df_walk_join(w, a.fenced, b.fenced, DF_E_COMM, DF_W_ALL, rec)};
}

#define HAZARD_WINDOW 256

void df_uop_buffers(const struct df_check_set *set, const struct df_uop *u, struct df_range *reads,
		    struct df_range *writes)
{
	df_load_buffers(&u->l, (uint64_t)set->gcomms[u->gcomm].nranks, reads, writes);
}

/*
 * Adds edges between operations whose buffers overlap. Overlapping buffers order two operations
 * even where issue order does not.
 */
static void hazards(struct walk *w, struct df_uop *u, const struct stream *s)
{
	struct df_check_set *set = w->g->set;
	struct df_uop *first = &set->ops[w->t->first_op], *o = u;
	struct df_range r, wr, ro, wo;

	df_uop_buffers(set, u, &r, &wr);
	if (r.from == r.to && wr.from == wr.to)
		return;
	for (int i = 0; i < HAZARD_WINDOW && o-- > first; i++) {
		if (o->done == DF_NONE || (o->l.stream != u->l.stream && !s->joined) ||
		    (u->l.group && o->l.group == u->l.group))
			continue;
		df_uop_buffers(set, o, &ro, &wo);
		if (df_range_overlap(r, wo) || df_range_overlap(wr, ro) || df_range_overlap(wr, wo))
			df_graph_edge(w->g, u->start, o->done, DF_E_HAZARD,
				      w->nccl ? DF_W_P | DF_W_SI | DF_W_SE : DF_W_ALL, u->l.rec);
	}
}

/*
 * Makes the operation wait for the previous one with the same signature. By dfshim's rules they run
 * one after the other, on any streams.
 */
static void behind_signature(struct walk *w, struct df_uop *u)
{
	struct df_uop *first = &w->g->set->ops[w->t->first_op], *o = u;

	for (int i = 0; i < HAZARD_WINDOW && o-- > first; i++) {
		/*
		 * A message has the same signature at both ends, so the kind must be compared,
		 * too.
		 */
		if (o->done == DF_NONE || o->l.comm != u->l.comm || o->sig != u->sig ||
		    o->l.kind != u->l.kind || o->l.peer != u->l.peer)
			continue;
		df_graph_edge(w->g, u->start, o->done, DF_E_COMM, DF_W_ALL, u->l.rec);
		return;
	}
}

void df_walk_op(struct walk *w, uint32_t ref)
{
	struct df_uop *u = &w->g->set->ops[ref];
	struct stream *s = df_walk_stream(w, u->l.stream, u->l.device);
	unsigned dev = (unsigned)u->l.device & 63;
	struct last *last = last_of(w, u);
	int inherits = last && !w->nccl && last->stream != u->l.stream;
	struct place before;

	if (!s || !last)
		return;
	u->start = df_graph_node(w->g, DF_N_START, w->trace, ref);
	u->done = df_graph_node(w->g, DF_N_DONE, w->trace, ref);
	df_graph_edge(w->g, u->done, u->start, DF_E_SELF, DF_W_ALL, u->l.rec);
	before = s->at;
	if (u->l.group && s->group == u->l.group)
		before = s->before_group;
	else
		s->before_group = s->at;
	s->group = u->l.group;
	/*
	 * By dfshim's rules the stream inherits the order that precedes the communicator's last
	 * operation on another stream. Later items of this stream inherit it too.
	 */
	if (inherits) {
		before = join_places(w, before, last->at_before, u->l.rec);
		s->at = join_places(w, s->at, last->at_before, u->l.rec);
		s->joined |= last->at_before.all != DF_NONE;
	}
	if (u->l.state == DF_OP_ISSUED) {
		behind_stream(w, u, before, DF_E_STREAM);
		/*
		 * Strict stream order: if the stream itself waits for an operation, the next one is
		 * delayed.
		 */
		df_graph_edge(w->g, u->start, before.fenced, DF_E_STREAM, DF_W_BASE | DF_W_NORES,
			      u->l.rec);
		hazards(w, u, s);
		if (!df_trc_places(w->t))
			behind_signature(w, u);
		if (s->flags & 2) {
			for (size_t i = 0; i < w->nr_streams; i++)
				if (w->streams[i].device == s->device &&
				    df_walk_legacy_blocks(&w->streams[i])) {
					struct place *b = &w->streams[i].at;

					df_graph_edge(w->g, u->start, w->nccl ? b->all : b->other,
						      DF_E_LEGACY, DF_W_ALL & ~DF_W_SE, u->l.rec);
					if (!w->nccl)
						df_graph_edge(w->g, u->start, b->fenced,
							      DF_E_LEGACY, DF_W_BASE | DF_W_NORES,
							      u->l.rec);
				}
		}
		if (w->nccl && u->l.slot == 1) {
			if (w->slots[dev] == DF_NONE) {
				w->slots[dev] = df_graph_node(w->g, DF_N_SLOT, w->trace, dev);
				w->g->nodes[w->slots[dev]].or_ = 1;
			}
			df_graph_edge(w->g, u->start, w->slots[dev], DF_E_SLOT, DF_W_BASE,
				      u->l.rec_slot);
		}
		if (!df_lop_blind(&u->l))
			w->g->nodes[u->start].stale = DF_M_GPU;
	}
	if (df_trc_places(w->t) && u->l.state == DF_OP_ISSUED)
		df_graph_edge(w->g, u->start, last->before, DF_E_COMM, DF_W_BASE | DF_W_NORES,
			      u->l.rec);
	if (w->nccl && w->t->h.queues)
		behind_queue(w, u);
	s->at.all = df_walk_join(w, u->done, s->at.all, DF_E_PART, DF_W_ALL, DF_NO_REC);
	last->done = u->done;
	last->group = u->l.group;
	last->stream = u->l.stream;
	last->at = s->at;
}

void df_walk_holders(struct walk *w)
{
	for (size_t i = 0; i < w->t->nr_uops; i++) {
		const struct df_uop *u = &w->g->set->ops[w->t->first_op + i];
		unsigned dev = (unsigned)u->l.device & 63;

		if (u->done != DF_NONE && w->slots[dev] != DF_NONE &&
		    (u->l.slot == 2 || u->l.state == DF_OP_STARTED))
			df_graph_edge(w->g, w->slots[dev], u->done, DF_E_HOLDS, DF_W_BASE,
				      u->l.rec_start);
	}
}

/*
 * Adds edges to the operations that may be the first in a hardware queue. A hardware queue executes
 * one entry after the other. An operation consists of several entries: one that shows its begin,
 * the operation itself, and one that shows its end. The records do not show which entries of other
 * threads lie between them. But only operations whose begin is recorded can be the first in the
 * queue, and all others wait for the first one. The operations of one thread keep their order.
 */
void df_walk_firsts(struct walk *w)
{
	size_t nr = w->nccl && w->t->h.queues ? w->t->nr_uops : 0;
	struct df_uop *ops = nr ? &w->g->set->ops[w->t->first_op] : NULL;

	for (size_t i = 0; i < nr; i++) {
		const struct df_uop *u = &ops[i];
		int later = u->done == DF_NONE || u->l.state != DF_OP_STARTED;

		for (size_t k = 0; k < i && !later; k++)
			later = ops[k].done != DF_NONE && ops[k].l.state == DF_OP_STARTED &&
				ops[k].l.thread == u->l.thread &&
				df_uop_same_queue(w->g->set, &ops[k], u);
		for (size_t k = 0; k < nr && !later; k++)
			if (ops[k].l.thread != u->l.thread &&
			    df_uop_same_queue(w->g->set, &ops[k], u))
				df_graph_edge(w->g, ops[k].start, u->done, DF_E_QUEUE, DF_W_FIRST,
					      ops[k].l.rec);
	}
}
