/*
 * Jobs for the evaluation of the checker (eval.c): the communication of one or two steps of training, or of a
 * composed collective (eval_models.h), with a change (eval_change.h). Everything follows from the seed.
 */
#ifndef DEADLOCK_EVAL_JOBS_H
#define DEADLOCK_EVAL_JOBS_H

#include "eval_change.h"
#include "eval_models.h"

static inline void ev_comms(struct ev_job *j)
{
	char name[24];
	int c;

	sc_comm_add(&j->s, "W", 0);
	for (int r = 0; r < j->ranks; r++)
		sc_comm_member(&j->s.comms[0], r);
	memset(j->tp_comm, -1, sizeof(j->tp_comm));
	memset(j->dp_comm, -1, sizeof(j->dp_comm));
	for (int d = 0; j->tp > 1 && d < j->dp; d++) {
		snprintf(name, sizeof(name), "T%d", d);
		c = sc_comm_add(&j->s, name, 0);
		for (int t = 0; t < j->tp; t++) {
			sc_comm_member(&j->s.comms[c], d * j->tp + t);
			j->tp_comm[d * j->tp + t] = c;
		}
	}
	for (int t = 0; j->dp > 1 && t < j->tp; t++) {
		snprintf(name, sizeof(name), "D%d", t);
		c = sc_comm_add(&j->s, name, 0);
		for (int d = 0; d < j->dp; d++) {
			sc_comm_member(&j->s.comms[c], d * j->tp + t);
			j->dp_comm[d * j->tp + t] = c;
		}
	}
}

/* Number `number` of a shape: group sizes 2, 4, 6 and 8 in turn; a fifth is left unchanged. */
static inline void ev_make(struct ev_job *j, int shape, int number, uint64_t seed)
{
	static const int places[3][3] = {{1, 2, 3}, {0, 0, 0}, {0, 1, 1}};
	static void (*const models[])(struct ev_job *) = {ev_mlp, ev_gpt2, ev_mbart, ev_swin,
							  ev_openfold};
	const int *place;
	int steps;

	memset(j, 0, sizeof(*j));
	df_rng_init(&j->rng, seed * 1000003 + (uint64_t)(shape * 1000 + number));
	snprintf(j->s.name, sizeof(j->s.name), "%s.%d", ev_shapes[shape], number);
	j->ranks = 2 + 2 * (number % 4);
	j->tp = j->ranks > 2 || shape >= EV_MODELS || ev_below(j, 2) ? 2 : 1;
	j->dp = j->ranks / j->tp;
	j->s.nr_ranks = j->ranks;
	j->s.slots = 4;
	j->s.queues = 8;
	j->message = ev_below(j, 2) ? EV_BIG : 512;
	place = places[ev_below(j, 3)];
	j->tp_stream = place[0];
	j->dp_stream = place[1];
	j->world_stream = place[2];
	ev_comms(j);
	for (int k = 0; k < 4; k++) {
		char name[8];

		snprintf(name, sizeof(name), "nb%d", k);
		sc_name(&j->s.stream, name);
	}
	steps = shape < EV_MODELS ? 1 + (int)ev_below(j, 2) : 1;
	for (int k = 0; k < steps; k++) {
		if (shape < EV_MODELS)
			models[shape](j);
		else
			ev_hierarchical(j, shape - EV_MODELS);
		ev_all(j, EU_JOIN);
		ev_all(j, EU_WORK); /* the optimizer */
		if (ev_below(j, 2))
			ev_all(j, EU_SSYNC);
	}
	/* Half of the changes concern the order. */
	j->change = EV_NONE;
	if (ev_below(j, 5))
		j->change = ev_below(j, 3)   ? 1 + (enum ev_change)ev_below(j, EV_NR - 1)
			    : ev_below(j, 2) ? EV_SWAP
					     : EV_SWAP_SYNC;
	ev_mutate(j);
	for (int r = 0; r < j->ranks; r++)
		for (int i = 0; i < j->nr[r]; i++)
			ev_emit(j, r, &j->u[r][i]);
}

static inline void ev_free(struct ev_job *j)
{
	for (int r = 0; r < j->ranks; r++)
		free(j->u[r]);
	sc_free(&j->s);
}

#endif
