/*
 * Adds threads that wait outside NCCL and CUDA. These waits are the only part of the wait-for graph
 * that is not recorded. If the object of such a wait is certain (struct df_check_host), the wait
 * counts like others. If the thread was only seen waiting, the wait counts only once nothing has
 * made progress for long.
 */
#include <stdlib.h>
#include <string.h>
#include "trace/graph/graph.h"
#include "trace/read/load_hosts.h"

struct outside {
	struct df_graph *g;
	uint32_t *own; /* by trace: OR node over its threads that are in a call */
	uint32_t all;  /* OR node over all threads that are in a call */
	/* by known thread of the current trace: its node, or DF_NONE if it is in no call */
	uint32_t *node;
};

/*
 * Adds a likely wait for another thread: for any thread of the process if the waiting thread needs
 * a lock of the process, else for any thread of the job. Only threads in a call are candidates. A
 * thread in no call could end the wait, unless nothing makes progress. Threads with the same kind
 * of wait cannot act first. Without a candidate nothing is known, and the waiting thread counts as
 * able to proceed.
 */
static void likely(struct outside *o, uint32_t trace, uint32_t ref)
{
	struct df_graph *g = o->g;
	const struct df_lcall *c = &g->set->traces[trace].calls[ref];
	uint32_t whom = c->object == DF_AT_LOCK ? o->own[trace] : o->all, node;

	if (whom == DF_NONE)
		return;
	node = df_graph_node(g, DF_N_THREAD, trace, ref);
	g->nodes[node].thread = c->thread;
	g->nodes[node].idle = 1;
	df_graph_edge(g, node, whom, DF_E_OUTSIDE, DF_W_ALL, c->rec);
}

/* Makes the OR nodes of candidates for likely(). */
static void candidates(struct outside *o)
{
	struct df_graph *g = o->g;
	size_t nr = g->nr_nodes;

	for (uint32_t n = 0; n < nr; n++) {
		uint32_t *own;

		/* A background call wakes no thread, so it is no candidate. */
		if (g->nodes[n].kind != DF_N_THREAD || !g->nodes[n].thread)
			continue;
		own = &o->own[g->nodes[n].trace];
		if (*own == DF_NONE)
			*own = df_graph_node(g, DF_N_JOIN, g->nodes[n].trace, 0);
		if (o->all == DF_NONE)
			o->all = df_graph_node(g, DF_N_JOIN, g->nodes[n].trace, 0);
		g->nodes[*own].or_ = g->nodes[o->all].or_ = 1;
		df_graph_edge(g, *own, n, DF_E_HOST, DF_W_ALL, DF_NO_REC);
		df_graph_edge(g, o->all, n, DF_E_HOST, DF_W_ALL, DF_NO_REC);
	}
}

/* Fills o->node with the nodes of recorded calls, and makes nodes for waits outside of them. */
static void nodes_of_hosts(struct outside *o, uint32_t trace)
{
	struct df_graph *g = o->g;
	const struct df_trc *t = &g->set->traces[trace];

	for (size_t k = 0; k < t->nr_calls; k++) {
		if (t->calls[k].call == DF_CALL_OUTSIDE) {
			uint32_t n = df_graph_node(g, DF_N_THREAD, trace, (uint32_t)k);

			if (!g->failed)
				g->nodes[n].thread = t->calls[k].thread;
		}
	}
	memset(o->node, 0xff, t->nr_hosts * sizeof(*o->node));
	for (uint32_t n = 0; n < g->nr_nodes; n++) {
		const struct df_check_host *h;

		if (g->nodes[n].kind != DF_N_THREAD || g->nodes[n].trace != trace)
			continue;
		h = df_trc_host(t, g->nodes[n].thread);
		if (h)
			o->node[h - t->hosts] = n;
	}
}

/* Whether the thread of this node waits outside of all recorded calls. */
static int is_outside(const struct df_graph *g, const struct df_trc *t, uint32_t n)
{
	return n != DF_NONE && t->calls[g->nodes[n].ref].call == DF_CALL_OUTSIDE;
}

/*
 * Treats a thread that joins a thread in no call as in no call, too: it proceeds when the joined
 * thread ends.
 */
static void join_the_free(struct outside *o, uint32_t trace)
{
	const struct df_trc *t = &o->g->set->traces[trace];
	int again;

	do {
		again = 0;
		for (size_t i = 0; i < t->nr_hosts; i++) {
			uint32_t n = o->node[i];

			if (t->hosts[i].kind != DF_HOST_JOIN || !is_outside(o->g, t, n))
				continue;
			for (size_t k = 0; k < t->nr_hosts; k++)
				if (t->hosts[k].tid == t->hosts[i].whom && o->node[k] == DF_NONE)
					o->node[i] = DF_NONE;
			if (o->node[i] != DF_NONE)
				continue;
			/* From now on the node belongs to no thread. */
			o->g->nodes[n].thread = 0;
			again = 1;
		}
	} while (again);
}

/*
 * Makes an OR node over all threads of the process: another thread may do the work of a thread that
 * has ended.
 */
static void any_host(struct outside *o, uint32_t trace)
{
	struct df_graph *g = o->g;
	struct df_trc *t = &g->set->traces[trace];
	uint32_t n = df_graph_node(g, DF_N_JOIN, trace, 0);

	t->any_host = n;
	g->nodes[n].or_ = 1;
	for (size_t i = 0; i < t->nr_hosts; i++) {
		if (o->node[i] == DF_NONE)
			g->nodes[n].idle = 1;
		df_graph_edge(g, n, o->node[i], DF_E_HOST, DF_W_ALL, DF_NO_REC);
	}
}

/* Whether thread k can end the wait of thread i. */
static int could_wake(const struct outside *o, const struct df_trc *t, size_t k, size_t i)
{
	const struct df_check_host *h = &t->hosts[i];

	if (k == i)
		return 0;
	if (h->kind == DF_HOST_JOIN)
		return t->hosts[k].tid == h->whom;
	return h->kind != DF_HOST_SERVES || t->hosts[k].nr_calls ||
	       (o->node[k] != DF_NONE && !is_outside(o->g, t, o->node[k]));
}

/*
 * Adds the certain waits. DF_HOST_JOIN: the joined thread has to end first. A thread that waits for
 * a lock or the like can be woken only by threads of its process, so it stays blocked if all of
 * them wait. DF_HOST_SERVES: only the threads that it may serve can wake it.
 */
static void certain(struct outside *o, uint32_t trace)
{
	struct df_graph *g = o->g;
	const struct df_trc *t = &g->set->traces[trace];

	for (size_t i = 0; i < t->nr_hosts; i++) {
		const struct df_check_host *h = &t->hosts[i];
		uint32_t n = o->node[i];

		if (!is_outside(g, t, n))
			continue;
		g->nodes[n].or_ = h->kind != DF_HOST_JOIN;
		for (size_t k = 0; k < t->nr_hosts; k++) {
			if (!could_wake(o, t, k, i))
				continue;
			if (o->node[k] == DF_NONE)
				g->nodes[n].idle = 1;
			df_graph_edge(g, n, o->node[k], DF_E_OUTSIDE, DF_W_ALL, DF_NO_REC);
		}
	}
}

void df_graph_outside(struct df_graph *g)
{
	struct df_check_set *set = g->set;
	struct outside o = {.g = g, .all = DF_NONE};
	size_t max = 0;

	for (uint32_t i = 0; i < set->nr_traces; i++)
		max = set->traces[i].nr_hosts > max ? set->traces[i].nr_hosts : max;
	o.own = malloc((set->nr_traces + 1) * sizeof(*o.own));
	o.node = malloc((max + 1) * sizeof(*o.node));
	if (!o.own || !o.node)
		g->failed = 1;
	else
		memset(o.own, 0xff, (set->nr_traces + 1) * sizeof(*o.own));
	if (!g->failed)
		candidates(&o);
	for (uint32_t i = 0; i < set->nr_traces && !g->failed; i++) {
		const struct df_trc *t = &set->traces[i];

		if (t->dropped || t->fate != DF_ALIVE)
			continue;
		if (t->hosts) {
			nodes_of_hosts(&o, i);
			join_the_free(&o, i);
			certain(&o, i);
			any_host(&o, i);
			continue;
		}
		for (size_t k = 0; k < t->nr_calls; k++)
			if (t->calls[k].call == DF_CALL_OUTSIDE)
				likely(&o, i, (uint32_t)k);
	}
	free(o.own);
	free(o.node);
}
