/*
 * Writes a verdict as JSON with stable keys, for programs: the same content as print.c. Tools only.
 */
#include <inttypes.h>
#include <stdlib.h>
#include "trace/judge/say.h"
#include "trace/read/load_hosts.h"
#include "trace/record/names.h"
#include "trace/say/alike.h"
#include "trace/say/json.h"
#include "trace/say/print.h"

/* A record, and the call stack that led to it. */
static json_t *evidence(const struct df_check_result *r, uint32_t trace, uint64_t rec,
			uint32_t site)
{
	const struct df_trc *t;

	if (trace == DF_NONE || rec == DF_NO_REC)
		return json_null();
	t = &r->set->traces[trace];
	return json_pack("{s:o, s:o, s:o, s:o}", "rank", df_json_text(t->label), "trace",
			 df_json_text(t->name), "record", df_json_u64(df_trc_number(t, rec)),
			 "stack", df_json_frames(df_say_frames(r->set, trace, site)));
}

static json_t *or_null(const char *s)
{
	return df_json_text(s && *s ? s : NULL);
}

static json_t *steps(const struct df_check_result *r)
{
	json_t *list = json_array();
	char from[256], to[256];

	for (size_t i = 0; i < r->nr_steps; i++)
		json_array_append_new(
			list,
			json_pack("{s:o, s:o, s:o, s:b, s:o}", "text",
				  df_json_text(r->steps[i].text), "from",
				  df_json_text(
					  df_say_node(&r->g, r->steps[i].from, from, sizeof(from))),
				  "to",
				  df_json_text(df_say_node(&r->g, r->steps[i].to, to, sizeof(to))),
				  "cut", r->steps[i].cut, "evidence",
				  evidence(r, r->steps[i].trace, r->steps[i].rec,
					   df_say_site_of(r->set, r->steps[i].trace,
							  r->steps[i].rec))));
	return list;
}

static json_t *divergence(const struct df_check_result *r)
{
	if (!r->divergence)
		return json_null();
	return json_pack("{s:o, s:o, s:o, s:[o, o]}", "text", df_json_text(r->divergence),
			 "last_alike", or_null(r->alike), "decided_by", or_null(r->decided),
			 "evidence", evidence(r, r->div_trace[0], r->div_rec[0], r->div_site[0]),
			 evidence(r, r->div_trace[1], r->div_rec[1], r->div_site[1]));
}

/* The keys that all operations have. call: includes the arguments on which all ranks must agree. */
static json_t *operation(const struct df_lop *op, int call)
{
	json_t *o = json_pack("{s:s, s:o, s:s}", "kind", df_kind_name(op->kind), "count",
			      df_json_u64(op->count), "type", df_dtype_name(op->type));

	if (call && (df_kind_rooted(op->kind) || df_kind_is_p2p(op->kind)))
		json_object_set_new(o, df_kind_is_p2p(op->kind) ? "peer" : "root",
				    json_integer(op->peer));
	return o;
}

static void append(json_t *list, json_t *o, json_t *more)
{
	df_json_add(o, more);
	json_array_append_new(list, o);
}

static json_t *sides(const struct df_check_result *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->nr_sides; i++) {
		const struct df_lop *op = &r->sides[i].op;

		append(list, operation(op, 1),
		       json_pack("{s:i, s:o, s:o}", "rank", r->sides[i].rank, "redop",
				 df_json_text(df_kind_reduces(op->kind) ? df_redop_name(op->redop)
									: NULL),
				 "evidence", evidence(r, r->sides[i].trace, op->rec, op->site)));
	}
	return list;
}

static json_t *pending(const struct df_check_result *r)
{
	const struct df_check_set *set = r->set;
	json_t *list = json_array();
	char op[128], rank[128];

	for (size_t i = 0; i < set->nr_ops; i++) {
		const struct df_uop *u = &set->ops[i];

		if (u->start == DF_NONE)
			continue;
		append(list, operation(&u->l, 0),
		       json_pack("{s:o, s:o, s:o, s:o, s:o, s:i, s:b, s:b, s:o, s:o}", "op",
				 df_json_text(df_say_op(set, u, op, sizeof(op))), "rank",
				 df_json_text(df_say_rank(set, u, rank, sizeof(rank))),
				 "communicator", df_json_text(set->gcomms[u->gcomm].label), "index",
				 df_json_u64(u->l.index + 1), "stream", df_json_u64(u->l.stream),
				 "device", u->l.device, "started", u->l.state == DF_OP_STARTED,
				 "stuck", r->g.stuck[u->done], "age_s",
				 df_json_milli(df_say_ago(set, u->trace, u->l.issue_ns)),
				 "evidence", evidence(r, u->trace, u->l.rec, u->l.site)));
	}
	return list;
}

static json_t *not_issued(const struct df_check_result *r)
{
	const struct df_check_set *set = r->set;
	json_t *list = json_array();
	const struct df_trc_comm *e;
	struct df_lop op;

	for (size_t t = 0; t < set->nr_traces; t++) {
		const struct df_trc *trc = &set->traces[t];

		for (size_t i = 0; i < trc->nr_notes; i++) {
			if (!df_print_intent(set, trc, i, &op, &e))
				continue;
			append(list, operation(&op, 1),
			       json_pack("{s:o, s:o, s:o, s:o, s:o}", "rank",
					 json_sprintf("r%d", e->world), "communicator",
					 df_json_text(set->gcomms[e->gcomm].label), "stream",
					 df_json_u64(op.stream), "age_s",
					 df_json_milli(df_say_ago(set, (uint32_t)t,
								  trc->notes[i].rec.time_ns)),
					 "evidence",
					 evidence(r, (uint32_t)t, trc->notes[i].index, op.site)));
		}
	}
	return list;
}

static json_t *waiting(const struct df_check_result *r)
{
	const struct df_check_set *set = r->set;
	json_t *list = json_array();

	for (size_t t = 0; t < set->nr_traces; t++) {
		const struct df_trc *trc = &set->traces[t];

		for (size_t i = 0; i < trc->nr_calls; i++) {
			const struct df_lcall *c = &trc->calls[i];
			int world = df_say_world(set, trc, c->device, c->thread);

			if (!df_trc_is_innermost(trc, i))
				continue;
			json_array_append_new(
				list,
				json_pack("{s:o, s:I, s:s, s:o, s:o}", "rank",
					  world >= 0 ? json_sprintf("r%d", world)
						     : df_json_text(trc->label),
					  "thread", (json_int_t)c->thread, "call",
					  df_call_text(c->call), "age_s",
					  df_json_milli(df_say_ago(set, (uint32_t)t, c->enter_ns)),
					  "evidence", evidence(r, (uint32_t)t, c->rec, c->site)));
		}
	}
	return list;
}

static json_t *scripts(const struct df_check_result *r)
{
	json_t *list = json_array();

	for (size_t t = 0; t < r->set->nr_traces; t++) {
		const struct df_trc *trc = &r->set->traces[t];

		for (size_t i = 0; i < trc->nr_threads; i++) {
			const struct df_lthread *th = &trc->threads[i];

			if (df_say_has_script(trc, th))
				json_array_append_new(
					list,
					json_pack("{s:o, s:I, s:o, s:o}", "rank",
						  df_json_text(trc->label), "thread",
						  (json_int_t)th->tid, "name",
						  df_json_text(th->name), "stack",
						  df_json_frames(df_say_frames(r->set, (uint32_t)t,
									       th->at_site))));
		}
	}
	return list;
}

static json_t *communicators(const struct df_check_set *set)
{
	json_t *list = json_array();

	for (size_t i = 0; i < set->nr_gcomms; i++)
		if (set->gcomms[i].nr_entries)
			json_array_append_new(list,
					      json_pack("{s:o, s:o, s:i, s:i}", "name",
							df_json_text(set->gcomms[i].label), "hash",
							df_json_hex(set->gcomms[i].hash), "ranks",
							set->gcomms[i].nranks, "traces",
							(int)set->gcomms[i].nr_entries));
	return list;
}

static json_t *processes(const struct df_check_set *set, const struct df_alike *g)
{
	json_t *list = json_array();

	for (size_t i = 0; i < g->nr; i++) {
		const struct df_trc *t = &set->traces[g->traces[i]];
		int device = df_alike_device(set, g->traces[i]);

		json_array_append_new(
			list,
			json_pack("{s:o, s:o, s:I, s:o}", "rank", df_json_text(t->label), "host",
				  df_json_text(t->h.host), "pid", (json_int_t)t->h.pid, "device",
				  device < 0 ? json_null() : json_integer(device)));
	}
	return list;
}

/* Returns NULL without memory. */
static json_t *alikes(const struct df_check_result *r)
{
	struct df_alikes all;
	json_t *list;

	if (df_alikes_find(&all, r))
		return NULL;
	list = json_array();
	for (size_t i = 0; i < all.nr; i++) {
		struct df_crowd crowd = {0};
		json_t *ranks = json_array();

		df_alike_ranks(&all.all[i], r->set, &crowd);
		for (size_t k = 0; k < crowd.nr; k++)
			json_array_append_new(ranks, json_integer(crowd.ranks[k]));
		free(crowd.ranks);
		json_array_append_new(list, json_pack("{s:o, s:o, s:o}", "ranks", ranks, "state",
						      df_json_text(all.all[i].state), "processes",
						      processes(r->set, &all.all[i])));
	}
	df_alikes_fini(&all);
	return list;
}

int df_check_print_json(const struct df_check_result *r, FILE *out)
{
	static const char *const confidence[] = {"proved", "likely", "possible"};
	const struct df_check_set *set = r->set;
	json_t *notes = json_array(), *o;
	int prevents = r->remedy == DF_W_P || r->remedy == DF_W_SI;

	for (size_t i = 0; i < r->nr_notes; i++)
		json_array_append_new(notes, df_json_text(r->notes[i]));
	o = json_pack(
		"{s:s, s:o, s:o, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
		"s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
		"verdict", df_verdict_word(r->verdict), "qualifier", or_null(r->qualifier), "line",
		df_json_text(df_check_line(r)), "exit", df_verdict_exit(r->verdict), "confidence",
		confidence[r->confidence], "preventable",
		r->is_cycle ? json_boolean(prevents) : json_null(), "remedy",
		or_null(r->remedy_text), "fix", or_null(r->fix), r->is_cycle ? "cycle" : "chain",
		steps(r), "first_divergence", divergence(r), "sides", sides(r), "pending",
		pending(r), "not_issued", not_issued(r), "waiting", waiting(r), "scripts",
		scripts(r), "alike", alikes(r), "communicators", communicators(set), "notes", notes,
		"stuck_operations", df_json_u64(r->stuck_ops), "quiet_s",
		df_json_milli((double)r->quiet_ns / 1e9), "traces",
		df_json_u64(set->nr_traces - set->nr_dropped), "records", df_json_u64(set->nr_recs),
		"issued", df_json_u64(set->nr_issued), "finished", df_json_u64(set->nr_finished));
	return df_json_line(o, out);
}
