/*
 * Chooses, among the waits that may be released, those that block the stuck nodes. Uses the
 * wait-for graph only: a released wait is a node that depends on nothing, because the next step of
 * its thread is unknown.
 *
 * The search is greedy. It releases one wait in each component that depends on no other component,
 * until no release frees another stuck node. Then it takes back each choice that is not needed.
 *
 * The search releases no wait for operations that never meet (crossed.c), because these stay stuck
 * in any case.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "trace/graph/graph.h"
#include "trace/read/load_hosts.h"
#include "trace/read/party.h"
#include "trace/record/trace_hash.h"

struct cut {
	struct df_graph g;
	uint8_t *may;	 /* whether the node is a wait that may be released */
	uint32_t *place; /* index of the wait in the caller's list, if may[] */
	uint32_t *comp;
	uint8_t *is_root;
	uint32_t *group; /* group of each node that was part of a cycle; 0 means no group */
	uint32_t nr_groups;
	/* by group: whether it has no wait that may be released, or a release does not help */
	uint8_t *hopeless;
	uint32_t *node; /* nodes of the chosen waits */
	size_t nr;
	int stale; /* for df_graph_reduce(): 2 when searching for likely cycles */
};

static uint64_t serial_of(const struct cut *c, uint32_t n)
{
	const struct df_node *node = &c->g.nodes[n];

	switch (node->kind) {
	case DF_N_THREAD:
		return c->g.set->traces[node->trace].calls[node->ref].serial;
	case DF_N_START:
		return c->g.set->ops[node->ref].l.serial;
	default:
		return 0;
	}
}

static void find_holds(struct cut *c, const struct df_check_hold *may, size_t nr)
{
	for (uint32_t n = 0; n < c->g.nr_nodes; n++) {
		uint64_t serial = serial_of(c, n);
		const struct df_trace_header *h;

		if (!serial)
			continue;
		h = &c->g.set->traces[c->g.nodes[n].trace].h;
		for (size_t i = 0; i < nr && !c->may[n]; i++) {
			if (may[i].serial != serial || may[i].pid != h->pid ||
			    may[i].host_hash != h->host_hash)
				continue;
			c->may[n] = 1;
			c->place[n] = (uint32_t)i;
		}
	}
}

/*
 * Returns a hash that identifies the node in every process. Returns 0 if the node is determined by
 * other nodes.
 */
static uint64_t identity(const struct cut *c, uint32_t n)
{
	const struct df_node *node = &c->g.nodes[n];
	const struct df_check_set *set = c->g.set;
	const struct df_check_host *host;
	uint64_t id = (uint64_t)node->kind + 1;

	switch (node->kind) {
	case DF_N_THREAD:
	case DF_N_START:
		id = df_mix64(id ^ set->traces[node->trace].h.host_hash);
		id = df_mix64(id ^ set->traces[node->trace].h.pid);
		host = node->kind == DF_N_THREAD && !serial_of(c, n)
			       ? df_trc_host(&set->traces[node->trace], node->thread)
			       : NULL;
		/* The stamp makes the hash differ once the thread has run. */
		if (host)
			id = df_mix64(df_mix64(id ^ host->tid) ^ host->whom) ^ host->stamp;
		return df_mix64(id ^ serial_of(c, n));
	case DF_N_NEXT:
		if (node->gcomm == DF_NONE)
			return 0;
		id = df_mix64(id ^ set->gcomms[node->gcomm].hash);
		return df_mix64(id ^ (uint32_t)node->rank);
	case DF_N_BARRIER:
		return df_mix64(id ^ c->g.bars[node->ref].key);
	default:
		return 0;
	}
}

/*
 * Whether the thread has issued on this communicator for its rank. If the communicator is unused:
 * whether the thread has created or used another communicator of the rank.
 */
static int is_candidate(const struct df_check_set *set, const struct df_trc_comm *e, uint32_t tid)
{
	const struct df_trc *t = &set->traces[e->trace];

	if (e->used)
		return df_entry_uses(e, tid);
	for (uint32_t i = 0; i < t->nr_entries; i++) {
		const struct df_trc_comm *f = &set->entries[t->first_entry + i];

		if (f->party == e->party && f->device == e->device && df_entry_uses(f, tid))
			return 1;
	}
	return 0;
}

/*
 * Whether any thread of the process may issue on the communicator. This holds if there are too many
 * candidates, or if a candidate has ended.
 */
static int may_be_any(const struct df_check_set *set, const struct df_trc_comm *e)
{
	const struct df_trc *t = &set->traces[e->trace];

	for (uint32_t i = 0; i < t->nr_entries; i++) {
		const struct df_trc_comm *f = &set->entries[t->first_entry + i];

		if (f != e && (e->used || f->party != e->party || f->device != e->device))
			continue;
		for (uint32_t k = 0; k < f->nr_threads; k++)
			if (!df_trc_host(t, f->threads[k]))
				return 1;
		if (f->more_threads)
			return 1;
	}
	return 0;
}

/*
 * Does the work of quiet_threads() for one process. If `e` is not NULL, only threads that may issue
 * on this communicator count. If the communicator is unused in a process with one rank, all threads
 * may, even those that have used no communicator.
 */
static uint64_t quiet_in(const struct df_check_set *set, const struct df_trc *t,
			 const struct df_trc_comm *e)
{
	uint64_t id;

	if (!t->hosts)
		return 0;
	if (e && (may_be_any(set, e) || (!e->used && df_trc_has_one_rank(set, t))))
		e = NULL;
	id = df_mix64(t->h.host_hash ^ t->h.pid);
	/* A thread that made calls and ended since the last look was a candidate, too. */
	if (!e)
		id = df_mix64(id ^ t->nr_threads);
	for (size_t i = 0; i < t->nr_hosts; i++)
		if (!e || is_candidate(set, e, t->hosts[i].tid))
			id += df_mix64(df_mix64(id ^ t->hosts[i].tid) ^ t->hosts[i].nr_calls);
	return id ? id : 1;
}

/*
 * Returns a hash of the threads that are in no call and could end the wait of this node, and of the
 * number of calls that each has made. Returns 0 if these threads are not known.
 */
static uint64_t quiet_threads(const struct cut *c, const struct df_node *node)
{
	const struct df_check_set *set = c->g.set;
	uint64_t id = 0, one;

	if (node->trace != DF_NONE)
		return quiet_in(set, &set->traces[node->trace],
				node->kind == DF_N_NEXT && node->ref != DF_NONE
					? &set->entries[node->ref]
					: NULL);
	/* The missing members of a communicator may be in any process. */
	for (size_t i = 0; i < set->nr_traces; i++) {
		if (set->traces[i].dropped || set->traces[i].fate != DF_ALIVE)
			continue;
		one = quiet_in(set, &set->traces[i], NULL);
		if (!one)
			return 0;
		id += one;
	}
	return id;
}

/*
 * Returns a hash that is the same when the program reaches the same cycle again. Returns 0 if the
 * node is determined by other nodes.
 */
static uint64_t name_of(const struct cut *c, uint32_t n)
{
	const struct df_node *node = &c->g.nodes[n];
	const struct df_trc *t = node->trace == DF_NONE ? NULL : &c->g.set->traces[node->trace];
	uint64_t id = (uint64_t)node->kind + 1;

	switch (node->kind) {
	case DF_N_THREAD:
		id = df_mix64(id ^ t->h.host_hash);
		id = df_mix64(id ^ t->h.pid);
		return df_mix64(id ^ t->calls[node->ref].site);
	case DF_N_NEXT:
		if (node->gcomm == DF_NONE)
			return 0;
		id = df_mix64(id ^ c->g.set->gcomms[node->gcomm].hash);
		return df_mix64(id ^ (uint32_t)node->rank);
	default:
		return 0;
	}
}

/*
 * Returns a wait of the component that may be released, or DF_NONE. Each node of a component is
 * part of a cycle in it, so the choice does not matter.
 */
static uint32_t pick(const struct cut *c, uint32_t which)
{
	uint32_t n;

	for (n = 0; n < c->g.nr_nodes; n++)
		if (c->comp[n] == which && c->may[n])
			return n;
	return DF_NONE;
}

/*
 * Puts all nodes of a component into one group and returns its number. If the component is the rest
 * of an earlier cycle, the group is the group of that cycle, else it is new.
 */
static uint32_t group_of(struct cut *c, uint32_t which)
{
	uint32_t group = 0;

	for (uint32_t n = 0; n < c->g.nr_nodes && !group; n++)
		if (c->comp[n] == which)
			group = c->group[n];
	if (!group)
		group = ++c->nr_groups;
	for (uint32_t n = 0; n < c->g.nr_nodes; n++)
		if (c->comp[n] == which)
			c->group[n] = group;
	return group;
}

static void let_go(struct cut *c, uint32_t n, int yes)
{
	c->g.nodes[n].let_go = (uint8_t)yes;
}

/* Releases one wait in every root component. Returns the number of released waits, or -ENOMEM. */
static int round_of_choices(struct cut *c)
{
	size_t nr = df_graph_components(&c->g, DF_W_BASE, c->comp, &c->is_root);
	int done = 0;

	if (!c->is_root)
		return -ENOMEM;
	for (uint32_t which = 0; which < nr; which++) {
		uint32_t group, n;

		if (!c->is_root[which])
			continue;
		group = group_of(c, which);
		n = c->hopeless[group] ? DF_NONE : pick(c, which);
		if (n == DF_NONE) {
			c->hopeless[group] = 1;
			continue;
		}
		let_go(c, n, 1);
		c->node[c->nr++] = n;
		done++;
	}
	free(c->is_root);
	c->is_root = NULL;
	return done;
}

static int still_stuck(const struct cut *c, uint32_t group)
{
	for (uint32_t n = 0; n < c->g.nr_nodes; n++)
		if (c->group[n] == group && c->g.stuck[n])
			return 1;
	return 0;
}

/* Takes back the choices in groups that are still stuck. Returns whether there were any. */
static int drop_useless(struct cut *c)
{
	int dropped = 0;
	size_t i, n = 0;

	df_graph_reduce(&c->g, DF_W_BASE, c->stale);
	for (uint32_t group = 1; group <= c->nr_groups; group++)
		c->hopeless[group] = (uint8_t)still_stuck(c, group);
	for (i = 0; i < c->nr; i++) {
		if (c->hopeless[c->group[c->node[i]]]) {
			let_go(c, c->node[i], 0);
			dropped = 1;
		} else {
			c->node[n++] = c->node[i];
		}
	}
	c->nr = n;
	return dropped;
}

static int all_helped(const struct cut *c)
{
	for (uint32_t n = 0; n < c->g.nr_nodes; n++)
		if (c->group[n] && !c->hopeless[c->group[n]] && c->g.stuck[n])
			return 0;
	return 1;
}

static void make_smaller(struct cut *c)
{
	size_t i, n = 0;

	for (i = 0; i < c->nr; i++) {
		let_go(c, c->node[i], 0);
		df_graph_reduce(&c->g, DF_W_BASE, c->stale);
		if (all_helped(c))
			continue;
		let_go(c, c->node[i], 1);
		c->node[n++] = c->node[i];
	}
	c->nr = n;
}

static int choose(struct cut *c)
{
	int done = 0;

	do {
		if (!df_graph_reduce(&c->g, DF_W_BASE, c->stale))
			break;
		done = round_of_choices(c);
	} while (done > 0);
	if (c->nr && done < 0)
		return done;
	while (drop_useless(c))
		;
	if (c->nr > 1)
		make_smaller(c);
	return 0;
}

static int alloc(struct cut *c)
{
	size_t n = c->g.nr_nodes + 1;

	c->may = calloc(n, 1);
	c->place = calloc(n, sizeof(*c->place));
	c->comp = calloc(n, sizeof(*c->comp));
	c->group = calloc(n, sizeof(*c->group));
	c->hopeless = calloc(n + 1, 1);
	c->node = calloc(n, sizeof(*c->node));
	return c->may && c->place && c->comp && c->group && c->hopeless && c->node ? 0 : -ENOMEM;
}

static void forget_choices(struct cut *c)
{
	size_t n = c->g.nr_nodes + 1;

	memset(c->group, 0, n * sizeof(*c->group));
	memset(c->hopeless, 0, n + 1);
	c->nr = 0;
	c->nr_groups = 0;
}

/*
 * Whether only threads that are in no call prevent a proof for one of the waits. Modifies the
 * graph, so that it is of no further use.
 */
static int hosts_matter(struct cut *c)
{
	for (uint32_t n = 0; n < c->g.nr_nodes; n++) {
		let_go(c, n, 0);
		if (c->g.nodes[n].idle)
			c->g.nodes[n].mark = DF_M_SILENT;
	}
	df_graph_reduce(&c->g, DF_W_BASE, 0);
	for (uint32_t n = 0; n < c->g.nr_nodes; n++)
		if (c->may[n] && c->g.stuck[n])
			return 1;
	return 0;
}

/*
 * Returns a hash of the facts on which the choices in a group are based, or 0 if some are unknown.
 * A likely cycle needs all of them, because it is released only after they have not changed for a
 * time.
 */
static uint64_t core_of(const struct cut *c, uint32_t group, uint64_t *cycle)
{
	uint64_t core = 0, quiet;

	*cycle = 0;
	for (uint32_t n = 0; n < c->g.nr_nodes; n++) {
		const struct df_node *node = &c->g.nodes[n];

		if (c->group[n] != group)
			continue;
		core += identity(c, n);
		*cycle += name_of(c, n);
		if (!c->stale || !node->idle)
			continue;
		quiet = quiet_threads(c, node);
		if (!quiet)
			return 0;
		core += quiet;
	}
	return core ? core : 1;
}

static void result(const struct cut *c, struct df_check_cut *out)
{
	uint64_t *core = calloc(c->nr_groups + 1, sizeof(*core)),
		 *cycle = calloc(c->nr_groups + 1, sizeof(*cycle));

	for (uint32_t group = 1; core && cycle && group <= c->nr_groups; group++) {
		if (c->hopeless[group])
			continue;
		core[group] = core_of(c, group, &cycle[group]);
		out->core += core[group];
	}
	for (size_t i = 0; core && cycle && i < c->nr; i++) {
		uint32_t group = c->group[c->node[i]];

		if (core[group])
			out->chosen[out->nr++] = (struct df_check_chosen){
				c->place[c->node[i]], core[group], cycle[group]};
	}
	free(core);
	free(cycle);
}

/*
 * Returns a hash, as core_of() does, of the nodes in `from` and of all stuck nodes that they wait
 * for, directly or indirectly.
 */
static uint64_t core_behind(const struct cut *c, const uint8_t *from)
{
	const struct df_graph *g = &c->g;
	uint8_t *seen = calloc(g->nr_nodes + 1, 1);
	uint32_t *queue = malloc((g->nr_nodes + 1) * sizeof(*queue));
	size_t nr = 0;
	uint64_t core = 1;

	for (uint32_t n = 0; seen && queue && n < g->nr_nodes; n++)
		if (from[n]) {
			seen[n] = 1;
			queue[nr++] = n;
		}
	for (size_t q = 0; q < nr; q++) {
		core += identity(c, queue[q]);
		for (uint32_t k = g->out_first[queue[q]]; k < g->out_first[queue[q] + 1]; k++) {
			uint32_t to = g->edges[g->out[k]].to;

			if (!g->stuck[to] || seen[to] ||
			    !df_edge_on(&g->edges[g->out[k]], DF_W_BASE))
				continue;
			seen[to] = 1;
			queue[nr++] = to;
		}
	}
	free(seen);
	free(queue);
	return core;
}

/*
 * Finds ranks whose operations never meet. They are reported only if this is proved, and their
 * waits are never released.
 */
static void find_mismatch(struct cut *c, struct df_check_cut *cut)
{
	uint8_t *crossed = calloc(c->g.nr_nodes + 1, 1);
	uint32_t gcomm;

	df_graph_reduce(&c->g, DF_W_BASE, c->stale);
	gcomm = df_graph_crossed(&c->g, 1);
	for (uint32_t n = 0; crossed && n < c->g.nr_nodes; n++)
		crossed[n] =
			c->g.nodes[n].kind == DF_N_MATCH && c->g.nodes[n].mark == DF_M_MISMATCH;
	if (gcomm != DF_NONE && !c->stale && crossed) {
		cut->mismatch = c->g.set->gcomms[gcomm].hash;
		cut->core += core_behind(c, crossed);
	}
	free(crossed);
}

/*
 * Finds operations that wait for one another and would still be stuck if all threads could proceed.
 * No release helps them, so they are reported as soon as this is proved. Leaves no wait released.
 */
static uint64_t find_settled(struct cut *c)
{
	uint8_t *in = calloc(c->g.nr_nodes + 1, 1);
	uint64_t name = 0;
	size_t nr;

	for (uint32_t n = 0; n < c->g.nr_nodes; n++)
		let_go(c, n, c->g.nodes[n].kind == DF_N_THREAD);
	df_graph_reduce(&c->g, DF_W_BASE, 0);
	nr = df_graph_components(&c->g, DF_W_BASE, c->comp, &c->is_root);
	for (uint32_t n = 0; in && c->is_root && nr && n < c->g.nr_nodes; n++)
		if (c->comp[n] != DF_NONE && c->is_root[c->comp[n]] && !c->g.self[n])
			in[n] = 1, name = 1;
	if (name)
		name = core_behind(c, in);
	free(c->is_root);
	c->is_root = NULL;
	free(in);
	for (uint32_t n = 0; n < c->g.nr_nodes; n++)
		let_go(c, n, 0);
	return name;
}

int df_check_cut(struct df_check_set *set, const struct df_check_opts *opts,
		 struct df_check_cut *cut)
{
	struct cut c = {0};
	int rc = df_set_seal(set, opts);

	cut->nr = 0;
	cut->likely = cut->hosts = 0;
	cut->core = cut->mismatch = cut->settled = 0;
	set->proof = 1;
	if (!rc)
		rc = df_graph_build(&c.g, set);
	set->proof = 0;
	if (rc)
		return rc;
	rc = alloc(&c);
	if (!rc) {
		find_holds(&c, cut->may, cut->nr_may);
		find_mismatch(&c, cut);
		cut->settled = find_settled(&c);
		rc = choose(&c);
	}
	if (!rc && c.nr)
		result(&c, cut);
	if (!rc && !c.nr && cut->want_likely) {
		forget_choices(&c);
		c.stale = 2;
		find_mismatch(&c, cut);
		rc = choose(&c);
		if (!rc && c.nr)
			result(&c, cut);
		cut->likely = cut->nr > 0;
	}
	if (!rc && (!c.nr || c.stale))
		cut->hosts = hosts_matter(&c);
	free(c.may);
	free(c.place);
	free(c.comp);
	free(c.group);
	free(c.hopeless);
	free(c.node);
	df_graph_fini(&c.g);
	return rc;
}
