/*
 * Finds calls that do not agree. By NCCL's rules the k-th collectives of all ranks of a
 * communicator meet even if they differ, and the graph shows a mismatch directly. Where operations
 * meet by signature, a mismatch appears as two instances that lack each other's ranks: one rank
 * waits in X for a rank that waits in Y for the first rank. Also, a message that was sent and has
 * finished may differ in size from the receive that waits for it. Pure functions on a result.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "trace/judge/judge_int.h"
#include "trace/judge/say.h"
#include "trace/record/names.h"
#include "runtime/base/vec.h"

#define MAX_SIDES   4096
#define MAX_LACKING 64	 /* maximum number of instances examined that lack the root */
#define MAX_LOOKS   4096 /* maximum number of searches in the graph */

static int add_side(struct df_check_result *r, const struct df_lop *op, uint32_t trace,
		    uint32_t entry)
{
	struct df_side *s;

	if (r->nr_sides >= MAX_SIDES)
		return 0;
	s = DF_VEC_PUSH(r->sides, r->nr_sides, r->cap_sides);
	if (!s)
		return -ENOMEM;
	*s = (struct df_side){
		.op = *op, .trace = trace, .entry = entry, .rank = -1, .sig = df_op_signature(op)};
	if (entry != DF_NONE)
		s->rank = r->set->entries[entry].world;
	else if (r->root != DF_NONE)
		s->rank = df_say_world_of(r->set, r->g.insts[r->g.nodes[r->root].ref].gcomm,
					  op->rank);
	return 0;
}

static int add_inst(struct df_check_result *r, uint32_t inst)
{
	const struct df_check_set *set = r->set;
	int rc = 0;

	for (uint32_t o = r->g.insts[inst].first; o != DF_NONE && !rc; o = set->ops[o].next)
		rc = add_side(r, &set->ops[o].l, set->ops[o].trace, set->ops[o].entry);
	return rc;
}

/* ---- two signatures that lack each other ---------------------------------------------------- */

/* Returns the rank's own operation of an instance, or NULL. */
static const struct df_uop *op_of_rank(const struct df_check_set *set, const struct df_match *in,
				       int rank)
{
	for (uint32_t o = in->first; o != DF_NONE; o = set->ops[o].next)
		if (set->ops[o].l.rank == rank)
			return &set->ops[o];
	return NULL;
}

struct look {
	uint8_t *seen;
	uint32_t *queue;
	int left;
};

/* Whether a chain of stuck waits leads from `from` to `to`. */
static int leads_to(const struct df_check_result *r, struct look *l, uint32_t from, uint32_t to)
{
	const struct df_graph *g = &r->g;
	size_t nr = 0, at = 0;
	int found = from == to;

	if (l->left-- <= 0)
		return 0;
	l->seen[from] = 1;
	l->queue[nr++] = from;
	for (; at < nr && !found; at++) {
		uint32_t n = l->queue[at];

		for (uint32_t k = g->out_first[n]; k < g->out_first[n + 1] && !g->self[n]; k++) {
			const struct df_edge *e = &g->edges[g->out[k]];

			if (!df_edge_on(e, r->world) || !g->stuck[e->to] || l->seen[e->to])
				continue;
			found |= e->to == to;
			l->seen[e->to] = 1;
			l->queue[nr++] = e->to;
		}
	}
	while (nr)
		l->seen[l->queue[--nr]] = 0;
	return found;
}

/*
 * For a rank p that has issued `a` but not `b`: whether `a` waits for a rank q that has issued `b`
 * and will not act, because it is silent or waits for `b`. Then neither rank will issue the
 * operation that the other waits for.
 */
static int lack_each_other(const struct df_check_result *r, struct look *l,
			   const struct df_match *a, const struct df_match *b, uint64_t *place)
{
	const struct df_check_set *set = r->set;
	const struct df_graph *g = &r->g;

	for (uint32_t k = g->out_first[a->node]; k < g->out_first[a->node + 1]; k++) {
		const struct df_edge *e = &g->edges[g->out[k]];
		const struct df_node *q = &g->nodes[e->to];
		const struct df_uop *ua, *ub;

		if (e->kind != DF_E_NOT_ISSUED || q->kind != DF_N_NEXT || !g->stuck[e->to])
			continue;
		ub = op_of_rank(set, b, q->rank);
		if (!ub || !(g->self[e->to] || leads_to(r, l, e->to, b->node)))
			continue;
		ua = &set->ops[a->first];
		if (ua->sig == ub->sig)
			continue;
		*place = ua->l.cindex > ub->l.cindex ? ua->l.cindex - ub->l.cindex
						     : ub->l.cindex - ua->l.cindex;
		return 1;
	}
	return 0;
}

static int by_signature(const struct df_check_result *r, const struct df_match *in)
{
	const struct df_uop *u = &r->set->ops[in->first];

	return r->g.stuck[in->node] && in->nr_missing && u->start != DF_NONE &&
	       !df_trc_places(&r->set->traces[u->trace]);
}

/*
 * Examines all pairs of `b`, which rank p has not issued, with another instance. The best pair is
 * the one whose members are closest in issue order.
 */
static void look_at(struct df_check_result *r, struct look *l, uint32_t b, int p, uint64_t *best,
		    uint32_t pair[2])
{
	const struct df_match *ib = &r->g.insts[b];

	for (uint32_t i = 0; i < r->g.nr_insts && *best; i++) {
		const struct df_match *ia = &r->g.insts[i];
		uint64_t place;

		if (i == b || ia->gcomm != ib->gcomm || !by_signature(r, ia))
			continue;
		if (ia->p2p != ib->p2p && !df_graph_are_crossed(&r->g, ia, ib))
			continue;
		if (ia->p2p && ib->p2p && (ia->src != ib->src || ia->dst != ib->dst))
			continue;
		if (!op_of_rank(r->set, ia, p) || op_of_rank(r->set, ib, p) ||
		    !lack_each_other(r, l, ia, ib, &place) || place >= *best)
			continue;
		*best = place;
		pair[0] = i;
		pair[1] = b;
	}
}

static int find_crossed(struct df_check_result *r)
{
	struct df_graph *g = &r->g;
	struct look l = {.seen = calloc(g->nr_nodes + 1, 1),
			 .queue = malloc((g->nr_nodes + 1) * sizeof(uint32_t)),
			 .left = MAX_LOOKS};
	uint32_t pair[2] = {DF_NONE, DF_NONE};
	uint64_t best = UINT64_MAX;
	int nr = 0, rc = l.seen && l.queue ? 0 : -ENOMEM;

	/*
	 * Searches the instances that lack the root or, in a cycle, the instances of the cycle that
	 * lack a rank of it.
	 */
	for (size_t i = 0; i < g->nr_edges && !rc && nr < MAX_LACKING && best; i++) {
		const struct df_edge *e = &g->edges[i];
		const struct df_node *from = &g->nodes[e->from], *to = &g->nodes[e->to];

		if (e->kind != DF_E_NOT_ISSUED || from->kind != DF_N_MATCH ||
		    to->kind != DF_N_NEXT || r->comp[e->to] != r->root_comp ||
		    !by_signature(r, &g->insts[from->ref]))
			continue;
		nr++;
		look_at(r, &l, from->ref, to->rank, &best, pair);
	}
	free(l.seen);
	free(l.queue);
	if (rc || pair[0] == DF_NONE)
		return rc;
	/* Put the side with the lower rank first. */
	if (r->set->ops[g->insts[pair[0]].first].l.rank >
	    r->set->ops[g->insts[pair[1]].first].l.rank) {
		uint32_t t = pair[0];

		pair[0] = pair[1];
		pair[1] = t;
	}
	r->root = g->insts[pair[0]].node;
	rc = add_inst(r, pair[0]);
	return rc ? rc : add_inst(r, pair[1]) ?: 1;
}

/* ---- a message that has finished on one side ------------------------------------------------ */

/*
 * Reads the trace's operations again into r->set->load, within the judged time. Reads nothing if
 * the file has been removed: the other traces suffice then. Returns 0 or -errno.
 */
static int load_again(struct df_check_result *r, const struct df_trc *t)
{
	struct df_load *l = &r->set->load;
	struct df_reader reader;
	int rc;

	l->nr_ops = 0;
	if (df_set_open(t, &reader))
		return 0;
	l->until_ns = t->until_ns;
	rc = df_load_trace(l, &reader);
	df_reader_close(&reader);
	return rc;
}

/*
 * Whether `op` of the other rank should have met u. By NCCL's rules these are the k-th operations
 * of the pair. By dfshim's rules `op` has another size and no partner on u's rank.
 */
static int should_meet(const struct df_check_result *r, const struct df_uop *u,
		       const struct df_lop *op)
{
	const struct df_trc *mine = &r->set->traces[u->trace];
	struct df_lop partner = u->l;

	if (df_trc_places(mine))
		return op->index == u->l.index;
	partner.count = op->count;
	partner.type = op->type;
	return df_op_signature(op) != u->sig &&
	       df_trc_seen(mine, df_seen_key(u->l.comm, &partner, 0)) <=
		       (op->has_match ? op->inst : op->index);
}

/* As other_end(), for a rank without a trace, from its process's report on exit. */
static int reported_end(const struct df_check_result *r, const struct df_match *in,
			const struct df_uop *u, int rank, struct df_lop *out)
{
	const struct df_check_set *set = r->set;

	*out = u->l;
	out->rank = rank;
	out->peer = u->l.rank;
	out->kind = rank == in->src ? DF_KIND_SEND : DF_KIND_RECV;
	out->site = 0;
	out->rec = DF_NO_REC;
	return df_trc_places(&set->traces[u->trace]) &&
	       df_left_message(&set->left, set->gcomms[in->gcomm].hash, rank, out);
}

/*
 * Reads the other end of a message from its trace. Without a trace *who is NULL. Returns 1 if it
 * was found, 0 if it is not in the trace or the trace is gone, or -errno.
 */
static int other_end(struct df_check_result *r, const struct df_match *in, const struct df_uop *u,
		     struct df_lop *out, const struct df_trc_comm **who)
{
	int rank = u->l.rank == in->src ? in->dst : in->src;
	const struct df_trc_comm *e = df_set_entry(r->set, in->gcomm, rank);
	struct df_load *l = &r->set->load;
	int rc;

	if (!e)
		return reported_end(r, in, u, rank, out);
	rc = load_again(r, &r->set->traces[e->trace]);
	for (size_t i = 0; !rc && i < l->nr_ops; i++) {
		const struct df_lop *op = &l->ops[i];

		if (op->comm != e->local || op->peer != u->l.rank ||
		    op->kind != (rank == in->src ? DF_KIND_SEND : DF_KIND_RECV) ||
		    !should_meet(r, u, op))
			continue;
		*out = *op;
		*who = e;
		return 1;
	}
	return rc;
}

/*
 * Finds a message whose ends differ in size. A small send finishes before its receive is posted, so
 * only one side is stuck. If `unseen`, also examines operations that do not look stuck because
 * their end is not recorded (NCCL's own operations, imported dumps). Returns 1 if it finds one,
 * else 0 or -errno.
 */
static int find_sizes(struct df_check_result *r, int unseen)
{
	int left = 16, rc;

	for (uint32_t i = 0; i < r->g.nr_insts && left; i++) {
		const struct df_match *in = &r->g.insts[i];
		const struct df_uop *u = &r->set->ops[in->first];
		const struct df_trc_comm *who = NULL;
		struct df_lop other;
		int nccl = df_trc_places(&r->set->traces[u->trace]);

		if (!in->p2p || in->nr_here != 1 ||
		    !(r->g.stuck[in->node] || (unseen && df_lop_blind(&u->l))) ||
		    (nccl ? !in->nr_done : !in->nr_missing))
			continue;
		left--;
		rc = other_end(r, in, u, &other, &who);
		if (rc < 0)
			return rc;
		if (!rc || df_op_signature(&other) == u->sig)
			continue;
		r->root = in->node;
		rc = add_inst(r, i);
		if (!rc && who)
			rc = add_side(r, &other, who->trace, (uint32_t)(who - r->set->entries));
		else if (!rc)
			rc = add_side(r, &other, DF_NONE, DF_NONE);
		return rc ? rc : 1;
	}
	return 0;
}

/* ---- different calls in one place ----------------------------------------------------------- */

static int by_place(const void *pa, const void *pb)
{
	const struct df_uop *a = *(const struct df_uop *const *)pa,
			    *b = *(const struct df_uop *const *)pb;

	return DF_CMP(a->l.index, b->l.index) ?: DF_CMP(a->l.rank, b->l.rank);
}

/* Returns the number of collectives that a rank has issued on a communicator. */
static uint64_t nr_issued(const struct df_check_set *set, uint32_t gcomm, int rank)
{
	const struct df_trc_comm *e = df_set_entry(set, gcomm, rank);

	return e ? e->nr_coll : df_left_issued(&set->left, set->gcomms[gcomm].hash, rank);
}

/* A collective that one rank has issued and another has not. */
struct gap {
	const struct df_uop *op;
	uint32_t inst;
	int rank; /* the rank that has not issued it */
};

/*
 * Finds the first collective that a rank has replaced: at that place in the communicator's order it
 * has issued another collective. Examines the collectives that are in the cycle or wait for a rank
 * that has left.
 */
static int find_gap(const struct df_check_result *r, struct gap *gap)
{
	const struct df_check_set *set = r->set;
	const struct df_graph *g = &r->g;

	*gap = (struct gap){.op = NULL};
	for (size_t i = 0; i < g->nr_edges; i++) {
		const struct df_edge *e = &g->edges[i];
		const struct df_node *from = &g->nodes[e->from], *to = &g->nodes[e->to];
		const struct df_match *in;
		uint64_t nr;

		if (e->kind != DF_E_NOT_ISSUED || from->kind != DF_N_MATCH ||
		    to->kind != DF_N_NEXT || r->comp[e->to] != r->root_comp)
			continue;
		in = &g->insts[from->ref];
		if (in->p2p || !by_signature(r, in))
			continue;
		nr = nr_issued(set, in->gcomm, to->rank);
		for (uint32_t o = in->first; o != DF_NONE; o = set->ops[o].next) {
			const struct df_uop *u = &set->ops[o];

			if (u->l.index < nr && u->start != DF_NONE && u->l.rank != to->rank &&
			    set->entries[u->entry].has_places &&
			    (!gap->op || u->l.index < gap->op->l.index))
				*gap = (struct gap){u, from->ref, to->rank};
		}
	}
	return gap->op != NULL;
}

static uint32_t inst_of(const struct df_check_result *r, const struct df_uop *u)
{
	for (uint32_t i = 0; i < r->g.nr_insts; i++)
		for (uint32_t o = r->g.insts[i].first; o != DF_NONE; o = r->set->ops[o].next)
			if (&r->set->ops[o] == u)
				return i;
	return DF_NONE;
}

/*
 * Finds the first place, up to that of the gap, in which unfinished collectives of the communicator
 * differ. If there is one, returns 1 and stores its sides in the result. Else returns 0 or -ENOMEM.
 */
static int unfinished_sides(struct df_check_result *r, const struct gap *gap)
{
	struct df_check_set *set = r->set;
	const struct df_uop **v = malloc((set->nr_ops + 1) * sizeof(*v));
	size_t nr = 0, first = 0, end = 0;
	int differ = 0, rc = v ? 0 : -ENOMEM;

	for (size_t i = 0; v && i < set->nr_ops; i++)
		if (set->ops[i].gcomm == gap->op->gcomm && set->ops[i].start != DF_NONE &&
		    set->ops[i].l.index <= gap->op->l.index && !df_kind_is_p2p(set->ops[i].l.kind))
			v[nr++] = &set->ops[i];
	if (nr)
		qsort(v, nr, sizeof(*v), by_place);
	while (end < nr && !differ) {
		first = end;
		while (end < nr && v[end]->l.index == v[first]->l.index)
			differ |= v[end++]->sig != v[first]->sig;
	}
	for (size_t i = first; differ && i < end && !rc; i++)
		rc = add_side(r, &v[i]->l, v[i]->trace, v[i]->entry);
	if (!rc && differ) {
		uint32_t inst = inst_of(r, v[first]);

		r->root = r->g.insts[inst == DF_NONE ? gap->inst : inst].node;
		rc = 1;
	}
	free(v);
	return rc;
}

/*
 * Adds the collective that a rank issued in this place of a communicator to the sides. Reads it
 * from the trace again, because finished operations are not kept.
 */
static int add_finished(struct df_check_result *r, uint32_t entry, uint64_t index)
{
	const struct df_trc_comm *e = &r->set->entries[entry];
	struct df_load *l = &r->set->load;
	int rc = load_again(r, &r->set->traces[e->trace]);

	for (size_t i = 0; !rc && i < l->nr_ops; i++)
		if (l->ops[i].comm == e->local && l->ops[i].index == index &&
		    !df_kind_is_p2p(l->ops[i].kind))
			return add_side(r, &l->ops[i], e->trace, entry);
	return rc;
}

/*
 * By NCCL's rules the k-th collectives of a communicator meet, but the graph matches signatures,
 * which may meet in another order. If a rank has not issued a collective, but has issued at least
 * as many as the rank that waits for it, then it has issued another one in that place or before. If
 * the operations of both ranks in the first differing place have finished, the place of the missing
 * collective counts.
 */
int df_mismatch_places(struct df_check_result *r)
{
	const struct df_trc_comm *e;
	struct gap gap;
	int rc;

	if (!find_gap(r, &gap))
		return 0;
	rc = unfinished_sides(r, &gap);
	if (rc)
		return rc;
	r->root = r->g.insts[gap.inst].node;
	r->lacks = gap.rank;
	rc = add_side(r, &gap.op->l, gap.op->trace, gap.op->entry);
	e = df_set_entry(r->set, gap.op->gcomm, gap.rank);
	if (!rc && e && e->has_places)
		rc = add_finished(r, (uint32_t)(e - r->set->entries), gap.op->l.index);
	return rc ? rc : 1;
}

/* ---- the interface of the judge ------------------------------------------------------------- */

int df_mismatch_find(struct df_check_result *r)
{
	int rc = find_crossed(r);

	if (!rc)
		rc = find_sizes(r, 0);
	return !rc && r->is_cycle ? df_mismatch_places(r) : rc;
}

int df_mismatch_unseen(struct df_check_result *r)
{
	return find_sizes(r, 1);
}

int df_mismatch_sides(struct df_check_result *r)
{
	const struct df_check_set *set = r->set;
	const struct df_gcomm *g;
	uint32_t which;
	int rc = 0;

	if (r->nr_sides)
		return 0;
	if (r->root != DF_NONE)
		return add_inst(r, r->g.nodes[r->root].ref);
	which = df_set_first_mismatch(set);
	if (which == DF_NONE)
		return 0;
	g = &set->gcomms[which];
	for (uint32_t i = 0; i < g->nr_entries && !rc; i++)
		rc = add_finished(r, set->sorted[g->first_entry + i], g->mismatch);
	r->completed_gcomm = which;
	r->completed_index = g->mismatch;
	return rc;
}

/* ---- the sentence --------------------------------------------------------------------------- */

static const char *difference(const struct df_lop *a, const struct df_lop *b)
{
	if (a->kind != b->kind && !(df_kind_is_p2p(a->kind) && df_kind_is_p2p(b->kind)))
		return "operation";
	if (df_kind_is_p2p(a->kind))
		return "size";
	if (a->count != b->count)
		return "count";
	if (a->type != b->type)
		return "data type";
	if (a->peer != b->peer)
		return "root";
	return "reduction";
}

static void put_message(const struct df_check_result *r, struct df_line *b, const struct df_side *s)
{
	uint32_t gcomm = r->g.insts[r->g.nodes[r->root].ref].gcomm;
	uint64_t size = df_dtype_bytes(s->op.type);
	char who[48];

	df_line_put(b, "%s %s %" PRIu64 " bytes (%" PRIu64 " x %s)",
		    df_say_member(r->set, gcomm, s->op.rank, who, sizeof(who)),
		    s->op.kind == DF_KIND_SEND ? "sends" : "expects",
		    s->op.count * (size ? size : 1), s->op.count, df_dtype_name(s->op.type));
}

/*
 * Describes the lack where the call of the other side is not known: only the number of its calls
 * is, or its calls were swapped before.
 */
static void put_lacking(const struct df_check_result *r, struct df_line *b)
{
	const struct df_side *s = r->sides;
	uint32_t gcomm = r->g.insts[r->g.nodes[r->root].ref].gcomm;
	char sig[96], who[48];

	df_line_put(b,
		    " differs: %s on r%d, another operation on %s, which issued %" PRIu64
		    " on communicator %s but not this one",
		    df_say_sig(&s->op, sig, sizeof(sig)), s->rank,
		    df_say_member(r->set, gcomm, r->lacks, who, sizeof(who)),
		    nr_issued(r->set, gcomm, r->lacks), r->set->gcomms[gcomm].label);
}

/* Groups equal signatures and names the minority. */
static void put_sides(const struct df_check_result *r, struct df_line *b)
{
	const struct df_side *s = r->sides;
	char sig[96], first[96], where[256] = "";
	size_t best = 0, best_nr = 0, nr = r->nr_sides, other = nr, n = 0;

	for (size_t i = 0; i < nr; i++) {
		size_t same = 0;

		for (size_t k = 0; k < nr; k++)
			same += s[k].sig == s[i].sig;
		if (same > best_nr) {
			best_nr = same;
			best = i;
		}
	}
	for (size_t i = 0; i < nr && other == nr; i++)
		if (s[i].sig != s[best].sig)
			other = i;
	if (other == nr) {
		if (r->lacks >= 0)
			put_lacking(r, b);
		return;
	}
	df_line_put(b, " differs in %s: ", difference(&s[best].op, &s[other].op));
	if (df_kind_is_p2p(s[best].op.kind) && df_kind_is_p2p(s[other].op.kind) && nr == 2) {
		put_message(r, b, &s[best]);
		df_line_put(b, ", ");
		put_message(r, b, &s[other]);
		return;
	}
	for (size_t i = 0; i < nr && n + 16 < sizeof(where); i++)
		if (s[i].sig == s[other].sig)
			n += (size_t)snprintf(where + n, sizeof(where) - n, "%sr%d", n ? ", " : "",
					      s[i].rank);
	df_say_sig(&s[best].op, first, sizeof(first));
	df_say_sig(&s[other].op, sig, sizeof(sig));
	df_line_put(b, "%s on %s", sig, where);
	if (best_nr == 1)
		df_line_put(b, ", %s on r%d", first, s[best].rank);
	else
		df_line_put(b, ", %s on the %zu others%s", first, best_nr,
			    best_nr > nr - best_nr ? " (majority)" : "");
}

void df_line_mismatch(struct df_check_result *r, struct df_line *b)
{
	uint32_t gcomm;

	if (df_mismatch_sides(r) || !r->nr_sides)
		return;
	if (r->root == DF_NONE) {
		df_line_put(b, "%s#%" PRIu64, r->set->gcomms[r->completed_gcomm].label,
			    r->completed_index + 1);
		put_sides(r, b);
		df_line_put(b, "; it completed, so results may be wrong without an error");
		return;
	}
	if (r->g.insts[r->g.nodes[r->root].ref].p2p) {
		const struct df_match *in = &r->g.insts[r->g.nodes[r->root].ref];

		df_line_put(b, "%s %d->%d #%" PRIu64, r->set->gcomms[in->gcomm].label, in->src,
			    in->dst, in->index + 1);
	} else {
		gcomm = r->g.insts[r->g.nodes[r->root].ref].gcomm;
		df_line_put(b, "%s#%" PRIu64, r->set->gcomms[gcomm].label,
			    r->sides[0].op.index + 1);
	}
	put_sides(r, b);
}
