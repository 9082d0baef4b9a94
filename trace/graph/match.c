/*
 * The part of the wait-for graph between processes: which operations belong together, which ranks
 * they lack, which threads could issue the missing ones, and calls that ranks have to make
 * together.
 */
#include <string.h>
#include "trace/graph/graph.h"
#include "trace/read/load_hosts.h"
#include "trace/read/party.h"
#include "trace/record/trace_hash.h"
#include "trace/record/names.h"
#include "runtime/base/vec.h"

/* instances of a communicator that get edges to each missing rank */
#define MAX_LACKING 4096

struct match {
	struct df_graph *g;
	uint32_t *map; /* instances by key */
	size_t map_size;
	uint64_t *keys; /* keys of the instances */
	size_t cap_keys;
	uint32_t *next; /* by sorted entry and, for unknown ranks, by gcomm: its NEXT node */
	int64_t budget; /* steps left to search for missing ranks; only forged traces exhaust it */
	/* by trace and thread: its THREAD node, or DF_NONE if the thread does not wait */
	uint32_t **threads;
	/* By node: whether it starts an operation that waits for something of its own rank. */
	uint8_t *waits;
};

static int is_p2p(const struct df_uop *u)
{
	return u->l.kind == DF_KIND_SEND || u->l.kind == DF_KIND_RECV;
}

static uint64_t inst_key(const struct df_graph *g, const struct df_uop *u)
{
	int nccl = df_trc_places(&g->set->traces[u->trace]);
	uint64_t k = df_mix64((uint64_t)u->gcomm + 1);

	if (is_p2p(u)) {
		int32_t src = u->l.kind == DF_KIND_SEND ? u->l.rank : u->l.peer;
		int32_t dst = u->l.kind == DF_KIND_SEND ? u->l.peer : u->l.rank;

		k = df_mix64(k ^ ((uint64_t)(uint32_t)src << 32 | (uint32_t)dst));
		if (!nccl)
			k = df_mix64(k ^ u->sig);
		return df_mix64(k ^ (!nccl && u->l.has_match ? u->l.inst : u->l.index)) | 1;
	}
	if (!nccl && u->l.has_match)
		return (df_mix64(df_mix64(k ^ u->l.sig) ^ u->l.inst) | 1) - 1;
	return (df_mix64(k ^ u->l.index) | 1) - 1;
}

static int map_grow(struct match *m)
{
	size_t size = m->map_size ? m->map_size * 2 : 256;
	uint32_t *map = malloc(size * sizeof(*map));

	if (!map)
		return -ENOMEM;
	memset(map, 0xff, size * sizeof(*map));
	for (size_t i = 0; i < m->g->nr_insts; i++) {
		size_t at = (size_t)(m->keys[i] >> 8) & (size - 1);

		while (map[at] != DF_NONE)
			at = (at + 1) & (size - 1);
		map[at] = (uint32_t)i;
	}
	free(m->map);
	m->map = map;
	m->map_size = size;
	return 0;
}

static uint32_t inst_of(struct match *m, uint32_t ref, int create)
{
	struct df_graph *g = m->g;
	struct df_uop *u = &g->set->ops[ref];
	uint64_t key = inst_key(g, u);
	struct df_match *in;
	size_t at;

	if (g->nr_insts * 2 >= m->map_size && map_grow(m))
		return DF_NONE;
	at = (size_t)(key >> 8) & (m->map_size - 1);
	while (m->map[at] != DF_NONE && m->keys[m->map[at]] != key)
		at = (at + 1) & (m->map_size - 1);
	if (m->map[at] != DF_NONE)
		return m->map[at];
	if (!create)
		return DF_NONE;
	if (DF_VEC_ROOM(m->keys, m->cap_keys, g->nr_insts + 1))
		return DF_NONE;
	in = DF_VEC_PUSH(g->insts, g->nr_insts, g->cap_insts);
	if (!in)
		return DF_NONE;
	memset(in, 0, sizeof(*in));
	m->keys[g->nr_insts - 1] = key;
	m->map[at] = (uint32_t)(g->nr_insts - 1);
	in->gcomm = u->gcomm;
	in->first = DF_NONE;
	in->p2p = is_p2p(u);
	in->index = u->l.index;
	if (in->p2p) {
		in->src = u->l.kind == DF_KIND_SEND ? u->l.rank : u->l.peer;
		in->dst = u->l.kind == DF_KIND_SEND ? u->l.peer : u->l.rank;
	}
	in->node = df_graph_node(g, DF_N_MATCH, DF_NONE, (uint32_t)(g->nr_insts - 1));
	/* The end of an operation that NCCL runs is not recorded. */
	if (!df_lop_blind(&u->l))
		g->nodes[in->node].stale = DF_M_STALLED;
	return m->map[at];
}

/* ---- threads that could issue missing operations -------------------------------------------- */

static int thread_index(const struct df_trc *t, uint32_t tid)
{
	const struct df_lthread *th = df_trc_thread(t, tid);

	return th ? (int)(th - t->threads) : -1;
}

static int map_threads(struct match *m)
{
	struct df_graph *g = m->g;

	m->threads = calloc(g->set->nr_traces + 1, sizeof(*m->threads));
	if (!m->threads)
		return -ENOMEM;
	for (size_t i = 0; i < g->set->nr_traces; i++) {
		m->threads[i] = malloc((g->set->traces[i].nr_threads + 1) * sizeof(uint32_t));
		if (!m->threads[i])
			return -ENOMEM;
		memset(m->threads[i], 0xff, (g->set->traces[i].nr_threads + 1) * sizeof(uint32_t));
	}
	for (size_t n = 0; n < g->nr_nodes; n++) {
		const struct df_node *node = &g->nodes[n];
		int at;

		if (node->kind != DF_N_THREAD)
			continue;
		at = thread_index(&g->set->traces[node->trace], node->thread);
		if (at >= 0)
			m->threads[node->trace][at] = (uint32_t)n;
	}
	return 0;
}

/*
 * Whether this thread, which is in a call, would issue for the rank. A thread that has issued for
 * the rank would. If such threads exist, or if each rank of the process has its own, a thread that
 * issues for other ranks would not. Nor would a thread that waits for threads of other ranks: for a
 * lock, a thread's end, or their device. This is likely, not certain, so no proof uses it.
 */
static int would_issue(const struct match *m, const struct df_trc_comm *e, uint32_t trace,
		       int thread, const struct df_lcall *c)
{
	const struct df_check_set *set = m->g->set;
	const struct df_lthread *th = &set->traces[trace].threads[thread];

	if (!e || set->proof || df_entry_issues(set, e, th) ||
	    (!df_entry_last(set, e) && !df_entry_has_no_thread(set, e)))
		return 1;
	if (df_entry_is_foreign(set, e, th->tid))
		return 0;
	return c->call == DF_CALL_OUTSIDE ? c->object != DF_AT_LOCK
					  : c->device < 0 || c->device == e->device;
}

/*
 * Makes the node able to proceed if one of the threads `tids` can. `e` is the rank's communicator,
 * or NULL. A thread in no call can issue; it counts as never issuing only when nothing has made
 * progress for long. A thread that has ended may have left the work to any other thread.
 */
static void hosts_of(struct match *m, uint32_t node, const struct df_trc *t, uint32_t trace,
		     const struct df_trc_comm *e, const uint32_t *tids, uint32_t nr)
{
	struct df_graph *g = m->g;
	uint32_t blocked = 0, gone = 0;

	g->nodes[node].or_ = 1;
	for (uint32_t i = 0; i < nr; i++) {
		int at = thread_index(t, tids[i]);
		uint32_t to = at < 0 ? DF_NONE : m->threads[trace][at];

		if (t->hosts && !df_trc_host(t, tids[i]))
			gone++;
		if (to == DF_NONE)
			continue;
		blocked++;
		if (would_issue(m, e, trace, at, &t->calls[g->nodes[to].ref]))
			df_graph_edge(g, node, to, DF_E_HOST, DF_W_ALL, DF_NO_REC);
	}
	if (gone)
		df_graph_edge(g, node, t->any_host, DF_E_HOST, DF_W_ALL, DF_NO_REC);
	g->nodes[node].idle |= blocked + gone < nr || !nr;
}

/*
 * Returns why no thread of the rank would issue. DF_M_ENDED: its threads have ended, and all others
 * are in calls or wait for other threads of the process. DF_M_SILENT: else.
 */
static enum df_mark why_silent(const struct match *m, const struct df_trc_comm *e,
			       const uint32_t *tids, uint32_t nr)
{
	const struct df_trc *t = &m->g->set->traces[e->trace];

	if (!df_entry_has_ended(m->g->set, e))
		return DF_M_SILENT;
	for (uint32_t i = 0; i < nr; i++) {
		int at = thread_index(t, tids[i]);

		if (at >= 0 && m->threads[e->trace][at] == DF_NONE &&
		    t->threads[at].at != DF_AT_GONE && t->threads[at].at != DF_AT_LOCK &&
		    !df_entry_is_foreign(m->g->set, e, tids[i]))
			return DF_M_SILENT;
	}
	return DF_M_ENDED;
}

/* Sets why the node is silent if it has no edges: no thread that could issue is in a call. */
static void settle(struct df_graph *g, uint32_t node, enum df_mark stale)
{
	for (size_t i = g->nr_edges; i-- > 0 && g->edges[i].from == node;)
		return;
	g->nodes[node].stale = stale;
}

static uint32_t add_tid(uint32_t *tids, uint32_t nr, uint32_t max, uint32_t tid)
{
	for (uint32_t i = 0; i < nr; i++)
		if (tids[i] == tid)
			return nr;
	if (nr < max)
		tids[nr++] = tid;
	return nr;
}

/* Lists the process's threads that have issued operations or are in a call of NCCL or CUDA. */
static uint32_t busy_threads(const struct df_trc *t, uint32_t *tids, uint32_t max)
{
	uint32_t nr = 0;

	for (size_t i = 0; i < t->nr_threads; i++)
		if (t->threads[i].nr_issued)
			nr = add_tid(tids, nr, max, t->threads[i].tid);
	for (size_t i = 0; i < t->nr_calls; i++)
		if ((!df_call_is_seen(t->calls[i].call) || t->calls[i].call == DF_CALL_POLL_CALL) &&
		    !t->calls[i].background)
			nr = add_tid(tids, nr, max, t->calls[i].thread);
	for (uint32_t i = nr; i-- > 0;) {
		int at = thread_index(t, tids[i]);

		/* The thread works for another thread that waits for it: list that other thread. */
		if (at >= 0 && t->threads[at].part_of) {
			tids[i] = tids[--nr];
			nr = add_tid(tids, nr, max, t->threads[at].part_of);
		}
	}
	/* If there are none, take the first thread of the process, if it has records. */
	if (!nr && t->nr_threads) {
		int main = thread_index(t, t->h.pid);

		tids[nr++] = main >= 0 && !t->threads[main].stranger ? t->h.pid : t->threads[0].tid;
	}
	return nr;
}

/*
 * Adds the threads that may issue on a communicator on which nothing was issued yet. Its users are
 * unknown: the thread that created it may have done so for any thread that has issued for this
 * rank. Sets *more if some threads did not fit.
 */
static uint32_t add_rank_threads(const struct df_check_set *set, const struct df_trc_comm *e,
				 uint32_t *tids, uint32_t nr, uint32_t max, int *more)
{
	const struct df_trc *t = &set->traces[e->trace];

	for (uint32_t i = 0; i < t->nr_entries; i++) {
		const struct df_trc_comm *f = &set->entries[t->first_entry + i];

		if (!f->used || f->party != e->party || f->device != e->device)
			continue;
		*more |= f->more_threads != 0 || nr + f->nr_threads > max;
		for (uint32_t k = 0; k < f->nr_threads; k++)
			nr = add_tid(tids, nr, max, f->threads[k]);
	}
	return nr;
}

/* Whether the thread has used no communicator of its process. */
static int is_new(const struct df_check_set *set, const struct df_trc *t, uint32_t tid)
{
	for (uint32_t i = 0; i < t->nr_entries; i++)
		if (df_entry_uses(&set->entries[t->first_entry + i], tid))
			return 0;
	return 1;
}

/*
 * Adds threads that have used CUDA on the rank's device but no communicator yet: any of them may
 * begin to use this communicator. Adds none in a process with several ranks, because there only a
 * rank's own threads use its communicators. Sets *more if some threads did not fit.
 */
static uint32_t add_new_threads(const struct df_check_set *set, const struct df_trc_comm *e,
				uint32_t *tids, uint32_t nr, uint32_t max, int *more)
{
	const struct df_trc *t = &set->traces[e->trace];

	for (size_t i = 0; i < t->nr_threads && df_trc_has_one_rank(set, t); i++) {
		const struct df_lthread *th = &t->threads[i];
		const struct df_check_host *h = t->hosts ? df_trc_host(t, th->tid) : NULL;

		/*
		 * A thread without a name may be one of dfshim's. A thread without calls has only
		 * made queries.
		 */
		if (!th->name[0] || th->stranger || th->is_ours || th->part_of || th->nr_issued ||
		    df_trc_has_gone(t, th) || (h && !h->nr_calls) ||
		    (th->device >= 0 && th->device != e->device) || !is_new(set, t, th->tid))
			continue;
		*more |= nr == max;
		nr = add_tid(tids, nr, max, th->tid);
	}
	return nr;
}

/* Returns how the rank's process has ended, as its peers saw it. The process may have no trace. */
static enum df_mark fate_of(const struct df_check_set *set, uint32_t gcomm, int rank)
{
	const struct df_dead *d = df_set_dead(set, gcomm, rank);

	return !d ? DF_M_NONE : d->in_order ? DF_M_EXITED : DF_M_DEAD;
}

static uint32_t next_node(struct match *m, uint32_t gcomm, int rank)
{
	struct df_graph *g = m->g;
	struct df_check_set *set = g->set;
	struct df_trc_comm *e = df_set_entry(set, gcomm, rank);
	uint32_t node, tids[64], nr;
	struct df_trc *t;
	int more = 0;

	if (e && m->next[e - set->entries] != DF_NONE)
		return m->next[e - set->entries];
	node = df_graph_node(g, DF_N_NEXT, e ? e->trace : DF_NONE,
			     e ? (uint32_t)(e - set->entries) : DF_NONE);
	g->nodes[node].rank = rank;
	g->nodes[node].gcomm = gcomm;
	if (!e) {
		g->nodes[node].stale = DF_M_NO_TRACE;
		g->nodes[node].mark = (uint8_t)fate_of(set, gcomm, rank);
		return node;
	}
	m->next[e - set->entries] = node;
	t = &set->traces[e->trace];
	if (t->fate == DF_DEAD || fate_of(set, gcomm, rank) == DF_M_DEAD)
		g->nodes[node].mark = DF_M_DEAD;
	else if (e->destroyed_rec != DF_NO_REC)
		g->nodes[node].mark = DF_M_DESTROYED;
	else if (t->fate == DF_EXITED)
		g->nodes[node].mark = DF_M_EXITED;
	if (g->nodes[node].mark)
		return node;
	nr = e->nr_threads;
	memcpy(tids, e->threads, sizeof(e->threads));
	if (!nr)
		nr = busy_threads(t, tids, 64);
	if (!e->used)
		nr = add_rank_threads(set, e, tids, nr, 64, &more);
	/* Only a proof needs this: a report names these threads itself (df_others_find()). */
	if (!e->used && set->proof)
		nr = add_new_threads(set, e, tids, nr, 64, &more);
	hosts_of(m, node, t, e->trace, e, tids, nr);
	g->nodes[node].idle |= more || e->more_threads != 0;
	settle(g, node, why_silent(m, e, tids, nr));
	return node;
}

/* ---- collectives and messages --------------------------------------------------------------- */

/* Returns the key of this rank's operations with the instance's signature, and the number. */
static uint64_t part_of(const struct df_match *in, const struct df_uop *sample, int rank,
			uint32_t local, int nccl, uint64_t *number)
{
	struct df_lop op = sample->l;

	*number = !nccl && op.has_match ? op.inst : op.index;
	if (in->p2p) {
		op.kind = rank == in->src ? DF_KIND_SEND : DF_KIND_RECV;
		op.peer = rank == in->src ? in->dst : in->src;
	}
	return df_seen_key(local, &op, nccl);
}

/* Whether this rank's operation of the instance has already ended. */
static int ended_there(struct match *m, const struct df_match *in, const struct df_uop *sample,
		       const struct df_trc_comm *e)
{
	const struct df_trc *t = &m->g->set->traces[e->trace];
	int nccl = df_trc_places(t);
	uint64_t number, key = part_of(in, sample, e->rank, e->local, nccl, &number);

	if (!in->p2p && nccl)
		return e->next_coll > in->index;
	return df_trc_seen(t, key) > number;
}

/* As ended_there() for a rank without a trace, from its process's report on exit. */
static enum df_left left_there(struct match *m, const struct df_match *in,
			       const struct df_uop *sample, int rank)
{
	const struct df_check_set *set = m->g->set;
	uint64_t number, key = part_of(in, sample, rank, 0,
				       df_trc_places(&set->traces[sample->trace]), &number);

	return df_left_of(&set->left, set->gcomms[in->gcomm].hash, rank, key, number);
}

/* Makes a node for an operation whose record the rank's ring may have lost. */
static uint32_t lost_node(struct match *m, uint32_t gcomm, int rank)
{
	uint32_t node = df_graph_node(m->g, DF_N_NEXT, DF_NONE, DF_NONE);

	m->g->nodes[node].rank = rank;
	m->g->nodes[node].gcomm = gcomm;
	m->g->nodes[node].stale = DF_M_NO_TRACE;
	return node;
}

/* Whether the rank sends first: a message, or data as the root. Other ranks receive first. */
static int sends_first(const struct df_uop *u)
{
	return u->l.kind == DF_KIND_SEND ||
	       ((u->l.kind == DF_KIND_BROADCAST || u->l.kind == DF_KIND_SCATTER) &&
		u->l.rank == u->l.peer);
}

/* Makes the receivers' start depend on the sender's, while the sender has not begun. */
static void tie_beginnings(struct df_graph *g, const struct df_match *in)
{
	const struct df_uop *ops = g->set->ops;
	uint32_t first = in->first;

	while (first != DF_NONE && !sends_first(&ops[first]))
		first = ops[first].next;
	for (uint32_t i = in->first; first != DF_NONE && i != DF_NONE; i = ops[i].next)
		if (i != first && ops[i].l.state == DF_OP_ISSUED && !sends_first(&ops[i]))
			df_graph_edge(g, ops[i].start, ops[first].start, DF_E_PEER, DF_W_ALL,
				      ops[i].l.rec);
}

/*
 * Removes the sign of a fault from parts that have not begun, while the part of one rank waits for
 * something. By dfshim's rules a part has begun when it has moved data. The algorithm is unknown,
 * and with it the rank that moves data first.
 */
static void excuse(struct match *m, const struct df_match *in)
{
	const struct df_uop *ops = m->g->set->ops;
	int waits = 0;

	for (uint32_t i = in->first; i != DF_NONE; i = ops[i].next)
		waits |= ops[i].start != DF_NONE && m->waits[ops[i].start];
	for (uint32_t i = in->first; waits && i != DF_NONE; i = ops[i].next)
		if (ops[i].start != DF_NONE && !df_trc_places(&m->g->set->traces[ops[i].trace]) &&
		    m->g->nodes[ops[i].start].stale == DF_M_GPU)
			m->g->nodes[ops[i].start].stale = DF_M_NONE;
}

static void tie(struct match *m, struct df_match *in, uint32_t nr_lacking)
{
	struct df_graph *g = m->g;
	const struct df_gcomm *gc = &g->set->gcomms[in->gcomm];
	const struct df_uop *first = &g->set->ops[in->first];
	int32_t nranks = in->p2p ? 2 : gc->nranks;
	uint64_t sig = first->sig;
	int nccl = df_trc_places(&g->set->traces[first->trace]);
	uint8_t *here;

	m->budget -= nranks;
	if (m->budget < 0)
		return;
	here = calloc((size_t)nranks + 1, 1);
	if (!here) {
		g->failed = 1;
		return;
	}
	for (uint32_t i = in->first; i != DF_NONE; i = g->set->ops[i].next) {
		const struct df_uop *u = &g->set->ops[i];
		int32_t at = in->p2p ? u->l.kind == DF_KIND_RECV : u->l.rank;

		/* A rank that has ended will not execute an operation that it had issued. */
		if (u->start == DF_NONE)
			df_graph_edge(g, in->node, next_node(m, in->gcomm, u->l.rank),
				      DF_E_NOT_ISSUED, DF_W_ALL, DF_NO_REC);
		df_graph_edge(g, u->done, in->node, DF_E_MATCH, DF_W_ALL, u->l.rec);
		df_graph_edge(g, in->node, u->start, DF_E_PEER, DF_W_ALL, u->l.rec);
		if (at >= 0 && at < nranks) {
			in->nr_here += !here[at];
			here[at] = 1;
		}
		if (u->sig != sig && nccl)
			g->nodes[in->node].mark = DF_M_MISMATCH;
	}
	tie_beginnings(g, in);
	excuse(m, in);
	if (in->p2p && in->src == in->dst && in->nr_here)
		here[0] = here[1] = 1;
	for (int32_t r = 0; r < nranks; r++) {
		int32_t rank = !in->p2p ? r : r ? in->dst : in->src;
		struct df_trc_comm *e;
		enum df_left left;
		int lost;

		if (here[r])
			continue;
		e = df_set_entry(g->set, in->gcomm, rank);
		left = e ? DF_LEFT_UNTOLD : left_there(m, in, first, rank);
		if (left == DF_LEFT_FINISHED || (e && ended_there(m, in, first, e))) {
			in->nr_done++;
			continue;
		}
		lost = left == DF_LEFT_PERHAPS ||
		       (e && e->lost_open && g->set->traces[e->trace].fate == DF_ALIVE);
		if (!in->nr_missing++ || nr_lacking < MAX_LACKING)
			df_graph_edge(g, in->node,
				      lost ? lost_node(m, in->gcomm, rank)
					   : next_node(m, in->gcomm, rank),
				      DF_E_NOT_ISSUED, DF_W_ALL, DF_NO_REC);
	}
	/* While a rank is missing, an operation that does not run or end is no sign of a fault. */
	if (in->nr_missing)
		g->nodes[in->node].stale = DF_M_NONE;
	for (uint32_t i = in->first; i != DF_NONE && in->nr_missing; i = g->set->ops[i].next)
		if (g->set->ops[i].start != DF_NONE)
			g->nodes[g->set->ops[i].start].stale = DF_M_NONE;
	free(here);
}

/*
 * Makes a calling thread wait for the other ends. NCCL may connect ranks in the call of an
 * operation or of a group. Then the call returns only when the other ends have called theirs, too,
 * and nothing of the group is launched before that.
 */
static void tie_caller(struct match *m, uint32_t node, const uint32_t *inst)
{
	struct df_graph *g = m->g;
	const struct df_trc *t = &g->set->traces[g->nodes[node].trace];
	const struct df_lcall *c = &t->calls[g->nodes[node].ref];
	const struct df_uop *u, *end, *last = NULL;
	int connects = 0;

	if (!t->nr_uops)
		return;
	u = g->set->ops + t->first_op;
	end = u + t->nr_uops;
	for (; u < end && (c->call == DF_CALL_NCCL_OP || c->call == DF_CALL_GROUP_END); u++)
		if (u->l.thread == c->thread && u->l.flags & DF_OP_BY_NCCL &&
		    (!last || u->l.rec > last->l.rec))
			last = u;
	for (u = end - t->nr_uops; last && u < end; u++) {
		uint32_t at = inst[u - g->set->ops];

		if (!df_graph_is_one_call(last, u) || at == DF_NONE)
			continue;
		for (int32_t r = 0; r < g->set->gcomms[u->gcomm].nranks; r++) {
			if (!df_graph_connects(g, u, &g->insts[at], r))
				continue;
			df_graph_edge(g, node, next_node(m, u->gcomm, r), DF_E_NOT_ISSUED,
				      DF_W_BASE | DF_W_NORES, u->l.rec);
			g->nodes[node].stale = DF_M_NONE;
			connects = 1;
		}
	}
	for (u = end - t->nr_uops; connects && u < end; u++)
		if (df_graph_is_one_call(last, u) && u->start != DF_NONE)
			df_graph_edge(g, u->start, node, DF_E_GROUP, DF_W_BASE | DF_W_NORES,
				      u->l.rec);
}

/* ---- calls that several ranks make together ------------------------------------------------- */

/*
 * Whether this rank has made the call on its communicator. The call's record names the rank. If it
 * names none, or if one call connects several ranks, the device decides.
 */
static int is_call_of(const struct df_lcall *c, const struct df_trc_comm *e)
{
	if (c->comm && !(c->call == DF_CALL_CONNECT && c->detail > 1))
		return c->comm == e->local;
	return c->device < 0 || e->device == c->device;
}

static void bar_on_comm(struct match *m, struct df_bar *b)
{
	struct df_graph *g = m->g;
	const struct df_gcomm *gc = &g->set->gcomms[b->gcomm];
	uint8_t *here = calloc((size_t)gc->nranks + 1, 1);

	if (!here) {
		g->failed = 1;
		return;
	}
	for (size_t i = 0; i < g->nr_edges; i++) {
		const struct df_node *from = &g->nodes[g->edges[i].from];
		const struct df_trc *t;

		if (g->edges[i].to != b->node || from->kind != DF_N_THREAD)
			continue;
		t = &g->set->traces[from->trace];
		for (uint32_t k = 0; k < t->nr_entries; k++) {
			const struct df_trc_comm *e = &g->set->entries[t->first_entry + k];

			if (e->gcomm == b->gcomm && e->rank >= 0 && e->rank < gc->nranks &&
			    is_call_of(&t->calls[from->ref], e))
				here[e->rank] = 1;
		}
	}
	for (int32_t r = 0; r < gc->nranks; r++) {
		const struct df_trc_comm *e = df_set_entry(g->set, b->gcomm, r);

		if (here[r] ||
		    (b->call == DF_CALL_COMM_DESTROY && e && e->destroyed_rec != DF_NO_REC))
			continue;
		df_graph_edge(g, b->node, next_node(m, b->gcomm, r), DF_E_NOT_ISSUED, DF_W_ALL,
			      DF_NO_REC);
	}
	free(here);
}

/* Whether a call of ncclCommInitRank with this unique id has returned on some rank. */
static int was_passed(const struct df_check_set *set, uint64_t uid)
{
	for (size_t i = 0; i < set->nr_traces; i++) {
		const struct df_trc *t = &set->traces[i];

		for (size_t k = 0; k < t->nr_notes; k++) {
			const struct df_rec *r = &t->notes[k].rec;
			int open = 0;

			if (r->type != DF_REC_COMM_INIT || r->a != uid)
				continue;
			for (size_t c = 0; c < t->nr_calls; c++)
				open |= t->calls[c].serial == r->op;
			if (!open)
				return 1;
		}
	}
	return 0;
}

/*
 * Adds the threads that may be missing members: any thread that has not made the call, unless its
 * process has ended.
 */
static void absent_hosts(struct match *m, struct df_bar *b)
{
	struct df_graph *g = m->g;
	size_t nr_nodes = g->nr_nodes;
	uint8_t *here = calloc(nr_nodes + 1, 1);
	uint32_t node, tids[64];
	int any = 0;

	if (!here) {
		g->failed = 1;
		return;
	}
	for (size_t i = 0; i < g->nr_edges; i++)
		if (g->edges[i].to == b->node && g->nodes[g->edges[i].from].kind == DF_N_THREAD)
			here[g->edges[i].from] = 1;
	node = df_graph_node(g, DF_N_NEXT, DF_NONE, DF_NONE);
	g->nodes[node].or_ = 1;
	for (uint32_t i = 0; i < g->set->nr_traces; i++) {
		const struct df_trc *t = &g->set->traces[i];
		uint32_t nr = 0, all;

		if (t->dropped || t->fate != DF_ALIVE)
			continue;
		all = busy_threads(t, tids, 64);
		for (uint32_t k = 0; k < all; k++) {
			int at = thread_index(t, tids[k]);

			if (at < 0 || m->threads[i][at] == DF_NONE || !here[m->threads[i][at]])
				tids[nr++] = tids[k];
		}
		if (!nr)
			continue;
		any = 1;
		hosts_of(m, node, t, i, NULL, tids, nr);
	}
	/*
	 * A thread or a process that has used no communicator yet may be a missing member, too, so
	 * nothing is proved here.
	 */
	g->nodes[node].idle |= g->set->proof && df_call_meets(b->call);
	settle(g, node, any ? DF_M_ABSENT : DF_M_NO_TRACE);
	df_graph_edge(g, b->node, node, DF_E_NOT_ISSUED, DF_W_ALL, DF_NO_REC);
	free(here);
}

static void bar_of_hosts(struct match *m, struct df_bar *b)
{
	struct df_graph *g = m->g;

	/*
	 * In a proof, a rank whose call has returned shows that all had made it. A call that failed
	 * shows nothing.
	 */
	if (g->set->proof && df_call_meets(b->call) && was_passed(g->set, b->object))
		return;
	absent_hosts(m, b);
}

int df_graph_match(struct df_graph *g)
{
	struct df_check_set *set = g->set;
	struct match m = {.g = g, .budget = 1LL << 31};
	uint32_t *lacking = calloc(set->nr_gcomms + 1, sizeof(*lacking));
	uint32_t *inst = malloc((set->nr_ops + 1) * sizeof(*inst)); /* by operation */
	int rc;

	df_graph_outside(g);
	rc = map_threads(&m);

	m.next = malloc((set->nr_entries + 1) * sizeof(*m.next));
	if (!m.next || !lacking || !inst) {
		rc = -ENOMEM;
	} else {
		memset(m.next, 0xff, (set->nr_entries + 1) * sizeof(*m.next));
		memset(inst, 0xff, (set->nr_ops + 1) * sizeof(*inst));
	}
	/*
	 * The first pass makes instances of the living ranks' operations. The second pass adds the
	 * operations of ranks that have ended to these instances.
	 */
	for (size_t pass = 0; pass < 2; pass++) {
		for (size_t i = 0; !rc && i < set->nr_ops; i++) {
			struct df_uop *u = &set->ops[i];
			uint32_t in;

			if ((u->start == DF_NONE) != pass || set->traces[u->trace].dropped)
				continue;
			in = inst_of(&m, (uint32_t)i, !pass);
			inst[i] = in;
			if (in == DF_NONE) {
				rc = pass ? 0 : -ENOMEM;
				continue;
			}
			/* Insert after the first one, which must be of a living rank. */
			if (pass) {
				u->next = set->ops[g->insts[in].first].next;
				set->ops[g->insts[in].first].next = (uint32_t)i;
			} else {
				u->next = g->insts[in].first;
				g->insts[in].first = (uint32_t)i;
			}
		}
	}
	m.waits = calloc(g->nr_nodes + 1, 1);
	if (!m.waits)
		rc = -ENOMEM;
	for (size_t i = 0; !rc && i < g->nr_edges; i++)
		m.waits[g->edges[i].from] = g->nodes[g->edges[i].from].kind == DF_N_START;
	for (size_t i = 0; !rc && i < g->nr_insts; i++) {
		struct df_match *in = &g->insts[i];

		tie(&m, in, lacking[in->gcomm]);
		lacking[in->gcomm] += in->nr_missing > 0;
	}
	if (!rc)
		rc = df_graph_groups(g, inst);
	for (uint32_t n = 0; !rc && n < g->nr_nodes; n++)
		if (g->nodes[n].kind == DF_N_THREAD)
			tie_caller(&m, n, inst);
	for (size_t i = 0; !rc && i < g->nr_bars; i++) {
		struct df_bar *b = &g->bars[i];

		if (b->gcomm != DF_NONE)
			bar_on_comm(&m, b);
		else if (b->nr_here < b->expect)
			bar_of_hosts(&m, b);
	}
	for (size_t i = 0; m.threads && i < set->nr_traces; i++)
		free(m.threads[i]);
	free(m.threads);
	free(m.next);
	free(m.map);
	free(m.keys);
	free(lacking);
	free(inst);
	free(m.waits);
	return rc ? rc : g->failed ? -ENOMEM : 0;
}
