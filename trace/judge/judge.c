/*
 * The judge: reduces the graph with the rules under which the job ran, examines the stuck nodes,
 * and finds the weakest rule change with which they could proceed. No state besides the result.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include "trace/record/names.h"
#include "trace/judge/judge_int.h"
#include "trace/judge/say.h"
#include "trace/judge/result.h"
#include "runtime/base/vec.h"
#include "runtime/base/number.h"

#define LIVE_PATIENCE_NS 120000000000ULL

/* ---- choosing the root ---------------------------------------------------------------------- */

#define NO_TRACE_PRIORITY 20

static int mark_priority(enum df_mark m)
{
	switch (m) {
	case DF_M_DEAD:
		return 100;
	case DF_M_MISMATCH:
		return 90;
	case DF_M_DESTROYED:
		return 60;
	case DF_M_EXITED:
		return 55;
	case DF_M_GPU:
		return 18;
	case DF_M_IN_CALL:
		return 45;
	case DF_M_ENDED:
		return 42;
	case DF_M_SILENT:
		return 40;
	case DF_M_ABSENT:
		return 35;
	case DF_M_STALLED:
		return 16;
	case DF_M_NO_TRACE:
		return NO_TRACE_PRIORITY;
	default:
		return 0;
	}
}

#define CYCLE_PRIORITY 80

static enum df_mark mark_of(const struct df_check_result *r, uint32_t n)
{
	const struct df_node *node = &r->g.nodes[n];

	return node->mark     ? (enum df_mark)node->mark
	       : r->g.self[n] ? (enum df_mark)node->stale
			      : DF_M_NONE;
}

/* Whether the node waits for a process that lives and does not answer. */
static int is_silent(const struct df_check_result *r, const struct df_node *n)
{
	const struct df_check_silent *s =
		n->gcomm == DF_NONE ? NULL : df_set_silent(r->set, n->gcomm, n->rank);

	return s && s->certain;
}

static void count_stuck(struct df_check_result *r)
{
	const struct df_graph *g = &r->g;
	uint8_t *comms = calloc(r->set->nr_gcomms + 1, 1),
		*ranks = calloc(r->set->nr_entries + 1, 1);

	r->stuck_ops = r->stuck_insts = r->stuck_comms = r->stuck_ranks = 0;
	for (size_t i = 0; i < g->nr_nodes && comms && ranks; i++) {
		const struct df_node *n = &g->nodes[i];

		if (!g->stuck[i])
			continue;
		if (n->kind == DF_N_MATCH) {
			r->stuck_insts++;
			r->stuck_comms += !comms[g->insts[n->ref].gcomm];
			comms[g->insts[n->ref].gcomm] = 1;
		}
		if (n->kind == DF_N_DONE) {
			const struct df_uop *u = &r->set->ops[n->ref];
			int world = r->set->entries[u->entry].world;

			r->stuck_ops++;
			if (world >= 0 && (size_t)world <= r->set->nr_entries && !ranks[world]) {
				ranks[world] = 1;
				r->stuck_ranks++;
			}
		}
	}
	free(comms);
	free(ranks);
}

/*
 * Chooses the root cause among the components that wait for no other component: the most serious
 * one or, among equally serious ones, the largest.
 */
static int choose_root(struct df_check_result *r)
{
	struct df_graph *g = &r->g;
	uint8_t *is_root;
	uint32_t *size, *rep;
	size_t nr;
	int best = -1;

	free(r->comp);
	r->comp = malloc((g->nr_nodes + 1) * sizeof(*r->comp));
	if (!r->comp)
		return -ENOMEM;
	nr = df_graph_components(g, r->world, r->comp, &is_root);
	if (!is_root)
		return -ENOMEM;
	size = calloc(nr + 1, sizeof(*size));
	rep = calloc(nr + 1, sizeof(*rep));
	r->root = DF_NONE;
	r->nr_roots = 0;
	for (size_t i = 0; i < g->nr_nodes && size && rep; i++) {
		if (r->comp[i] == DF_NONE)
			continue;
		size[r->comp[i]]++;
		rep[r->comp[i]] = (uint32_t)i;
	}
	for (size_t c = 0; c < nr && size && rep; c++) {
		int prio, seen;

		if (!is_root[c])
			continue;
		/* A process that has ended is one cause, however many communicators wait for it. */
		seen = 0;
		for (size_t d = 0; d < c && mark_of(r, rep[c]); d++)
			seen |= is_root[d] && mark_of(r, rep[d]) == mark_of(r, rep[c]) &&
				r->g.nodes[rep[d]].trace == r->g.nodes[rep[c]].trace;
		r->nr_roots += !seen;
		prio = mark_of(r, rep[c]) ? mark_priority(mark_of(r, rep[c])) : CYCLE_PRIORITY;
		prio += prio == NO_TRACE_PRIORITY && is_silent(r, &r->g.nodes[rep[c]]);
		if (prio > best || (prio == best && size[c] > size[r->root_comp])) {
			best = prio;
			r->root = rep[c];
			r->root_comp = (uint32_t)c;
		}
	}
	free(is_root);
	free(size);
	free(rep);
	return 0;
}

/* ---- what kind of cycle --------------------------------------------------------------------- */

static int comp_dissolves(struct df_check_result *r, enum df_world w)
{
	/* If the verdict depends on silent threads, idle threads still count as silent. */
	df_graph_reduce(&r->g, w, r->stale ? 2 : 0);
	for (size_t i = 0; i < r->g.nr_nodes; i++)
		if (r->comp[i] == r->root_comp && r->g.stuck[i])
			return 0;
	return 1;
}

static int cycle_has(const struct df_check_result *r, unsigned kinds)
{
	for (size_t i = 0; i < r->nr_steps; i++)
		if (r->steps[i].kinds & kinds)
			return 1;
	return 0;
}

static int cycle_has_call(const struct df_check_result *r, uint32_t call)
{
	for (size_t i = 0; i < r->nr_steps; i++) {
		const struct df_node *n = &r->g.nodes[r->steps[i].from];

		if (n->kind == DF_N_THREAD && r->set->traces[n->trace].calls[n->ref].call == call)
			return 1;
	}
	return 0;
}

#define BIT(k) (1u << (k))

/* Largest message for which one slot of dfshim suffices (DFSHIM_SLOT_KB). */
#define BUFFERED (128u << 10)

/*
 * Whether the edge is a send in a group. By NCCL's rules it ends with its whole group. By dfshim's
 * rules a small send need not wait for its receive.
 */
static int may_be_buffered(const struct df_check_result *r, const struct df_edge *e)
{
	const struct df_node *n = &r->g.nodes[e->from];
	const struct df_uop *u = n->kind == DF_N_DONE ? &r->set->ops[n->ref] : NULL;

	return e->kind == DF_E_MATCH && u && u->l.kind == DF_KIND_SEND && u->l.group &&
	       u->bytes <= BUFFERED && df_trc_nccl(&r->set->traces[u->trace]);
}

static int dissolves_if_buffered(struct df_check_result *r)
{
	int any = 0, ret;

	for (size_t i = 0; i < r->g.nr_edges; i++)
		if (may_be_buffered(r, &r->g.edges[i])) {
			r->g.edges[i].mask &= ~DF_W_P;
			any = 1;
		}
	ret = any && comp_dissolves(r, DF_W_P);
	for (size_t i = 0; any && i < r->g.nr_edges; i++)
		if (may_be_buffered(r, &r->g.edges[i]))
			r->g.edges[i].mask |= DF_W_P;
	return ret;
}

/*
 * Returns the edge to the nearest operation that the component needs in that world and that a rank
 * has not issued, or DF_NONE. The remedy assumes that the rank will issue it.
 */
static uint32_t still_to_come(const struct df_check_result *r, enum df_world w)
{
	const struct df_graph *g = &r->g;
	uint32_t *queue = malloc((g->nr_nodes + 1) * sizeof(*queue)), found = DF_NONE;
	uint8_t *seen = calloc(g->nr_nodes + 1, 1);
	size_t nr = 0;

	for (size_t i = 0; queue && seen && i < g->nr_nodes; i++)
		if (r->comp[i] == r->root_comp) {
			seen[i] = 1;
			queue[nr++] = (uint32_t)i;
		}
	for (size_t q = 0; q < nr && found == DF_NONE; q++)
		for (uint32_t k = g->out_first[queue[q]]; k < g->out_first[queue[q] + 1]; k++) {
			const struct df_edge *e = &g->edges[g->out[k]];

			if (!df_edge_on(e, w))
				continue;
			if (g->nodes[e->to].kind == DF_N_NEXT && found == DF_NONE)
				found = g->out[k];
			if (!seen[e->to])
				queue[nr++] = e->to;
			seen[e->to] = 1;
		}
	free(queue);
	free(seen);
	return found;
}

static void classify_cycle(struct df_check_result *r)
{
	static const enum df_world worlds[] = {DF_W_NORES, DF_W_P, DF_W_SI, DF_W_SE};
	enum df_world remedy = (enum df_world)0;
	const char *qual = "";

	for (size_t i = 0; i < 4 && !remedy; i++)
		if (comp_dissolves(r, worlds[i]))
			remedy = worlds[i];
	r->if_buffered = !remedy && dissolves_if_buffered(r);
	r->to_come = remedy ? still_to_come(r, remedy) : DF_NONE;
	df_graph_reduce(&r->g, r->world, r->stale);
	r->remedy = remedy == DF_W_NORES ? DF_W_P : remedy;
	switch ((int)remedy) {
	case DF_W_NORES:
		r->verdict = DF_V_RESOURCE;
		qual = cycle_has(r, BIT(DF_E_QUEUE)) ? "queue" : "slots";
		break;
	case DF_W_P:
		r->verdict = DF_V_ORDER;
		if (cycle_has_call(r, DF_CALL_CONNECT))
			qual = "connect";
		else if (cycle_has_call(r, DF_CALL_NCCL_OP) || cycle_has_call(r, DF_CALL_GROUP_END))
			qual = "pair";
		/* One thread connects, and the other thread waits for the device. */
		if (*qual && cycle_has(r, BIT(DF_E_SYNC_DEVICE) | BIT(DF_E_SYNC_IMPLICIT))) {
			r->verdict = DF_V_SYNC;
			qual = cycle_has(r, BIT(DF_E_SYNC_DEVICE)) ? "explicit" : "implicit";
		}
		break;
	case DF_W_SI:
		r->verdict = DF_V_SYNC;
		qual = "implicit";
		break;
	case DF_W_SE:
		r->verdict = DF_V_SYNC;
		qual = cycle_has(r, BIT(DF_E_SYNC_DEVICE)) ? "explicit" : "legacy stream";
		break;
	default:
		if (cycle_has_call(r, DF_CALL_COMM_INIT) || cycle_has_call(r, DF_CALL_COMM_SPLIT) ||
		    cycle_has_call(r, DF_CALL_COMM_SHRINK) ||
		    cycle_has_call(r, DF_CALL_COMM_GROW) || cycle_has_call(r, DF_CALL_CONNECT) ||
		    cycle_has_call(r, DF_CALL_WINDOW_REGISTER)) {
			r->verdict = DF_V_ORDER;
			qual = cycle_has_call(r, DF_CALL_CONNECT) ? "connect" : "init";
		} else if (cycle_has_call(r, DF_CALL_COMM_DESTROY) ||
			   cycle_has_call(r, DF_CALL_COMM_FINALIZE)) {
			r->verdict = DF_V_ORDER;
			qual = "destroy";
		} else if (cycle_has_call(r, DF_CALL_HOST_BARRIER) ||
			   cycle_has_call(r, DF_CALL_HOST_WAIT) ||
			   cycle_has_call(r, DF_CALL_OUTSIDE)) {
			r->verdict = DF_V_HOST;
		} else if (cycle_has(r, BIT(DF_E_SYNC_STREAM))) {
			r->verdict = DF_V_DATA;
		} else if (df_orders_differ(r)) {
			r->verdict = DF_V_ORDER;
			qual = df_orders_overlap(r) ? "hazard" : "stream";
			for (size_t i = 0; i < r->nr_steps; i++)
				if (r->g.nodes[r->steps[i].to].kind == DF_N_WORK)
					qual = "data";
		} else {
			r->verdict = DF_V_DATA;
		}
	}
	snprintf(r->qualifier, sizeof(r->qualifier), "%s", qual);
}

/* Whether a thread waits for the root in ncclCommInitRank or ncclCommGrow. */
static int root_is_init(const struct df_check_result *r)
{
	for (size_t i = 0; i < r->g.nr_edges; i++) {
		const struct df_node *b = &r->g.nodes[r->g.edges[i].from];

		if (r->g.edges[i].to == r->root && b->kind == DF_N_BARRIER &&
		    df_call_meets(r->g.bars[b->ref].call))
			return 1;
	}
	return 0;
}

static int classify_root(struct df_check_result *r)
{
	const struct df_node *n = &r->g.nodes[r->root];
	int room = 0;

	r->confidence = r->stale ? DF_C_LIKELY : DF_C_PROVED;
	switch (mark_of(r, r->root)) {
	case DF_M_MISMATCH:
		r->verdict = DF_V_MISMATCH;
		break;
	case DF_M_DEAD:
		r->verdict = DF_V_CRASH;
		break;
	case DF_M_EXITED:
		r->verdict = DF_V_MISSING;
		snprintf(r->qualifier, sizeof(r->qualifier), "exited");
		break;
	case DF_M_DESTROYED:
		r->verdict = DF_V_MISSING;
		snprintf(r->qualifier, sizeof(r->qualifier), "destroyed");
		break;
	case DF_M_ENDED:
		r->verdict = DF_V_MISSING;
		snprintf(r->qualifier, sizeof(r->qualifier), "thread ended");
		break;
	case DF_M_SILENT:
		r->verdict = DF_V_MISSING;
		r->confidence = DF_C_POSSIBLE;
		break;
	case DF_M_ABSENT:
		r->verdict = root_is_init(r) ? DF_V_INIT : DF_V_HOST;
		break;
	case DF_M_GPU:
		r->verdict = DF_V_GPU_STUCK;
		if (df_behind_message(r)) {
			r->verdict = DF_V_ORDER;
			snprintf(r->qualifier, sizeof(r->qualifier), "buffered");
		}
		break;
	case DF_M_STALLED:
		room = df_no_room(r);
		r->verdict = room ? DF_V_RESOURCE : DF_V_NET_STALL;
		r->remedy = room ? DF_W_P : r->remedy;
		break;
	case DF_M_IN_CALL:
		r->verdict =
			df_call_class(r->set->traces[n->trace].calls[n->ref].call) == DF_CLASS_NCCL
				? DF_V_NCCL_INTERNAL
				: DF_V_HOST;
		break;
	default:
		r->verdict = root_is_init(r)   ? DF_V_INIT
			     : is_silent(r, n) ? DF_V_HOST
					       : DF_V_UNKNOWN;
		r->confidence = DF_C_POSSIBLE;
	}
	return room < 0 ? room : 0;
}

/*
 * If rc is positive, makes MISMATCH the verdict: calls do not agree, and this explains a hang
 * better than a missing rank. Returns 1 if rc is positive, else rc.
 */
static int is_mismatch(struct df_check_result *r, int rc)
{
	if (rc <= 0)
		return rc;
	r->verdict = DF_V_MISMATCH;
	r->confidence = r->stale ? DF_C_LIKELY : DF_C_PROVED;
	r->qualifier[0] = 0;
	r->is_cycle = 0;
	r->remedy = (enum df_world)0;
	return 1;
}

static int judge_mismatch(struct df_check_result *r)
{
	return is_mismatch(r, df_mismatch_find(r));
}

/*
 * Makes MISMATCH the verdict if ranks issued different collectives in one place. Called for a cycle
 * of operations that no remedy breaks, and for waits for a rank that has left. Returns as
 * is_mismatch() does.
 */
static int judge_places(struct df_check_result *r)
{
	return is_mismatch(r, df_mismatch_places(r));
}

/*
 * Looks for a mismatch where ranks wait for a rank that has left. Before it left it may have issued
 * another collective, or sent another size. A crash stays a crash.
 */
static int judge_marked(struct df_check_result *r, enum df_mark m)
{
	int rc;

	r->is_left = m == DF_M_EXITED || m == DF_M_DESTROYED;
	if (m == DF_M_DEAD || m == DF_M_MISMATCH)
		return 0;
	rc = r->is_left ? judge_places(r) : 0;
	return rc ? rc : judge_mismatch(r);
}

/*
 * Whether two threads have put operations of the cycle into one hardware queue. The records do not
 * show their order there for certain.
 */
static int rests_on_a_race(const struct df_graph *g, const uint32_t *edges, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		const struct df_edge *e = &g->edges[edges[i]];
		const struct df_node *from = &g->nodes[e->from], *to = &g->nodes[e->to];

		if (e->kind == DF_E_QUEUE && df_node_is_op(from) && df_node_is_op(to) &&
		    g->set->ops[from->ref].l.thread != g->set->ops[to->ref].l.thread)
			return 1;
	}
	return 0;
}

/*
 * Whether the cycle contains ncclCommInitRank or ncclCommGrow. No record names the members that
 * have not called it, and a thread or process without records may be one of them.
 */
static int has_unknown_members(const struct df_check_result *r)
{
	for (size_t i = 0; i < r->nr_steps; i++) {
		const struct df_node *from = &r->g.nodes[r->steps[i].from],
				     *to = &r->g.nodes[r->steps[i].to];

		if (from->kind == DF_N_BARRIER && to->kind == DF_N_NEXT &&
		    df_call_meets(r->g.bars[from->ref].call))
			return 1;
	}
	return 0;
}

static int judge_residue(struct df_check_result *r, int released)
{
	uint32_t *edges = NULL;
	size_t nr;
	int rc = choose_root(r);

	if (!rc && r->root != DF_NONE &&
	    (mark_of(r, r->root) == DF_M_GPU || mark_of(r, r->root) == DF_M_STALLED)) {
		rc = df_suppose_firsts(r);
		if (rc > 0) {
			df_note(r, "threads put these operations into one hardware queue at the "
				   "same time. The trace does not show their order there; this one "
				   "explains why nothing finishes");
			rc = choose_root(r);
		}
	}
	if (rc || r->root == DF_NONE)
		return rc;
	count_stuck(r);
	r->confidence = r->stale ? DF_C_LIKELY : DF_C_PROVED;
	if (mark_of(r, r->root)) {
		rc = classify_root(r);
		if (rc)
			return rc;
		rc = judge_marked(r, mark_of(r, r->root));
		return rc < 0 ? rc : 0;
	}
	/*
	 * Prefer a cycle of known waits in NCCL and CUDA to one that guesses which thread another
	 * thread waits for.
	 */
	nr = df_graph_cycle(&r->g, r->world, r->comp, r->root_comp, BIT(DF_E_OUTSIDE), &edges);
	if (!nr)
		nr = df_graph_cycle(&r->g, r->world, r->comp, r->root_comp, 0, &edges);
	rc = df_explain_steps(r, edges, nr, 1);
	if (rests_on_a_race(&r->g, edges, nr))
		r->confidence = DF_C_LIKELY;
	free(edges);
	if (rc)
		return rc;
	r->is_cycle = 1;
	classify_cycle(r);
	/*
	 * If preemption alone reconciles two orders, they are no mismatch, because operations meet
	 * by signature. If a release is needed, they are one.
	 */
	rc = r->verdict == DF_V_DATA || r->verdict == DF_V_HOST ||
			     (r->verdict == DF_V_SYNC && !released)
		     ? judge_mismatch(r)
		     : 0;
	if (rc)
		return rc < 0 ? rc : 0;
	if (r->verdict == DF_V_ORDER && !r->remedy) {
		rc = judge_places(r);
		if (rc)
			return rc < 0 ? rc : 0;
	}
	/* A proof has excluded other threads already. */
	if (!released || r->stale)
		df_others_find(r);
	r->has_unknown_members = has_unknown_members(r);
	if ((r->nr_others || r->has_unknown_members) && r->confidence == DF_C_PROVED)
		r->confidence = DF_C_LIKELY;
	/*
	 * The thread that waits for a result may hold the lock that another thread waits for. A
	 * release does not help then.
	 */
	if (r->nr_held && r->verdict == DF_V_DATA)
		r->verdict = DF_V_HOST;
	for (size_t i = 0; i < r->nr_steps; i++) {
		unsigned cut = 0;

		switch ((int)r->remedy) {
		case DF_W_P:
			cut = BIT(DF_E_STREAM) | BIT(DF_E_EVENT) | BIT(DF_E_SLOT) |
			      BIT(DF_E_QUEUE) | BIT(DF_E_COMM) | BIT(DF_E_BARRIER);
			break;
		case DF_W_SI:
			cut = BIT(DF_E_SYNC_IMPLICIT);
			break;
		case DF_W_SE:
			cut = BIT(DF_E_SYNC_DEVICE) | BIT(DF_E_LEGACY) | BIT(DF_E_SYNC_IMPLICIT);
			break;
		default:
			break;
		}
		r->steps[i].cut = r->remedy && r->steps[i].kinds & cut &&
				  r->g.nodes[r->steps[i].to].kind != DF_N_WORK;
	}
	return 0;
}

static int stall_seen(const struct df_check_set *set)
{
	for (size_t i = 0; i < set->nr_traces; i++)
		if (!set->traces[i].dropped && set->traces[i].stall_ms)
			return 1;
	return 0;
}

static int overwritten(const struct df_check_set *set)
{
	for (size_t i = 0; i < set->nr_traces; i++)
		if (!set->traces[i].dropped && set->traces[i].h.next > set->traces[i].h.nr_recs)
			return 1;
	return 0;
}

/* Lowers the confidence "proved" if only a part of the data was available. */
static void say_how_sure(struct df_check_result *r)
{
	r->partial = (uint8_t)df_set_is_partial(r->set);
	if (r->confidence != DF_C_PROVED)
		return;
	/* A recorded death is a fact in any case. */
	if (r->partial && r->verdict != DF_V_CRASH && !df_cause_is_whole(r))
		r->confidence = DF_C_LIKELY;
	/*
	 * If records of messages were overwritten, the judge can only guess which collectives meet.
	 */
	if (r->verdict == DF_V_MISMATCH && overwritten(r->set))
		r->confidence = DF_C_LIKELY;
}

/*
 * Whether a cycle that preemption or a release would break contains a polling thread. It is unknown
 * which calls that thread makes once it gets its result. So if the other ranks lack a call of its
 * rank, the verdict is that the call is missing. A cycle that no remedy breaks is reported in any
 * case, because there the polling itself is the fault.
 */
static int rests_on_a_poll(const struct df_check_result *r)
{
	return r->is_cycle && r->remedy && !r->set->polls_are_free &&
	       (cycle_has_call(r, DF_CALL_POLL_STREAM) || cycle_has_call(r, DF_CALL_POLL_EVENT) ||
		cycle_has_call(r, DF_CALL_POLL_CALL));
}

/*
 * Whether to conclude something from threads that are silent. If only a part of the job stands
 * still, only old waits count.
 */
static int suspicious(struct df_check_result *r, const struct df_check_opts *opts, uint64_t stale)
{
	uint64_t aged = opts ? opts->aged_ns : 0;

	if (aged && r->quiet_ns < aged) {
		df_graph_spare(&r->g, aged);
		r->aged = df_graph_reduce(&r->g, DF_W_BASE, 1) != 0;
		if (r->aged)
			return 1;
		df_graph_spare(&r->g, 0);
	}
	return !(opts && opts->open_end) && (r->quiet_ns >= stale || stall_seen(r->set));
}

/*
 * The processes were killed before anything was silent for long. Says what was unfinished and, as
 * if silent threads stayed silent, what it waited for. That is no verdict on the job.
 */
static int judge_killed(struct df_check_result *r, int released)
{
	int rc = 0;

	r->stale = 1;
	if (df_graph_reduce(&r->g, DF_W_BASE, 1))
		rc = judge_residue(r, released);
	if (r->verdict == DF_V_OK && r->set->nr_issued == r->set->nr_finished) {
		r->stale = 0;
		return rc;
	}
	/* An operation that ran then needs no reason to be unfinished. */
	r->otherwise = r->verdict >= DF_V_GPU_STUCK && r->verdict <= DF_V_NCCL_INTERNAL
			       ? DF_V_OK
			       : r->verdict;
	r->verdict = DF_V_UNKNOWN;
	r->killed = 1;
	return rc;
}

int df_check_run(struct df_check_set *set, const struct df_check_opts *opts,
		 struct df_check_result **out)
{
	DF_DECIMAL_POINT;
	uint64_t stale_ns = opts && opts->stale_ns ? opts->stale_ns : DF_CHECK_STALE_NS, last = 0;
	struct df_check_result *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	r->set = set;
	set->refs++;
	r->root = DF_NONE;
	r->to_come = DF_NONE;
	r->lacks = -1;
	r->verdict = DF_V_OK;
	r->world = DF_W_BASE;
	r->div_trace[0] = r->div_trace[1] = DF_NONE;
	rc = df_set_seal(set, opts);
	if (!rc)
		rc = df_graph_build(&r->g, set);
	if (rc)
		goto err;
	for (size_t i = 0; i < set->nr_traces; i++) {
		uint64_t at = set->traces[i].last_progress_ns + (uint64_t)set->traces[i].skew_ns;

		if (!set->traces[i].dropped && at > last)
			last = at;
	}
	r->quiet_ns = set->now_ns > last ? set->now_ns - last : 0;
	if (df_graph_reduce(&r->g, DF_W_BASE, 0)) {
		rc = judge_residue(r, opts && opts->released);
	} else if (r->g.nr_nodes && suspicious(r, opts, stale_ns)) {
		r->stale = 1;
		if (df_graph_reduce(&r->g, DF_W_BASE, 1))
			rc = judge_residue(r, opts && opts->released);
		/*
		 * A thread that is silent or waits for something unknown may still act. A thread
		 * that has ended will not act, once the others have waited for their whole
		 * time-out.
		 */
		if (opts && opts->live && (r->aged || r->quiet_ns < LIVE_PATIENCE_NS) &&
		    (r->verdict == DF_V_MISSING || cycle_has_call(r, DF_CALL_OUTSIDE)) &&
		    !(r->root != DF_NONE && mark_of(r, r->root) == DF_M_ENDED && stall_seen(set))) {
			r->otherwise = r->verdict;
			r->verdict = DF_V_SLOW;
		}
	} else if (df_set_first_mismatch(set) != DF_NONE) {
		r->verdict = DF_V_MISMATCH;
		r->confidence = DF_C_PROVED;
		snprintf(r->qualifier, sizeof(r->qualifier), "completed");
	} else if (r->g.nr_nodes && set->killed && !(opts && opts->open_end)) {
		rc = judge_killed(r, opts->released);
	}
	if (!rc && rests_on_a_poll(r)) {
		df_check_result_free(r);
		set->polls_are_free = 1;
		return df_check_run(set, opts, out);
	}
	if (!rc && r->verdict == DF_V_OK && r->g.nr_nodes) {
		rc = df_mismatch_unseen(r);
		if (rc > 0) {
			r->verdict = DF_V_MISMATCH;
			r->confidence = DF_C_PROVED;
			rc = 0;
		}
	}
	if (!rc)
		df_judge_deaths(r);
	if (!rc && r->verdict == DF_V_INIT)
		df_judge_init(r);
	if (!rc)
		df_link_judge(r);
	if (!rc && !r->link)
		df_proxy_judge(r);
	say_how_sure(r);
	if (r->killed)
		r->confidence = DF_C_POSSIBLE;
	if (!rc)
		rc = df_explain(r);
	if (rc)
		goto err;
	if (r->killed)
		snprintf(r->qualifier, sizeof(r->qualifier), "killed");
	*out = r;
	return 0;
err:
	df_check_result_free(r);
	return rc;
}

void df_check_result_free(struct df_check_result *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->nr_steps; i++)
		free(r->steps[i].text);
	for (size_t i = 0; i < r->nr_notes; i++)
		free(r->notes[i]);
	free(r->steps);
	free(r->involved);
	free(r->sides);
	free(r->notes);
	free(r->comp);
	free(r->line);
	free(r->remedy_text);
	free(r->fix);
	free(r->divergence);
	free(r->alike);
	free(r->decided);
	df_graph_fini(&r->g);
	df_check_set_free(r->set);
	free(r);
}

enum df_verdict df_check_verdict(const struct df_check_result *r)
{
	return r->verdict;
}

int df_check_is_over(const struct df_check_result *r)
{
	return r->verdict == DF_V_MISSING || r->verdict == DF_V_CRASH ||
	       (r->verdict == DF_V_MISMATCH && r->is_left) ||
	       (r->verdict == DF_V_NET_STALL && r->link);
}

int df_check_is_settled(const struct df_check_result *r)
{
	int cycle = r->verdict == DF_V_ORDER || r->verdict == DF_V_RESOURCE ||
		    r->verdict == DF_V_SYNC || r->verdict == DF_V_DATA;
	int rank = r->verdict == DF_V_MISSING || r->verdict == DF_V_MISMATCH ||
		   r->verdict == DF_V_CRASH;

	/*
	 * Without stuck operations, a process has died or data was mixed, but nothing waits for
	 * that. A cycle of calls that make connections contains no operation.
	 */
	return r->confidence == DF_C_PROVED && !r->stale &&
	       ((cycle && (r->is_cycle || r->stuck_ops)) || (rank && r->stuck_ops));
}

const char *df_check_line(const struct df_check_result *r)
{
	return r->line ? r->line : "UNKNOWN: out of memory";
}
