/*
 * Built-in AllReduce, AllGather, ReduceScatter, AlltoAll. Loops over peers start after this rank,
 * so that the ranks do not all address the same peer at once.
 */
#include "runtime/program/build/build.h"

static int mod(const struct df_emit *e, int k)
{
	return (k % e->n + e->n) % e->n;
}

/*
 * Rings pass through one node after the other. Returns the rank `k` places after this one in the
 * ring.
 */
static int ring(const struct df_emit *e, int k)
{
	const struct df_layout *l = e->layout;

	return l ? l->order[mod(e, l->first[l->node[e->rank]] + l->local[e->rank] + k)]
		 : mod(e, e->rank + k);
}

/*
 * The chunk of rank k's share in part p. Parts are contiguous, so a part is one range of the
 * buffer.
 */
static uint32_t share(const struct df_emit *e, uint32_t part, int k)
{
	return part * (uint32_t)e->n + (uint32_t)mod(e, k);
}

/* The chunk of block k (count elements) in part p. */
static uint32_t cell(const struct df_emit *e, uint32_t part, int k)
{
	return (uint32_t)mod(e, k) * e->nb + part;
}

/* Reduce-scatter around the ring, then all-gather: 2(n-1) hops, fused into 2n-1 instructions. */
void df_build_ar_ring(struct df_emit *e, uint32_t part)
{
	int n = e->n, r = e->rank, next = ring(e, 1), prev = ring(e, -1);

	df_emit_send(e, next, DF_AT_IN(share(e, part, prev)));
	for (int k = 2; k < n; k++)
		df_emit_rrs(e, prev, DF_AT_IN(share(e, part, ring(e, -k))), next, 0);
	df_emit_rrcs(e, prev, DF_AT_IN(share(e, part, r)), DF_AT_OUT(share(e, part, r)), next,
		     DF_INST_FINAL);
	for (int k = 1; k < n - 1; k++)
		df_emit_rcs(e, prev, DF_AT_OUT(share(e, part, ring(e, -k))), next);
	df_emit_recv(e, prev, DF_AT_OUT(share(e, part, next)));
}

/*
 * The ranks of an exchange: n of them, this one is number `me`. The input of each is at `in`, the
 * sum is stored at `out`, and `acc` accumulates it.
 */
struct exchange {
	int (*rank)(const struct df_emit *e, int k);
	int n, me;
	struct df_at in, acc, out;
	int flags; /* of the sum */
};

/*
 * All ranks send everything to all others and reduce in one order: ((x0 + x1) + x2) + ... Numbers 0
 * and 1 begin with their own input. The others accumulate at `acc`, because `out` may be `in`,
 * which is added later.
 */
static void exchange(struct df_emit *e, const struct exchange *x)
{
	int n = x->n, me = x->me;

	for (int k = 1; k < n; k++)
		df_emit_send(e, x->rank(e, (me + k) % n), x->in);
	if (me > 1)
		df_emit_recv(e, x->rank(e, 0), x->acc);
	for (int k = 1; k < n; k++) {
		int last = k == n - 1, flags = last ? x->flags : 0;

		if (k == 1 && me <= 1)
			df_emit_rrc(e, x->rank(e, !me), x->in, last ? x->out : x->acc, flags);
		else if (k == me)
			df_emit_reduce(e, x->in, x->acc, flags);
		else
			df_emit_rrc(e, x->rank(e, k), x->acc, last ? x->out : x->acc, flags);
	}
	if (n > 2 && me == n - 1)
		df_emit_copy(e, x->acc, x->out, 0);
}

static int any(const struct df_emit *e, int k)
{
	(void)e;
	return k;
}

/* The first rank of a node is its leader. */
static int leader(const struct df_emit *e, int node)
{
	return df_layout_at(e->layout, node, 0);
}

void df_build_ar_onestep(struct df_emit *e, uint32_t part)
{
	const struct exchange all = {
		any,	      e->n, e->rank, DF_AT_IN(part), DF_AT_SCRATCH(part), DF_AT_OUT(part),
		DF_INST_FINAL};

	exchange(e, &all);
}

/*
 * Each rank sends to its node's leader, the leaders exchange in one step, and the result returns
 * the same way: one message for each pair of nodes, however many ranks they have.
 */
void df_build_ar_leaders(struct df_emit *e, uint32_t part)
{
	const struct df_layout *l = e->layout;
	int node = l->node[e->rank], n = df_layout_size(l, node);
	struct df_at sum = DF_AT_SCRATCH(2 * part + 1);
	struct exchange x = {.rank = leader,
			     .n = l->nodes,
			     .me = node,
			     .in = DF_AT_IN(part),
			     .acc = DF_AT_SCRATCH(2 * part),
			     .out = DF_AT_OUT(part),
			     .flags = DF_INST_FINAL};

	if (l->local[e->rank]) {
		df_emit_send(e, leader(e, node), DF_AT_IN(part));
		df_emit_recv(e, leader(e, node), DF_AT_OUT(part));
		return;
	}
	for (int k = 1; k < n; k++) {
		df_emit_rrc(e, df_layout_at(l, node, k), x.in, sum, 0);
		x.in = sum;
	}
	exchange(e, &x);
	for (int k = 1; k < n; k++)
		df_emit_send(e, df_layout_at(l, node, k), DF_AT_OUT(part));
}

/* Rank k reduces share k of all ranks, then sends it to all. */
void df_build_ar_allpairs(struct df_emit *e, uint32_t part)
{
	int n = e->n, r = e->rank;
	struct df_at own = DF_AT_OUT(share(e, part, r));

	for (int k = 1; k < n; k++)
		df_emit_send(e, mod(e, r + k), DF_AT_IN(share(e, part, r + k)));
	for (int k = 1; k < n; k++)
		df_emit_rrc(e, mod(e, r - k), k == 1 ? DF_AT_IN(share(e, part, r)) : own, own,
			    k == n - 1 ? DF_INST_FINAL : 0);
	for (int k = 1; k < n; k++)
		df_emit_send(e, mod(e, r + k), own);
	for (int k = 1; k < n; k++)
		df_emit_recv(e, mod(e, r - k), DF_AT_OUT(share(e, part, r - k)));
}

/*
 * Reduces up a binary heap and broadcasts down the same heap. OUT serves as accumulator, because a
 * rank has sent its sum before the result can arrive.
 */
void df_build_ar_tree(struct df_emit *e, uint32_t part, int tree, int split)
{
	int n = e->n, v = tree ? n - 1 - e->rank : e->rank;
	int left = 2 * v + 1, right = left + 1, up = (v - 1) / 2;
	struct df_at in = DF_AT_IN(part), out = DF_AT_OUT(part);
	uint32_t block = e->block;

#define REAL(x) (tree ? n - 1 - (x) : (x))
	if (left >= n) {
		df_emit_send(e, REAL(up), in);
	} else if (right >= n) {
		if (v)
			df_emit_rrs(e, REAL(left), in, REAL(up), 0);
		else
			df_emit_rrc(e, REAL(left), in, out, DF_INST_FINAL);
	} else {
		df_emit_rrc(e, REAL(left), in, out, 0);
		if (v)
			df_emit_rrs(e, REAL(right), out, REAL(up), 0);
		else
			df_emit_rrc(e, REAL(right), out, out, DF_INST_FINAL);
	}
	if (split)
		e->block++;
	if (!v) {
		uint32_t first = split ? 0 : e->r->block[e->block].nr;

		df_emit_send(e, REAL(left), out);
		if (right < n)
			df_emit_send(e, REAL(right), out);
		if (split && !e->r->err)
			df_prank_dep(e->r, e->block, first, block, e->r->block[block].nr - 1);
	} else if (left >= n) {
		df_emit_recv(e, REAL(up), out);
	} else {
		df_emit_rcs(e, REAL(up), out, REAL(left));
		if (right < n)
			df_emit_send(e, REAL(right), out);
	}
#undef REAL
	e->block = block;
}

void df_build_ag_ring(struct df_emit *e, uint32_t part)
{
	int n = e->n, next = ring(e, 1), prev = ring(e, -1);

	df_emit_send(e, next, DF_AT_IN(part));
	df_emit_copy(e, DF_AT_IN(part), DF_AT_OUT(cell(e, part, e->rank)), 0);
	for (int k = 1; k < n - 1; k++)
		df_emit_rcs(e, prev, DF_AT_OUT(cell(e, part, ring(e, -k))), next);
	df_emit_recv(e, prev, DF_AT_OUT(cell(e, part, next)));
}

void df_build_ag_allpairs(struct df_emit *e, uint32_t part)
{
	for (int k = 1; k < e->n; k++)
		df_emit_send(e, mod(e, e->rank + k), DF_AT_IN(part));
	df_emit_copy(e, DF_AT_IN(part), DF_AT_OUT(cell(e, part, e->rank)), 0);
	for (int k = 1; k < e->n; k++)
		df_emit_recv(e, mod(e, e->rank - k), DF_AT_OUT(cell(e, part, e->rank - k)));
}

void df_build_rs_ring(struct df_emit *e, uint32_t part)
{
	int n = e->n, next = ring(e, 1), prev = ring(e, -1);

	df_emit_send(e, next, DF_AT_IN(cell(e, part, prev)));
	for (int k = 2; k < n; k++)
		df_emit_rrs(e, prev, DF_AT_IN(cell(e, part, ring(e, -k))), next, 0);
	df_emit_rrc(e, prev, DF_AT_IN(cell(e, part, e->rank)), DF_AT_OUT(part), DF_INST_FINAL);
}

/* All sends are first, because in place OUT overlaps IN, though only in this rank's own cell. */
void df_build_rs_allpairs(struct df_emit *e, uint32_t part)
{
	int n = e->n, r = e->rank;

	for (int k = 1; k < n; k++)
		df_emit_send(e, mod(e, r + k), DF_AT_IN(cell(e, part, r + k)));
	for (int k = 1; k < n; k++)
		df_emit_rrc(e, mod(e, r - k), k == 1 ? DF_AT_IN(cell(e, part, r)) : DF_AT_OUT(part),
			    DF_AT_OUT(part), k == n - 1 ? DF_INST_FINAL : 0);
}

/*
 * A rank sends one slice to each peer before it receives: with one slot per pair no send of a loop
 * waits for anything but receives of the loop before.
 */
void df_build_alltoall(struct df_emit *e, uint32_t part)
{
	for (int k = 1; k < e->n; k++)
		df_emit_send(e, mod(e, e->rank + k), DF_AT_IN(cell(e, part, e->rank + k)));
	df_emit_copy(e, DF_AT_IN(cell(e, part, e->rank)), DF_AT_OUT(cell(e, part, e->rank)), 0);
	for (int k = 1; k < e->n; k++)
		df_emit_recv(e, mod(e, e->rank - k), DF_AT_OUT(cell(e, part, e->rank - k)));
}
