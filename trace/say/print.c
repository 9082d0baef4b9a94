/*
 * A verdict on paper: for people, and as JSON with stable keys for programs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "trace/read/json_text.h"
#include "trace/record/names.h"
#include "trace/say/print.h"

#define MAX_PENDING 32

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

/* The calls that do not agree, with their arguments side by side. */
static void print_sides(const struct df_check_result *r, FILE *out)
{
	char root[16], site[160];

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
			df_say_site(r->set, s->trace, s->op.site, site, sizeof(site)));
	}
	if (r->nr_sides > MAX_SIDES)
		fprintf(out, "  and %zu more\n", r->nr_sides - MAX_SIDES);
}

static void print_comms(const struct df_check_result *r, FILE *out)
{
	size_t shown = 0;

	for (size_t i = 0; i < r->set->nr_gcomms; i++) {
		const struct df_gcomm *g = &r->set->gcomms[i];

		if (!shown++)
			fprintf(out, "\nCommunicators:\n");
		if (shown > MAX_PENDING)
			break;
		fprintf(out, "  %-8s commHash 0x%" PRIx64 ", %d ranks, %u with a trace\n", g->label,
			g->hash, g->nranks, g->nr_entries);
	}
	if (r->set->nr_gcomms > MAX_PENDING)
		fprintf(out, "  and %zu more\n", r->set->nr_gcomms - MAX_PENDING);
}

#define MAX_FRAMES 6

/* How the two came there; where only the call itself is known the sentence has said it. */
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

void df_check_print(const struct df_check_result *r, FILE *out)
{
	const struct df_check_set *set = r->set;

	fprintf(out, "%s\n", df_check_line(r));
	if (r->nr_steps) {
		fprintf(out, "\n%s\n", r->is_cycle ? "Shortest cycle:" : "Who waits for whom:");
		for (size_t i = 0; i < r->nr_steps; i++) {
			fprintf(out, "  %zu. %s", i + 1, r->steps[i].text);
			if (r->steps[i].rec != DF_NO_REC)
				fprintf(out, "   [%s record %" PRIu64 "]",
					trace_label(r, r->steps[i].trace),
					record_number(r, r->steps[i].trace, r->steps[i].rec));
			fprintf(out, "%s\n", r->steps[i].cut ? "   <-- can be cut here" : "");
		}
	}
	print_sides(r, out);
	if (r->verdict != DF_V_OK)
		fputc('\n', out);
	if (r->divergence)
		fprintf(out, "First divergence: %s.\n", r->divergence);
	if (r->divergence)
		print_stacks(r, out);
	if (r->remedy_text && r->remedy_text[0])
		fprintf(out, "Remedy: %s.\n", r->remedy_text);
	if (r->fix && r->fix[0])
		fprintf(out, "Fix: %s.\n", r->fix);
	if (r->verdict != DF_V_OK || r->partial)
		fprintf(out, "Confidence: %s.\n", confidence_names[r->confidence]);
	for (size_t i = 0; i < r->nr_notes; i++)
		fprintf(out, "Note: %s.\n", r->notes[i]);
	if (r->verdict != DF_V_OK) {
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
		set->nr_traces, set->nr_recs, set->nr_issued, set->nr_finished);
}

static void json_key(FILE *out, const char *key, const char *value)
{
	fprintf(out, ",\"%s\":", key);
	if (value && value[0])
		df_json_string(out, value);
	else
		fputs("null", out);
}

/* A record, and the calls that led to it. */
static void json_evidence(const struct df_check_result *r, FILE *out, uint32_t trace, uint64_t rec,
			  uint32_t site)
{
	if (trace == DF_NONE || rec == DF_NO_REC) {
		fputs("null", out);
		return;
	}
	fputs("{\"rank\":", out);
	df_json_string(out, r->set->traces[trace].label);
	fputs(",\"trace\":", out);
	df_json_string(out, r->set->traces[trace].name);
	fprintf(out, ",\"record\":%" PRIu64 ",\"stack\":", record_number(r, trace, rec));
	df_stack_json(df_say_frames(r->set, trace, site), out);
	fputc('}', out);
}

static void json_sides(const struct df_check_result *r, FILE *out)
{
	fputs(",\"sides\":[", out);
	for (size_t i = 0; i < r->nr_sides; i++) {
		const struct df_lop *op = &r->sides[i].op;

		fprintf(out,
			"%s{\"rank\":%d,\"kind\":\"%s\",\"count\":%" PRIu64
			",\"type\":\"%s\",\"redop\":",
			i ? "," : "", r->sides[i].rank, df_kind_name(op->kind), op->count,
			df_dtype_name(op->type));
		if (df_kind_reduces(op->kind))
			df_json_string(out, df_redop_name(op->redop));
		else
			fputs("null", out);
		if (df_kind_rooted(op->kind) || df_kind_is_p2p(op->kind))
			fprintf(out, ",\"%s\":%d", df_kind_is_p2p(op->kind) ? "peer" : "root",
				op->peer);
		fputs(",\"evidence\":", out);
		json_evidence(r, out, r->sides[i].trace, op->rec, op->site);
		fputc('}', out);
	}
	fputc(']', out);
}

static void json_ops(const struct df_check_result *r, FILE *out)
{
	const struct df_check_set *set = r->set;
	char text[128];
	int any = 0;

	fputs(",\"pending\":[", out);
	for (size_t i = 0; i < set->nr_ops; i++) {
		const struct df_uop *u = &set->ops[i];

		if (u->start == DF_NONE)
			continue;
		fputs(any++ ? ",{\"op\":" : "{\"op\":", out);
		df_json_string(out, df_say_op(set, u, text, sizeof(text)));
		fputs(",\"rank\":", out);
		df_json_string(out, df_say_rank(set, u, text, sizeof(text)));
		fputs(",\"communicator\":", out);
		df_json_string(out, set->gcomms[u->gcomm].label);
		fprintf(out,
			",\"index\":%" PRIu64 ",\"kind\":\"%s\",\"count\":%" PRIu64
			",\"type\":\"%s\"",
			u->l.index + 1, df_kind_name(u->l.kind), u->l.count,
			df_dtype_name(u->l.type));
		fprintf(out,
			",\"stream\":%" PRIu64
			",\"device\":%d,\"started\":%s,\"stuck\":%s,\"age_s\":%.3f",
			u->l.stream, u->l.device, u->l.state == DF_OP_STARTED ? "true" : "false",
			r->g.stuck[u->done] ? "true" : "false",
			df_say_ago(set, u->trace, u->l.issue_ns));
		fputs(",\"evidence\":", out);
		json_evidence(r, out, u->trace, u->l.rec, u->l.site);
		fputc('}', out);
	}
	fputc(']', out);
}

static void json_intents(const struct df_check_result *r, FILE *out)
{
	const struct df_check_set *set = r->set;
	const struct df_entry *e;
	struct df_lop op;
	int any = 0;

	fputs(",\"not_issued\":[", out);
	for (size_t t = 0; t < set->nr_traces; t++) {
		const struct df_trc *trc = &set->traces[t];

		for (size_t i = 0; i < trc->nr_notes; i++) {
			if (!df_print_intent(set, trc, i, &op, &e))
				continue;
			fprintf(out, "%s{\"rank\":\"r%d\",\"communicator\":", any++ ? "," : "",
				e->world);
			df_json_string(out, set->gcomms[e->gcomm].label);
			fprintf(out, ",\"kind\":\"%s\",\"count\":%" PRIu64 ",\"type\":\"%s\"",
				df_kind_name(op.kind), op.count, df_dtype_name(op.type));
			if (df_kind_rooted(op.kind) || df_kind_is_p2p(op.kind))
				fprintf(out, ",\"%s\":%d",
					df_kind_is_p2p(op.kind) ? "peer" : "root", op.peer);
			fprintf(out,
				",\"stream\":%" PRIu64 ",\"age_s\":%.3f,\"evidence\":", op.stream,
				df_say_ago(set, (uint32_t)t, trc->notes[i].rec.time_ns));
			json_evidence(r, out, (uint32_t)t, trc->notes[i].index, op.site);
			fputc('}', out);
		}
	}
	fputc(']', out);
}

static void json_hosts(const struct df_check_result *r, FILE *out)
{
	const struct df_check_set *set = r->set;
	int any = 0, world;

	fputs(",\"waiting\":[", out);
	for (size_t t = 0; t < set->nr_traces; t++) {
		const struct df_trc *trc = &set->traces[t];

		for (size_t i = 0; i < trc->nr_calls; i++) {
			const struct df_lcall *c = &trc->calls[i];

			if (!df_print_waits(trc, i))
				continue;
			world = df_say_world(set, trc, c->device, c->thread);
			fputs(any++ ? ",{\"rank\":" : "{\"rank\":", out);
			if (world >= 0)
				fprintf(out, "\"r%d\"", world);
			else
				df_json_string(out, trc->label);
			fprintf(out, ",\"thread\":%" PRIu32 ",\"call\":", c->thread);
			df_json_string(out, df_call_text(c->call));
			fprintf(out, ",\"age_s\":%.3f,\"evidence\":",
				df_say_ago(set, (uint32_t)t, c->enter_ns));
			json_evidence(r, out, (uint32_t)t, c->rec, c->site);
			fputc('}', out);
		}
	}
	fputc(']', out);
}

void df_check_print_json(const struct df_check_result *r, FILE *out)
{
	struct df_check_set *set = r->set;
	char text[256];

	fputs("{\"verdict\":", out);
	df_json_string(out, df_verdict_word(r->verdict));
	json_key(out, "qualifier", r->qualifier);
	json_key(out, "line", df_check_line(r));
	fprintf(out, ",\"exit\":%d,\"confidence\":\"%s\"", df_verdict_exit(r->verdict),
		confidence_names[r->confidence]);
	fprintf(out, ",\"preventable\":%s",
		!r->is_cycle				      ? "null"
		: r->remedy == DF_W_P || r->remedy == DF_W_SI ? "true"
							      : "false");
	json_key(out, "remedy", r->remedy_text);
	json_key(out, "fix", r->fix);
	fprintf(out, ",\"%s\":[", r->is_cycle ? "cycle" : "chain");
	for (size_t i = 0; i < r->nr_steps; i++) {
		fputs(i ? ",{\"text\":" : "{\"text\":", out);
		df_json_string(out, r->steps[i].text);
		fputs(",\"from\":", out);
		df_json_string(out, df_say_node(&r->g, r->steps[i].from, text, sizeof(text)));
		fputs(",\"to\":", out);
		df_json_string(out, df_say_node(&r->g, r->steps[i].to, text, sizeof(text)));
		fprintf(out, ",\"cut\":%s,\"evidence\":", r->steps[i].cut ? "true" : "false");
		json_evidence(r, out, r->steps[i].trace, r->steps[i].rec,
			      df_say_site_of(set, r->steps[i].trace, r->steps[i].rec));
		fputc('}', out);
	}
	fputs("],\"first_divergence\":", out);
	if (r->divergence) {
		fputs("{\"text\":", out);
		df_json_string(out, r->divergence);
		fputs(",\"evidence\":[", out);
		json_evidence(r, out, r->div_trace[0], r->div_rec[0], r->div_site[0]);
		fputc(',', out);
		json_evidence(r, out, r->div_trace[1], r->div_rec[1], r->div_site[1]);
		fputs("]}", out);
	} else {
		fputs("null", out);
	}
	json_sides(r, out);
	json_ops(r, out);
	json_intents(r, out);
	json_hosts(r, out);
	df_print_json_scripts(r, out);
	fputs(",\"communicators\":[", out);
	for (size_t i = 0; i < set->nr_gcomms; i++) {
		fputs(i ? ",{\"name\":" : "{\"name\":", out);
		df_json_string(out, set->gcomms[i].label);
		fprintf(out, ",\"hash\":\"0x%" PRIx64 "\",\"ranks\":%d,\"traces\":%u}",
			set->gcomms[i].hash, set->gcomms[i].nranks, set->gcomms[i].nr_entries);
	}
	fputs("],\"notes\":[", out);
	for (size_t i = 0; i < r->nr_notes; i++) {
		if (i)
			fputc(',', out);
		df_json_string(out, r->notes[i]);
	}
	fprintf(out, "],\"stuck_operations\":%zu,\"quiet_s\":%.3f", r->stuck_ops,
		(double)r->quiet_ns / 1e9);
	fprintf(out,
		",\"traces\":%zu,\"records\":%" PRIu64 ",\"issued\":%" PRIu64
		",\"finished\":%" PRIu64 "}\n",
		set->nr_traces, set->nr_recs, set->nr_issued, set->nr_finished);
}
