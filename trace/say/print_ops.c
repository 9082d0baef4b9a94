/*
 * Prints unfinished operations: a line for each call with the ranks that are there, so that a job
 * of a thousand ranks fits on a page. JSON and `dfshim show` list each operation.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/record/names.h"
#include "trace/read/stacks.h"
#include "trace/say/print.h"
#include "runtime/base/err.h"
#include "runtime/base/vec.h"
#include "trace/judge/say.h"

void df_crowd_join(struct df_crowd *c, int32_t rank, double seconds)
{
	int32_t *slot = DF_VEC_PUSH(c->ranks, c->nr, c->cap);

	if (!slot)
		return;
	*slot = rank;
	if (c->nr == 1 || seconds < c->least)
		c->least = seconds;
	if (c->nr == 1 || seconds > c->most)
		c->most = seconds;
}

static int by_rank(const void *pa, const void *pb)
{
	int32_t a = *(const int32_t *)pa, b = *(const int32_t *)pb;

	return (a > b) - (a < b);
}

void df_crowd_sort(struct df_crowd *c)
{
	size_t nr = 0;

	if (c->nr)
		qsort(c->ranks, c->nr, sizeof(*c->ranks), by_rank);
	for (size_t i = 0; i < c->nr; i++)
		if (!i || c->ranks[i] != c->ranks[i - 1])
			c->ranks[nr++] = c->ranks[i];
	c->nr = nr;
}

void df_crowd_print(struct df_crowd *c, const char *what, int *parts, FILE *out)
{
	size_t shown = 0, i, end;

	if (!c->nr)
		return;
	df_crowd_sort(c);
	fprintf(out, "%s%s", (*parts)++ ? "; " : "", what);
	for (i = 0; i < c->nr && shown < DF_PRINT_LABELS; i = end, shown++) {
		int32_t last = c->ranks[i];

		for (end = i + 1; end < c->nr && c->ranks[end] == last + 1; end++)
			last = c->ranks[end];
		fprintf(out, "%sr%d", shown ? ", " : "", c->ranks[i]);
		if (last > c->ranks[i])
			fprintf(out, "%sr%d", last > c->ranks[i] + 1 ? "-" : ", ", last);
	}
	if (i < c->nr)
		fprintf(out, " and %zu more", c->nr - i);
	c->nr = 0;
}

void df_print_age(double least, double most, const char *before, const char *after, FILE *out)
{
	if (most - least < 0.1)
		fprintf(out, "%s%.1f s%s\n", before, most, after);
	else
		fprintf(out, "%s%.1f to %.1f s%s\n", before, least, most, after);
}

#define MAX_IN_ORDER 16

/* The unfinished operations of a rank, in its order of issue. */
struct order {
	char text[1536];
	int32_t world, lead; /* lowest rank with the same text */
	uint32_t trace;
	int32_t party;
	size_t nr;
};

/* Writes " at train.py:118 reduce_loss" if a script made the call, else nothing. */
static const char *line_of(struct df_check_set *set, const struct df_uop *u, unsigned skip,
			   char *buf, size_t size)
{
	struct df_stack_line line;
	char site[160];

	df_say_site(set, u->trace, u->l.site, skip, site, sizeof(site));
	snprintf(buf, size, "%s%s", " at ", site);
	if (!df_stack_line(site, &line))
		buf[0] = 0;
	return buf;
}

/* alike: omits the communicator, so that ranks that do the same on others have an equal text. */
static void add_to_order(struct order *o, struct df_check_set *set, const struct df_uop *u,
			 unsigned skip, int alike)
{
	size_t at = strlen(o->text);
	char op[96], line[176];

	if (o->nr++ > MAX_IN_ORDER)
		return;
	if (o->nr > MAX_IN_ORDER || at + 256 > sizeof(o->text)) {
		snprintf(o->text + at, sizeof(o->text) - at, " ...");
		o->nr = MAX_IN_ORDER + 1;
		return;
	}
	snprintf(o->text + at, sizeof(o->text) - at, "%s%s%s%s", at ? ", " : "",
		 alike ? df_say_sig(&u->l, op, sizeof(op)) : df_say_op(set, u, op, sizeof(op)),
		 line_of(set, u, skip, line, sizeof(line)),
		 u->l.state == DF_OP_STARTED ? " (runs)" : "");
}

static int by_text(const void *pa, const void *pb)
{
	const struct order *a = pa, *b = pb;
	int c = strcmp(a->text, b->text);

	return c ?: DF_CMP(a->world, b->world);
}

static int by_lead(const void *pa, const void *pb)
{
	const struct order *a = pa, *b = pb;

	return DF_CMP(a->lead, b->lead) ?: by_text(pa, pb);
}

/* Puts equal orders next to each other, sorted by the lowest rank that has them. */
static void group_orders(struct order *list, size_t nr)
{
	qsort(list, nr, sizeof(*list), by_text);
	for (size_t i = 0; i < nr; i++)
		list[i].lead = i && !strcmp(list[i - 1].text, list[i].text) ? list[i - 1].lead
									    : list[i].world;
	qsort(list, nr, sizeof(*list), by_lead);
}

/* Operations are sorted by trace, and within a trace by order of issue. */
static size_t find_orders(struct df_check_set *set, int alike, struct order **list)
{
	size_t nr = 0, cap = 0;
	struct df_say_lines lines = {0};

	for (size_t i = 0; i < set->nr_ops; i++)
		if (set->ops[i].start != DF_NONE)
			df_say_compare(&lines, set, set->ops[i].trace, set->ops[i].l.site);
	for (size_t i = 0; i < set->nr_ops; i++) {
		const struct df_uop *u = &set->ops[i];
		struct order *o = NULL;

		if (u->start == DF_NONE)
			continue;
		for (size_t k = nr; k-- > 0 && (*list)[k].trace == u->trace && !o;)
			o = (*list)[k].party == set->entries[u->entry].party ? &(*list)[k] : NULL;
		if (!o) {
			o = DF_VEC_PUSH(*list, nr, cap);
			if (!o)
				break;
			*o = (struct order){.world = set->entries[u->entry].world,
					    .trace = u->trace,
					    .party = set->entries[u->entry].party};
		}
		add_to_order(o, set, u, lines.shared, alike);
	}
	if (nr)
		group_orders(*list, nr);
	return nr;
}

static size_t count_orders(const struct order *list, size_t nr)
{
	size_t orders = 0;

	for (size_t i = 0; i < nr; i++)
		orders += !i || strcmp(list[i - 1].text, list[i].text) != 0;
	return orders;
}

void df_print_orders(const struct df_check_result *r, FILE *out)
{
	struct order *list = NULL;
	struct df_crowd ranks = {0};
	size_t nr, shown = 0, i = 0;

	if ((r->verdict != DF_V_ORDER && r->verdict != DF_V_RESOURCE) || r->stuck_insts < 3)
		return;
	nr = find_orders(r->set, 0, &list);
	if (count_orders(list, nr) > DF_PRINT_LINES) {
		free(list);
		list = NULL;
		nr = find_orders(r->set, 1, &list);
	}
	fputs("\nOrders of issue:\n", out);
	while (i < nr && shown++ < DF_PRINT_LINES) {
		const struct order *first = &list[i];
		int parts = 0;

		for (; i < nr && !strcmp(first->text, list[i].text); i++)
			df_crowd_join(&ranks, list[i].world, 0);
		fputs("  ", out);
		df_crowd_print(&ranks, "", &parts, out);
		fprintf(out, ": %s\n", first->text);
	}
	if (i < nr)
		fprintf(out, "  and %zu more ranks\n", nr - i);
	free(ranks.ranks);
	free(list);
}

static void print_count(size_t nr, const char *what, FILE *out)
{
	if (nr)
		fprintf(out, "; %s %zu rank%s", what, nr, DF_PLURAL(nr));
}

/* A call of the job that has not finished on all ranks, or several similar calls (merge). */
struct pending {
	char op[96], sig[96];
	size_t nr_alike; /* number of merged calls */
	struct df_crowd runs, waits, lacks;
	size_t nr_done, nr_missing;
	size_t nr_unknown; /* ranks among nr_missing that have no trace */
};

/*
 * Finds which ranks lack a collective. If some have finished it, this is impossible: the set does
 * not keep which ranks these are.
 */
static void find_lacking(const struct df_check_set *set, const struct df_match *in,
			 struct pending *p)
{
	int nranks = set->gcomms[in->gcomm].nranks;
	uint8_t *here = in->nr_done || in->p2p ? NULL : calloc((size_t)nranks, 1);

	if (!here)
		return;
	for (uint32_t o = in->first; o != DF_NONE; o = set->ops[o].next)
		if (set->ops[o].l.rank >= 0 && set->ops[o].l.rank < nranks)
			here[set->ops[o].l.rank] = 1;
	for (int rank = 0; rank < nranks; rank++) {
		const struct df_trc_comm *e =
			here[rank] ? NULL : df_set_entry(set, in->gcomm, rank);

		if (e)
			df_crowd_join(&p->lacks, e->world, 0);
	}
	free(here);
	p->nr_unknown = in->nr_missing - DF_MIN(p->lacks.nr, (size_t)in->nr_missing);
}

/* Collects the ranks of an operation by their state. Returns 0 if none is unfinished. */
static int find_pending(const struct df_check_set *set, const struct df_match *in,
			struct pending *p)
{
	const struct df_uop *first = NULL;
	int differ = 0;

	memset(p, 0, sizeof(*p));
	for (uint32_t o = in->first; o != DF_NONE; o = set->ops[o].next) {
		const struct df_uop *u = &set->ops[o];

		if (u->start == DF_NONE)
			continue;
		differ |= first && u->sig != first->sig;
		first = first ? first : u;
		df_crowd_join(u->l.state == DF_OP_STARTED ? &p->runs : &p->waits,
			      set->entries[u->entry].world,
			      df_say_ago(set, u->trace, u->l.issue_ns));
	}
	if (!first)
		return 0;
	p->nr_done = in->nr_done;
	p->nr_missing = in->nr_missing;
	df_say_op(set, first, p->op, sizeof(p->op));
	if (in->p2p || !differ)
		df_say_sig(&first->l, p->sig, sizeof(p->sig));
	else
		snprintf(p->sig, sizeof(p->sig), "(arguments differ)");
	find_lacking(set, in, p);
	return 1;
}

static void free_pending(struct pending *p)
{
	free(p->runs.ranks);
	free(p->waits.ranks);
	free(p->lacks.ranks);
}

static int are_similar(const struct pending *a, const struct pending *b)
{
	return !a->nr_done == !b->nr_done && !a->nr_missing == !b->nr_missing &&
	       !a->lacks.nr == !b->lacks.nr && !a->runs.nr == !b->runs.nr &&
	       !a->waits.nr == !b->waits.nr && !strcmp(a->sig, b->sig);
}

static void join_crowd(struct df_crowd *to, const struct df_crowd *from)
{
	for (size_t i = 0; i < from->nr; i++) {
		df_crowd_join(to, from->ranks[i], from->least);
		to->most = DF_MAX(to->most, from->most);
	}
}

/* Lists the unfinished calls. merge: similar calls share an entry. */
static size_t find_all_pending(const struct df_check_result *r, int merge, struct pending **list)
{
	size_t nr = 0, cap = 0;

	for (size_t i = 0; i < r->g.nr_insts; i++) {
		struct pending p, *same = NULL, *slot;

		if (!find_pending(r->set, &r->g.insts[i], &p))
			continue;
		for (size_t k = 0; k < nr && merge && !same; k++)
			same = are_similar(&(*list)[k], &p) ? &(*list)[k] : NULL;
		if (same) {
			same->nr_alike++;
			same->nr_done += p.nr_done;
			same->nr_missing += p.nr_missing;
			same->nr_unknown += p.nr_unknown;
			join_crowd(&same->runs, &p.runs);
			join_crowd(&same->waits, &p.waits);
			join_crowd(&same->lacks, &p.lacks);
			free_pending(&p);
			continue;
		}
		slot = DF_VEC_PUSH(*list, nr, cap);
		if (!slot) {
			free_pending(&p);
			return nr;
		}
		*slot = p;
	}
	return nr;
}

static void print_pending(struct pending *p, FILE *out)
{
	int parts = 0, some = p->waits.nr > 0;
	double least = some ? p->waits.least : p->runs.least,
	       most = some ? p->waits.most : p->runs.most;

	if (p->runs.nr) {
		least = DF_MIN(least, p->runs.least);
		most = DF_MAX(most, p->runs.most);
	}
	if (p->nr_alike)
		snprintf(p->op + strlen(p->op), sizeof(p->op) - strlen(p->op), " and %zu more",
			 p->nr_alike);
	fprintf(out, "  %-16s %-40s ", p->op, p->sig);
	df_crowd_print(&p->runs, "running on ", &parts, out);
	df_crowd_print(&p->waits, "not started on ", &parts, out);
	print_count(p->nr_done, "finished on", out);
	if (p->lacks.nr || p->nr_unknown) {
		df_crowd_print(&p->lacks, "not issued on ", &parts, out);
		print_count(p->nr_unknown, "no trace of", out);
	} else {
		print_count(p->nr_missing, "not issued on", out);
	}
	df_print_age(least, most, "; issued ", " ago", out);
}

void df_print_pending(const struct df_check_result *r, FILE *out)
{
	struct pending *list = NULL;
	size_t nr = find_all_pending(r, 0, &list), ops = 0;

	if (nr > DF_PRINT_LINES) {
		for (size_t i = 0; i < nr; i++)
			free_pending(&list[i]);
		free(list);
		list = NULL;
		nr = find_all_pending(r, 1, &list);
	}
	for (size_t i = 0; i < r->set->nr_ops; i++)
		ops += r->set->ops[i].start != DF_NONE;
	if (nr)
		fprintf(out, "\nUnfinished operations (%zu), by call:\n", ops);
	for (size_t i = 0; i < nr; i++) {
		if (i < DF_PRINT_LINES)
			print_pending(&list[i], out);
		free_pending(&list[i]);
	}
	if (nr > DF_PRINT_LINES)
		fprintf(out, "  and %zu more calls\n", nr - DF_PRINT_LINES);
	free(list);
}

/* A call that a thread has not made yet. */
struct intent {
	uint32_t gcomm;
	int32_t world;
	double seconds;
	char sig[96];
};

static int same_call(const void *pa, const void *pb)
{
	const struct intent *a = pa, *b = pb;

	return DF_CMP(a->gcomm, b->gcomm) ?: strcmp(a->sig, b->sig);
}

int df_print_intent(const struct df_check_set *set, const struct df_trc *trc, size_t note,
		    struct df_lop *op, const struct df_trc_comm **entry)
{
	const struct df_rec *rec = &trc->notes[note].rec;

	if (rec->type != DF_REC_OP_INTENT || !rec->comm || rec->comm > trc->nr_entries)
		return 0;
	*entry = &set->entries[trc->first_entry + rec->comm - 1];
	df_load_intended(&trc->notes[note], op);
	return (*entry)->gcomm != DF_NONE;
}

static size_t find_intents(const struct df_check_set *set, struct intent **list)
{
	size_t nr = 0, cap = 0;

	for (size_t t = 0; t < set->nr_traces; t++) {
		const struct df_trc *trc = &set->traces[t];

		for (size_t i = 0; i < trc->nr_notes; i++) {
			const struct df_trc_comm *e;
			struct intent *in;
			struct df_lop op;

			if (!df_print_intent(set, trc, i, &op, &e))
				continue;
			in = DF_VEC_PUSH(*list, nr, cap);
			if (!in)
				return nr;
			in->gcomm = e->gcomm;
			in->world = e->world;
			in->seconds = df_say_ago(set, (uint32_t)t, trc->notes[i].rec.time_ns);
			df_say_sig(&op, in->sig, sizeof(in->sig));
		}
	}
	return nr;
}

void df_print_intents(const struct df_check_result *r, FILE *out)
{
	struct intent *list = NULL;
	size_t nr = find_intents(r->set, &list), shown = 0, i = 0;
	struct df_crowd ranks = {0};

	if (nr)
		qsort(list, nr, sizeof(*list), same_call);
	while (i < nr && shown < DF_PRINT_LINES) {
		const struct intent *first = &list[i];
		int parts = 0;

		for (; i < nr && !same_call(first, &list[i]); i++)
			df_crowd_join(&ranks, list[i].world, list[i].seconds);
		if (!shown++)
			fputs("\n"
			      "Not issued yet, because the thread that issues it waits in an "
			      "earlier call:\n",
			      out);
		fprintf(out, "  %-16s %-40s ", r->set->gcomms[first->gcomm].label, first->sig);
		df_crowd_print(&ranks, "on ", &parts, out);
		df_print_age(ranks.least, ranks.most, "; for ", "", out);
	}
	if (i < nr)
		fprintf(out, "  and on %zu more threads\n", nr - i);
	free(ranks.ranks);
	free(list);
}
