/*
 * Finds the ranks of a split communicator that have no trace. In mode trace only its own ranks know
 * their places in it, but the members of the communicator that it was split from are known. A rank
 * without a trace here is one of the ranks without a trace there, so it shares their fate: they
 * have died, have exited, or do not answer.
 */
#include <errno.h>
#include <stdlib.h>
#include "runtime/base/vec.h"
#include "trace/read/set.h"
#include "trace/record/writer.h"

#define MAX_LOST 4096 /* for a file with wrong numbers of ranks */

/* A communicator and its parent. */
struct split {
	struct df_check_set *set;
	uint32_t child, parent;
	int *missing, *lost; /* ranks without a trace, there and in the parent */
	size_t nr_missing, cap_missing, nr_lost, cap_lost;
};

/* Whether this rank may still record a communicator that other ranks have recorded. */
static int is_dividing(const struct df_trc *t)
{
	for (size_t i = 0; i < t->nr_calls; i++)
		if (t->calls[i].call == DF_CALL_COMM_SPLIT ||
		    t->calls[i].call == DF_CALL_COMM_SHRINK ||
		    t->calls[i].call == DF_CALL_GROUP_END)
			return 1;
	return 0;
}

static struct df_trc_comm *in_trace(const struct df_check_set *set, uint32_t trace, uint32_t gcomm)
{
	const struct df_trc *t = &set->traces[trace];

	for (uint32_t i = 0; i < t->nr_entries; i++)
		if (set->entries[t->first_entry + i].gcomm == gcomm)
			return &set->entries[t->first_entry + i];
	return NULL;
}

static int add(int **v, size_t *nr, size_t *cap, int rank)
{
	int *to = DF_VEC_PUSH(*v, *nr, *cap);

	if (!to)
		return -ENOMEM;
	*to = rank;
	return 0;
}

/* Lists the ranks without a trace. Returns 1 if a rank with a trace may yet belong to the child. */
static int list(struct split *s)
{
	const struct df_check_set *set = s->set;
	const struct df_gcomm *c = &set->gcomms[s->child], *p = &set->gcomms[s->parent];
	int rc = 0;

	for (int r = 0; r < c->nranks && !rc; r++)
		if (!df_set_entry(set, s->child, r))
			rc = add(&s->missing, &s->nr_missing, &s->cap_missing, r);
	for (int r = 0; r < p->nranks && !rc; r++) {
		const struct df_trc_comm *e = df_set_entry(set, s->parent, r);

		if (!e)
			rc = add(&s->lost, &s->nr_lost, &s->cap_lost, r);
		else if (is_dividing(&set->traces[e->trace]) && !in_trace(set, e->trace, s->child))
			return 1;
	}
	return rc;
}

/* Returns 1 if the order of ranks is that of the parent, -1 if it is the opposite one, or 0. */
static int order_of(const struct split *s)
{
	const struct df_check_set *set = s->set;
	const struct df_gcomm *c = &set->gcomms[s->child];
	int before = -1, up = 1, down = 1;

	for (uint32_t i = 0; i < c->nr_entries; i++) {
		const struct df_trc_comm *e = &set->entries[set->sorted[c->first_entry + i]];
		const struct df_trc_comm *at = in_trace(set, e->trace, s->parent);

		if (!at)
			return 0;
		up &= before < 0 || at->rank > before;
		down &= before < 0 || at->rank < before;
		before = at->rank;
	}
	return up ? 1 : down ? -1 : 0;
}

/* Whether the same is known of both ranks of the parent. */
static int same_fate(const struct split *s, int a, int b)
{
	const struct df_dead *da = df_set_dead(s->set, s->parent, a),
			     *db = df_set_dead(s->set, s->parent, b);
	const struct df_check_silent *sa = df_set_silent(s->set, s->parent, a),
				     *sb = df_set_silent(s->set, s->parent, b);

	return !da == !db && (!da || da->in_order == db->in_order) && !sa == !sb &&
	       (!sa || sa->certain == sb->certain);
}

/* Stores which rank of the parent each rank without a trace is, as far as that follows. */
static int assign(struct split *s)
{
	struct df_gcomm *c = &s->set->gcomms[s->child];
	int order = order_of(s), exact = s->nr_missing == s->nr_lost;

	if (!s->nr_missing || s->nr_missing > s->nr_lost)
		return 0;
	for (size_t i = 1; i < s->nr_lost && !(exact && order); i++)
		if (!same_fate(s, s->lost[0], s->lost[i]))
			return 0;
	/* With only one, no order is needed. */
	exact &= order || s->nr_lost == 1;
	c->kin = calloc(s->nr_missing, sizeof(*c->kin));
	if (!c->kin)
		return -ENOMEM;
	c->nr_kin = (uint32_t)s->nr_missing;
	for (size_t i = 0; i < s->nr_missing; i++)
		c->kin[i] = (struct df_kin){
			.rank = s->missing[i],
			.gcomm = s->parent,
			.parent = s->lost[exact && order < 0 ? s->nr_lost - 1 - i : i],
			.exact = exact,
		};
	return 0;
}

/* The parent first. `depth` ends a cycle of parents, which only a broken file has. */
static int resolve(struct df_check_set *set, uint32_t child, uint8_t *done, int depth)
{
	const struct df_gcomm *c = &set->gcomms[child];
	const uint64_t *at = c->parent ? df_map_find(&set->gcomms_at, c->parent, 0) : NULL;
	struct split s = {.set = set, .child = child};
	uint32_t missing, lost;
	int rc;

	if (done[child] || !at || !*at || *at - 1 == child || depth > 64)
		return 0;
	done[child] = 1;
	s.parent = (uint32_t)*at - 1;
	missing = (uint32_t)c->nranks - c->nr_entries;
	lost = (uint32_t)set->gcomms[s.parent].nranks - set->gcomms[s.parent].nr_entries;
	if (!c->nr_entries || !missing || missing > lost || lost > MAX_LOST)
		return 0;
	rc = resolve(set, s.parent, done, depth + 1) ?: list(&s);
	if (!rc)
		rc = assign(&s);
	free(s.missing);
	free(s.lost);
	return rc < 0 ? rc : 0;
}

int df_set_kin(struct df_check_set *set)
{
	uint8_t *done = calloc(set->nr_gcomms + 1, 1);
	int rc = done ? 0 : -ENOMEM;

	for (size_t i = 0; i < set->nr_gcomms && !rc; i++)
		rc = resolve(set, (uint32_t)i, done, 0);
	free(done);
	return rc;
}

const struct df_kin *df_set_kin_of(const struct df_check_set *set, uint32_t gcomm, int rank)
{
	const struct df_gcomm *g = &set->gcomms[gcomm];

	for (uint32_t i = 0; i < g->nr_kin; i++)
		if (g->kin[i].rank == rank)
			return &g->kin[i];
	return NULL;
}
