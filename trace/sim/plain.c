/*
 * The event-by-event engine: every turn of every GPU, in the order of the published program. It is
 * the reference that the short cuts are compared with, the only engine that can follow CPython's
 * random numbers (they are drawn in the order of turns over all GPUs), and the one that serves the
 * models for which no short cut is known.
 *
 * The round function is one body, expanded per method and per source of draws, so that the ordinary
 * turn of each variant is a few instructions.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "trace/sim/engine.h"

struct gpu {
	int pos;    /* first place of the list that was never reached */
	int passed; /* places below pos that are passed over: the first of skipped[] */
	int left;   /* not issued yet */
	int nr_out; /* issued and not complete; kept where a method counts them */
	int hung;   /* suspended by a synchronisation while something is outstanding */
	int low;    /* no outstanding place below */
	int turn;   /* with a program: turns taken, next rare turn, its index */
	int rare_turn;
	int rare;
};

struct df_sim_plain {
	const struct df_sim_part *part;
	struct gpu *gpu;
	int *skipped; /* places, at list_start[] of each GPU */
	int *missing; /* by collective: members that have not issued it (BY_SLOTS: not begun it) */
	int *missing_init;
	int *stack;
	unsigned char *seen;
	int *slot; /* by list entry: the GPU's index among the members of the group */

	/* BY_GROUP_STATE */
	int *current, *nr_in; /* by group */
	unsigned char *in;    /* by member */

	/* BY_GROUP_ORDER */
	int *nr_issued;	   /* by member: collectives of that group issued */
	int *seq, *seq_at; /* by group: the order in which the first member to get so far issued */

	/* BY_SLOTS */
	int *queue; /* collectives in order of issue, at list_start[] */
	int *tail, *next_begin, *nr_exec;
	int *work;
};

static int list_max(int a, int b)
{
	return a > b ? a : b;
}

struct df_sim_plain *df_sim_plain_create(const struct df_sim_part *p)
{
	struct df_sim_plain *pl = calloc(1, sizeof(*pl));
	size_t ng = (size_t)p->nr_gpus + 1, ne = (size_t)p->nr_events + 1;
	size_t nc = (size_t)p->nr_colls + 1, nm = (size_t)p->group_start[p->nr_groups] + 1;
	size_t gr = (size_t)p->nr_groups + 1;

	if (!pl)
		return NULL;
	pl->part = p;
	pl->gpu = calloc(ng, sizeof(*pl->gpu));
	pl->skipped = calloc(ne, sizeof(int));
	pl->missing = calloc(nc, sizeof(int));
	pl->missing_init = calloc(nc, sizeof(int));
	pl->stack = calloc(ng, sizeof(int));
	pl->seen = calloc(ng, 1);
	pl->slot = calloc(ne, sizeof(int));
	pl->current = calloc(gr, sizeof(int));
	pl->nr_in = calloc(gr, sizeof(int));
	pl->in = calloc(nm, 1);
	pl->nr_issued = calloc(nm, sizeof(int));
	pl->seq = calloc(nc, sizeof(int));
	pl->seq_at = calloc(gr, sizeof(int));
	pl->queue = calloc(ne, sizeof(int));
	pl->tail = calloc(ng, sizeof(int));
	pl->next_begin = calloc(ng, sizeof(int));
	pl->nr_exec = calloc(ng, sizeof(int));
	pl->work = calloc(ne, sizeof(int));
	if (!pl->gpu || !pl->skipped || !pl->missing || !pl->missing_init || !pl->stack ||
	    !pl->seen || !pl->slot || !pl->current || !pl->nr_in || !pl->in || !pl->nr_issued ||
	    !pl->seq || !pl->seq_at || !pl->queue || !pl->tail || !pl->next_begin || !pl->nr_exec ||
	    !pl->work) {
		df_sim_plain_destroy(pl);
		return NULL;
	}
	for (int c = 0; c < p->nr_colls; c++) {
		int grp = p->coll_group[c], n = df_sim_group_size(p, grp);

		pl->missing_init[c] = n;
		for (int i = 0; i < n; i++)
			pl->slot[p->list_start[p->members[p->group_start[grp] + i]] +
				 p->at[p->at_start[c] + i]] = i;
		pl->seq_at[grp + 1]++;
	}
	for (int grp = 0; grp < p->nr_groups; grp++)
		pl->seq_at[grp + 1] += pl->seq_at[grp];
	return pl;
}

void df_sim_plain_destroy(struct df_sim_plain *pl)
{
	if (!pl)
		return;
	free(pl->gpu);
	free(pl->skipped);
	free(pl->missing);
	free(pl->missing_init);
	free(pl->stack);
	free(pl->seen);
	free(pl->slot);
	free(pl->current);
	free(pl->nr_in);
	free(pl->in);
	free(pl->nr_issued);
	free(pl->seq);
	free(pl->seq_at);
	free(pl->queue);
	free(pl->tail);
	free(pl->next_begin);
	free(pl->nr_exec);
	free(pl->work);
	free(pl);
}

static int is_issued(const struct df_sim_plain *pl, int x, int place)
{
	const int *sk = pl->skipped + pl->part->list_start[x];

	if (place >= pl->gpu[x].pos)
		return 0;
	for (int i = 0; i < pl->gpu[x].passed; i++)
		if (sk[i] == place)
			return 0;
	return 1;
}

/* The next outstanding place of x at or behind `place`, or -1. */
static int next_outstanding(struct df_sim_plain *pl, int x, int place)
{
	struct gpu *g = &pl->gpu[x];
	const int *list = pl->part->list + pl->part->list_start[x];

	while (g->low < g->pos && !pl->missing[list[g->low]])
		g->low++;
	for (int i = list_max(place, g->low); i < g->pos; i++)
		if (pl->missing[list[i]] && is_issued(pl, x, i))
			return i;
	return -1;
}

static int is_hung(struct df_sim_plain *pl, int x)
{
	return pl->gpu[x].hung && next_outstanding(pl, x, 0) >= 0;
}

static int waits_for(struct df_sim_plain *pl, int x, int y)
{
	const struct df_sim_part *p = pl->part;

	for (int i = next_outstanding(pl, x, 0); i >= 0; i = next_outstanding(pl, x, i + 1)) {
		int c = p->list[p->list_start[x] + i], grp = p->coll_group[c];

		for (int k = 0; k < df_sim_group_size(p, grp); k++)
			if (p->members[p->group_start[grp] + k] == y &&
			    !is_issued(pl, y, p->at[p->at_start[c] + k]))
				return 1;
	}
	return 0;
}

static int intersects(struct df_sim_plain *pl, int x)
{
	int out = 0, in = 0;

	for (int y = 0; y < pl->part->nr_gpus && !(out && in); y++)
		if (y != x && is_hung(pl, y)) {
			out = out || waits_for(pl, x, y);
			in = in || waits_for(pl, y, x);
		}
	return out && in;
}

static int on_cycle(struct df_sim_plain *pl, int x)
{
	int nr = 0;

	memset(pl->seen, 0, (size_t)pl->part->nr_gpus);
	pl->stack[nr++] = x;
	while (nr) {
		int a = pl->stack[--nr];

		for (int b = 0; b < pl->part->nr_gpus; b++) {
			if (b == a || !is_hung(pl, b) || (pl->seen[b] && b != x) ||
			    !waits_for(pl, a, b))
				continue;
			if (b == x)
				return 1;
			pl->seen[b] = 1;
			pl->stack[nr++] = b;
		}
	}
	return 0;
}

/* The published resource test: all members of some group have `limit` collectives outstanding. */
static int limit_reached(const struct df_sim_plain *pl, int limit)
{
	const struct df_sim_part *p = pl->part;

	for (int grp = 0; grp < p->nr_groups; grp++) {
		int m = p->group_start[grp];

		while (m < p->group_start[grp + 1] && pl->gpu[p->members[m]].nr_out >= limit)
			m++;
		if (m == p->group_start[grp + 1])
			return 1;
	}
	return 0;
}

/* BY_SLOTS: lets x begin what its free slots admit, and all that follows from it. */
static void begin(struct df_sim_plain *pl, int slots, int x)
{
	const struct df_sim_part *p = pl->part;
	int nr = 0;

	pl->work[nr++] = x;
	while (nr) {
		int y = pl->work[--nr];

		while (pl->nr_exec[y] < slots && pl->next_begin[y] < pl->tail[y]) {
			int c = pl->queue[p->list_start[y] + pl->next_begin[y]++];
			int grp = p->coll_group[c];

			pl->nr_exec[y]++;
			if (--pl->missing[c])
				continue;
			for (int m = p->group_start[grp]; m < p->group_start[grp + 1]; m++) {
				int z = p->members[m];

				pl->nr_exec[z]--;
				pl->gpu[z].nr_out--;
				if (z != y && pl->next_begin[z] < pl->tail[z] &&
				    pl->nr_exec[z] == slots - 1)
					pl->work[nr++] = z;
			}
		}
	}
}

/* Issues what stands k-th among what remains of x; returns the list entry. */
static int take(struct df_sim_plain *pl, struct gpu *g, int x, int k)
{
	int base = pl->part->list_start[x], *sk = pl->skipped + base, place;

	if (k < g->passed) {
		place = sk[k];
		g->passed--;
		memmove(sk + k, sk + k + 1, (size_t)(g->passed - k) * sizeof(*sk));
	} else {
		while (g->passed < k)
			sk[g->passed++] = g->pos++;
		place = g->pos++;
	}
	g->left--;
	return base + place;
}

/* DF_SIM_BY_INTERSECTION with a resource limit, which is tested after each issue. */
#define BY_INTERSECTION_LIMITED 100

#define ALWAYS static inline __attribute__((always_inline))

/* What one issue does; 1 if it is a deadlock. */
ALWAYS int submit(struct df_sim_plain *pl, const struct df_sim_setup *setup, int x, int entry,
		  const int method)
{
	const struct df_sim_part *p = pl->part;
	int c = p->list[entry], grp, m, k;

	switch (method) {
	case DF_SIM_BY_INTERSECTION:
	case DF_SIM_BY_CYCLE:
		pl->missing[c]--;
		return 0;
	case BY_INTERSECTION_LIMITED:
		pl->gpu[x].nr_out++;
		if (!--pl->missing[c]) {
			grp = p->coll_group[c];
			for (m = p->group_start[grp]; m < p->group_start[grp + 1]; m++)
				pl->gpu[p->members[m]].nr_out--;
		}
		return limit_reached(pl, setup->limit);
	case DF_SIM_BY_SLOTS:
		pl->queue[p->list_start[x] + pl->tail[x]++] = c;
		pl->gpu[x].nr_out++;
		begin(pl, setup->slots, x);
		return 0;
	case DF_SIM_BY_GROUP_STATE:
		grp = p->coll_group[c];
		m = p->group_start[grp] + pl->slot[entry];
		if (pl->in[m])
			return 0; /* as published: dropped without a trace */
		pl->in[m] = 1;
		if (pl->nr_in[grp] && pl->current[grp] != c)
			return 1;
		pl->current[grp] = c;
		if (++pl->nr_in[grp] == df_sim_group_size(p, grp)) {
			pl->nr_in[grp] = 0;
			memset(pl->in + p->group_start[grp], 0, (size_t)df_sim_group_size(p, grp));
		}
		return 0;
	case DF_SIM_BY_GROUP_ORDER:
		grp = p->coll_group[c];
		k = pl->seq_at[grp] + pl->nr_issued[p->group_start[grp] + pl->slot[entry]]++;
		if (pl->seq[k] < 0)
			pl->seq[k] = c;
		return pl->seq[k] != c;
	}
	return 0;
}

ALWAYS int turn_is_ordinary(struct gpu *g, struct df_mt *mt, const int with_sync, const int use_mt)
{
	if (use_mt)
		return df_mt_skip(mt, 1 + with_sync);
	return g->turn++ != g->rare_turn;
}

ALWAYS int has_outstanding(struct df_sim_plain *pl, int x, const int method)
{
	if (method == DF_SIM_BY_SLOTS || method == BY_INTERSECTION_LIMITED)
		return pl->gpu[x].nr_out > 0;
	return next_outstanding(pl, x, 0) >= 0;
}

/* A turn that may be out of the ordinary; 1 if it is a deadlock. */
ALWAYS int rare_turn(struct df_sim_plain *pl, const struct df_sim_setup *setup,
		     const struct df_sim_program *prog, struct df_mt *mt, int x,
		     struct df_sim_outcome *out, const int method, const int with_sync,
		     const int use_mt)
{
	struct gpu *g = &pl->gpu[x];
	int skip = 0, sync = 0;

	if (use_mt) {
		sync = with_sync && df_mt_draw(mt) < df_mt_threshold(setup->odds.sync);
		if (!sync) {
			uint64_t d = df_mt_threshold(setup->odds.disorder);

			while (df_mt_draw(mt) < d && skip < g->left - 1)
				skip++;
		}
	} else {
		skip = prog->rare[g->rare].skip;
		sync = skip <= 0;
		g->rare++;
		g->rare_turn = g->rare < prog->start[x + 1] ? prog->rare[g->rare].turn : -1;
	}
	if (!sync)
		return submit(pl, setup, x, take(pl, g, x, skip), method);
	if (!has_outstanding(pl, x, method))
		return 0;
	g->hung = 1;
	if (method == DF_SIM_BY_INTERSECTION || method == BY_INTERSECTION_LIMITED)
		return intersects(pl, x);
	if (method == DF_SIM_BY_CYCLE && on_cycle(pl, x)) {
		if (!setup->release)
			return 1;
		g->hung = 0;
		out->releases++;
	}
	return 0;
}

ALWAYS void play(struct df_sim_plain *pl, const struct df_sim_setup *setup,
		 const struct df_sim_program *prog, struct df_mt *mt, struct df_sim_outcome *out,
		 const int method, const int with_sync, const int use_mt)
{
	const struct df_sim_part *p = pl->part;
	struct gpu *const gpu = pl->gpu;
	int total = p->nr_events, n = p->nr_gpus;

	while (total) {
		int before = total, synced = 0;

		for (int x = 0; x < n; x++) {
			struct gpu *g = &gpu[x];
			int left = g->left, dead;

			if (with_sync && g->hung) {
				if (has_outstanding(pl, x, method))
					continue;
				g->hung = 0;
			}
			if (!left)
				continue;
			if (turn_is_ordinary(g, mt, with_sync, use_mt)) {
				int entry;

				if (df_likely(!g->passed)) {
					entry = p->list_start[x] + g->pos++;
					g->left = left - 1;
				} else {
					entry = take(pl, g, x, 0);
				}
				dead = submit(pl, setup, x, entry, method);
			} else {
				dead = rare_turn(pl, setup, prog, mt, x, out, method, with_sync,
						 use_mt);
			}
			if (dead) {
				out->deadlock = 1;
				return;
			}
			total -= left - g->left;
			synced |= left == g->left;
		}
		/* Nobody issued and nobody could have: all that is left is suspended for ever. */
		if (with_sync && total == before && !synced) {
			out->deadlock = 1;
			return;
		}
	}
	if (method == DF_SIM_BY_SLOTS)
		for (int x = 0; x < n; x++)
			if (gpu[x].nr_out)
				out->deadlock = 1;
}

static void reset(struct df_sim_plain *pl, const struct df_sim_program *prog,
		  enum df_sim_method method)
{
	const struct df_sim_part *p = pl->part;
	size_t nm = (size_t)p->group_start[p->nr_groups];

	for (int x = 0; x < p->nr_gpus; x++) {
		struct gpu *g = &pl->gpu[x];

		*g = (struct gpu){.left = df_sim_list_len(p, x), .rare_turn = -1};
		if (prog) {
			g->rare = prog->start[x];
			if (g->rare < prog->start[x + 1])
				g->rare_turn = prog->rare[g->rare].turn;
		}
	}
	switch (method) {
	case DF_SIM_BY_GROUP_STATE:
		memset(pl->nr_in, 0, (size_t)p->nr_groups * sizeof(int));
		memset(pl->in, 0, nm);
		break;
	case DF_SIM_BY_GROUP_ORDER:
		memset(pl->nr_issued, 0, nm * sizeof(int));
		memset(pl->seq, -1, (size_t)p->nr_colls * sizeof(int));
		break;
	case DF_SIM_BY_SLOTS:
		memset(pl->tail, 0, (size_t)p->nr_gpus * sizeof(int));
		memset(pl->next_begin, 0, (size_t)p->nr_gpus * sizeof(int));
		memset(pl->nr_exec, 0, (size_t)p->nr_gpus * sizeof(int));
		/* fall through */
	default:
		memcpy(pl->missing, pl->missing_init, (size_t)p->nr_colls * sizeof(int));
	}
}

#define VARIANT(method, with_sync)                                                                 \
	do {                                                                                       \
		if (prog)                                                                          \
			play(pl, setup, prog, NULL, out, method, with_sync, 0);                    \
		else                                                                               \
			play(pl, setup, NULL, mt, out, method, with_sync, 1);                      \
	} while (0)

void df_sim_plain_round(struct df_sim_plain *pl, const struct df_sim_setup *setup,
			const struct df_sim_program *prog, struct df_mt *mt,
			struct df_sim_outcome *out)
{
	*out = (struct df_sim_outcome){0};
	reset(pl, prog, setup->method);
	switch (setup->method) {
	case DF_SIM_BY_GROUP_STATE:
		VARIANT(DF_SIM_BY_GROUP_STATE, 0);
		break;
	case DF_SIM_BY_GROUP_ORDER:
		VARIANT(DF_SIM_BY_GROUP_ORDER, 0);
		break;
	case DF_SIM_BY_SLOTS:
		if (setup->with_sync)
			VARIANT(DF_SIM_BY_SLOTS, 1);
		else
			VARIANT(DF_SIM_BY_SLOTS, 0);
		break;
	case DF_SIM_BY_INTERSECTION:
		if (setup->limit > 0)
			VARIANT(BY_INTERSECTION_LIMITED, 1);
		else
			VARIANT(DF_SIM_BY_INTERSECTION, 1);
		break;
	case DF_SIM_BY_CYCLE:
		if (setup->with_sync)
			VARIANT(DF_SIM_BY_CYCLE, 1);
		else
			VARIANT(DF_SIM_BY_CYCLE, 0);
		break;
	}
}
