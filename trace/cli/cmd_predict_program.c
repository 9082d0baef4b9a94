/*
 * Makes one program of the model from all steps of all ranks. Steps without a partner in the traces
 * are omitted, because they would hang in every order. Such steps are at the beginning of a ring
 * that has lost records, or at the end of a run that was cut off.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/vec.h"
#include "trace/cli/cmd_predict_program.h"

/* ---- partners ---------------------------------------------------------------------------- */

struct tallies {
	struct df_map ranks; /* (communicator, index): number of ranks that issue the collective */
	/* (communicator, source and destination): numbers of receives and of sends */
	struct df_map sides[2];
	struct df_map seen[2]; /* number of those for which has_partners() was called */
};

static void tallies_fini(struct tallies *y)
{
	df_map_fini(&y->ranks);
	for (int i = 0; i < 2; i++) {
		df_map_fini(&y->sides[i]);
		df_map_fini(&y->seen[i]);
	}
}

/* Returns the path of a message: the same for its two sides. */
static uint64_t way_of(const struct df_program_steps *p, int rank, const struct df_mp2p *m)
{
	uint64_t me = (uint64_t)rank + 1, peer = (uint64_t)df_steps_peer(p, m->comm, m->peer) + 1;

	return m->send ? me << 32 | peer : peer << 32 | me;
}

static int count_step(struct tallies *y, const struct df_program_steps *p, int rank,
		      const struct df_step_of *s)
{
	uint64_t *n;

	if (s->op.kind == DF_MOP_COLL) {
		n = df_map_at(&y->ranks, s->comm, s->index);
		if (!n)
			return -ENOMEM;
		++*n;
	}
	for (int k = 0; s->op.kind == DF_MOP_P2P && k < s->op.nr_p2p; k++) {
		const struct df_mp2p *m = &s->op.p2p[k];

		n = df_map_at(&y->sides[m->send], (uint64_t)m->comm, way_of(p, rank, m));
		if (!n)
			return -ENOMEM;
		++*n;
	}
	return 0;
}

/*
 * Whether the traces have all partners of a step. Must be called for the steps in their order.
 * Fails with -ENOMEM.
 */
static int has_partners(struct tallies *y, const struct df_program_steps *p, int rank,
			const struct df_step_of *s)
{
	int ok = 1;

	if (s->op.kind == DF_MOP_COLL) {
		const uint64_t *here = df_map_find(&y->ranks, s->comm, s->index);

		return here && *here >= (uint64_t)df_ranks_count(&p->comms[s->comm].members);
	}
	for (int k = 0; s->op.kind == DF_MOP_P2P && k < s->op.nr_p2p; k++) {
		const struct df_mp2p *m = &s->op.p2p[k];
		uint64_t way = way_of(p, rank, m), comm = (uint64_t)m->comm,
			 *seen = df_map_at(&y->seen[m->send], comm, way);
		const uint64_t *others = df_map_find(&y->sides[!m->send], comm, way);

		if (!seen)
			return -ENOMEM;
		ok &= others && (*seen)++ < *others;
	}
	return ok;
}

/*
 * Drops steps that have no partner, until every step has one: a dropped step may be the partner of
 * another. Returns 0 or -ENOMEM.
 */
static int drop_alone(struct df_program_steps *p)
{
	int rc = 0;

	for (int changed = 1; changed && !rc;) {
		struct tallies y = {0};

		changed = 0;
		for (int r = 0; r < p->nr_ranks; r++)
			for (int t = 0; t < p->ranks[r].nr_threads; t++)
				for (size_t i = 0; i < p->ranks[r].nr[t] && !rc; i++)
					if (!p->ranks[r].steps[t][i].dropped)
						rc = count_step(&y, p, r, &p->ranks[r].steps[t][i]);
		for (int r = 0; r < p->nr_ranks; r++) {
			for (int t = 0; t < p->ranks[r].nr_threads; t++) {
				for (size_t i = 0; i < p->ranks[r].nr[t] && !rc; i++) {
					struct df_step_of *s = &p->ranks[r].steps[t][i];
					int ok = s->dropped || has_partners(&y, p, r, s);

					if (ok < 0)
						rc = ok;
					if (ok)
						continue;
					changed = 1;
					s->dropped = 1;
				}
			}
		}
		tallies_fini(&y);
	}
	return rc;
}

/* ---- the program ------------------------------------------------------------------------- */

const struct df_step_of *df_predict_program_step(const struct df_predict_program *w, int rank,
						 int thread, size_t op)
{
	return &w->steps->ranks[rank].steps[thread][w->step[rank][thread][op]];
}

void df_predict_program_fini(struct df_predict_program *w)
{
	for (int r = 0; r < w->prog.nr_ranks; r++)
		for (int t = 0; t < w->prog.nr_threads[r]; t++)
			free(w->step[r][t]);
	df_predict_order_fini(&w->order);
	df_mprog_fini(&w->prog);
}

/* Merges the steps of a rank's threads in the order of their records. */
static int recorded_order(struct df_predict_program *w, int r)
{
	size_t at[DF_MODEL_THREADS] = {0};

	for (;;) {
		uint64_t first = DF_NO_REC;
		int next = -1;

		for (int t = 0; t < w->prog.nr_threads[r]; t++) {
			const struct df_mthread *th = &w->prog.threads[r][t];
			uint64_t rec;

			while (at[t] < th->nr_ops && !df_predict_takes_turn(th->ops[at[t]].kind))
				at[t]++;
			if (at[t] == th->nr_ops)
				continue;
			rec = df_predict_program_step(w, r, t, at[t])->rec;
			if (next >= 0 && rec >= first)
				continue;
			first = rec;
			next = t;
		}
		if (next < 0)
			return 0;
		if (df_predict_add(&w->order, r, next))
			return -ENOMEM;
		at[next]++;
	}
}

static int add_thread(struct df_predict_program *w, int r, int t)
{
	const struct df_rank_of *from = &w->steps->ranks[r];
	const struct df_mthread *m = &w->prog.threads[r][t];
	uint32_t group = 0;

	w->step[r][t] = calloc(from->nr[t] + 1, sizeof(*w->step[r][t]));
	if (!w->step[r][t])
		return -ENOMEM;
	for (size_t i = 0; i < from->nr[t]; i++) {
		const struct df_step_of *s = &from->steps[t][i];
		int issues = s->op.kind == DF_MOP_COLL || s->op.kind == DF_MOP_P2P;
		struct df_mop op = s->op;

		if (s->dropped)
			continue;
		w->nr_ops += (size_t)issues;
		for (int k = 0; op.kind == DF_MOP_P2P && k < op.nr_p2p; k++)
			op.p2p[k].peer = df_steps_peer(w->steps, op.p2p[k].comm, op.p2p[k].peer);
		w->step[r][t][m->nr_ops] = (uint32_t)i;
		if (issues && s->group && s->group == group)
			m->ops[m->nr_ops - 1].goes_on = 1;
		group = issues ? s->group : 0;
		if (df_mprog_add(&w->prog, r, t, &op))
			return -ENOMEM;
	}
	return 0;
}

int df_predict_program_make(struct df_predict_program *w, struct df_program_steps *p)
{
	int rc;

	memset(w, 0, sizeof(*w));
	w->steps = p;
	w->prog.nr_ranks = p->nr_ranks;
	w->prog.in_order = 1;
	for (int r = 0; r < p->nr_ranks; r++)
		w->prog.nr_threads[r] = p->ranks[r].nr_threads;
	rc = drop_alone(p);
	for (size_t c = 0; c < p->nr_comms && !rc; c++)
		if (df_mprog_comm(&w->prog, &p->comms[c].members) < 0)
			rc = -ENOMEM;
	for (int r = 0; r < p->nr_ranks && !rc; r++) {
		for (int t = 0; t < p->ranks[r].nr_threads && !rc; t++)
			rc = add_thread(w, r, t);
		rc = rc ?: recorded_order(w, r);
	}
	if (rc)
		df_predict_program_fini(w);
	return rc;
}
