/*
 * Built-in programs for machines of several nodes. They send little between nodes, in few messages.
 * Nodes may have any size and any ranks (struct df_layout). Data that the ranks of a node share out
 * is cut into lanes; the owners of a lane on all nodes exchange it. If the nodes have the same
 * size, every rank exchanges with its counterparts only, and all links out of a node carry an equal
 * share.
 *
 * A rank sends one slice to each peer before it receives theirs, round by round: one slot suffices.
 */
#include "runtime/program/build/build.h"

/* The position of a rank. */
struct place {
	const struct df_layout *l;
	int g, nodes, node, local; /* g: ranks on this node */
};

static struct place place(const struct df_emit *e)
{
	const struct df_layout *l = e->layout;
	int node = l->node[e->rank];

	return (struct place){l, df_layout_size(l, node), l->nodes, node, l->local[e->rank]};
}

static int mod(int k, int n)
{
	return (k % n + n) % n;
}

/* node_at(): the d-th node after ours. near_at(): the k-th rank after this one on our node. */
static int node_at(const struct place *p, int d)
{
	return mod(p->node + d, p->nodes);
}

static int near_at(const struct place *p, int k)
{
	return df_layout_at(p->l, p->node, mod(p->local + k, p->g));
}

/* Consecutive lanes. */
struct lanes {
	uint32_t first, end;
};

static struct lanes lanes_of(const struct place *p, int node, int local)
{
	return (struct lanes){df_layout_lane(p->l, node, local),
			      df_layout_lane(p->l, node, local + 1)};
}

static struct lanes near_lanes(const struct place *p, int k)
{
	return lanes_of(p, p->node, mod(p->local + k, p->g));
}

/* The lanes that this rank shares with one rank of another node. */
struct piece {
	int peer;
	struct lanes lanes;
};

/*
 * Steps to the next piece of this rank's lanes, as node `node` divides them. x->lanes.end: end of
 * the last piece. Returns 0 if there is none.
 */
static int next_piece(const struct place *p, int node, struct piece *x)
{
	struct lanes own = near_lanes(p, 0);
	uint32_t at = x->lanes.end, end;
	int owner;

	if (at >= own.end)
		return 0;
	owner = df_layout_owner(p->l, node, at);
	end = df_layout_lane(p->l, node, owner + 1);
	*x = (struct piece){df_layout_at(p->l, node, owner), {at, end < own.end ? end : own.end}};
	return 1;
}

#define EACH_PIECE(x, p, node)                                                                     \
	for (struct piece x = {0, {0, near_lanes(p, 0).first}}; next_piece(p, node, &x);)

/* Whether one rank of that node owns all lanes of this rank. *x is that piece. */
static int whole(const struct place *p, int node, struct piece *x)
{
	x->lanes.end = near_lanes(p, 0).first;
	return next_piece(p, node, x) && x->lanes.end == near_lanes(p, 0).end;
}

static void width(struct df_emit *e, struct lanes x)
{
	e->cnt = x.end - x.first;
}

/*
 * Reduce-scatter inside the node, all-reduce between the owners of the same lanes on all nodes,
 * all-gather inside the node. Each lane has one chunk for each node, which completes it. If ranks
 * have one lane each, the chunks of a lane are contiguous: one step takes them around the node.
 * Otherwise the chunks of a node are contiguous: one step takes them to it.
 */
void df_build_ar_hier(struct df_emit *e, uint32_t part)
{
	struct place p = place(e);
	uint32_t nodes = (uint32_t)p.nodes, base = part * nodes * p.l->lanes;
	int by_lane = p.l->most_lanes == 1, rounds = by_lane ? 1 : p.nodes;
	struct lanes own = near_lanes(&p, 0);
#define CHUNK(lane, node) (base + (by_lane ? (lane)*nodes + (node) : (node)*p.l->lanes + (lane)))
#define PARTIAL(c)	  (p.g > 1 ? DF_AT_OUT(c) : DF_AT_IN(c))

	for (uint32_t w = 0; w < (uint32_t)rounds; w++) {
		for (int k = 1; k < p.g; k++) {
			struct lanes to = near_lanes(&p, k);

			e->cnt = by_lane ? nodes : to.end - to.first;
			df_emit_send(e, near_at(&p, k), DF_AT_IN(CHUNK(to.first, w)));
		}
		e->cnt = by_lane ? nodes : own.end - own.first;
		for (int k = 1; k < p.g; k++) {
			uint32_t c = CHUNK(own.first, w);

			df_emit_rrc(e, near_at(&p, -k), k == 1 ? DF_AT_IN(c) : DF_AT_OUT(c),
				    DF_AT_OUT(c), 0);
		}
	}
	for (int d = 1; d < p.nodes; d++) {
		EACH_PIECE(x, &p, node_at(&p, d))
		{
			width(e, x.lanes);
			df_emit_send(e, x.peer,
				     PARTIAL(CHUNK(x.lanes.first, (uint32_t)node_at(&p, d))));
		}
	}
	for (int d = 1; d < p.nodes; d++) {
		EACH_PIECE(x, &p, node_at(&p, -d))
		{
			uint32_t c = CHUNK(x.lanes.first, (uint32_t)p.node);

			width(e, x.lanes);
			df_emit_rrc(e, x.peer, d == 1 ? PARTIAL(c) : DF_AT_OUT(c), DF_AT_OUT(c),
				    d == p.nodes - 1 ? DF_INST_FINAL : 0);
		}
	}
	for (int d = 1; d < p.nodes; d++) {
		EACH_PIECE(x, &p, node_at(&p, d))
		{
			width(e, x.lanes);
			df_emit_send(e, x.peer, DF_AT_OUT(CHUNK(x.lanes.first, (uint32_t)p.node)));
		}
	}
	for (int d = 1; d < p.nodes; d++) {
		EACH_PIECE(x, &p, node_at(&p, -d))
		{
			width(e, x.lanes);
			df_emit_recv(e, x.peer,
				     DF_AT_OUT(CHUNK(x.lanes.first, (uint32_t)node_at(&p, -d))));
		}
	}
	for (uint32_t w = 0; w < (uint32_t)rounds; w++) {
		e->cnt = by_lane ? nodes : own.end - own.first;
		for (int k = 1; k < p.g; k++)
			df_emit_send(e, near_at(&p, k), DF_AT_OUT(CHUNK(own.first, w)));
		for (int k = 1; k < p.g; k++) {
			struct lanes of = near_lanes(&p, -k);

			e->cnt = by_lane ? nodes : of.end - of.first;
			df_emit_recv(e, near_at(&p, -k), DF_AT_OUT(CHUNK(of.first, w)));
		}
	}
	e->cnt = 1;
#undef PARTIAL
#undef CHUNK
}

/*
 * All that a rank exchanges with another node passes through one rank there: for the k-th rank
 * through local rank k, modulo their number. In each round a rank of this node represents at most
 * one rank of the other.
 */
static int nr_rounds(const struct place *p, int node)
{
	return (df_layout_size(p->l, node) + p->g - 1) / p->g;
}

/* Returns the rank of `node` that the k-th rank after us represents in a round; -1: none. */
static int stands_for(const struct place *p, int node, int round, int k)
{
	int i = round * p->g + mod(p->local + k, p->g);

	return i < df_layout_size(p->l, node) ? df_layout_at(p->l, node, i) : -1;
}

/* Returns the rank of `node` that represents us. */
static int stands_there(const struct place *p, int node)
{
	return df_layout_at(p->l, node, p->local % df_layout_size(p->l, node));
}

/* A block is sent to each other node once; the rank there that receives it passes it on. */
void df_build_ag_hier(struct df_emit *e, uint32_t part)
{
	struct place p = place(e);
#define CELL(r) DF_AT_OUT((uint32_t)(r)*e->nb + part)

	for (int d = 1; d < p.nodes; d++)
		df_emit_send(e, stands_there(&p, node_at(&p, d)), DF_AT_IN(part));
	df_emit_copy(e, DF_AT_IN(part), CELL(e->rank), 0);
	for (int d = 0; d < p.nodes; d++) {
		int node = node_at(&p, -d);

		for (int q = 0; q < nr_rounds(&p, node); q++) {
			int far = stands_for(&p, node, q, 0);

			for (int k = 1; k < p.g && far >= 0; k++) {
				if (d && k == 1)
					df_emit_rcs(e, far, CELL(far), near_at(&p, k));
				else
					df_emit_send(e, near_at(&p, k),
						     d ? CELL(far) : DF_AT_IN(part));
			}
			if (d && p.g == 1)
				df_emit_recv(e, far, CELL(far));
			for (int k = 1; k < p.g; k++) {
				int of = stands_for(&p, node, q, -k);

				if (of >= 0)
					df_emit_recv(e, near_at(&p, -k), CELL(of));
			}
		}
	}
}

/*
 * For each node in turn, the ranks here reduce their data for it, each for the rank that it
 * represents. Our own node is last, because in place OUT is the rank's own cell of IN.
 */
void df_build_rs_hier(struct df_emit *e, uint32_t part)
{
	struct place p = place(e);
	struct df_at out = DF_AT_OUT(part), own = DF_AT_IN((uint32_t)e->rank * e->nb + part);
#define MINE(r) DF_AT_IN((uint32_t)(r)*e->nb + part)

	for (int d = 1; d <= p.nodes; d++) {
		int node = node_at(&p, d), here = d == p.nodes;
		struct df_at acc = here ? out : DF_AT_SCRATCH(part);

		for (int q = 0; q < nr_rounds(&p, node); q++) {
			int far = stands_for(&p, node, q, 0);

			for (int k = 1; k < p.g; k++) {
				int of = stands_for(&p, node, q, k);

				if (of >= 0)
					df_emit_send(e, near_at(&p, k), MINE(of));
			}
			for (int k = 1; k < p.g && far >= 0; k++) {
				struct df_at src = k == 1 ? MINE(far) : acc;

				if (k == p.g - 1 && !here)
					df_emit_rrs(e, near_at(&p, -k), src, far, 0);
				else
					df_emit_rrc(e, near_at(&p, -k), src, acc, 0);
			}
			if (p.g == 1 && !here)
				df_emit_send(e, far, MINE(far));
		}
	}
	for (int d = 1; d < p.nodes; d++)
		df_emit_rrc(e, stands_there(&p, node_at(&p, -d)), d == 1 && p.g == 1 ? own : out,
			    out, d == p.nodes - 1 ? DF_INST_FINAL : 0);
#undef MINE
}

/*
 * The root distributes the lanes over its node. Each rank there sends its own along a chain of
 * nodes. In every node all ranks exchange what they have.
 */
void df_build_bcast_hier(struct df_emit *e, uint32_t part)
{
	struct place p = place(e);
	int rn = p.l->node[e->root], v = mod(p.node - rn, p.nodes), next = node_at(&p, 1),
	    prev = node_at(&p, -1), last = v == p.nodes - 1, root = e->rank == e->root;
	uint32_t base = part * p.l->lanes;
	struct lanes own = near_lanes(&p, 0);
	struct piece in, out;
#define AT(lane) DF_AT_OUT(base + (lane))

	if (root) {
		EACH_PIECE(x, &p, next)
		{
			width(e, x.lanes);
			df_emit_send(e, x.peer, DF_AT_IN(base + x.lanes.first));
		}
		for (int k = 1; k < p.g; k++) {
			width(e, near_lanes(&p, k));
			df_emit_send(e, near_at(&p, k), DF_AT_IN(base + near_lanes(&p, k).first));
		}
		width(e, own);
		for (int k = 1; k < p.g; k++)
			df_emit_send(e, near_at(&p, k), DF_AT_IN(base + own.first));
		/*
		 * One copy for each rank's lanes, not one for all: the widest step determines the
		 * size of slices.
		 */
		for (int k = 0; k < p.g; k++) {
			width(e, near_lanes(&p, k));
			df_emit_copy(e, DF_AT_IN(base + near_lanes(&p, k).first),
				     AT(near_lanes(&p, k).first), 0);
		}
		e->cnt = 1;
		return;
	}
	in = (struct piece){e->root, own};
	if ((!v || whole(&p, prev, &in)) && !last && whole(&p, next, &out)) {
		width(e, own);
		df_emit_rcs(e, in.peer, AT(own.first), out.peer);
	} else {
		if (!v) {
			width(e, own);
			df_emit_recv(e, e->root, AT(own.first));
		}
		for (struct piece x = {0, {0, own.first}}; v && next_piece(&p, prev, &x);) {
			width(e, x.lanes);
			df_emit_recv(e, x.peer, AT(x.lanes.first));
		}
		for (struct piece x = {0, {0, own.first}}; !last && next_piece(&p, next, &x);) {
			width(e, x.lanes);
			df_emit_send(e, x.peer, AT(x.lanes.first));
		}
	}
	width(e, own);
	for (int k = 1; k < p.g; k++) {
		if (near_at(&p, k) != e->root)
			df_emit_send(e, near_at(&p, k), AT(own.first));
	}
	for (int k = 1; k < p.g; k++) {
		width(e, near_lanes(&p, -k));
		df_emit_recv(e, near_at(&p, -k), AT(near_lanes(&p, -k).first));
	}
	e->cnt = 1;
#undef AT
}

/*
 * The reverse of the broadcast: reduce-scatter inside the node, a chain to the root's node,
 * gathered there.
 */
void df_build_reduce_hier(struct df_emit *e, uint32_t part)
{
	struct place p = place(e);
	int rn = p.l->node[e->root], v = mod(p.node - rn, p.nodes), root = e->rank == e->root,
	    next = node_at(&p, 1), prev = node_at(&p, -1), last = v == p.nodes - 1;
	uint32_t base = part * p.l->lanes, room = part * p.l->most_lanes;
	struct lanes own = near_lanes(&p, 0);
	struct piece in = {0, own}, out = {e->root, own};
	int one_out = !v || whole(&p, prev, &out), summed = 0;
#define MINE(lane) DF_AT_IN(base + (lane))
#define ACC(lane)  (root ? DF_AT_OUT(base + (lane)) : DF_AT_SCRATCH(room + (lane)-own.first))
#define SUM(lane)  (summed ? ACC(lane) : MINE(lane))

	for (int k = 1; k < p.g; k++) {
		width(e, near_lanes(&p, k));
		df_emit_send(e, near_at(&p, k), MINE(near_lanes(&p, k).first));
	}
	width(e, own);
	for (int k = 1; k < p.g; k++) {
		if (k == p.g - 1 && last && one_out) {
			df_emit_rrs(e, near_at(&p, -k), SUM(own.first), out.peer, 0);
			e->cnt = 1;
			return;
		}
		df_emit_rrc(e, near_at(&p, -k), SUM(own.first), ACC(own.first), 0);
		summed = 1;
	}
	if (!last && !root && one_out && whole(&p, next, &in)) {
		df_emit_rrs(e, in.peer, SUM(own.first), out.peer, v ? 0 : DF_INST_FINAL);
		e->cnt = 1;
		return;
	}
	for (struct piece x = {0, {0, own.first}}; !last && next_piece(&p, next, &x);) {
		width(e, x.lanes);
		df_emit_rrc(e, x.peer, SUM(x.lanes.first), ACC(x.lanes.first),
			    v ? 0 : DF_INST_FINAL);
	}
	summed |= !last;
	if (!v && !root) {
		width(e, own);
		df_emit_send(e, e->root, SUM(own.first));
	}
	for (struct piece x = {0, {0, own.first}}; v && next_piece(&p, prev, &x);) {
		width(e, x.lanes);
		df_emit_send(e, x.peer, SUM(x.lanes.first));
	}
	for (int k = 1; root && k < p.g; k++) {
		width(e, near_lanes(&p, -k));
		df_emit_recv(e, near_at(&p, -k), DF_AT_OUT(base + near_lanes(&p, -k).first));
	}
	e->cnt = 1;
#undef SUM
#undef ACC
#undef MINE
}

/*
 * Two steps: the data of a node's ranks for one rank of another is collected at its representative
 * here, and sent to the other node as one message.
 */
void df_build_alltoall_hier(struct df_emit *e, uint32_t part)
{
	struct place p = place(e);

	for (int d = 1; d <= p.nodes; d++) {
		int node = node_at(&p, d), here = d == p.nodes;

		for (int q = 0; q < nr_rounds(&p, node); q++) {
			int far = stands_for(&p, node, q, 0);
#define GOT(k)                                                                                     \
	(here ? DF_AT_OUT((uint32_t)near_at(&p, k))                                                \
	      : DF_AT_SCRATCH(part + (uint32_t)mod(p.local + (k), p.g)))

			for (int k = 1; k < p.g; k++) {
				int of = stands_for(&p, node, q, k);

				if (of >= 0)
					df_emit_send(e, near_at(&p, k), DF_AT_IN((uint32_t)of));
			}
			if (far < 0)
				continue;
			df_emit_copy(e, DF_AT_IN((uint32_t)far), GOT(0), 0);
			for (int k = 1; k < p.g; k++)
				df_emit_recv(e, near_at(&p, -k), GOT(-k));
#undef GOT
			if (here)
				continue;
			e->cnt = (uint32_t)p.g;
			df_emit_send(e, far, DF_AT_SCRATCH(part));
			e->cnt = 1;
		}
	}
	for (int d = 1; d < p.nodes; d++) {
		int node = node_at(&p, -d), size = df_layout_size(p.l, node);
		uint32_t first = (uint32_t)df_layout_at(p.l, node, 0);
		int row = df_layout_at(p.l, node, size - 1) - (int)first == size - 1;

		e->cnt = (uint32_t)size;
		df_emit_recv(e, stands_there(&p, node),
			     row ? DF_AT_OUT(first) : DF_AT_SCRATCH(part));
		e->cnt = 1;
		for (int k = 0; !row && k < size; k++)
			df_emit_copy(e, DF_AT_SCRATCH(part + (uint32_t)k),
				     DF_AT_OUT((uint32_t)df_layout_at(p.l, node, k)), 0);
	}
}
