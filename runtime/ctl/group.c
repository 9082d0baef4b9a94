/*
 * Communicators as the control plane sees them. A process has one group per communicator, shared by
 * its local ranks; a df_ctl_comm is one rank's handle. The member table never changes while the
 * group lives. Guarded by the control plane's lock; tables are read without it.
 */
#include "runtime/ctl/ctl_int.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/ctl/tree.h"

struct df_group *df_group_find(uint64_t hash)
{
	struct df_group *g;

	HASH_FIND(hh, df_ctl.groups, &hash, sizeof(hash), g);
	return g;
}

int df_group_has(const struct df_group *g, uint64_t proc)
{
	int i;

	for (i = 0; i < g->nr_procs; i++)
		if (g->procs[i] == proc)
			return 1;
	return 0;
}

int df_group_alive(const struct df_group *g)
{
	return df_ctl.started && g->proc == df_ctl.self.proc;
}

static int compare_u64(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/*
 * Collects the processes without duplicates, sorted to find those. The order of ranks is in
 * `members`.
 */
static void collect_procs(struct df_group *g)
{
	int i, n = 0;

	for (i = 0; i < g->nranks; i++) {
		g->procs[i] = g->members[i].proc;
		g->nr_local += g->procs[i] == df_ctl.self.proc;
	}
	qsort(g->procs, (size_t)g->nranks, sizeof(*g->procs), compare_u64);
	for (i = 0; i < g->nranks; i++)
		if (!n || g->procs[n - 1] != g->procs[i])
			g->procs[n++] = g->procs[i];
	g->nr_procs = n;
}

int df_group_get(uint64_t hash, const struct df_member *members, int nranks, struct df_group **out)
{
	struct df_group *g = df_group_find(hash);
	int i;

	if (g) {
		if (g->nranks != nranks ||
		    memcmp(g->members, members, (size_t)nranks * sizeof(*members)))
			return -EPROTO;
		g->refs++;
		*out = g;
		return 0;
	}
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	g->members = malloc((size_t)nranks * sizeof(*members));
	g->procs = malloc((size_t)nranks * sizeof(*g->procs));
	if (!g->members || !g->procs) {
		free(g->members);
		free(g->procs);
		free(g);
		return -ENOMEM;
	}
	memcpy(g->members, members, (size_t)nranks * sizeof(*members));
	g->hash = hash;
	g->nranks = nranks;
	g->refs = 1;
	g->end = UINT64_MAX;
	g->proc = df_ctl.self.proc;
	collect_procs(g);
	df_list_init(&g->gathers);
	df_list_init(&g->waiters);
	for (i = 0; i < g->nr_procs; i++)
		if (df_tree_is_dead(g->procs[i]))
			g->error = -ECONNRESET;
	HASH_ADD(hh, df_ctl.groups, hash, sizeof(hash), g);
	df_gather_unstash(g);
	*out = g;
	return 0;
}

void df_group_put(struct df_group *g)
{
	if (--g->refs)
		return;
	HASH_DEL(df_ctl.groups, g);
	df_gather_drop(g);
	free(g->members);
	free(g->procs);
	free(g);
}

int df_group_death(uint64_t proc, int in_order)
{
	struct df_group *g, *tmp;
	int found = 0;

	HASH_ITER(hh, df_ctl.groups, g, tmp)
	{
		if (!df_group_has(g, proc))
			continue;
		found = 1;
		if (in_order)
			g->gone = 1;
		else
			g->error = -ECONNRESET;
		df_gather_recheck(g);
		df_waiters_wake(&g->waiters);
	}
	return found;
}

int df_ctl_derive(struct df_ctl_comm *parent, uint64_t hash, const int *ranks, int nr_ranks, int me,
		  uint32_t avoid, struct df_ctl_comm **out)
{
	struct df_group *g = parent->group, *child;
	struct df_ctl_comm *c;
	struct df_member *table;
	int i, ret;

	if (nr_ranks < 1 || nr_ranks > g->nranks || me < 0 || me >= nr_ranks)
		return -EINVAL;
	for (i = 0; i < nr_ranks; i++)
		if (ranks[i] < 0 || ranks[i] >= g->nranks)
			return -EINVAL;
	c = calloc(1, sizeof(*c));
	table = malloc((size_t)nr_ranks * sizeof(*table));
	if (!c || !table) {
		ret = -ENOMEM;
		goto err_free;
	}
	for (i = 0; i < nr_ranks; i++) {
		table[i] = g->members[ranks[i]];
		table[i].rank = i;
		table[i].avoid = avoid;
	}
	df_ctl_lock();
	ret = df_group_alive(g) ? df_group_get(hash, table, nr_ranks, &child) : -ESHUTDOWN;
	df_ctl_unlock();
	if (ret == -EPROTO) {
		df_warn("communicator %016llx: ranks made a child communicator with different "
			"lists of ranks",
			(unsigned long long)hash);
	}
	if (ret)
		goto err_free;
	free(table);
	c->group = child;
	c->rank = me;
	*out = c;
	return 0;

err_free:
	free(table);
	free(c);
	return ret;
}

const struct df_member *df_ctl_members(const struct df_ctl_comm *c)
{
	return c->group->members;
}

void df_ctl_tell_deaths(const struct df_ctl_comm *c)
{
	df_ctl_lock();
	for (int i = 0; i < c->group->nr_procs; i++)
		df_tree_tell_again(c->group->procs[i]);
	df_ctl_unlock();
}

uint64_t df_ctl_hash(const struct df_ctl_comm *c)
{
	return c->group->hash;
}

void df_ctl_leave(struct df_ctl_comm *c)
{
	df_ctl_lock();
	if (df_group_alive(c->group)) {
		df_gather_leave(c->group, c->nr_gathers);
		df_group_put(c->group);
	}
	df_ctl_unlock();
	free(c);
}
