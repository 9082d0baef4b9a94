/*
 * Built-in programs for machines of several nodes, where what crosses a border should be little and in few
 * messages: rank = node * gpus + local, every node of the same size. Each rank exchanges with its like in the
 * other nodes only, so that all links out of a node carry an equal share.
 *
 * A rank sends one slice to each peer before it receives theirs, round by round: one slot suffices.
 */
#include "runtime/program/build.h"

/* Where a rank is, and who the others are. */
struct place {
	int g, nodes, node, local;
};

static struct place place(const struct df_emit *e)
{
	int g = e->n / e->nodes;

	return (struct place){g, e->nodes, e->rank / g, e->rank % g};
}

static int at(const struct place *p, int node, int local)
{
	return (node + p->nodes) % p->nodes * p->g + (local + p->g) % p->g;
}

/* Around the node: to the k-th rank behind us, from the k-th before us. */
static int to(const struct place *p, int k)
{
	return at(p, p->node, p->local + k);
}

static int from(const struct place *p, int k)
{
	return at(p, p->node, p->local - k);
}

static uint32_t mod(int k, int n)
{
	return (uint32_t)((k + n) % n);
}

/*
 * Reduce-scatter in the node, all-reduce among the like ranks of all nodes, all-gather in the node. The share of
 * local rank k is `nodes` chunks in a row, of which each node completes one.
 */
void df_build_ar_hier(struct df_emit *e, uint32_t part)
{
	struct place p = place(e);
	uint32_t first = part * (uint32_t)e->n, nodes = (uint32_t)p.nodes;
#define SHARE(k) (first + mod(k, p.g) * nodes)
	uint32_t own = SHARE(p.local), mine = own + (uint32_t)p.node;
	struct df_at sum = DF_AT_OUT(mine);

	e->cnt = nodes;
	for (int k = 1; k < p.g; k++)
		df_emit_send(e, to(&p, k), DF_AT_IN(SHARE(p.local + k)));
	for (int k = 1; k < p.g; k++)
		df_emit_rrc(e, from(&p, k), k == 1 ? DF_AT_IN(own) : DF_AT_OUT(own), DF_AT_OUT(own),
			    0);
	e->cnt = 1;
#define PARTIAL(c) (p.g > 1 ? DF_AT_OUT(c) : DF_AT_IN(c))
	for (int d = 1; d < p.nodes; d++)
		df_emit_send(e, at(&p, p.node + d, p.local),
			     PARTIAL(own + mod(p.node + d, p.nodes)));
	for (int d = 1; d < p.nodes; d++)
		df_emit_rrc(e, at(&p, p.node - d, p.local), d == 1 ? PARTIAL(mine) : sum, sum,
			    d == p.nodes - 1 ? DF_INST_FINAL : 0);
#undef PARTIAL
	for (int d = 1; d < p.nodes; d++)
		df_emit_send(e, at(&p, p.node + d, p.local), sum);
	for (int d = 1; d < p.nodes; d++)
		df_emit_recv(e, at(&p, p.node - d, p.local),
			     DF_AT_OUT(own + mod(p.node - d, p.nodes)));
	e->cnt = nodes;
	for (int k = 1; k < p.g; k++)
		df_emit_send(e, to(&p, k), DF_AT_OUT(own));
	for (int k = 1; k < p.g; k++)
		df_emit_recv(e, from(&p, k), DF_AT_OUT(SHARE(p.local - k)));
	e->cnt = 1;
#undef SHARE
}

/* A block crosses to each other node once, where its like hands it to the others. */
void df_build_ag_hier(struct df_emit *e, uint32_t part)
{
	struct place p = place(e);
#define CELL(r) DF_AT_OUT((uint32_t)(r)*e->nb + part)

	for (int d = 1; d < p.nodes; d++)
		df_emit_send(e, at(&p, p.node + d, p.local), DF_AT_IN(part));
	df_emit_copy(e, DF_AT_IN(part), CELL(e->rank), 0);
	for (int d = 0; d < p.nodes; d++) {
		int far = at(&p, p.node - d, p.local);

		for (int k = 1; k < p.g; k++) {
			if (d && k == 1)
				df_emit_rcs(e, far, CELL(far), to(&p, k));
			else
				df_emit_send(e, to(&p, k), d ? CELL(far) : DF_AT_IN(part));
		}
		if (d && p.g == 1)
			df_emit_recv(e, far, CELL(far));
		for (int k = 1; k < p.g; k++)
			df_emit_recv(e, from(&p, k), CELL(at(&p, p.node - d, p.local - k)));
	}
}

/*
 * For each node in turn the ranks here reduce what they have for it, each for its like over there. The own node
 * comes last: in place, OUT is the rank's own cell of IN.
 */
void df_build_rs_hier(struct df_emit *e, uint32_t part)
{
	struct place p = place(e);
	struct df_at out = DF_AT_OUT(part), own = DF_AT_IN((uint32_t)e->rank * e->nb + part);
#define MINE(r) DF_AT_IN((uint32_t)(r)*e->nb + part)

	for (int d = 1; d <= p.nodes; d++) {
		int far = at(&p, p.node + d, p.local), here = d == p.nodes;
		struct df_at acc = here ? out : DF_AT_SCRATCH(part);

		for (int k = 1; k < p.g; k++)
			df_emit_send(e, to(&p, k), MINE(at(&p, p.node + d, p.local + k)));
		for (int k = 1; k < p.g; k++) {
			struct df_at src = k == 1 ? MINE(far) : acc;

			if (k == p.g - 1 && !here)
				df_emit_rrs(e, from(&p, k), src, far, 0);
			else
				df_emit_rrc(e, from(&p, k), src, acc, 0);
		}
		if (p.g == 1 && !here)
			df_emit_send(e, far, MINE(far));
	}
	for (int d = 1; d < p.nodes; d++)
		df_emit_rrc(e, at(&p, p.node - d, p.local), d == 1 && p.g == 1 ? own : out, out,
			    d == p.nodes - 1 ? DF_INST_FINAL : 0);
#undef MINE
}

/*
 * The root deals the data out over its node; each rank there sends its chunk along a chain of its likes; in
 * every node all hand around what they have.
 */
void df_build_bcast_hier(struct df_emit *e, uint32_t part)
{
	struct place p = place(e);
	int rn = e->root / p.g, rl = e->root % p.g, v = (p.node - rn + p.nodes) % p.nodes;
	int next = at(&p, p.node + 1, p.local), prev = at(&p, p.node - 1, p.local);
	uint32_t first = part * (uint32_t)p.g;
	struct df_at mine = DF_AT_OUT(first + (uint32_t)p.local);
#define CHUNK(k) DF_AT_OUT(first + mod(k, p.g))

	if (e->rank == e->root) {
		df_emit_send(e, next, DF_AT_IN(first + (uint32_t)rl));
		for (int k = 1; k < p.g; k++)
			df_emit_send(e, to(&p, k), DF_AT_IN(first + mod(rl + k, p.g)));
		for (int k = 1; k < p.g; k++)
			df_emit_send(e, to(&p, k), DF_AT_IN(first + (uint32_t)rl));
		/* One by one: the most chunks of a step decide the slices, on all ranks alike. */
		for (uint32_t k = 0; k < (uint32_t)p.g; k++)
			df_emit_copy(e, DF_AT_IN(first + k), DF_AT_OUT(first + k), 0);
		return;
	}
	if (v < p.nodes - 1)
		df_emit_rcs(e, v ? prev : e->root, mine, next);
	else
		df_emit_recv(e, prev, mine);
	for (int k = 1; k < p.g; k++) {
		if (to(&p, k) != e->root)
			df_emit_send(e, to(&p, k), mine);
	}
	for (int k = 1; k < p.g; k++)
		df_emit_recv(e, from(&p, k), CHUNK(p.local - k));
#undef CHUNK
}

/* The same way back: reduce-scatter in the node, a chain to the root's node, gathered there. */
void df_build_reduce_hier(struct df_emit *e, uint32_t part)
{
	struct place p = place(e);
	int rn = e->root / p.g, v = (p.node - rn + p.nodes) % p.nodes, root = e->rank == e->root;
	int next = at(&p, p.node + 1, p.local), prev = at(&p, p.node - 1, p.local);
	uint32_t first = part * (uint32_t)p.g, own = first + (uint32_t)p.local;
	struct df_at acc = root ? DF_AT_OUT(own) : DF_AT_SCRATCH(part), sum = DF_AT_IN(own);

	for (int k = 1; k < p.g; k++)
		df_emit_send(e, to(&p, k), DF_AT_IN(first + mod(p.local + k, p.g)));
	for (int k = 1; k < p.g; k++) {
		if (k == p.g - 1 && v == p.nodes - 1) {
			df_emit_rrs(e, from(&p, k), sum, prev, 0);
			return;
		}
		df_emit_rrc(e, from(&p, k), sum, acc, 0);
		sum = acc;
	}
	if (v == p.nodes - 1)
		df_emit_send(e, prev, sum);
	else if (!root)
		df_emit_rrs(e, next, sum, v ? prev : e->root, v ? 0 : DF_INST_FINAL);
	else
		df_emit_rrc(e, next, sum, acc, DF_INST_FINAL);
	for (int k = 1; root && k < p.g; k++)
		df_emit_recv(e, from(&p, k), DF_AT_OUT(first + mod(p.local - k, p.g)));
}

/*
 * Two steps: what the ranks of a node have for one rank of another is collected at that rank's like here, and
 * crosses as one message.
 */
void df_build_alltoall_hier(struct df_emit *e, uint32_t part)
{
	struct place p = place(e);

	for (int d = 1; d <= p.nodes; d++) {
		int far = at(&p, p.node + d, 0), here = d == p.nodes;
#define GOT(k) (here ? DF_AT_OUT((uint32_t)far + mod(k, p.g)) : DF_AT_SCRATCH(part + mod(k, p.g)))

		for (int k = 1; k < p.g; k++)
			df_emit_send(e, to(&p, k), DF_AT_IN((uint32_t)far + mod(p.local + k, p.g)));
		df_emit_copy(e, DF_AT_IN((uint32_t)(far + p.local)), GOT(p.local), 0);
		for (int k = 1; k < p.g; k++)
			df_emit_recv(e, from(&p, k), GOT(p.local - k));
#undef GOT
		if (here)
			break;
		e->cnt = (uint32_t)p.g;
		df_emit_send(e, far + p.local, DF_AT_SCRATCH(part));
		e->cnt = 1;
	}
	e->cnt = (uint32_t)p.g;
	for (int d = 1; d < p.nodes; d++)
		df_emit_recv(e, at(&p, p.node - d, p.local),
			     DF_AT_OUT((uint32_t)at(&p, p.node - d, 0)));
	e->cnt = 1;
}
