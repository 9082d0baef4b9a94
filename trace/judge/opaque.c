/*
 * Names work that is no operation of NCCL and may never end: kernels, copies and others that a
 * process had put on a stream when it stood still (LAUNCH records). It is only named: what such a
 * kernel waits for is not recorded.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/clean_text.h"
#include "runtime/base/err.h"
#include "trace/judge/judge_int.h"
#include "trace/judge/result.h"
#include "trace/judge/say.h"
#include "trace/record/names.h"

#define MAX_FOUND 32 /* of one wait: those of two streams */
#define MAX_TOLD  4  /* of them in a sentence */
#define MAX_WAITS 4  /* noted */

struct found {
	const struct df_rec *rec[MAX_FOUND];
	size_t nr;
};

/* The number of a record in its stream's list; 0 begins the list anew. */
static uint64_t number_of(const struct df_rec *rec)
{
	return rec->b >> 8 & 0xffffff;
}

static void forget_stream(struct found *f, uint64_t stream)
{
	size_t n = 0;

	for (size_t i = 0; i < f->nr; i++)
		if (f->rec[i]->c != stream)
			f->rec[n++] = f->rec[i];
	f->nr = n;
}

/*
 * Finds the work in the last lists of the trace that the operation waits for; or with op 0 that on
 * one stream (0: on all streams of the device) which no operation follows. since: older records are
 * of another wait.
 */
static void find(struct found *f, const struct df_trc *t, uint64_t op, uint64_t stream, int device,
		 uint64_t since)
{
	f->nr = 0;
	for (size_t i = 0; i < t->nr_notes; i++) {
		const struct df_rec *rec = &t->notes[i].rec;

		if (rec->type != DF_REC_LAUNCH || t->notes[i].index < since)
			continue;
		if (!number_of(rec))
			forget_stream(f, rec->c);
		if (rec->op != op || (stream && rec->c != stream) ||
		    (!op && !stream && device >= 0 && rec->device != device))
			continue;
		if (f->nr < MAX_FOUND)
			f->rec[f->nr++] = rec;
	}
}

/* "kernel f", "a memcpy"; a name is from outside. */
static void name_of(const struct df_check_set *set, uint32_t trace, const struct df_rec *rec,
		    char *buf, size_t size)
{
	uint32_t kind = (uint32_t)rec->b & 0xff;
	char name[256] = "";

	if (rec->a && df_say_string(set, trace, rec->a, name, sizeof(name)))
		df_text_clean(name, strlen(name));
	if (name[0])
		snprintf(buf, size, "%s %s", df_work_name(kind), name);
	else
		snprintf(buf, size, "a %s", df_work_name(kind));
}

static int is_one_stream(const struct found *f)
{
	for (size_t i = 1; i < f->nr; i++)
		if (f->rec[i]->c != f->rec[0]->c)
			return 0;
	return 1;
}

/* "kernel f (12 times), a memcpy and 3 others"; with streams if there are several. */
static void put_list(struct df_check_result *r, uint32_t trace, const struct found *f,
		     struct df_line *b)
{
	int one = is_one_stream(f);
	char name[320];

	for (size_t i = 0; i < f->nr && i < MAX_TOLD; i++) {
		uint32_t times = (uint32_t)(f->rec[i]->b >> 32);

		name_of(r->set, trace, f->rec[i], name, sizeof(name));
		df_line_put(b, "%s%.200s", i ? ", " : "", name);
		if (times > 1)
			df_line_put(b, " (%" PRIu32 " times)", times);
		if (!one)
			df_line_put(b, " on stream %" PRIu64, f->rec[i]->c);
	}
	if (f->nr > MAX_TOLD)
		df_line_put(b, " and %zu others", f->nr - MAX_TOLD);
}

int df_line_launches(struct df_check_result *r, const struct df_uop *u, struct df_line *b)
{
	struct found f;
	char name[320];

	find(&f, &r->set->traces[u->trace], u->l.serial, 0, -1, 0);
	if (!f.nr)
		return 0;
	if (f.nr == 1) {
		name_of(r->set, u->trace, f.rec[0], name, sizeof(name));
		df_line_put(b,
			    "; %.200s, which was issued before it on stream %" PRIu64
			    ", may never end",
			    name, f.rec[0]->c);
		return 1;
	}
	df_line_put(b, "; one of these, which were issued before it");
	if (is_one_stream(&f))
		df_line_put(b, " on stream %" PRIu64, f.rec[0]->c);
	df_line_put(b, ", may never end: ");
	put_list(r, u->trace, &f, b);
	return 1;
}

/* Whether the call waits for a stream, an event or a device; *stream: 0 for all of them. */
static int waits_for_work(const struct df_lcall *c, uint64_t *stream)
{
	*stream = 0;
	if (!c->open || c->background || c->released)
		return 0;
	if (c->call == DF_CALL_STREAM_SYNC)
		*stream = c->object;
	else if (c->call == DF_CALL_EVENT_SYNC)
		*stream = c->detail;
	return *stream || df_call_class(c->call) == DF_CLASS_DEVICE;
}

void df_explain_launches(struct df_check_result *r)
{
	size_t told = 0;

	if (r->verdict == DF_V_OK || r->verdict == DF_V_CRASH)
		return;
	for (uint32_t t = 0; t < r->set->nr_traces; t++) {
		const struct df_trc *trc = &r->set->traces[t];

		for (size_t i = 0; i < trc->nr_calls && told < MAX_WAITS && !trc->dropped; i++) {
			const struct df_lcall *c = &trc->calls[i];
			struct df_line b = {.n = 0};
			struct found f;
			uint64_t stream;
			char thread[64];

			if (!waits_for_work(c, &stream))
				continue;
			find(&f, trc, 0, stream, c->device, c->rec);
			if (!f.nr)
				continue;
			put_list(r, t, &f, &b);
			told++;
			df_note(r,
				"%s of %s has been in %s for %.1f s. No operation of NCCL is "
				"unfinished there, but other work may never end: %s",
				df_say_thread(r->set, t, c->thread, thread, sizeof(thread)),
				trc->label, df_call_text(c->call),
				df_say_ago(r->set, t, c->enter_ns), b.s);
		}
	}
}
