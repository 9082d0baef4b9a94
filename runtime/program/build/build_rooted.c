/*
 * Built-in Broadcast, Reduce, Gather, Scatter. Ranks are renumbered so that the root is 0 ("virtual
 * rank"). Trees are binary heaps: children of v are 2v+1 and 2v+2.
 */
#include "runtime/program/build/build.h"

static int virt(const struct df_emit *e)
{
	return (e->rank - e->root + e->n) % e->n;
}

static int real(const struct df_emit *e, int v)
{
	return (v + e->root) % e->n;
}

/*
 * A chain runs from the root through the other ranks of its node, then through one node after the
 * other.
 */
static int chain(const struct df_emit *e, int v)
{
	const struct df_layout *l = e->layout;
	int first, size;

	v %= e->n;
	if (!l)
		return real(e, v);
	first = l->first[l->node[e->root]];
	size = df_layout_size(l, l->node[e->root]);
	return v < size ? l->order[first + (l->local[e->root] + v) % size]
			: l->order[(first + v) % e->n];
}

/* The position of this rank in the chain. */
static int chained(const struct df_emit *e)
{
	const struct df_layout *l = e->layout;
	int node, size;

	if (!l)
		return virt(e);
	node = l->node[e->root];
	size = df_layout_size(l, node);
	if (l->node[e->rank] == node)
		return (l->local[e->rank] - l->local[e->root] + size) % size;
	return (l->first[l->node[e->rank]] + l->local[e->rank] - l->first[node] + e->n) % e->n;
}

void df_build_bcast_chain(struct df_emit *e, uint32_t part)
{
	int v = chained(e), next = chain(e, v + 1), prev = chain(e, v - 1 + e->n);

	if (v == 0) {
		df_emit_send(e, next, DF_AT_IN(part));
		df_emit_copy(e, DF_AT_IN(part), DF_AT_OUT(part), 0);
	} else if (v == e->n - 1) {
		df_emit_recv(e, prev, DF_AT_OUT(part));
	} else {
		df_emit_rcs(e, prev, DF_AT_OUT(part), next);
	}
}

void df_build_bcast_tree(struct df_emit *e, uint32_t part)
{
	int v = virt(e), left = 2 * v + 1, right = left + 1, parent = (v - 1) / 2;

	if (v == 0) {
		df_emit_send(e, real(e, 1), DF_AT_IN(part));
		if (right < e->n)
			df_emit_send(e, real(e, 2), DF_AT_IN(part));
		df_emit_copy(e, DF_AT_IN(part), DF_AT_OUT(part), 0);
	} else if (left >= e->n) {
		df_emit_recv(e, real(e, parent), DF_AT_OUT(part));
	} else {
		df_emit_rcs(e, real(e, parent), DF_AT_OUT(part), real(e, left));
		if (right < e->n)
			df_emit_send(e, real(e, right), DF_AT_OUT(part));
	}
}

void df_build_bcast_direct(struct df_emit *e, uint32_t part)
{
	if (virt(e)) {
		df_emit_recv(e, e->root, DF_AT_OUT(part));
		return;
	}
	for (int v = 1; v < e->n; v++)
		df_emit_send(e, real(e, v), DF_AT_IN(part));
	df_emit_copy(e, DF_AT_IN(part), DF_AT_OUT(part), 0);
}

void df_build_reduce_chain(struct df_emit *e, uint32_t part)
{
	int v = chained(e), from = chain(e, v + 1), to = chain(e, v - 1 + e->n);

	if (v == 0)
		df_emit_rrc(e, from, DF_AT_IN(part), DF_AT_OUT(part), DF_INST_FINAL);
	else if (v == e->n - 1)
		df_emit_send(e, to, DF_AT_IN(part));
	else
		df_emit_rrs(e, from, DF_AT_IN(part), to, 0);
}

/* Only the root has OUT; other ranks keep the sum of two children in scratch. */
void df_build_reduce_tree(struct df_emit *e, uint32_t part)
{
	int v = virt(e), left = 2 * v + 1, right = left + 1, to = real(e, (v - 1) / 2);

	if (v == 0) {
		df_emit_rrc(e, real(e, 1), DF_AT_IN(part), DF_AT_OUT(part),
			    right < e->n ? 0 : DF_INST_FINAL);
		if (right < e->n)
			df_emit_rrc(e, real(e, 2), DF_AT_OUT(part), DF_AT_OUT(part), DF_INST_FINAL);
	} else if (left >= e->n) {
		df_emit_send(e, to, DF_AT_IN(part));
	} else if (right >= e->n) {
		df_emit_rrs(e, real(e, left), DF_AT_IN(part), to, 0);
	} else {
		df_emit_rrc(e, real(e, left), DF_AT_IN(part), DF_AT_SCRATCH(part), 0);
		df_emit_rrs(e, real(e, right), DF_AT_SCRATCH(part), to, 0);
	}
}

void df_build_reduce_direct(struct df_emit *e, uint32_t part)
{
	if (virt(e)) {
		df_emit_send(e, e->root, DF_AT_IN(part));
		return;
	}
	for (int v = 1; v < e->n; v++)
		df_emit_rrc(e, real(e, v), v == 1 ? DF_AT_IN(part) : DF_AT_OUT(part),
			    DF_AT_OUT(part), v == e->n - 1 ? DF_INST_FINAL : 0);
}

void df_build_gather(struct df_emit *e, uint32_t part)
{
	if (virt(e)) {
		df_emit_send(e, e->root, DF_AT_IN(part));
		return;
	}
	df_emit_copy(e, DF_AT_IN(part), DF_AT_OUT((uint32_t)e->rank * e->nb + part), 0);
	for (int v = 1; v < e->n; v++)
		df_emit_recv(e, real(e, v), DF_AT_OUT((uint32_t)real(e, v) * e->nb + part));
}

void df_build_scatter(struct df_emit *e, uint32_t part)
{
	if (virt(e)) {
		df_emit_recv(e, e->root, DF_AT_OUT(part));
		return;
	}
	for (int v = 1; v < e->n; v++)
		df_emit_send(e, real(e, v), DF_AT_IN((uint32_t)real(e, v) * e->nb + part));
	df_emit_copy(e, DF_AT_IN((uint32_t)e->rank * e->nb + part), DF_AT_OUT(part), 0);
}
