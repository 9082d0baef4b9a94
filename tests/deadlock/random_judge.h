/*
 * Whether a program has ended as it has to (random_expect.h); one that did not is made smaller.
 */
#ifndef DEADLOCK_RANDOM_JUDGE_H
#define DEADLOCK_RANDOM_JUDGE_H

#include "random_expect.h"

static const char *words_of(uint64_t set)
{
	static char text[200];
	size_t n = 0;

	*text = 0;
	for (int v = DF_V_OK; v <= DF_V_UNKNOWN; v++)
		if (set >> v & 1)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", n ? " or " : "",
					      df_verdict_word((enum df_verdict)v));
	if (set & SILENT)
		snprintf(text + n, sizeof(text) - n, "%snone", n ? " or " : "");
	return text;
}

/*
 * All threads stand where the model says that nothing can move. between: where it is a matter of time who gets room the
 * model may not have met this end; and by our rules some waits can have been released and others not, so that the end
 * lies between that without any release and that with all.
 */
static int stands_at_an_end(const struct script *s, const struct expect *e, const struct outcome *o,
			    int between)
{
	const struct end *last = e->want == W_HUNG ? &e->ends[e->nr_ends - 1] : NULL;
	int inside = between && o->at_known;

	if (between && e->is_open)
		return 1;

	for (int i = 0; i < e->nr_ends; i++) {
		int same = o->at_known;

		for (int r = 0; r < s->nr_ranks; r++)
			for (int t = 0; t < s->nr_threads[r]; t++)
				same &= o->at[r][t] == e->ends[i].at[r][t];
		if (same)
			return 1;
	}
	for (int r = 0; inside && r < s->nr_ranks; r++)
		for (int t = 0; t < s->nr_threads[r]; t++)
			inside &= o->at[r][t] >= e->ends[0].at[r][t] &&
				  (!last || o->at[r][t] <= last->at[r][t]);
	return inside;
}

static const char *judge_hang(const struct script *s, const struct expect *e,
			      const struct outcome *o)
{
	static char text[1600];

	if (!stands_at_an_end(s, e, o, 1)) {
		size_t n = (size_t)snprintf(text, sizeof(text), "stands elsewhere than expected: ");

		for (int r = 0; r < s->nr_ranks; r++)
			for (int t = 0; t < s->nr_threads[r]; t++)
				n += (size_t)snprintf(text + n, sizeof(text) - n,
						      " %d.%d at %d, not %d;", r, t, o->at[r][t],
						      e->ends[0].at[r][t]);
		snprintf(text + n, sizeof(text) - n, " %s", o->line);
		return text;
	}
	if (o->silent && !*o->line)
		return e->words & SILENT ? NULL : "hung without a verdict";
	if (!*o->line)
		return snprintf(text, sizeof(text), "hung without a verdict: %s", o->text), text;
	if (e->words >> o->word & 1 && o->word != DF_V_OK)
		return NULL;
	return snprintf(text, sizeof(text), "verdict %s where %s is true: %s",
			df_verdict_word(o->word), words_of(e->words), o->line),
	       text;
}

/* NULL: as it should be. */
static const char *judge(const struct script *s, const struct label *l, int nccl,
			 const struct outcome *o)
{
	const struct expect *e = &l->by[nccl];
	static char text[1600];

	if (!o->ran)
		return snprintf(text, sizeof(text), "crashed or stuck: %s", o->text), text;
	if (o->wrong && !*o->line)
		return snprintf(text, sizeof(text), "wrong: %s", o->text), text;
	if (o->done)
		return e->want == W_HUNG ? "completed, expected to hang" : NULL;
	if (e->want == W_DONE)
		return snprintf(text, sizeof(text), "hung, expected to complete: %s %s", o->line,
				o->text),
		       text;
	return judge_hang(s, e, o);
}

/* The same; where the end is a matter of time, by many more schedules before it is called wrong. */
static const char *judge_at_length(const struct script *s, struct label *l, int nccl,
				   const struct outcome *o)
{
	const char *bad = judge(s, l, nccl, o);

	if (!bad || !o->ran || !l->by[nccl].is_open)
		return bad;
	label(s, l, ALL_SCHEDULES);
	return judge(s, l, nccl, o);
}

static void run_one(struct script *s, const struct label *l, int nccl, struct outcome *o)
{
	struct batch b = {.nr = 1, .nccl = nccl, .slots = s->slots, .queues = s->queues};
	const struct expect *e = &l->by[nccl];
	int status;

	memset(o, 0, sizeof(*o));
	b.s[0] = s;
	b.out[0] = o;
	/* What should complete and hangs is seen to sooner than in the test itself. */
	b.ms = (e->want == W_DONE ? PATIENT_MS : HANG_MS) * df_test_slow();
	b.silent_ms = e->words & SILENT ? SILENT_MS * df_test_slow() : 0;
	batch_start(&b);
	waitpid(b.pid, &status, 0);
	batch_end(&b, status);
}

/* Takes away steps (a group as a whole) for as long as the program is still judged wrong. */
static void minimise(struct script *s, int nccl, char *why, size_t len)
{
	double end = now() + 30;
	int r, t, i, again = 1;
	char first[16];

	snprintf(first, sizeof(first), "%.15s", why);
	while (again && now() < end) {
		again = 0;
		for (r = 0; r < s->nr_ranks; r++)
			for (t = 0; t < s->nr_threads[r]; t++)
				for (i = 0; i < s->threads[r][t].nr && now() < end; i++) {
					struct script small;
					struct sc_thread *th;
					struct outcome o;
					struct label l;
					const char *bad;
					int n = 1;

					copy(&small, s);
					th = &small.threads[r][t];
					if (th->v[i].kind == SC_CLOSE ||
					    (i && th->v[i - 1].kind == SC_OPEN))
						n = 0;
					while (th->v[i].kind == SC_OPEN &&
					       th->v[i + n - 1].kind != SC_CLOSE)
						n++;
					if (!n) {
						sc_free(&small);
						continue;
					}
					memmove(&th->v[i], &th->v[i + n],
						(size_t)(th->nr - i - n) * sizeof(*th->v));
					th->nr -= n;
					label(&small, &l, NR_SCHEDULES);
					run_one(&small, &l, nccl, &o);
					bad = judge_at_length(&small, &l, nccl, &o);
					/* The same failure, not another. */
					if (!bad || strncmp(bad, first, 8)) {
						sc_free(&small);
						continue;
					}
					snprintf(why, len, "%s (class %s)", bad, l.cls);
					sc_free(s);
					*s = small;
					again = 1;
					i--;
				}
	}
}

#endif
