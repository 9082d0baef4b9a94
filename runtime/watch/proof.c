/*
 * The proof before a release (docs/release.md). Among processes that are tied together, the one
 * with the lowest process id examines all:
 *
 *   1. It holds each process and collects what is unfinished, and which waits may be released.
 *   2. The checker finds cycles, and in each the waits that have to be released.
 *   3. Each process is asked again. If nothing was recorded anywhere since, everything that was
 *      seen held at the same time, at any instant between the two rounds. Otherwise the checker
 *      decides again, and its choice must rest on the same facts.
 *   4. The processes release their waits, and all holds end.
 *
 * Deadlock is stable, and no other process releases anything meanwhile, so the proof still holds at
 * step 4.
 *
 * If threads that are in no call could still issue the missing operations, a cycle is only likely.
 * It is remembered, and its waits are released in the same way once everything that it rests on has
 * been the same for DFSHIM_RELEASE_MS and those threads have made no call in that time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/time.h"
#include "runtime/watch/proof.h"
#include "runtime/watch/snapshot.h"
#include "trace/check.h"
#include "trace/record/format.h"

#define ROUNDS	  5
#define NR_LIKELY 64 /* maximum number of likely cycles that are observed */
/* maximum number of remembered cycles that were released when they were only likely */
#define NR_KNOWN 64
#define KNOWN_NS (20 * DF_NS_PER_MS) /* minimum duration of such a cycle when it appears again */

/* The checker's decision in one round. */
struct choice {
	struct df_check_cut cut;
	struct df_check_hold *may;
	uint64_t *proc; /* the process of each element of `may` */
};

/* Likely cycles. `core` is a hash of the facts that the cycle rests on. */
static struct {
	uint64_t core, since, seen; /* core is 0 in a free entry */
} likely[NR_LIKELY];

static uint64_t known[NR_KNOWN]; /* the latest such cycles, by struct df_check_chosen.cycle */
static unsigned nr_known;

static uint64_t settled; /* the latest proved set, by struct df_check_cut.settled */

static void choice_fini(struct choice *c)
{
	free(c->may);
	free(c->proc);
	free(c->cut.chosen);
	memset(c, 0, sizeof(*c));
}

static int list_waits(struct choice *c, const struct df_snapshots *g)
{
	struct df_snapshot *s;
	size_t nr = 0;
	uint32_t i;

	df_list_each(s, &g->answers, node) nr += s->nr_waits;
	c->may = calloc(nr + 1, sizeof(*c->may));
	c->proc = calloc(nr + 1, sizeof(*c->proc));
	c->cut.chosen = calloc(nr + 1, sizeof(*c->cut.chosen));
	if (!c->may || !c->proc || !c->cut.chosen)
		return -ENOMEM;
	nr = 0;
	df_list_each(s, &g->answers, node)
	{
		const struct df_trace_header *h = s->image;

		for (i = 0; h && s->bytes >= sizeof(*h) && i < s->nr_waits; i++) {
			c->may[nr].pid = h->pid;
			c->may[nr].host_hash = h->host_hash;
			c->may[nr].serial = s->waits[i];
			c->proc[nr++] = s->proc;
		}
	}
	c->cut.may = c->may;
	c->cut.nr_may = nr;
	return 0;
}

/* Sends every process the waits that it has to release. This also ends the holds. */
static void give_orders(const struct df_snapshots *g, const struct choice *c, const char *line)
{
	uint64_t calls[256];
	struct df_snapshot *s;
	uint32_t nr;
	size_t i;

	df_list_each(s, &g->answers, node)
	{
		for (nr = 0, i = 0; i < c->cut.nr && nr < DF_ARRAY_LEN(calls); i++)
			if (c->proc[c->cut.chosen[i].place] == s->proc)
				calls[nr++] = c->may[c->cut.chosen[i].place].serial;
		df_snapshot_release(g, s->proc, calls, nr, c->cut.likely, nr ? line : NULL);
	}
}

/* ---- likely cycles -------------------------------------------------------------------------- */

static int is_known(uint64_t cycle)
{
	for (unsigned i = 0; i < NR_KNOWN; i++)
		if (known[i] == cycle)
			return 1;
	return 0;
}

static uint64_t bound_of(uint64_t cycle)
{
	uint64_t bound = (uint64_t)df_env()->release_ms * DF_NS_PER_MS;

	return is_known(cycle) ? DF_MIN(bound, KNOWN_NS) : bound;
}

/*
 * Returns the time since which this cycle has been the same. The time between two searches may be
 * long: if the facts are the same in both, they were the same in between (struct df_check_cut).
 */
static uint64_t likely_since(uint64_t core, uint64_t now)
{
	unsigned oldest = 0;

	for (unsigned i = 0; i < NR_LIKELY; i++) {
		if (likely[i].core == core) {
			likely[i].seen = now;
			return likely[i].since;
		}
		if (likely[i].seen < likely[oldest].seen)
			oldest = i;
	}
	likely[oldest].core = core;
	likely[oldest].since = likely[oldest].seen = now;
	return now;
}

/*
 * Keeps the likely cycles that have lasted long enough. Stores in *again when the next one will
 * have lasted long enough.
 */
static void keep_those_due(struct choice *c, uint64_t *again)
{
	uint64_t now = df_now_ns();
	size_t n = 0;

	if (!c->cut.likely)
		return;
	for (size_t i = 0; i < c->cut.nr; i++) {
		struct df_check_chosen one = c->cut.chosen[i];
		uint64_t due = likely_since(one.core, now) + bound_of(one.cycle);

		if (now >= due)
			c->cut.chosen[n++] = one;
		else
			*again = DF_MIN(*again, due);
	}
	c->cut.nr = n;
}

/* Whether there is something to release or to report. */
static int has_found(const struct choice *c)
{
	return c->cut.nr || c->cut.mismatch || (c->cut.settled && c->cut.settled != settled);
}

/*
 * Returns a sum of the facts on which the choice is based. They must be the same in two consecutive
 * rounds.
 */
static uint64_t basis(const struct choice *c)
{
	uint64_t sum = c->cut.settled;

	if (!c->cut.likely)
		return sum + c->cut.core;
	for (size_t i = 0; i < c->cut.nr; i++)
		sum += c->cut.chosen[i].core * (c->cut.chosen[i].place + 1);
	return sum;
}

static void remember(const struct choice *c)
{
	for (size_t i = 0; c->cut.likely && i < c->cut.nr; i++)
		if (!is_known(c->cut.chosen[i].cycle))
			known[nr_known++ % NR_KNOWN] = c->cut.chosen[i].cycle;
}

/*
 * Lets the checker judge the answers, and leaves out likely cycles that are not due (*again). Also
 * sets *line, if `line` is not NULL, to the first line of the report; the caller frees it. Returns
 * 0 or -errno.
 */
static int choose(struct choice *c, const struct df_snapshots *g, uint64_t *again, char **line)
{
	struct df_check_opts opts = {.now_ns = df_now_ns(), .live = 1, .released = 1};
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r;
	struct df_snapshot *s;
	int ret = set ? list_waits(c, g) : -ENOMEM;

	c->cut.want_likely = df_env()->release_ms > 0;
	df_list_each(s, &g->answers, node)
	{
		if (ret || !s->image)
			continue;
		ret = df_check_add_image(set, s->image, s->bytes, "process");
		if (!ret && s->hosts)
			ret = df_check_add_hosts(set, s->hosts, s->nr_hosts);
	}
	if (!ret && c->cut.nr_may)
		ret = df_check_cut(set, &opts, &c->cut);
	if (!ret)
		keep_those_due(c, again);
	/* In a likely cycle, threads that are in no call count as silent. */
	opts.stale_ns = c->cut.likely;
	if (line && !ret && c->cut.nr && !df_check_run(set, &opts, &r)) {
		free(*line);
		*line = strdup(df_check_line(r));
		df_check_result_free(r);
	}
	df_check_set_free(set);
	return ret;
}

/* ---- one search ----------------------------------------------------------------------------- */

static int gather(struct df_snapshots *g, enum df_ask what)
{
	int ret = df_snapshot_gather(g, what);

	return ret ? ret : g->busy ? -EAGAIN : 0;
}

int df_prove_and_release(int hosts, struct df_proof_found *out)
{
	/*
	 * Whether a proved release, and a likely one, was explained: only the first of each kind
	 * is.
	 */
	static int told[2];
	char *line = NULL;
	struct df_snapshots g = {.answers = DF_LIST_INIT(g.answers)};
	struct choice seen[2] = {{.may = NULL}}, none = {.may = NULL}, *use = &none;
	int ret = gather(&g, DF_ASK_PROOF), round = 0;

	*out = (struct df_proof_found){.again = UINT64_MAX};
	if (!ret)
		ret = choose(&seen[0], &g, &out->again, told[0] && told[1] ? NULL : &line);
	if (!ret && hosts && seen[0].cut.hosts) {
		g.hosts = 1;
		ret = gather(&g, DF_ASK_AGAIN);
		choice_fini(&seen[0]);
		if (!ret)
			ret = choose(&seen[0], &g, &out->again, told[0] && told[1] ? NULL : &line);
	}
	/* Repeat until two consecutive rounds agree. */
	while (!ret && use == &none && has_found(&seen[round & 1])) {
		struct choice *was = &seen[round & 1], *is = &seen[++round & 1];

		ret = gather(&g, DF_ASK_AGAIN);
		if (!ret && round == ROUNDS)
			ret = -EAGAIN;
		if (!ret && g.all_same) {
			use = was;
		} else if (!ret) {
			choice_fini(is);
			ret = choose(is, &g, &out->again, NULL);
			if (!ret && is->cut.likely == was->cut.likely && basis(is) == basis(was))
				use = is;
		}
	}
	out->nr = use->cut.nr;
	out->mismatch = use->cut.mismatch;
	out->settled = use->cut.settled && use->cut.settled != settled;
	if (out->settled)
		settled = use->cut.settled;
	give_orders(&g, use, told[use->cut.likely] ? NULL : line);
	told[use->cut.likely] |= use->cut.nr > 0;
	remember(use);
	df_snapshot_done(&g);
	choice_fini(&seen[0]);
	choice_fini(&seen[1]);
	free(line);
	return ret;
}
