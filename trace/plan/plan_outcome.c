/*
 * Outcomes: of schemes in which every iteration ends with an update (they differ in the order of
 * sending), and of DeFT, by running its state machine until a state repeats.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/plan/plan_outcome.h"
#include "runtime/base/vec.h"

/* Returns 0 or -ENOMEM. */
static int add_span(struct df_plan_outcome *o, struct df_plan_span s)
{
	struct df_plan_span *slot;

	if (s.begin_ns == s.end_ns)
		return 0;
	slot = DF_VEC_PUSH(o->spans, o->nr_spans, o->cap_spans);
	if (!slot)
		return -ENOMEM;
	*slot = s;
	return 0;
}

void df_plan_outcome_fini(struct df_plan_outcome *o)
{
	free(o->spans);
	free(o->k);
	memset(o, 0, sizeof(*o));
}

/* Adds the spans of a backward pass that begins at `at`. Returns 0 or -ENOMEM. */
static int add_backward_spans(struct df_plan_outcome *o, const struct df_plan_profile *p,
			      int64_t at)
{
	int rc = 0;

	for (int i = p->nr_buckets - 1; i >= 0 && !rc; i--) {
		int64_t end = at + p->buckets[i].backward_ns;

		rc = add_span(o, (struct df_plan_span){at, end, i, DF_PLAN_B, 0, 0});
		at = end;
	}
	return rc;
}

/* -- schemes with the results of plain data parallelism --------------------------------------- */

/* The end of the next forward pass; adds its spans if o is given. */
static int64_t forward(const struct df_plan_profile *p, const int64_t *done, int64_t shift,
		       struct df_plan_outcome *o, int *rc)
{
	int64_t t = df_plan_backward_ns(p);

	for (int i = 0; i < p->nr_buckets; i++) {
		int64_t begin = t > done[i] ? t : done[i];

		t = begin + p->buckets[i].forward_ns;
		if (o && !*rc)
			*rc = add_span(o, (struct df_plan_span){begin + shift, t + shift, i,
								DF_PLAN_F, 0, 0});
	}
	return t;
}

int64_t df_plan_forward_end(const struct df_plan_profile *p, const int64_t *done)
{
	return forward(p, done, 0, NULL, NULL);
}

int df_plan_synchronous(const struct df_plan_profile *p, const char *name, const int64_t *done,
			const struct df_plan_sent *sent, size_t nr, struct df_plan_outcome *out)
{
	int64_t iteration = df_plan_forward_end(p, done), busy = 0, first;
	int rc = 0;

	memset(out, 0, sizeof(*out));
	out->name = name;
	for (size_t i = 0; i < nr; i++)
		busy += sent[i].end_ns - sent[i].begin_ns;
	out->iteration_ns = (double)iteration;
	out->bubble_ns = (double)(iteration - df_plan_forward_ns(p) - df_plan_backward_ns(p));
	out->updates = 1;
	out->link_use[0] = (double)busy / (double)iteration;
	out->period = 1;
	out->nr_k = 1;
	out->k = malloc(sizeof(*out->k));
	if (!out->k)
		return -ENOMEM;
	out->k[0] = 1;

	/* The picture begins with a forward pass. Earlier spans lie outside it. */
	first = df_plan_backward_ns(p) > done[0] ? df_plan_backward_ns(p) : done[0];
	out->window[0] = first;
	out->window[1] = first + 2 * iteration;
	for (int64_t c = 0; c < 3 && !rc; c++) {
		int64_t shift = c * iteration;

		rc = add_backward_spans(out, p, shift);
		for (size_t i = 0; i < nr && !rc; i++)
			rc = add_span(out, (struct df_plan_span){sent[i].begin_ns + shift,
								 sent[i].end_ns + shift,
								 sent[i].bucket, DF_PLAN_C, 0, 0});
		forward(p, done, shift, out, &rc);
	}
	if (rc)
		df_plan_outcome_fini(out);
	return rc;
}

/* -- DeFT ------------------------------------------------------------------------------------- */

/* The state that determines all later steps. */
struct key {
	int nr_current, current_k, future_k;
	unsigned char current[DF_PLAN_BUCKETS];
};

struct past {
	struct key key;
	struct df_plan_step step;
};

static void key_of(const struct df_plan_deft *d, struct key *k)
{
	memset(k, 0, sizeof(*k));
	k->nr_current = d->nr_current;
	k->current_k = d->current_k;
	k->future_k = d->future_k;
	memcpy(k->current, d->current, (size_t)d->nr_items);
}

/* Adds one iteration at time t to the picture. */
static int draw(struct df_plan_outcome *o, const struct df_plan_deft *d,
		const struct df_plan_step *s, int64_t t)
{
	const struct df_plan_profile *p = d->profile;
	int64_t at = t;
	int rc = 0;

	for (int i = 0; i < p->nr_buckets && !rc; i++) {
		int64_t end = at + p->buckets[i].forward_ns;

		rc = add_span(o, (struct df_plan_span){at, end, i, DF_PLAN_F, 0, 0});
		at = end;
	}
	if (!rc)
		rc = add_backward_spans(o, p, t + s->forward_ns);
	for (int i = 0; i < s->nr_sends && !rc; i++) {
		const struct df_plan_send *c = &s->sends[i];
		int64_t from = t + (c->stage == DF_PLAN_FORWARD ? 0 : s->forward_ns);

		rc = add_span(o, (struct df_plan_span){from + c->begin_ns, from + c->end_ns,
						       d->items[c->item].bucket, DF_PLAN_C, c->link,
						       c->stage != DF_PLAN_NEW});
	}
	return rc;
}

struct totals {
	int64_t iterations, time, busy[DF_PLAN_LINKS], updates, merged;
	double late;
};

static void count(struct totals *t, struct df_plan_outcome *o, const struct df_plan_step *s)
{
	t->iterations++;
	t->time += s->forward_ns + s->backward_ns;
	for (int i = 0; i < s->nr_sends; i++)
		t->busy[s->sends[i].link] += s->sends[i].end_ns - s->sends[i].begin_ns;
	if (!s->k)
		return;
	o->k[o->nr_k++] = s->k;
	t->updates++;
	t->merged += s->k;
	/* Its gradients are from k consecutive iterations. */
	t->late += s->k * (s->late - (s->k - 1) / 2.0);
	if (s->late > o->late_most)
		o->late_most = s->late;
}

/* Returns the iteration of an equal earlier state, or -1. */
static int64_t seen(const struct past *past, size_t nr, const struct key *k)
{
	for (size_t i = nr; i-- > 0;)
		if (past[i].key.nr_current == k->nr_current && !memcmp(&past[i].key, k, sizeof(*k)))
			return (int64_t)i;
	return -1;
}

/*
 * The number of states kept. A schedule that has not repeated by then is measured without its first
 * quarter.
 */
#define PAST_MAX 1024

int df_plan_deft_replay(const struct df_plan_profile *profile, int links, int64_t iterations,
			struct df_plan_outcome *out)
{
	struct df_plan_profile p = *profile;
	struct df_plan_deft d;
	struct df_plan_step step;
	struct past *past = NULL;
	size_t nr_past = 0, cap_past = 0;
	struct totals t = {0};
	int64_t loop = -1, from, drawn = 0;
	int rc;

	p.nr_links = links < p.nr_links ? links : p.nr_links;
	memset(out, 0, sizeof(*out));
	out->name = p.nr_links < profile->nr_links ? "DeFT, one link" : "DeFT";
	rc = df_plan_deft_init(&d, &p);
	if (rc)
		return rc;
	while (loop < 0 && nr_past < PAST_MAX && (int64_t)nr_past < iterations) {
		struct past *now = DF_VEC_PUSH(past, nr_past, cap_past);

		rc = now ? 0 : -ENOMEM;
		if (rc)
			goto done;
		key_of(&d, &now->key);
		loop = seen(past, nr_past - 1, &now->key);
		if (loop >= 0)
			nr_past--;
		else
			df_plan_deft_step(&d, &now->step);
	}
	out->period = loop < 0 ? 0 : (int)((int64_t)nr_past - loop);
	from = loop >= 0 ? loop : iterations / 4;
	/* Whole periods, so that the figures do not depend on the end of the replay. */
	if (loop >= 0 && iterations > from + out->period)
		iterations -= (iterations - from) % out->period;
	out->k = malloc((size_t)iterations * sizeof(*out->k));
	rc = out->k ? 0 : -ENOMEM;
	for (int64_t i = 0; i < iterations && !rc; i++) {
		const struct df_plan_step *s = &step;

		if (i < (int64_t)nr_past)
			s = &past[i].step;
		else if (loop >= 0)
			s = &past[loop + (i - loop) % out->period].step;
		else
			df_plan_deft_step(&d, &step);
		if (i < from)
			continue;
		count(&t, out, s);
		if (i < from + 2) {
			rc = draw(out, &d, s, drawn);
			drawn += s->forward_ns + s->backward_ns;
		}
	}
	if (rc)
		goto done;
	out->window[1] = drawn;
	out->iteration_ns = (double)t.time / (double)t.iterations;
	out->bubble_ns =
		out->iteration_ns - (double)(df_plan_forward_ns(&p) + df_plan_backward_ns(&p));
	out->updates = (double)t.updates / (double)t.iterations;
	for (int l = 0; l < p.nr_links; l++)
		out->link_use[l] = (double)t.busy[l] / (double)t.time;
	out->late = t.merged ? t.late / (double)t.merged : 0;
	/* One period represents the whole sequence. */
	if (out->period) {
		int64_t sum = 0;
		int n = 0;

		while (n < out->nr_k && sum < out->period)
			sum += out->k[n++];
		out->nr_k = n;
	}
done:
	if (rc)
		df_plan_outcome_fini(out);
	free(past);
	df_plan_deft_fini(&d);
	return rc;
}
