#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "trace/judge/say.h"
#include "trace/read/load_hosts.h"
#include "trace/record/names.h"
#include "trace/say/alike.h"
#include "trace/say/print.h"
#include "runtime/base/vec.h"

#define FRAMES	    6 /* of a stack, innermost first */
#define MAX_CALLS   4
#define MAX_MEMBERS 8  /* processes of a group that are named */
#define MAX_GROUPS  16 /* groups that are printed */

static int has_exited_normally(const struct df_trc *t)
{
	return t->fate == DF_EXITED && t->h.closed == 1;
}

/*
 * Writes the calls in which the threads of a process wait. Returns whether the main thread waits in
 * one whose script lines are known.
 */
static int put_calls(FILE *out, struct df_check_set *set, uint32_t trace)
{
	const struct df_trc *t = &set->traces[trace];
	struct df_stack_line line;
	int has_line = 0;
	size_t nr = 0;

	for (size_t i = 0; i < t->nr_calls; i++) {
		char stack[400];

		if (!df_trc_is_innermost(t, i) || nr++ >= MAX_CALLS)
			continue;
		df_say_stack(set, trace, t->calls[i].site, FRAMES, stack, sizeof(stack));
		has_line |= t->calls[i].thread == t->h.pid && df_stack_line(stack, &line);
		fprintf(out, "; in %s%s%s", df_call_text(t->calls[i].call), *stack ? " at " : "",
			stack);
	}
	if (nr > MAX_CALLS)
		fprintf(out, "; in %zu more calls", nr - MAX_CALLS);
	return has_line;
}

static void put_script(FILE *out, struct df_check_set *set, uint32_t trace)
{
	const struct df_trc *t = &set->traces[trace];
	const struct df_lthread *th = df_trc_thread(t, t->h.pid);
	char stack[800];

	if (th && df_say_has_script(t, th) &&
	    df_say_stack(set, trace, th->at_site, FRAMES, stack, sizeof(stack)))
		fprintf(out, "; at %s", stack);
}

/*
 * Describes what a process does, without times, process numbers and communicators, which differ
 * between processes that do the same. Returns NULL without memory.
 */
static char *state_of(const struct df_check_result *r, uint32_t trace)
{
	struct df_check_set *set = r->set;
	const struct df_trc *t = &set->traces[trace];
	char *text = NULL, buf[96];
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	if (t->fate == DF_DEAD)
		fputs("; died", out);
	else if (t->fate == DF_EXITED)
		fprintf(out, "; %s", df_say_exit((int)t->h.closed, buf, sizeof(buf)));
	else if (!put_calls(out, set, trace))
		put_script(out, set, trace);
	if (t->nr_uops) {
		const struct df_uop *u = &set->ops[t->first_op];

		fprintf(out, "; first unfinished: #%llu %s, %s", (unsigned long long)u->l.index + 1,
			df_say_sig(&u->l, buf, sizeof(buf)),
			u->l.state == DF_OP_STARTED ? "running" : "not started");
	} else if (t->fate == DF_ALIVE) {
		fputs("; nothing unfinished", out);
	}
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	/* Remove the first separator. */
	memmove(text, text + 2, strlen(text + 2) + 1);
	return text;
}

static int by_size(const void *pa, const void *pb)
{
	const struct df_alike *a = pa, *b = pb;

	return DF_CMP(a->nr, b->nr) ?: DF_CMP(a->traces[0], b->traces[0]);
}

/* Moves the groups of processes that have exited to the end. The others keep their order. */
static void put_exited_last(struct df_alikes *a, const struct df_check_set *set)
{
	size_t at = 0;

	for (size_t i = 0; i < a->nr; i++) {
		struct df_alike g = a->all[i];

		if (has_exited_normally(&set->traces[g.traces[0]]))
			continue;
		memmove(&a->all[at + 1], &a->all[at], (i - at) * sizeof(g));
		a->all[at++] = g;
	}
}

int df_alikes_find(struct df_alikes *a, const struct df_check_result *r)
{
	memset(a, 0, sizeof(*a));
	for (uint32_t t = 0; t < r->set->nr_traces; t++) {
		char *state = r->set->traces[t].dropped ? NULL : state_of(r, t);
		struct df_alike *g = NULL;
		uint32_t *slot;

		if (r->set->traces[t].dropped)
			continue;
		for (size_t i = 0; state && i < a->nr && !g; i++)
			g = strcmp(a->all[i].state, state) ? NULL : &a->all[i];
		if (g) {
			free(state);
		} else if (state) {
			g = DF_VEC_PUSH(a->all, a->nr, a->cap);
			if (g)
				*g = (struct df_alike){.state = state};
			else
				free(state);
		}
		slot = g ? DF_VEC_PUSH(g->traces, g->nr, g->cap) : NULL;
		if (!slot) {
			df_alikes_fini(a);
			return -ENOMEM;
		}
		*slot = t;
	}
	if (a->nr)
		qsort(a->all, a->nr, sizeof(*a->all), by_size);
	put_exited_last(a, r->set);
	return 0;
}

void df_alikes_fini(struct df_alikes *a)
{
	for (size_t i = 0; i < a->nr; i++) {
		free(a->all[i].traces);
		free(a->all[i].state);
	}
	free(a->all);
	memset(a, 0, sizeof(*a));
}

void df_alike_ranks(const struct df_alike *g, const struct df_check_set *set,
		    struct df_crowd *ranks)
{
	for (size_t i = 0; i < g->nr; i++) {
		const struct df_trc *t = &set->traces[g->traces[i]];

		for (uint32_t e = 0; e < t->nr_entries; e++)
			df_crowd_join(ranks, set->entries[t->first_entry + e].world, 0);
		if (!t->nr_entries && t->order >= 0)
			df_crowd_join(ranks, t->order, 0);
	}
	df_crowd_sort(ranks);
}

void df_alike_print_who(const struct df_alike *g, const struct df_check_set *set, FILE *out)
{
	struct df_crowd ranks = {0};
	int parts = 0;

	df_alike_ranks(g, set, &ranks);
	if (ranks.nr)
		fprintf(out, "%zu rank%s, ", ranks.nr, DF_PLURAL(ranks.nr));
	else
		fprintf(out, "%zu process%s", g->nr, g->nr == 1 ? "" : "es");
	df_crowd_print(&ranks, "", &parts, out);
	free(ranks.ranks);
}

int df_alike_device(const struct df_check_set *set, uint32_t trace)
{
	const struct df_trc *t = &set->traces[trace];

	return t->nr_entries ? set->entries[t->first_entry].device : -1;
}

/* Names hosts, processes and devices of a group's first members. */
static void print_members(const struct df_alike *g, const struct df_check_set *set, FILE *out)
{
	const char *host = "";

	for (size_t i = 0; i < g->nr && i < MAX_MEMBERS; i++) {
		const struct df_trc *t = &set->traces[g->traces[i]];

		fprintf(out, "%s", i ? ", " : "    ");
		if (strcmp(host, t->h.host) != 0)
			fprintf(out, "%s: ", t->h.host);
		host = t->h.host;
		fprintf(out, "%s pid %u", t->label, t->h.pid);
		if (df_alike_device(set, g->traces[i]) >= 0)
			fprintf(out, " GPU %d", df_alike_device(set, g->traces[i]));
	}
	if (g->nr > MAX_MEMBERS)
		fprintf(out, " and %zu more", g->nr - MAX_MEMBERS);
	fputc('\n', out);
}

void df_print_alikes(const struct df_check_result *r, FILE *out)
{
	struct df_alikes a;
	size_t largest = 0, nr;

	if (df_alikes_find(&a, r))
		return;
	for (size_t i = 0; i < a.nr; i++)
		largest = a.all[i].nr >= a.all[largest].nr ? i : largest;
	nr = a.nr > 1 && a.all[largest].nr > 1 ? a.nr : 0;
	for (size_t i = 0; i < nr && i < MAX_GROUPS; i++) {
		const struct df_alike *g = &a.all[i];

		if (!i)
			fputs("\nRanks that do the same, the fewest first:\n", out);
		fputs("  ", out);
		df_alike_print_who(g, r->set, out);
		fprintf(out, ": %s\n", g->state);
		if (i != largest)
			print_members(g, r->set, out);
	}
	if (nr > MAX_GROUPS)
		fprintf(out, "  and %zu more group%s\n", nr - MAX_GROUPS,
			DF_PLURAL(nr - MAX_GROUPS));
	df_alikes_fini(&a);
}
