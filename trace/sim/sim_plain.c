/*
 * The event-by-event engine: it runs every turn of every GPU, in the order of the published
 * program. The short cuts are checked against it. It is the only engine that can follow CPython's
 * random numbers, because these are drawn in the order of turns over all GPUs. It also serves the
 * models that have no short cut.
 *
 * The round function is one body, expanded for each method and each source of draws, so that the
 * ordinary turn of each variant is a few instructions.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "trace/sim/sim_int.h"

struct gpu {
	/* number of positions before the next that are passed over; skipped[] begins with them */
	int passed;
	int nr_out; /* collectives issued and not complete, for methods that count them */
	int hung;   /* suspended by a synchronisation while a collective is outstanding */
	int low;    /* no collective before this position is outstanding */
	/* with a program: turns taken, turn of the next rare turn, index of that rare turn */
	int turn;
	int rare_turn;
	int rare;
};

/* An entry of a GPU's list, for methods that use groups. */
struct entry {
	int coll, group;
	int member; /* index into the part's members[] */
};

/*
 * For BY_GROUP_STATE: the pending collective of a group. A generation ends when all members have
 * submitted.
 */
struct group {
	int size, nr_in, current, generation;
};

struct df_sim_plain {
	const struct df_sim_part *part;
	struct gpu *gpu;
	int *next; /* by GPU: the first list entry that the GPU has not reached */
	/* by GPU: the GPU is suspended, has finished, or has passed over a collective */
	unsigned char *special;
	int *skipped; /* passed-over positions; GPU g's begin at list_start[g] */
	int *missing; /* by collective: members that have not issued it (BY_SLOTS: not begun it) */
	int *missing_init;
	int *stack;
	unsigned char *seen;
	struct entry *entry; /* by list entry */

	/* BY_GROUP_STATE */
	struct group *group;
	int *in; /* by member: the last generation of its group that the member submitted to */

	/* BY_GROUP_ORDER */
	/* by member: number of the group's collectives that the member has issued */
	int *nr_issued;
	/*
	 * By group: the order of its collectives, as issued by the first member to reach each
	 * position.
	 */
	int *seq, *seq_at;

	/* BY_SLOTS */
	int *queue; /* collectives in order of issue; GPU g's begin at list_start[g] */
	int *tail, *next_begin, *nr_exec;
	int *work;
};

/* The arrays, each with its number of elements, which df_sim_plain_create() computes. */
#define ARRAYS(X)                                                                                  \
	X(gpu, ng), X(next, ng), X(special, ng), X(skipped, ne), X(missing, nc),                   \
		X(missing_init, nc), X(stack, ng), X(seen, ng), X(entry, ne), X(group, gr),        \
		X(in, nm), X(nr_issued, nm), X(seq, nc), X(seq_at, gr), X(queue, ne), X(tail, ng), \
		X(next_begin, ng), X(nr_exec, ng), X(work, ne)

struct df_sim_plain *df_sim_plain_create(const struct df_sim_part *p)
{
	struct df_sim_plain *pl = calloc(1, sizeof(*pl));
	size_t ng = (size_t)p->nr_gpus + 1, ne = (size_t)p->nr_events + 1;
	size_t nc = (size_t)p->nr_colls + 1, nm = (size_t)p->group_start[p->nr_groups] + 1;
	size_t gr = (size_t)p->nr_groups + 1;
	int failed = 0;

	if (!pl)
		return NULL;
	pl->part = p;
#define TAKE(field, n) failed |= !(pl->field = calloc(n, sizeof(*pl->field)))
	ARRAYS(TAKE);
#undef TAKE
	if (failed) {
		df_sim_plain_destroy(pl);
		return NULL;
	}
	for (int c = 0; c < p->nr_colls; c++) {
		int grp = p->coll_group[c], n = df_sim_group_size(p, grp);

		pl->missing_init[c] = n;
		for (int i = 0; i < n; i++) {
			int m = p->group_start[grp] + i;

			pl->entry[p->list_start[p->members[m]] + p->at[p->at_start[c] + i]] =
				(struct entry){c, grp, m};
		}
		pl->seq_at[grp + 1]++;
	}
	for (int grp = 0; grp < p->nr_groups; grp++) {
		pl->seq_at[grp + 1] += pl->seq_at[grp];
		pl->group[grp].size = df_sim_group_size(p, grp);
	}
	return pl;
}

void df_sim_plain_destroy(struct df_sim_plain *pl)
{
	if (!pl)
		return;
#define GIVE(field, n) free(pl->field)
	ARRAYS(GIVE);
#undef GIVE
	free(pl);
}

static inline int position(const struct df_sim_plain *pl, int x)
{
	return pl->next[x] - pl->part->list_start[x];
}

/* Returns the number of collectives that x has not issued. */
static inline int remaining(const struct df_sim_plain *pl, int x)
{
	return pl->part->list_start[x + 1] - pl->next[x] + pl->gpu[x].passed;
}

static int is_issued(const struct df_sim_plain *pl, int x, int place)
{
	const int *sk = pl->skipped + pl->part->list_start[x];

	if (place >= position(pl, x))
		return 0;
	for (int i = 0; i < pl->gpu[x].passed; i++)
		if (sk[i] == place)
			return 0;
	return 1;
}

/* Returns the next position at or after `place` that is outstanding on x, or -1. */
static int next_outstanding(struct df_sim_plain *pl, int x, int place)
{
	struct gpu *g = &pl->gpu[x];
	const int *list = pl->part->list + pl->part->list_start[x];
	int pos = position(pl, x);

	while (g->low < pos && !pl->missing[list[g->low]])
		g->low++;
	for (int i = DF_MAX(place, g->low); i < pos; i++)
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

/*
 * Whether all members of some group have `limit` collectives outstanding. This is the published
 * resource test.
 */
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

/*
 * For BY_SLOTS: starts the collectives that the free slots of x admit, and all that can start as a
 * result.
 */
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

/* Issues the collective with index k among those that x has not issued. Returns its list entry. */
static int take(struct df_sim_plain *pl, int x, int k)
{
	struct gpu *g = &pl->gpu[x];
	int base = pl->part->list_start[x], *sk = pl->skipped + base, place;

	if (k < g->passed) {
		place = sk[k];
		g->passed--;
		memmove(sk + k, sk + k + 1, (size_t)(g->passed - k) * sizeof(*sk));
	} else {
		while (g->passed < k)
			sk[g->passed++] = pl->next[x]++ - base;
		place = pl->next[x]++ - base;
	}
	return base + place;
}

/* This method is DF_SIM_BY_INTERSECTION with a resource limit, which is tested after each issue. */
#define BY_INTERSECTION_LIMITED 100

#define ALWAYS static inline __attribute__((always_inline))

/* Issues the collective of list entry `at`. Returns 1 if this makes a deadlock. */
ALWAYS int submit(struct df_sim_plain *pl, const struct df_sim_setup *setup, int x, int at,
		  const int method)
{
	const struct df_sim_part *p = pl->part;
	const struct entry *e = &pl->entry[at];
	int c = p->list[at], grp, m, k;
	struct group *g;

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
		g = &pl->group[e->group];
		if (pl->in[e->member] == g->generation)
			return 0; /* the published program drops this issue silently */
		pl->in[e->member] = g->generation;
		if (g->nr_in && g->current != e->coll)
			return 1;
		g->current = e->coll;
		if (++g->nr_in == g->size) {
			g->nr_in = 0;
			g->generation++;
		}
		return 0;
	case DF_SIM_BY_GROUP_ORDER:
		k = pl->seq_at[e->group] + pl->nr_issued[e->member]++;
		if (pl->seq[k] < 0)
			pl->seq[k] = e->coll;
		return pl->seq[k] != e->coll;
	}
	return 0;
}

/*
 * Returns whether the next turn of a GPU is ordinary, and takes its draws if so. *safe is the
 * number of draws of mt that are known to be ordinary and not taken yet. mt itself is advanced only
 * at the next rare turn.
 */
ALWAYS int turn_is_ordinary(struct gpu *g, int *safe, const int with_sync, const int use_mt)
{
	if (!use_mt)
		return g->turn++ != g->rare_turn;
	if (*safe < 1 + with_sync)
		return 0;
	*safe -= 1 + with_sync;
	return 1;
}

ALWAYS int has_outstanding(struct df_sim_plain *pl, int x, const int method)
{
	if (method == DF_SIM_BY_SLOTS || method == BY_INTERSECTION_LIMITED)
		return pl->gpu[x].nr_out > 0;
	return next_outstanding(pl, x, 0) >= 0;
}

/* Runs a turn that may be rare. Returns 1 if it makes a deadlock. */
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

			while (df_mt_draw(mt) < d && skip < remaining(pl, x) - 1)
				skip++;
		}
	} else {
		skip = prog->rare[g->rare].skip;
		sync = skip <= 0;
		g->rare++;
		g->rare_turn = g->rare < prog->start[x + 1] ? prog->rare[g->rare].turn : -1;
	}
	if (!sync)
		return submit(pl, setup, x, take(pl, x, skip), method);
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
	unsigned char *const special = pl->special;
	const int *const list_start = p->list_start;
	struct gpu *const gpu = pl->gpu;
	int *const next = pl->next;
	int total = p->nr_events, n = p->nr_gpus, safe = use_mt ? mt->next_low - mt->next : 0;

	while (total) {
		int before = total, synced = 0;

		for (int x = 0; x < n; x++) {
			struct gpu *g = &gpu[x];
			int dead, ordinary, left;

			/* Most turns issue the next collective of a GPU that is not special. */
			if (df_likely(!special[x]) &&
			    df_likely(turn_is_ordinary(g, &safe, with_sync, use_mt))) {
				int at = next[x]++;

				total--;
				if (df_unlikely(at + 1 == list_start[x + 1]))
					special[x] = 1;
				if (df_unlikely(submit(pl, setup, x, at, method))) {
					out->deadlock = 1;
					break;
				}
				continue;
			}
			if (with_sync && g->hung) {
				if (has_outstanding(pl, x, method))
					continue;
				g->hung = 0;
			}
			left = remaining(pl, x);
			if (!left)
				continue;
			ordinary = special[x] && turn_is_ordinary(g, &safe, with_sync, use_mt);
			if (ordinary) {
				dead = submit(pl, setup, x, take(pl, x, 0), method);
			} else {
				if (use_mt)
					mt->next = mt->next_low - safe;
				dead = rare_turn(pl, setup, prog, mt, x, out, method, with_sync,
						 use_mt);
				if (use_mt)
					safe = mt->next_low - mt->next;
			}
			if (dead) {
				out->deadlock = 1;
				break;
			}
			special[x] = g->hung || g->passed || remaining(pl, x) == 0;
			total -= left - remaining(pl, x);
			synced |= left == remaining(pl, x);
		}
		/*
		 * No GPU issued or could issue in this sweep, so all GPUs that remain are suspended
		 * for ever.
		 */
		if (with_sync && total == before && !synced)
			out->deadlock = 1;
		if (out->deadlock)
			break;
	}
	if (use_mt)
		mt->next = mt->next_low - safe;
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

		*g = (struct gpu){.rare_turn = -1};
		pl->next[x] = p->list_start[x];
		pl->special[x] = df_sim_list_len(p, x) == 0;
		if (prog) {
			g->rare = prog->start[x];
			if (g->rare < prog->start[x + 1])
				g->rare_turn = prog->rare[g->rare].turn;
		}
	}
	switch (method) {
	case DF_SIM_BY_GROUP_STATE:
		for (int grp = 0; grp < p->nr_groups; grp++) {
			pl->group[grp].nr_in = 0;
			pl->group[grp].generation = 1;
		}
		memset(pl->in, 0, nm * sizeof(int));
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
