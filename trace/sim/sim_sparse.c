/*
 * The synchronisation model without the ordinary events.
 *
 * A sweep is one turn of every GPU. Most turns issue the next collective of the list. Between the
 * other turns a GPU advances one position per sweep, so its position follows from the number of the
 * sweep by subtraction. Three kinds of turns must be visited: rare turns, turns of GPUs that must
 * still issue a passed-over collective, and turns of suspended GPUs at the earliest sweep at which
 * they could continue. The members' positions show whether a collective is complete. A suspended
 * GPU remembers one witness: a collective, and a member that has not issued it. It is not visited
 * until that member can have issued it.
 *
 * Short cuts, besides jumping over sweeps:
 *   - Exact semantics: a cycle of suspended GPUs needs one that was suspended with a collective
 *     passed over. (Else each suspended GPU has issued exactly a prefix of its list; along the edge
 *     "a waits for c, which b has not issued" the highest-numbered collective issued grows, so
 *     there is no way back.) So a cycle is searched only while such a GPU is suspended, from the
 *     GPU just suspended, and the round is decided when no such synchronisation is left.
 *   - Artifact semantics: the intersection test happens only when a GPU becomes suspended, so the
 *     round is decided after the last synchronisation.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "trace/sim/sim_int.h"

#define NEVER INT_MAX

struct gpu {
	int at;	   /* number of sweeps after which the fields below were valid */
	int turns; /* turns taken */
	int pos;   /* first position of the list that was not reached */
	/* number of positions before pos that are passed over; skipped[] begins with them */
	int passed;
	int rare; /* index of the next rare turn in the program */
	int low;  /* all positions before this one are complete */
	int hung;
	/* while hung: a position, and a member that has not issued the collective there */
	int witness_at, witness;
};

struct df_sim_sparse {
	const struct df_sim_part *part;
	struct gpu *gpu;
	int *next; /* by GPU: the sweep at which it must be visited */
	/* passed-over positions, ascending; GPU g's begin at list_start[g] */
	int *skipped;
	int *groups, *groups_at; /* by GPU: the groups of GPU x begin at groups[groups_at[x]] */
	int *slots;		 /* for each entry of groups[]: the GPU's index among the members */
	int *colls, *colls_at;	 /* by group: its collectives, ascending */
	int *stack;
	unsigned char *seen;
	int sweep, turn_of; /* the present sweep, and the GPU whose turn it is */
	/* number of GPUs with `hung` set; some of them may be free already but had no turn yet */
	int nr_hung;
	int nr_danger_hung; /* number of these that have passed over a collective */
};

/* The arrays, each with its number of elements, which df_sim_sparse_create() computes. */
#define ARRAYS(X)                                                                                  \
	X(gpu, ng), X(next, ng), X(skipped, ne), X(stack, ng), X(seen, ng), X(groups_at, ng + 1),  \
		X(groups, nm), X(slots, nm), X(colls, nc), X(colls_at, gr)

struct df_sim_sparse *df_sim_sparse_create(const struct df_sim_part *p)
{
	struct df_sim_sparse *sp = calloc(1, sizeof(*sp));
	size_t ng = (size_t)p->nr_gpus + 1, ne = (size_t)p->nr_events + 1;
	size_t nc = (size_t)p->nr_colls + 1, nm = (size_t)p->group_start[p->nr_groups] + 1;
	size_t gr = (size_t)p->nr_groups + 2;
	int failed = 0;

	if (!sp)
		return NULL;
	sp->part = p;
#define TAKE(field, n) failed |= !(sp->field = calloc(n, sizeof(*sp->field)))
	ARRAYS(TAKE);
#undef TAKE
	if (failed) {
		df_sim_sparse_destroy(sp);
		return NULL;
	}
	for (int m = 0; m < p->group_start[p->nr_groups]; m++)
		sp->groups_at[p->members[m] + 2]++;
	for (int x = 0; x < p->nr_gpus; x++)
		sp->groups_at[x + 2] += sp->groups_at[x + 1];
	for (int grp = 0; grp < p->nr_groups; grp++)
		for (int m = p->group_start[grp]; m < p->group_start[grp + 1]; m++) {
			int i = sp->groups_at[p->members[m] + 1]++;

			sp->groups[i] = grp;
			sp->slots[i] = m - p->group_start[grp];
		}
	for (int c = 0; c < p->nr_colls; c++)
		sp->colls_at[p->coll_group[c] + 2]++;
	for (int grp = 0; grp < p->nr_groups; grp++)
		sp->colls_at[grp + 2] += sp->colls_at[grp + 1];
	for (int c = 0; c < p->nr_colls; c++)
		sp->colls[sp->colls_at[p->coll_group[c] + 1]++] = c;
	return sp;
}

void df_sim_sparse_destroy(struct df_sim_sparse *sp)
{
	if (!sp)
		return;
#define GIVE(field, n) free(sp->field)
	ARRAYS(GIVE);
#undef GIVE
	free(sp);
}

/* Returns the first position of its list that GPU x has not reached at the present turn. */
static inline int position(const struct df_sim_sparse *sp, int x)
{
	const struct gpu *g = &sp->gpu[x];

	return g->hung || g->passed ? g->pos : g->pos + sp->sweep + (x < sp->turn_of) - g->at;
}

/* Returns how many positions before `place` GPU x has passed over. */
static inline int nr_passed_below(const struct df_sim_sparse *sp, int x, int place)
{
	return df_sim_nr_below(sp->skipped + sp->part->list_start[x], sp->gpu[x].passed, place);
}

static inline int is_passed(const struct df_sim_sparse *sp, int x, int place)
{
	int k = nr_passed_below(sp, x, place);

	return k < sp->gpu[x].passed && sp->skipped[sp->part->list_start[x] + k] == place;
}

/* Whether GPU x has issued the collective at position `place` of its list at the present turn. */
static inline int issued(const struct df_sim_sparse *sp, int x, int place)
{
	return place < position(sp, x) && !is_passed(sp, x, place);
}

/* Returns a member of collective c other than x that has not issued it, or -1. */
static inline int find_missing(const struct df_sim_sparse *sp, int c, int x)
{
	const struct df_sim_part *p = sp->part;
	const int *member = p->members + p->group_start[p->coll_group[c]];
	const int *at = p->at + p->at_start[c];
	int n = p->at_start[c + 1] - p->at_start[c];

	for (int i = 0; i < n; i++)
		if (member[i] != x && !issued(sp, member[i], at[i]))
			return member[i];
	return -1;
}

/* Returns the position, in the GPU's list, of the first collective >= c of the group groups[i]. */
static int first_place(const struct df_sim_sparse *sp, int i, int c)
{
	int from = sp->colls_at[sp->groups[i]], nr = sp->colls_at[sp->groups[i] + 1] - from;
	int k = df_sim_nr_below(sp->colls + from, nr, c);

	return k == nr ? INT_MAX
		       : sp->part->at[sp->part->at_start[sp->colls[from + k]] + sp->slots[i]];
}

/*
 * Raises `low` of GPU x without visiting each collective. All collectives that x has issued before
 * position `low` are complete. A GPU has issued all its collectives before the first that it lacks.
 * So the collectives of a group before the first that any other member lacks are complete.
 */
static void raise_low(struct df_sim_sparse *sp, int x)
{
	const struct df_sim_part *p = sp->part;
	int low = sp->gpu[x].pos;

	if (sp->gpu[x].passed && sp->skipped[p->list_start[x]] < low)
		low = sp->skipped[p->list_start[x]];
	for (int i = sp->groups_at[x]; i < sp->groups_at[x + 1]; i++) {
		int grp = sp->groups[i], lacking = INT_MAX, place;

		for (int m = p->group_start[grp]; m < p->group_start[grp + 1]; m++) {
			int y = p->members[m], at;

			if (y == x)
				continue;
			at = sp->gpu[y].passed ? sp->skipped[p->list_start[y]] : position(sp, y);
			if (at < df_sim_list_len(p, y) && p->list[p->list_start[y] + at] < lacking)
				lacking = p->list[p->list_start[y] + at];
		}
		place = first_place(sp, i, lacking);
		low = place < low ? place : low;
	}
	if (low > sp->gpu[x].low)
		sp->gpu[x].low = low;
}

/*
 * Sets the witness of suspended GPU x to the first valid one at or after its present witness.
 * Returns 0 if x has no outstanding collective.
 */
static int find_witness(struct df_sim_sparse *sp, int x)
{
	struct gpu *g = &sp->gpu[x];
	const int *list = sp->part->list + sp->part->list_start[x];
	const int *sk = sp->skipped + sp->part->list_start[x];
	int k = nr_passed_below(sp, x, g->witness_at);

	for (int i = g->witness_at; i < g->pos; i++) {
		int m;

		if (k < g->passed && sk[k] == i) {
			k++;
			continue;
		}
		m = find_missing(sp, list[i], x);
		if (m >= 0) {
			g->witness_at = i;
			g->witness = m;
			return 1;
		}
		if (i == g->low)
			g->low++;
	}
	g->witness_at = g->pos;
	return 0;
}

/* Whether x is suspended now: `hung` is set, and some collective that x issued is outstanding. */
static int is_hung(struct df_sim_sparse *sp, int x)
{
	return sp->gpu[x].hung && find_witness(sp, x);
}

/* Returns the earliest sweep at which suspended GPU x could continue. */
static int earliest_release(const struct df_sim_sparse *sp, int x)
{
	const struct gpu *g = &sp->gpu[x], *w = &sp->gpu[g->witness];
	int c = sp->part->list[sp->part->list_start[x] + g->witness_at];
	const struct df_sim_part *p = sp->part;
	int t = sp->next[g->witness];

	if (!w->hung && !w->passed) {
		const int *member = p->members + p->group_start[p->coll_group[c]];
		int i = p->at_start[c], reach;

		while (*member++ != g->witness)
			i++;
		reach = w->at + (p->at[i] - w->pos);
		if (reach < t)
			t = reach;
	}
	if (t != NEVER && g->witness > x)
		t++;
	return t > sp->sweep ? t : sp->sweep + 1;
}

/* Whether x waits for a collective that suspended GPU y has not issued. */
static int waits_for(struct df_sim_sparse *sp, int x, int y)
{
	const struct df_sim_part *p = sp->part;
	const struct gpu *g = &sp->gpu[x];
	const int *list = p->list + p->list_start[x];

	for (int i = g->low; i < g->pos; i++) {
		int c = list[i], grp, n;

		if (is_passed(sp, x, i))
			continue;
		grp = p->coll_group[c];
		n = p->group_start[grp + 1] - p->group_start[grp];
		for (int k = 0; k < n; k++)
			if (p->members[p->group_start[grp] + k] == y &&
			    !issued(sp, y, p->at[p->at_start[c] + k]))
				return 1;
	}
	return 0;
}

/* Whether a cycle of suspended GPUs passes through x. */
static int on_cycle(struct df_sim_sparse *sp, int x)
{
	const struct df_sim_part *p = sp->part;
	int nr = 0;

	memset(sp->seen, 0, (size_t)p->nr_gpus);
	sp->stack[nr++] = x;
	while (nr) {
		int a = sp->stack[--nr];
		const struct gpu *g = &sp->gpu[a];
		const int *list = p->list + p->list_start[a];

		for (int i = g->low; i < g->pos; i++) {
			int c = list[i], grp = p->coll_group[c];
			const int *member = p->members + p->group_start[grp];
			int n = p->group_start[grp + 1] - p->group_start[grp];

			if (is_passed(sp, a, i))
				continue;
			for (int k = 0; k < n; k++) {
				int b = member[k];

				if (!sp->gpu[b].hung || b == a || (sp->seen[b] && b != x) ||
				    issued(sp, b, p->at[p->at_start[c] + k]))
					continue;
				if (b == x)
					return 1;
				sp->seen[b] = 1;
				sp->stack[nr++] = b;
			}
		}
	}
	return 0;
}

/*
 * Whether x waits for a collective that another suspended GPU has not issued, and a suspended GPU
 * waits for a collective that x has not issued. This is the published test.
 */
static int intersects(struct df_sim_sparse *sp, int x)
{
	int out = 0, in = 0;

	for (int y = 0; y < sp->part->nr_gpus && !(out && in); y++) {
		if (y == x || !sp->gpu[y].hung || !is_hung(sp, y))
			continue;
		out = out || waits_for(sp, x, y);
		in = in || waits_for(sp, y, x);
	}
	return out && in;
}

/* Issues the collective with index k among those that GPU x has not issued. */
static void issue(struct df_sim_sparse *sp, int x, int k)
{
	struct gpu *g = &sp->gpu[x];
	int *sk = sp->skipped + sp->part->list_start[x];

	if (k < g->passed) {
		g->passed--;
		memmove(sk + k, sk + k + 1, (size_t)(g->passed - k) * sizeof(*sk));
	} else {
		while (g->passed < k)
			sk[g->passed++] = g->pos++;
		g->pos++;
	}
}

static void reset(struct df_sim_sparse *sp, const struct df_sim_program *prog)
{
	for (int x = 0; x < sp->part->nr_gpus; x++) {
		sp->gpu[x] = (struct gpu){.rare = prog->start[x]};
		sp->next[x] = prog->start[x] < prog->start[x + 1] ? prog->rare[prog->start[x]].turn
								  : NEVER;
	}
	sp->nr_hung = sp->nr_danger_hung = 0;
}

void df_sim_sparse_round(struct df_sim_sparse *sp, const struct df_sim_setup *setup,
			 const struct df_sim_program *prog, struct df_sim_outcome *out)
{
	int exact = setup->method == DF_SIM_BY_CYCLE, n = sp->part->nr_gpus;
	int nr_ahead = exact ? prog->nr_danger : prog->nr_sync;

	*out = (struct df_sim_outcome){0};
	reset(sp, prog);
	while (nr_ahead || sp->nr_danger_hung) {
		int t = NEVER;

		for (int x = 0; x < n; x++)
			t = sp->next[x] < t ? sp->next[x] : t;
		if (t == NEVER)
			return;
		sp->sweep = t;
		for (int x = 0; x < n; x++) {
			struct gpu *g = &sp->gpu[x];
			int skip = 0, ordinary;

			if (sp->next[x] != t)
				continue;
			sp->turn_of = x;
			if (g->hung) {
				if (find_witness(sp, x)) {
					sp->next[x] = earliest_release(sp, x);
					continue;
				}
				g->hung = 0;
				sp->nr_hung--;
				sp->nr_danger_hung -= g->passed > 0;
			} else {
				g->turns += t - g->at;
				g->pos += g->passed ? 0 : t - g->at;
			}
			g->at = t;
			ordinary = g->rare == prog->start[x + 1] ||
				   prog->rare[g->rare].turn != g->turns;
			if (ordinary && !g->passed) {
				/*
				 * The GPU was suspended until now. Its next rare turn is the next
				 * to be visited.
				 */
				sp->next[x] = g->rare == prog->start[x + 1]
						      ? NEVER
						      : t + prog->rare[g->rare].turn - g->turns;
				continue;
			}
			if (!ordinary)
				skip = prog->rare[g->rare++].skip;
			if (ordinary || skip > 0) {
				issue(sp, x, skip);
			} else {
				nr_ahead -= exact ? skip == DF_SIM_SYNC_DANGER : 1;
				raise_low(sp, x);
				g->witness_at = g->low;
				if (find_witness(sp, x)) {
					int dead;

					g->hung = 1;
					sp->nr_hung++;
					sp->nr_danger_hung += g->passed > 0;
					if (exact)
						dead = sp->nr_danger_hung && sp->nr_hung > 1 &&
						       on_cycle(sp, x);
					else
						dead = sp->nr_hung > 1 && intersects(sp, x);
					if (dead && !(exact && setup->release)) {
						out->deadlock = 1;
						return;
					}
					if (dead) {
						out->releases++;
						g->hung = 0;
						sp->nr_hung--;
						sp->nr_danger_hung -= g->passed > 0;
					}
				}
			}
			g->turns++;
			g->at = t + 1;
			if (g->hung)
				sp->next[x] = earliest_release(sp, x);
			else if (g->passed)
				sp->next[x] = t + 1;
			else if (g->rare == prog->start[x + 1])
				sp->next[x] = NEVER;
			else
				sp->next[x] = t + 1 + prog->rare[g->rare].turn - g->turns;
		}
	}
}
