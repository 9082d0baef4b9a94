/*
 * The proof before a release (docs/release.md). One process of those that are tied together, the one with the
 * smallest name, looks at all of them:
 *
 *	1. each is held and tells what is unfinished there, and which of its waits may be released;
 *	2. the checker finds circles, and of each the waits that have to be let go;
 *	3. each is asked again. If nothing has been recorded anywhere since, all that was seen held at the same
 *	   time: at any instant between the two rounds. Else it is judged again, and the facts that the choice
 *	   rests on have to be the same;
 *	4. the waits are released by their own processes, and all are let go.
 *
 * Deadlock is stable, and nobody else releases anything meanwhile, so what was proved still holds at 4.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/time.h"
#include "runtime/watch/snapshot.h"
#include "trace/check.h"
#include "trace/record/format.h"

#define ROUNDS 5

struct choice {
	struct df_check_hold *may;
	uint64_t *proc; /* whose each of them is */
	size_t nr;
	size_t *chosen;
	int nr_chosen; /* or -errno */
	uint64_t core;
	int hosts; /* where host threads are would tell more */
};

static void choice_fini(struct choice *c)
{
	free(c->may);
	free(c->proc);
	free(c->chosen);
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
	c->chosen = calloc(nr + 1, sizeof(*c->chosen));
	if (!c->may || !c->proc || !c->chosen)
		return -ENOMEM;
	df_list_each(s, &g->answers, node)
	{
		const struct df_trace_header *h = s->image;

		for (i = 0; h && s->bytes >= sizeof(*h) && i < s->nr_waits; i++) {
			c->may[c->nr].pid = h->pid;
			c->may[c->nr].host_hash = h->host_hash;
			c->may[c->nr].serial = s->waits[i];
			c->proc[c->nr++] = s->proc;
		}
	}
	return 0;
}

/* line: also what the checker would say of it; to be freed. */
static int choose(struct choice *c, const struct df_snapshots *g, char **line)
{
	struct df_check_opts opts = {.now_ns = df_now_ns(), .live = 1};
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r;
	struct df_snapshot *s;

	c->nr_chosen = set ? list_waits(c, g) : -ENOMEM;
	df_list_each(s, &g->answers, node)
	{
		if (c->nr_chosen || !s->image)
			continue;
		c->nr_chosen = df_check_add_image(set, s->image, s->bytes, "process");
		if (!c->nr_chosen && s->hosts)
			c->nr_chosen = df_check_add_hosts(set, s->hosts, s->nr_hosts);
	}
	if (!c->nr_chosen && c->nr)
		c->nr_chosen =
			df_check_cut(set, &opts, c->may, c->nr, c->chosen, &c->core, &c->hosts);
	if (line && c->nr_chosen > 0 && !df_check_run(set, &opts, &r)) {
		*line = strdup(df_check_line(r));
		df_check_result_free(r);
	}
	df_check_set_free(set);
	return c->nr_chosen;
}

/* Tells every process which of its waits return, and that it is held no longer. */
static void give_orders(const struct df_snapshots *g, const struct choice *c, const char *line)
{
	uint64_t calls[256];
	struct df_snapshot *s;
	uint32_t nr;
	int i;

	df_list_each(s, &g->answers, node)
	{
		for (nr = 0, i = 0; i < c->nr_chosen && nr < DF_ARRAY_LEN(calls); i++)
			if (c->proc[c->chosen[i]] == s->proc)
				calls[nr++] = c->may[c->chosen[i]].serial;
		df_snapshot_release(g, s->proc, calls, nr, nr ? line : NULL);
	}
}

int df_prove_and_release(int hosts)
{
	static int told; /* only the first release is explained */
	char *line = NULL;
	struct df_snapshots g = {.answers = DF_LIST_INIT(g.answers)};
	struct choice seen[2] = {{0}}, none = {0}, *use = &none;
	int ret = df_snapshot_gather(&g, DF_ASK_PROOF), round = 0;

	if (!ret)
		ret = g.busy ? -EAGAIN : 0;
	if (!ret)
		ret = choose(&seen[0], &g, told ? NULL : &line);
	if (!ret && hosts && seen[0].hosts) {
		g.hosts = 1;
		ret = df_snapshot_gather(&g, DF_ASK_AGAIN);
		if (!ret)
			ret = g.busy ? -EAGAIN : 0;
		choice_fini(&seen[0]);
		if (!ret)
			ret = choose(&seen[0], &g, told ? NULL : &line);
	}
	/* Until two that follow each other agree. */
	while (ret > 0 && use == &none) {
		struct choice *was = &seen[round & 1], *is = &seen[++round & 1];

		ret = df_snapshot_gather(&g, DF_ASK_AGAIN);
		if (ret || g.busy || round == ROUNDS) {
			ret = -EAGAIN;
		} else if (g.all_same) {
			use = was;
		} else {
			choice_fini(is);
			ret = choose(is, &g, NULL);
			if (ret > 0 && is->core == was->core)
				use = is;
		}
	}
	if (use != &none)
		ret = use->nr_chosen;
	give_orders(&g, use, line);
	told |= use != &none;
	df_snapshot_done(&g);
	choice_fini(&seen[0]);
	choice_fini(&seen[1]);
	free(line);
	return ret;
}
