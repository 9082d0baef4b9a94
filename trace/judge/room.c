/*
 * Finds evidence that devices cannot hold all operations at once, where the records do not show
 * which operations they hold. Part of the judge.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "trace/judge/result.h"
#include "trace/judge/judge_int.h"
#include "trace/record/names.h"

#define MAX_ROOM 64 /* maximum number of stuck operations that are compared */

/*
 * Whether two threads have put the operations on streams that share a hardware queue. Then the
 * records do not show their order.
 */
static int is_race(const struct df_check_set *set, const struct df_uop *x, const struct df_uop *y)
{
	return x->l.thread != y->l.thread && df_uop_same_queue(set, x, y);
}

/*
 * Whether, by the records, some ranks have issued the two operations in one order and others in the
 * opposite order.
 */
static int opposite(const struct df_check_set *set, const struct df_match *a,
		    const struct df_match *b)
{
	int before = 0, after = 0;

	for (uint32_t i = a->first; i != DF_NONE; i = set->ops[i].next)
		for (uint32_t k = b->first; k != DF_NONE; k = set->ops[k].next) {
			const struct df_uop *x = &set->ops[i], *y = &set->ops[k];

			if (!df_uop_same_rank(set, x, y) || !(x->l.flags & DF_OP_BY_NCCL) ||
			    is_race(set, x, y))
				continue;
			before += x->l.rec < y->l.rec;
			after += x->l.rec > y->l.rec;
		}
	return before && after;
}

/*
 * Finds two collectives of different communicators that have reached all their ranks, in opposite
 * orders, and do not end. Their streams are independent, else the graph would show a cycle. NCCL
 * does not report which of its kernels are resident, so the devices can hold too few of them.
 * Returns 1 if there are two, 0 if not, or -ENOMEM.
 */
int df_no_room(struct df_check_result *r)
{
	const struct df_graph *g = &r->g;
	uint32_t stuck[MAX_ROOM], nr = 0;

	for (uint32_t i = 0; i < g->nr_insts && nr < MAX_ROOM; i++)
		if (g->stuck[g->insts[i].node] && !g->insts[i].nr_missing && !g->insts[i].p2p)
			stuck[nr++] = i;
	for (uint32_t i = 0; i < nr; i++)
		for (uint32_t k = 0; k < i; k++) {
			const struct df_match *a = &g->insts[stuck[k]], *b = &g->insts[stuck[i]];

			if (a->gcomm == b->gcomm || !opposite(r->set, a, b))
				continue;
			free(r->involved);
			r->involved = malloc(2 * sizeof(*r->involved));
			if (!r->involved)
				return -ENOMEM;
			r->involved[0] = a->first;
			r->involved[1] = b->first;
			r->nr_involved = 2;
			return 1;
		}
	return 0;
}

/* ---- the first operation in a hardware queue ------------------------------------------------ */

/*
 * States of an edge to an operation that may be the first in a queue. Undecided: the mask is
 * DF_W_FIRST. While the operation is supposed to be the first: SUPPOSED. Once this is accepted:
 * DF_W_BASE. Once it is excluded: 0.
 */
#define SUPPOSED (DF_W_FIRST | DF_W_BASE)

struct firsts {
	struct df_graph *g;
	uint32_t *via;	 /* in a search, by node: the edge through which the node was reached */
	uint32_t *queue; /* nodes to continue from */
	/*
	 * By node: whether it is stuck with the accepted orders, even if no running operation
	 * stalls.
	 */
	uint8_t *proved;
};

static int same_queue(const struct df_graph *g, const struct df_edge *a, const struct df_edge *b)
{
	return df_uop_same_queue(g->set, &g->set->ops[g->nodes[a->to].ref],
				 &g->set->ops[g->nodes[b->to].ref]);
}

/* Whether e agrees with the search path so far: a queue has only one first operation. */
static int agrees(const struct firsts *f, uint32_t root, const struct df_edge *e)
{
	const struct df_edge *by;

	for (uint32_t n = e->from; e->mask == DF_W_FIRST && n != root; n = by->from) {
		by = &f->g->edges[f->via[n]];
		if (by->mask == DF_W_FIRST && by->to != e->to && same_queue(f->g, by, e))
			return 0;
	}
	return 1;
}

/*
 * Finds the shortest path of waits from the root back to the root or to a proved node. Returns the
 * last edge of the path, or DF_NONE.
 */
static uint32_t way_back(const struct firsts *f, uint32_t root)
{
	const struct df_graph *g = f->g;
	size_t nr = 0;

	memset(f->via, 0xff, g->nr_nodes * sizeof(*f->via));
	f->queue[nr++] = root;
	for (size_t q = 0; q < nr; q++)
		for (uint32_t k = g->out_first[f->queue[q]]; k < g->out_first[f->queue[q] + 1];
		     k++) {
			const struct df_edge *e = &g->edges[g->out[k]];

			/*
			 * A started operation is stuck if another one is before it in the queue.
			 * From the first operation of a queue only edges to other ranks matter, and
			 * its match leads there too.
			 */
			if (!df_edge_on(e, SUPPOSED) || e->kind == DF_E_SELF ||
			    !(g->stuck[e->to] || g->nodes[e->to].kind == DF_N_START) ||
			    f->via[e->to] != DF_NONE || !agrees(f, root, e))
				continue;
			if (e->to == root || f->proved[e->to])
				return g->out[k];
			f->via[e->to] = g->out[k];
			f->queue[nr++] = e->to;
		}
	return DF_NONE;
}

/* Supposes, for each queue on the path, that its other operations wait for its first one. */
static void suppose(struct firsts *f, uint32_t root, uint32_t last)
{
	struct df_graph *g = f->g;

	for (uint32_t at = last;; at = f->via[g->edges[at].from]) {
		uint32_t first = g->edges[at].to;

		for (uint32_t k = g->in_first[first];
		     g->edges[at].mask == DF_W_FIRST && k < g->in_first[first + 1]; k++)
			if (g->in[k] != at && g->edges[g->in[k]].mask == DF_W_FIRST)
				g->edges[g->in[k]].mask = SUPPOSED;
		if (g->edges[at].mask == DF_W_FIRST)
			g->edges[at].mask = SUPPOSED;
		if (g->edges[at].from == root)
			return;
	}
}

static void believe(struct firsts *f)
{
	struct df_graph *g = f->g;
	uint32_t first = DF_NONE;

	for (size_t i = 0; i < g->nr_edges; i++) {
		if (g->edges[i].mask != SUPPOSED)
			continue;
		/* Edges to the same operation are consecutive. */
		for (size_t k = 0; k < g->nr_edges && g->edges[i].to != first; k++)
			if (g->edges[k].mask == DF_W_FIRST &&
			    same_queue(g, &g->edges[i], &g->edges[k]))
				g->edges[k].mask = 0;
		first = g->edges[i].to;
		g->edges[i].mask = DF_W_BASE;
	}
	memcpy(f->proved, g->stuck, g->nr_nodes);
}

static void forget(struct df_graph *g)
{
	for (size_t i = 0; i < g->nr_edges; i++)
		if (g->edges[i].mask == SUPPOSED)
			g->edges[i].mask = DF_W_FIRST;
}

/*
 * Tries to explain a root that seems to run or to wait for nothing: it may wait for another
 * operation. Returns 1 if such an order of the queues is possible.
 */
static int explain(struct firsts *f, uint32_t root)
{
	uint32_t last = way_back(f, root);
	int can_be;

	if (last == DF_NONE)
		return 0;
	suppose(f, root, last);
	/*
	 * Reduce the graph, because the path may use one of several threads while another one can
	 * proceed.
	 */
	df_graph_reduce(f->g, DF_W_BASE, 2);
	can_be = f->g->stuck[root];
	if (can_be)
		believe(f);
	else
		forget(f->g);
	df_graph_reduce(f->g, DF_W_BASE, 1);
	return can_be;
}

/*
 * Explains all roots that can be explained. Returns 1 if there was one. Each explanation decides
 * some edges, so the loop ends. Nodes with a mark are skipped, because they are explained already.
 */
static int explain_all(struct firsts *f)
{
	int found = 0, again = 1;

	while (again) {
		again = 0;
		for (uint32_t i = 0, nr = 0; i < f->g->nr_nodes && nr < MAX_ROOM; i++) {
			if (!f->g->self[i] || f->g->nodes[i].mark ||
			    (f->g->nodes[i].stale != DF_M_GPU &&
			     f->g->nodes[i].stale != DF_M_STALLED))
				continue;
			nr++;
			again |= explain(f, i);
		}
		found |= again;
	}
	return found;
}

int df_suppose_firsts(struct df_check_result *r)
{
	size_t nr = r->g.nr_nodes + 1;
	struct firsts f = {.g = &r->g,
			   .via = malloc(nr * sizeof(*f.via)),
			   .queue = malloc(nr * sizeof(*f.queue)),
			   .proved = calloc(nr, 1)};
	int any = 0, rc = f.via && f.queue && f.proved ? 0 : -ENOMEM;

	for (size_t i = 0; i < r->g.nr_edges; i++)
		any |= r->g.edges[i].mask == DF_W_FIRST;
	if (any && !rc)
		rc = explain_all(&f);
	free(f.via);
	free(f.queue);
	free(f.proved);
	return rc;
}
