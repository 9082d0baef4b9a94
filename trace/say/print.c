/* Prints a verdict as text, for people. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "trace/record/names.h"
#include "trace/say/alike.h"
#include "trace/say/print.h"
#include "runtime/base/number.h"
#include "trace/judge/say.h"

static const char *const confidence_names[] = {"proved", "likely", "possible"};

static const char *trace_label(const struct df_check_result *r, uint32_t trace)
{
	return trace == DF_NONE ? "?" : r->set->traces[trace].label;
}

static uint64_t record_number(const struct df_check_result *r, uint32_t trace, uint64_t rec)
{
	return trace == DF_NONE ? rec : df_trc_number(&r->set->traces[trace], rec);
}

#define MAX_SIDES 16

/* Prints the calls that disagree, with their arguments side by side. */
static void print_sides(const struct df_check_result *r, FILE *out)
{
	char root[16], site[160];
	struct df_say_lines lines = {0};

	for (size_t i = 0; i < r->nr_sides && i < MAX_SIDES; i++)
		df_say_compare(&lines, r->set, r->sides[i].trace, r->sides[i].op.site);
	for (size_t i = 0; i < r->nr_sides && i < MAX_SIDES; i++) {
		const struct df_side *s = &r->sides[i];

		if (!i)
			fprintf(out, "\n  %-5s %-14s %12s %-6s %-6s %-4s  %s\n", "rank",
				"operation", "count", "type", "redop", "root", "call site");
		snprintf(root, sizeof(root), "%d", s->op.peer);
		fprintf(out, "  r%-4d %-14s %12" PRIu64 " %-6s %-6s %-4s  %s\n", s->rank,
			df_kind_name(s->op.kind), s->op.count, df_dtype_name(s->op.type),
			df_kind_reduces(s->op.kind) ? df_redop_name(s->op.redop) : "-",
			df_kind_rooted(s->op.kind) ? root : "-",
			df_say_site(r->set, s->trace, s->op.site, lines.shared, site,
				    sizeof(site)));
	}
	if (r->nr_sides > MAX_SIDES)
		fprintf(out, "  and %zu more\n", r->nr_sides - MAX_SIDES);
}

/* Prints communicators. If there are many, those with equal numbers of ranks share a line. */
static void print_comms(const struct df_check_result *r, FILE *out)
{
	const struct df_check_set *set = r->set;
	size_t nr = 0, shown = 0;

	for (size_t i = 0; i < set->nr_gcomms; i++)
		nr += set->gcomms[i].nr_entries > 0;
	for (size_t i = 0; i < set->nr_gcomms; i++) {
		const struct df_gcomm *g = &set->gcomms[i];
		size_t before = 0, alike = 0;

		for (size_t k = 0; k < set->nr_gcomms && nr > DF_PRINT_LINES; k++)
			if (k != i && set->gcomms[k].nranks == g->nranks &&
			    set->gcomms[k].nr_entries == g->nr_entries)
				*(k < i ? &before : &alike) += 1;
		if (!g->nr_entries || before || ++shown > DF_PRINT_LINES)
			continue;
		if (shown == 1)
			fprintf(out, "\nCommunicators:\n");
		if (alike)
			fprintf(out, "  %s and %zu more of %d ranks, %u with a trace\n", g->label,
				alike, g->nranks, g->nr_entries);
		else
			fprintf(out, "  %-8s commHash 0x%" PRIx64 ", %d ranks, %u with a trace\n",
				g->label, g->hash, g->nranks, g->nr_entries);
	}
	if (shown > DF_PRINT_LINES)
		fprintf(out, "  and %zu more\n", shown - DF_PRINT_LINES);
}

#define MAX_FRAMES 6

/*
 * Prints the call stacks of the two divergent calls. If one has a single frame, the sentence before
 * has named it.
 */
static void print_stacks(const struct df_check_result *r, FILE *out)
{
	char text[2][800] = {"", ""};

	for (int i = 0; i < 2; i++)
		if (r->div_trace[i] == DF_NONE ||
		    df_say_stack(r->set, r->div_trace[i], r->div_site[i], MAX_FRAMES, text[i],
				 sizeof(text[i])) < 2)
			text[i][0] = 0;
	if (text[0][0] && !strcmp(text[0], text[1])) {
		fprintf(out, "  both: %s\n", text[0]);
		return;
	}
	for (int i = 0; i < 2; i++)
		if (text[i][0])
			fprintf(out, "  r%d: %s\n", r->div_rank[i], text[i]);
}

static const char *stack_of(const struct df_check_result *r, size_t involved, char *buf,
			    size_t size)
{
	const struct df_uop *u = &r->set->ops[r->involved[involved]];

	df_say_stack(r->set, u->trace, u->l.site, MAX_FRAMES, buf, size);
	return buf;
}

#define MAX_OPS 8 /* operations printed for a call site */

/* Prints the call sites of the cycle's operations. */
static void print_sites(const struct df_check_result *r, FILE *out)
{
	char first[800], text[800], op[96], rank[48];
	size_t shown = 0, before, nr;

	for (size_t i = 0; i < r->nr_involved && shown < DF_PRINT_LINES; i++) {
		if (!stack_of(r, i, first, sizeof(first))[0])
			continue;
		for (before = 0; before < i; before++)
			if (!strcmp(stack_of(r, before, text, sizeof(text)), first))
				break;
		if (before < i)
			continue;
		fputs(shown++ ? "  " : "\nOperations of the cycle, by call site:\n  ", out);
		nr = 0;
		for (size_t k = i; k < r->nr_involved; k++) {
			const struct df_uop *u = &r->set->ops[r->involved[k]];

			if (strcmp(stack_of(r, k, text, sizeof(text)), first) != 0)
				continue;
			if (nr++ < MAX_OPS)
				fprintf(out, "%s%s on %s", nr > 1 ? ", " : "",
					df_say_op(r->set, u, op, sizeof(op)),
					df_say_rank(r->set, u, rank, sizeof(rank)));
		}
		if (nr > MAX_OPS)
			fprintf(out, " and %zu more", nr - MAX_OPS);
		fprintf(out, "\n    at %s\n", first);
	}
}

#define FIRST_STEPS 20
#define LAST_STEPS  4

static void print_steps(const struct df_check_result *r, FILE *out)
{
	size_t left_out =
		r->nr_steps > FIRST_STEPS + LAST_STEPS ? r->nr_steps - FIRST_STEPS - LAST_STEPS : 0;

	fprintf(out, "\n%s\n", r->is_cycle ? "Shortest cycle:" : "Chain of waits:");
	for (size_t i = 0; i < r->nr_steps; i++) {
		if (left_out && i == FIRST_STEPS) {
			fprintf(out, "  and %zu more waits\n", left_out);
			i += left_out;
		}
		fprintf(out, "  %zu. %s", i + 1, r->steps[i].text);
		if (r->steps[i].rec != DF_NO_REC)
			fprintf(out, "   [%s record %" PRIu64 "]",
				trace_label(r, r->steps[i].trace),
				record_number(r, r->steps[i].trace, r->steps[i].rec));
		fprintf(out, "%s\n", r->steps[i].cut ? "   <-- can be cut here" : "");
	}
}

void df_check_print(const struct df_check_result *r, FILE *out)
{
	DF_DECIMAL_POINT;
	const struct df_check_set *set = r->set;

	fprintf(out, "%s\n", df_check_line(r));
	if (r->nr_steps)
		print_steps(r, out);
	print_sides(r, out);
	if (r->verdict != DF_V_OK)
		fputc('\n', out);
	if (r->divergence)
		fprintf(out, "First divergence: %s.\n", r->divergence);
	if (r->divergence)
		print_stacks(r, out);
	if (r->alike)
		fprintf(out, "Last call alike: %s.\n", r->alike);
	if (r->decided)
		fprintf(out, "Decided by: %s.\n", r->decided);
	if (r->remedy_text && r->remedy_text[0])
		fprintf(out, "Remedy: %s.\n", r->remedy_text);
	if (r->fix && r->fix[0])
		fprintf(out, "Fix: %s.\n", r->fix);
	if (r->verdict != DF_V_OK || r->partial)
		fprintf(out, "Confidence: %s.\n", confidence_names[r->confidence]);
	for (size_t i = 0; i < r->nr_notes; i++)
		fprintf(out, "Note: %s.\n", r->notes[i]);
	if (r->verdict != DF_V_OK) {
		if (r->is_cycle && !r->divergence)
			print_sites(r, out);
		df_print_alikes(r, out);
		df_print_scripts(r, out);
		df_print_orders(r, out);
		df_print_pending(r, out);
		df_print_intents(r, out);
		df_check_print_hosts(r, out);
		print_comms(r, out);
	}
	fprintf(out,
		"\n%zu traces, %" PRIu64 " records, %" PRIu64 " operations (%" PRIu64
		" finished).\n",
		set->nr_traces - set->nr_dropped, set->nr_recs, set->nr_issued, set->nr_finished);
}
