/* Finds the CTAs and queues that a recorded program needs on lanes (cmd_predict_budget.h). */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "trace/cli/cmd_predict_budget.h"
#include "trace/record/names.h"
#include "trace/say/json.h"

/* A stream takes about this many launches before the next one blocks its thread. */
#define AHEAD 1024
/* Hardware queues that lanes leave to other streams; each lane uses two. */
#define OTHER_QUEUES 8

/* ---- what is in flight ----------------------------------------------------------------------- */

struct counting {
	const struct df_predict_program *w;
	struct df_budget *b;
	struct df_budget_lane *now;  /* by rank and communicator: its lane */
	size_t nr[DF_MODEL_RANKS];   /* number of communicators in flight that need capacity */
	size_t wide[DF_MODEL_RANKS]; /* number of these that have CTAs */
	size_t most[DF_MODEL_RANKS], most_wide[DF_MODEL_RANKS]; /* the maxima of both over time */
	uint64_t clock;
	int failed;
};

static int by_age(const void *a, const void *b)
{
	const struct df_budget_lane *x = a, *y = b;

	return (x->since > y->since) - (x->since < y->since);
}

/*
 * Updates the maxima. Copies the rank's communicators if there are more of them than on any rank
 * before.
 */
static void keep_most(struct counting *c, int rank)
{
	const struct df_budget_lane *now = &c->now[(size_t)rank * (size_t)c->w->prog.nr_comms];

	if (c->wide[rank] > c->most_wide[rank])
		c->most_wide[rank] = c->wide[rank];
	if (c->nr[rank] <= c->most[rank])
		return;
	c->most[rank] = c->nr[rank];
	if (c->nr[rank] <= c->b->nr_lanes)
		return;
	c->b->rank = rank;
	c->b->nr_lanes = 0;
	for (int k = 0; k < c->w->prog.nr_comms; k++)
		if (now[k].nr)
			c->b->lanes[c->b->nr_lanes++] = now[k];
	qsort(c->b->lanes, c->b->nr_lanes, sizeof(*c->b->lanes), by_age);
}

static int is_wide(const struct df_predict_program *w, int comm)
{
	return w->steps->comms[comm].nranks > 1;
}

/*
 * Counts an operation that is issued or ends. A communicator of one rank waits for no other rank:
 * it needs no CTAs, but queues.
 */
static void count(struct counting *c, int rank, int thread, size_t op, int comm, int issued)
{
	struct df_budget_lane *l =
		&c->now[(size_t)rank * (size_t)c->w->prog.nr_comms + (size_t)comm];

	if (!is_wide(c->w, comm) && !c->b->queues)
		return;
	if (!issued) {
		if (--l->nr)
			return;
		c->nr[rank]--;
		c->wide[rank] -= (size_t)is_wide(c->w, comm);
		return;
	}
	if (!l->nr++) {
		l->comm = comm;
		l->thread = thread;
		l->op = op;
		l->since = ++c->clock;
		c->nr[rank]++;
		c->wide[rank] += (size_t)is_wide(c->w, comm);
		keep_most(c, rank);
	}
}

static void event(void *arg, enum df_model_event ev, int rank, int thread, size_t op,
		  const struct df_mop *mop, int task)
{
	(void)task;
	if (ev != DF_ME_ISSUE && ev != DF_ME_DONE)
		return;
	if (mop->kind == DF_MOP_COLL)
		count(arg, rank, thread, op, mop->comm, ev == DF_ME_ISSUE);
	for (int k = 0; mop->kind == DF_MOP_P2P && k < mop->nr_p2p; k++)
		count(arg, rank, thread, op, mop->p2p[k].comm, ev == DF_ME_ISSUE);
}

/*
 * Returns how many lanes fit on the device. The reserve is as large as a communicator's CTAs, as in
 * runtime/exec/nccl/budget.c.
 */
static size_t lanes_that_fit(const struct df_budget *b)
{
	long ctas = b->ctas < b->sms ? b->ctas : b->sms;

	return b->sms ? (size_t)((b->sms - ctas) / ctas) : SIZE_MAX;
}

/* Returns how many lanes have hardware queues. For 32 queues this is DF_LANES_MOST. */
static size_t lanes_with_queues(const struct df_budget *b)
{
	long most = (b->queues - OTHER_QUEUES) / 2 - 1;

	return !b->queues ? SIZE_MAX : most > 0 ? (size_t)most : 0;
}

/* Whether the lane of b->rank has capacity besides the lanes before it. */
static int has_room(const struct df_predict_program *w, const struct df_budget *b, size_t lane)
{
	size_t wide = 0, nr = 0, i;

	for (i = 0; i <= lane; i++) {
		int needs = is_wide(w, b->lanes[i].comm);
		int has = nr < lanes_with_queues(b) && (!needs || wide < lanes_that_fit(b));

		if (i == lane)
			return has;
		nr += (size_t)has;
		wide += (size_t)(has && needs);
	}
	return 0;
}

int df_predict_budget(struct df_predict_program *w, struct df_budget *b)
{
	const struct df_predict_opts opts = {.mode = DF_MODEL_LANES, .window = AHEAD};
	const struct df_predict_finding as_recorded = {0};
	struct counting c = {.w = w, .b = b};
	size_t nr_comms = (size_t)w->prog.nr_comms;
	int rc;

	b->rank = 0;
	b->nr_lanes = 0;
	b->short_sms = b->short_queues = b->nr_short = 0;
	b->lanes = calloc(nr_comms + 1, sizeof(*b->lanes));
	c.now = calloc((size_t)w->prog.nr_ranks * nr_comms + 1, sizeof(*c.now));
	rc = b->lanes && c.now
		     ? df_predict_again(&w->prog, &w->order, &opts, &as_recorded, event, NULL, &c)
		     : -ENOMEM;
	for (int r = 0; r < w->prog.nr_ranks; r++) {
		int sms = c.most_wide[r] > lanes_that_fit(b),
		    queues = c.most[r] > lanes_with_queues(b);

		b->short_sms += sms;
		b->short_queues += queues;
		b->nr_short += sms || queues;
	}
	free(c.now);
	return rc;
}

void df_predict_budget_fini(struct df_budget *b)
{
	free(b->lanes);
}

/* ---- in words -------------------------------------------------------------------------------- */

#define LANES_SAID 4

static void print_lane(FILE *out, const struct df_predict_program *w, int rank,
		       const struct df_budget_lane *l)
{
	const struct df_mop *m = &w->prog.threads[rank][l->thread].ops[l->op];
	const char *at = df_steps_stack(w->steps, rank,
					df_predict_program_step(w, rank, l->thread, l->op)),
		   *end = strstr(at, DF_STACK_SEP);

	fprintf(out, "  %s on 0x%" PRIx64,
		m->kind == DF_MOP_COLL ? df_kind_name((uint8_t)m->sig) : "messages",
		w->steps->comms[l->comm].hash);
	if (*at)
		fprintf(out, ", called at %.*s", (int)(end ? (size_t)(end - at) : strlen(at)), at);
	fputc('\n', out);
}

static void print_room(FILE *out, const struct df_predict_program *w, size_t room, int nr_short)
{
	fprintf(out, "room for %zu, and one in reserve: ", room);
	if (nr_short)
		fprintf(out, "it may be short on %d of %d ranks\n", nr_short, w->prog.nr_ranks);
	else
		fputs("enough\n", out);
}

void df_predict_budget_print(FILE *out, const struct df_predict_program *w,
			     const struct df_budget *b)
{
	const char *name = w->prog.nr_ranks ? w->steps->ranks[b->rank].name : "";
	size_t wide = 0, beyond = 0, i;

	for (i = 0; i < b->nr_lanes; i++)
		wide += (size_t)is_wide(w, b->lanes[i].comm);
	fprintf(out,
		"CTAs: at most %zu communicators of a rank (%s) have unfinished operations at a "
		"time: %zu CTAs, %ld each\n",
		b->nr_lanes, name, wide * (size_t)b->ctas, b->ctas);
	if (b->sms) {
		fprintf(out, "a device of %ld multiprocessors has ", b->sms);
		print_room(out, w, lanes_that_fit(b), b->short_sms);
	} else {
		fprintf(out,
			"how many multiprocessors a device has is not in the trace (--sms): with "
			"%ld in reserve, %zu are enough\n",
			b->ctas, (wide + 1) * (size_t)b->ctas);
	}
	if (b->queues) {
		fprintf(out, "a device of %ld hardware queues has ", b->queues);
		print_room(out, w, lanes_with_queues(b), b->short_queues);
	}
	if (!b->nr_short)
		return;
	fputs("Held until there is room, or launched on the reserve when all ranks have issued "
	      "it:\n",
	      out);
	for (i = 0; i < b->nr_lanes; i++)
		if (!has_room(w, b, i) && ++beyond <= LANES_SAID)
			print_lane(out, w, b->rank, &b->lanes[i]);
	if (beyond > LANES_SAID)
		fprintf(out, "  and %zu more communicators\n", beyond - LANES_SAID);
}

json_t *df_predict_budget_json(const struct df_predict_program *w, const struct df_budget *b)
{
	json_t *has = json_array(), *beyond = json_array();

	for (size_t i = 0; i < b->nr_lanes; i++)
		json_array_append_new(has_room(w, b, i) ? has : beyond,
				      df_json_hex(w->steps->comms[b->lanes[i].comm].hash));
	return json_pack(
		"{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "ctas", df_json_u64((uint64_t)b->ctas),
		"sms", b->sms ? df_json_u64((uint64_t)b->sms) : json_null(), "queues",
		df_json_u64((uint64_t)b->queues), "rank",
		df_json_text(b->nr_lanes ? w->steps->ranks[b->rank].name : NULL), "short_ranks",
		b->sms || b->queues ? df_json_u64((uint64_t)b->nr_short) : json_null(), "has_room",
		has, "beyond", beyond);
}
