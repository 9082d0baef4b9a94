/*
 * How a program has to end, by the model (trace/model.h), and whether it did; a program that did not is made smaller.
 */
#ifndef DEADLOCK_RANDOM_JUDGE_H
#define DEADLOCK_RANDOM_JUDGE_H

#include "label.h"
#include "random_run.h"

#define NR_SCHEDULES 64 /* that a program which is short of slots is labelled by */

enum want { W_DONE, W_HUNG, W_EITHER };

struct label {
	char cls[4]; /* by NCCL's matching */
	enum want nccl, ours;
};

static void label(const struct script *s, struct label *l)
{
	struct df_mprog p;
	int large = 0, a, b;

	to_model(s, 0, &p);
	large = !p.buffered;
	snprintf(l->cls, sizeof(l->cls), "%s", df_model_classify(&p));
	df_mprog_fini(&p);
	/*
	 * With large messages the small ones are buffered all the same; and who gets a slot, or a place in the
	 * queue, first is a matter of time. Where that decides, both ends are right.
	 */
	a = finishes(s, 0, DF_MODEL_BASE, 0, 0);
	b = finishes(s, 0, DF_MODEL_BASE, 1, 1);
	if (!large)
		a = finishes(s, 0, DF_MODEL_BASE, 1, 0);
	if (s->slots < 64 && a == b) {
		int nr = finish_by_chance(s, NR_SCHEDULES);

		if (nr != (b ? NR_SCHEDULES : 0))
			a = !b;
	}
	l->nccl = a == b ? (a ? W_DONE : W_HUNG) : W_EITHER;
	a = finishes(s, 1, DF_MODEL_SI, large ? 0 : 1, 0);
	b = finishes(s, 1, DF_MODEL_SE, 1, 0);
	l->ours = a ? W_DONE : b ? W_EITHER : W_HUNG;
}

/* NULL: as it should be. */
static const char *judge(const struct script *s, const struct label *l, int nccl,
			 const struct outcome *o)
{
	static char text[900];
	enum want w = nccl ? l->nccl : l->ours;
	const char *c = l->cls;

	if (!o->ran)
		return snprintf(text, sizeof(text), "crashed or stuck: %s", o->text), text;
	if (o->wrong && !*o->word)
		return snprintf(text, sizeof(text), "wrong: %s", o->text), text;
	if (o->done && w == W_HUNG)
		return "completed, expected to hang";
	if (!o->done && w == W_DONE)
		return snprintf(text, sizeof(text), "hung, expected to complete: %s %s", o->word,
				o->text),
		       text;
	if (o->done)
		return NULL;
	if (!*o->word && o->silent && s->flag.nr)
		return NULL;
	if (!*o->word)
		return snprintf(text, sizeof(text), "hung without a verdict: %s", o->text), text;
	if (!strcmp(o->word, "OK") || !strcmp(o->word, "UNKNOWN"))
		return snprintf(text, sizeof(text), "hung with verdict %s", o->word), text;
	/* A host that waits for another's message makes no call that could be seen: it may be told as missing. */
	if (s->flag.nr && (!strcmp(o->word, "SLOW") || !strcmp(o->word, "MISSING")))
		return NULL;
	/* Who is in a device synchronisation may go on to what the others wait for: nobody knows that it would not. */
	if (*c == 'D' && !strcmp(o->word, "SYNC"))
		return NULL;
	/* Messages that stand between a communicator's collectives are not always found in the graph. */
	if (!strcmp(o->word, "GPU_STUCK"))
		for (int r = 0; r < s->nr_ranks; r++)
			for (int t = 0; t < s->nr_threads[r]; t++)
				for (int i = 0; i < s->threads[r][t].nr; i++)
					if (s->threads[r][t].v[i].kind == SC_SEND)
						return NULL;
	/* Preventable by order alone is not a matter of data, nor is anybody missing. */
	if (nccl && w == W_HUNG && !strcmp(c, "P") && strcmp(o->word, "ORDER") &&
	    strcmp(o->word, "RESOURCE"))
		return snprintf(text, sizeof(text), "class %s with verdict %s", c, o->line), text;
	/* Of two causes either may be told. */
	if (nccl && s->slots < 64 && !strcmp(o->word, "RESOURCE"))
		return NULL;
	if (nccl && w == W_HUNG && *c == 'S' && strcmp(o->word, "SYNC") && strcmp(o->word, "ORDER"))
		return snprintf(text, sizeof(text), "class %s with verdict %s", c, o->line), text;
	if (nccl && w == W_HUNG && *c == 'D' &&
	    (!strcmp(o->word, "SYNC") || !strcmp(o->word, "RESOURCE")))
		return snprintf(text, sizeof(text), "class %s with verdict %s", c, o->line), text;
	return NULL;
}

static void run_one(struct script *s, const struct label *l, int nccl, struct outcome *o)
{
	struct batch b = {.nr = 1, .nccl = nccl, .slots = s->slots, .queues = s->queues};
	enum want w = nccl ? l->nccl : l->ours;

	memset(o, 0, sizeof(*o));
	b.s[0] = s;
	b.out[0] = o;
	b.ms = (w == W_DONE ? 3000 : HANG_MS) * df_test_slow();
	batch_start(&b, 999);
	batch_end(&b);
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
					label(&small, &l);
					run_one(&small, &l, nccl, &o);
					bad = judge(&small, &l, nccl, &o);
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
