/*
 * Prints where the threads of Python programs are: a line for each place, with the ranks there. The
 * reader looks first for the rank that is elsewhere, and for its line of the program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "trace/record/names.h"
#include "trace/say/print.h"
#include "runtime/base/vec.h"
#include "trace/judge/say.h"

#define MAX_FRAMES 8

/* A thread's place and rank. Equal places share an output line. */
struct spot {
	char text[800];
	char thread[48]; /* "": the main thread */
	int32_t rank;
	size_t like;  /* number of threads at the same place */
	int32_t lead; /* lowest rank of these */
};

static int by_place(const void *pa, const void *pb)
{
	const struct spot *a = pa, *b = pb;
	int c = strcmp(a->text, b->text);

	c = c ? c : strcmp(a->thread, b->thread);
	return c ?: DF_CMP(a->rank, b->rank);
}

static int same_place(const struct spot *a, const struct spot *b)
{
	return !strcmp(a->text, b->text) && !strcmp(a->thread, b->thread);
}

/* Places with few ranks first: the reader looks for the rank that is elsewhere. */
static int by_rarity(const void *pa, const void *pb)
{
	const struct spot *a = pa, *b = pb;

	return DF_CMP(a->like, b->like) ?: DF_CMP(a->lead, b->lead) ?: by_place(a, b);
}

static size_t find_spots(const struct df_check_result *r, struct spot **list)
{
	struct df_check_set *set = r->set;
	size_t nr = 0, cap = 0, i, end;

	for (size_t t = 0; t < set->nr_traces; t++) {
		const struct df_trc *trc = &set->traces[t];

		for (i = 0; i < trc->nr_threads; i++) {
			const struct df_lthread *th = &trc->threads[i];
			struct spot *s;

			if (!df_say_has_script(trc, th) || trc->order < 0)
				continue;
			s = DF_VEC_PUSH(*list, nr, cap);
			if (!s)
				return nr;
			*s = (struct spot){.rank = trc->order};
			df_say_stack(set, (uint32_t)t, th->at_site, MAX_FRAMES, s->text,
				     sizeof(s->text));
			if (th->tid != trc->h.pid)
				snprintf(s->thread, sizeof(s->thread), " in thread '%s'", th->name);
			nr -= !s->text[0];
		}
	}
	if (nr)
		qsort(*list, nr, sizeof(**list), by_place);
	for (i = 0; i < nr; i = end) {
		for (end = i; end < nr && same_place(&(*list)[i], &(*list)[end]); end++)
			;
		for (size_t k = i; k < end; k++) {
			(*list)[k].like = end - i;
			(*list)[k].lead = (*list)[i].rank;
		}
	}
	if (nr)
		qsort(*list, nr, sizeof(**list), by_rarity);
	return nr;
}

void df_print_scripts(const struct df_check_result *r, FILE *out)
{
	struct spot *list = NULL;
	struct df_crowd ranks = {0};
	size_t nr = find_spots(r, &list), shown = 0, i = 0;

	if (nr)
		fputs("\nPython stacks, innermost frame first:\n", out);
	while (i < nr && shown++ < DF_PRINT_LINES) {
		const struct spot *first = &list[i];
		int parts = 0;

		for (; i < nr && same_place(first, &list[i]); i++)
			df_crowd_join(&ranks, list[i].rank, 0);
		fputs("  ", out);
		df_crowd_print(&ranks, "", &parts, out);
		fprintf(out, "%s: %s\n", first->thread, first->text);
	}
	if (i < nr)
		fprintf(out, "  and %zu more\n", nr - i);
	free(ranks.ranks);
	free(list);
}
