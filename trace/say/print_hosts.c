/*
 * Prints where threads wait: for each place of the program its call, the ranks there, and the call
 * stack. It shows which line of the program made a call that does not return.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "trace/read/load_hosts.h"
#include "trace/record/names.h"
#include "trace/say/print.h"
#include "runtime/base/vec.h"
#include "runtime/base/number.h"
#include "trace/judge/say.h"

#define MAX_FRAMES 6

/* A waiting thread. */
struct host {
	const char *call;
	char *stack;
	const char *label; /* its process; printed if the thread's rank is unknown */
	int32_t world;	   /* its rank; -1: unknown */
	double seconds;
};

static int same_place(const void *pa, const void *pb)
{
	const struct host *a = pa, *b = pb;
	int c = strcmp(a->call, b->call);

	return c ? c : strcmp(a->stack, b->stack);
}

static int by_place(const void *pa, const void *pb)
{
	const struct host *a = pa, *b = pb;
	int c = same_place(a, b);

	if (c)
		return c;
	return DF_CMP(a->world, b->world) ?: strcmp(a->label, b->label);
}

static size_t find(struct df_check_set *set, struct host **list)
{
	char stack[800];
	size_t nr = 0, cap = 0;

	for (size_t t = 0; t < set->nr_traces; t++) {
		const struct df_trc *trc = &set->traces[t];

		for (size_t i = 0; i < trc->nr_calls; i++) {
			const struct df_lcall *c = &trc->calls[i];
			struct host *h;
			char *text;

			if (!df_trc_is_innermost(trc, i) ||
			    !df_say_stack(set, (uint32_t)t, c->site, MAX_FRAMES, stack,
					  sizeof(stack)))
				continue;
			text = strdup(stack);
			h = text ? DF_VEC_PUSH(*list, nr, cap) : NULL;
			if (!h) {
				free(text);
				return nr;
			}
			*h = (struct host){
				.call = df_call_text(c->call),
				.stack = text,
				.label = trc->label,
				.world = df_say_world(set, trc, c->device, c->thread),
				.seconds = df_say_ago(set, (uint32_t)t, c->enter_ns),
			};
		}
	}
	return nr;
}

void df_check_print_hosts(const struct df_check_result *r, FILE *out)
{
	DF_DECIMAL_POINT;
	struct host *list = NULL;
	size_t nr = find(r->set, &list), shown = 0, i = 0;
	struct df_crowd ranks = {0};

	if (nr)
		qsort(list, nr, sizeof(*list), by_place);
	while (i < nr && shown < DF_PRINT_LINES) {
		const struct host *first = &list[i];
		double least = first->seconds, most = first->seconds;
		int parts = 0;

		if (!shown++)
			fputs("\nThreads that wait, by call site:\n", out);
		fprintf(out, "  %s ", first->call);
		for (; i < nr && !same_place(first, &list[i]); i++) {
			least = list[i].seconds < least ? list[i].seconds : least;
			most = list[i].seconds > most ? list[i].seconds : most;
			if (list[i].world >= 0)
				df_crowd_join(&ranks, list[i].world, list[i].seconds);
			else if ((&list[i] == first ||
				  strcmp(list[i].label, list[i - 1].label) != 0) &&
				 parts++ < DF_PRINT_LABELS)
				fprintf(out, "%s%s", parts > 1 ? ", " : "on ", list[i].label);
		}
		if (parts > DF_PRINT_LABELS)
			fprintf(out, " and %d more", parts - DF_PRINT_LABELS);
		df_crowd_print(&ranks, "on ", &parts, out);
		df_print_age(least, most, "; for ", "", out);
		fprintf(out, "    at %s\n", first->stack);
	}
	if (i < nr)
		fprintf(out, "  and %zu more\n", nr - i);
	for (i = 0; i < nr; i++)
		free(list[i].stack);
	free(ranks.ranks);
	free(list);
}
