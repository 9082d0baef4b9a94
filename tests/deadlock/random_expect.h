/*
 * How a program has to end, by the model (trace/predict/model.h): whether it completes, and if not, where each thread stands
 * then and which verdicts are true of it.
 */
#ifndef DEADLOCK_RANDOM_EXPECT_H
#define DEADLOCK_RANDOM_EXPECT_H

#include "causes.h"
#include "random_run.h"

#define NR_SCHEDULES  64   /* that a program is labelled by where its end is a matter of time */
#define ALL_SCHEDULES 4096 /* before one that ended as none of those is called wrong */
#define SILENT	      (1ULL << 62) /* no verdict: nothing is in flight, hosts wait for one another */

enum want { W_DONE, W_HUNG, W_EITHER };

/* Where the threads stand when nothing moves any more. */
struct end {
	int at[AT_RANKS][AT_THREADS];
};

struct expect {
	enum want want;
	uint64_t words;		       /* set of verdicts, of which each is right if it hangs */
	int nr_ends, is_open;	       /* there may be more ends */
	struct end ends[NR_SCHEDULES]; /* those that the model has found */
};

struct label {
	char cls[4];	     /* by NCCL's matching */
	struct expect by[2]; /* [1] by NCCL's rules, [0] by ours */
};

static inline int is_large(const struct script *s)
{
	for (int r = 0; r < s->nr_ranks; r++)
		for (int t = 0; t < s->nr_threads[r]; t++)
			for (int i = 0; i < s->threads[r][t].nr; i++)
				if (s->threads[r][t].v[i].count >= UNBUFFERED)
					return 1;
	return 0;
}

/* Runs it to its standstill and adds what that says; 1: it is one. */
static inline int one_run(struct expect *e, const struct script *s, int ours,
			  enum df_model_mode mode, const struct df_model_schedule *schedule)
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
	/* Something is unfinished, or a host is in a call of CUDA: else there is nothing to judge. */
	e->words |= silent ? SILENT : words;
	for (int i = 0; i < e->nr_ends; i++)
		if (!memcmp(&e->ends[i], end, sizeof(*end)))
			return 1;
	/* The last is overwritten where there are more: none is sought among them then (is_open). */
	e->nr_ends += e->nr_ends < NR_SCHEDULES - 1;
	return 1;
}

/* Where slots are short, or threads share a queue, who comes first is a matter of time. */
static inline int is_a_matter_of_time(const struct script *s)
{
	int threads = 0;

	for (int r = 0; r < s->nr_ranks; r++)
		threads |= s->nr_threads[r] > 1;
	return s->slots < 64 || (s->queues == 1 && threads);
}

/* The collectives of a communicator are not the same, place by place, on two ranks. */
static inline int disagree(const struct script *s, int comm, int a, int b)
{
	const int r[2] = {a, b};
	uint64_t sig[2][64];
	int nr[2] = {0, 0};

	for (int k = 0; k < 2; k++)
		for (int t = 0; t < s->nr_threads[r[k]]; t++)
			for (int i = 0; i < s->threads[r[k]][t].nr && nr[k] < 64; i++) {
				const struct sc_step *st = &s->threads[r[k]][t].v[i];

				if (st->kind == SC_COLL && st->comm == comm)
					sig[k][nr[k]++] = (uint64_t)st->coll | st->count << 8;
			}
	for (int i = 0; i < nr[0] && i < nr[1]; i++)
		if (sig[0][i] != sig[1][i])
			return 1;
	return 0;
}

static void label(const struct script *s, struct label *l, int schedules)
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
	/* By our rules they meet by signature; where that does not end well they differ all the same. */
	for (int c = 0; c < s->comm.nr && ours->want != W_DONE; c++)
		for (int i = 0; i < s->comms[c].nr; i++)
			for (int k = 0; k < i; k++)
				if (disagree(s, c, s->comms[c].ranks[i], s->comms[c].ranks[k]))
					ours->words |= cs_bit(DF_V_MISMATCH);
}

#endif
