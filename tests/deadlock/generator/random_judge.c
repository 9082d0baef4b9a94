/*
 * Derives from the model (trace/predict/model.h) how a program must end: whether it completes, and
 * otherwise the step of each thread and the right verdicts. Compares this with the outcome, and
 * reduces a failing program to a smaller one.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include "random.h"
#include "tests/lib/test.h"

/*
 * Runs the program in the model. Returns whether it hangs, and if so adds the end and the verdicts
 * to `e`.
 */
static int one_run(struct expect *e, const struct script *s, int ours, enum df_model_mode mode,
		   const struct df_model_schedule *schedule)
{
	static struct model_map map;
	struct df_model_result res;
	struct end *end = &e->ends[e->nr_ends];
	uint64_t words = cs_words(s, ours, mode, schedule, &map, &res);
	int silent = !res.nr_unfinished;

	if (!res.hung)
		return 0;
	memset(end, 0, sizeof(*end));
	for (int r = 0; r < s->nr_ranks; r++)
		for (int t = 0; t < s->nr_threads[r]; t++) {
			size_t pc = res.pc[r][t];
			int nr = s->threads[r][t].nr;

			end->at[r][t] = pc < (size_t)map.nr[r][t] ? map.step[r][t][pc] : nr;
			silent &= end->at[r][t] == nr ||
				  s->threads[r][t].v[end->at[r][t]].kind == SC_HW;
		}
	/*
	 * Without an unfinished operation and without a thread in a CUDA call the checker has
	 * nothing to judge.
	 */
	e->words |= silent ? SILENT : words;
	for (int i = 0; i < e->nr_ends; i++)
		if (!memcmp(&e->ends[i], end, sizeof(*end)))
			return 1;
	/*
	 * If there are more ends than entries, the last entry is overwritten. No end is looked up
	 * then, because `is_open` is set.
	 */
	e->nr_ends += e->nr_ends < NR_SCHEDULES - 1;
	return 1;
}

/* Whether timing decides which operation runs first: slots are short, or threads share a queue. */
static int is_a_matter_of_time(const struct script *s)
{
	int threads = 0;

	for (int r = 0; r < s->nr_ranks; r++)
		threads |= s->nr_threads[r] > 1;
	return s->slots < 64 || (s->queues == 1 && threads);
}

/*
 * A number for a message between `rank` and `with` that is the same on both ranks. 0 for any other
 * step.
 */
static uint64_t message(const struct sc_step *st, int rank, int with)
{
	int from = st->kind == SC_SEND ? rank : st->peer,
	    to = st->kind == SC_SEND ? st->peer : rank;

	if ((st->kind != SC_SEND && st->kind != SC_RECV) || st->peer != with)
		return 0;
	return 1ULL << 62 | (uint64_t)from << 52 | (uint64_t)to << 44 | st->count;
}

/*
 * Whether two ranks issue different steps as the i-th of a communicator, at least one of them a
 * collective. Only their collectives and the messages between the two count.
 */
static int disagree(const struct script *s, int comm, int a, int b)
{
	const int r[2] = {a, b};
	uint64_t sig[2][64];
	int nr[2] = {0, 0};

	for (int k = 0; k < 2; k++)
		for (int t = 0; t < s->nr_threads[r[k]]; t++)
			for (int i = 0; i < s->threads[r[k]][t].nr && nr[k] < 64; i++) {
				const struct sc_step *st = &s->threads[r[k]][t].v[i];

				if (st->comm != comm)
					continue;
				if (st->kind == SC_COLL)
					sig[k][nr[k]++] = (uint64_t)st->coll | st->count << 8;
				else if (message(st, r[k], r[!k]))
					sig[k][nr[k]++] = message(st, r[k], r[!k]);
			}
	for (int i = 0; i < nr[0] && i < nr[1]; i++)
		if (sig[0][i] != sig[1][i] && !(sig[0][i] & sig[1][i] & 1ULL << 62))
			return 1;
	return 0;
}

void label(const struct script *s, struct label *l, int schedules)
{
	struct expect *nccl = &l->by[1], *ours = &l->by[0];
	struct df_mprog p;
	int nr, hung = 0;

	memset(l, 0, sizeof(*l));
	to_model(s, 0, &p);
	snprintf(l->cls, sizeof(l->cls), "%s", df_model_classify(&p));
	df_mprog_fini(&p);
	nr = is_a_matter_of_time(s) ? schedules : 1;
	for (int i = 0; i < nr; i++) {
		struct dice dice;
		const struct df_model_schedule order = dice_schedule(&dice, i, s->nr_ranks);

		hung += one_run(nccl, s, 0, DF_MODEL_BASE, nr > 1 ? &order : NULL);
	}
	nccl->is_open = nr > 1;
	nccl->want = !hung ? W_DONE : hung == nr ? W_HUNG : W_EITHER;
	if (one_run(ours, s, 1, DF_MODEL_SI, NULL))
		ours->want = one_run(ours, s, 1, DF_MODEL_SE, NULL) ? W_HUNG : W_EITHER;
	/*
	 * dfshim matches collectives by signature. If the program nevertheless hangs, MISMATCH is
	 * right too.
	 */
	for (int c = 0; c < s->comm.nr && ours->want != W_DONE; c++)
		for (int i = 0; i < s->comms[c].nr; i++)
			for (int k = 0; k < i; k++)
				if (disagree(s, c, s->comms[c].ranks[i], s->comms[c].ranks[k]))
					ours->words |= cs_bit(DF_V_MISMATCH);
}

const char *words_of(uint64_t set)
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

int stands_at_an_end(const struct script *s, const struct expect *e, const struct outcome *o,
		     int between)
{
	const struct end *last = e->want == W_HUNG ? &e->ends[e->nr_ends - 1] : NULL;
	int inside = between && o->at_known;
	/*
	 * MISMATCH is reported as soon as two ranks wait for operations that never meet. The other
	 * threads may not have reached their ends by then.
	 */
	int early = *o->line && o->word == DF_V_MISMATCH;

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
			inside &= (early || o->at[r][t] >= e->ends[0].at[r][t]) &&
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

/*
 * Checks the remedy in the report of the run by NCCL's rules: it must not say "not preventable" if
 * the program completes by dfshim's rules.
 */
static const char *judge_remedy(const struct expect *ours, const struct outcome *o)
{
	static char text[1600];

	if (strncmp(o->remedy, "not preventable", 15) || ours->want != W_DONE)
		return NULL;
	return snprintf(text, sizeof(text), "completes by our rules, although it is %s %s",
			o->remedy, o->line),
	       text;
}

const char *judge(const struct script *s, const struct label *l, int nccl, const struct outcome *o)
{
	const struct expect *e = &l->by[nccl];
	const char *bad;
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
	bad = judge_hang(s, e, o);
	return !bad && nccl ? judge_remedy(&l->by[0], o) : bad;
}

const char *judge_at_length(const struct script *s, struct label *l, int nccl,
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
	/* Here a program that hangs, but should complete, is ended sooner than by FINISH_MS. */
	b.ms = (e->want == W_DONE ? PATIENT_MS : HANG_MS) * df_test_slow();
	b.silent_ms = e->words & SILENT ? SILENT_MS * df_test_slow() : 0;
	batch_start(&b);
	waitpid(b.pid, &status, 0);
	batch_end(&b, status);
}

void minimise(struct script *s, int nccl, char *why, size_t len)
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

					sc_copy(&small, s);
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
					/* Go on only with the same failure. */
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
