/*
 * Tests DeFT's state machine step by step on random networks, with properties of every valid
 * schedule. Tests the replays with bounds and with the paper's figures, and the preserver with
 * values computed by hand.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "trace/plan/plan_int.h"

static uint64_t state;

static int64_t below(int64_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)((state >> 33) % (uint64_t)n);
}

static double unit(void)
{
	return (double)below(1 << 20) / (1 << 20);
}

/* A network of n buckets. Its communication takes about `cr` times its computation. */
static void network(struct df_plan_profile *p, int n, double cr, int links, int64_t startup)
{
	char err[256];
	double all = 0, comm = 0;

	memset(p, 0, sizeof(*p));
	p->nr_buckets = n;
	p->nr_links = links;
	for (int l = 0; l < links; l++)
		p->links[l] = (struct df_plan_link){"l", l ? 1 + 2 * unit() : 1, startup};
	for (int i = 0; i < n; i++) {
		struct df_plan_bucket *b = &p->buckets[i];

		b->forward_ns = 1000 + below(1000000);
		b->backward_ns = 1000 + below(3000000);
		b->comm_ns = 1000 + below(1000000);
		b->params = 1 + below(20000000);
		all += (double)(b->forward_ns + b->backward_ns);
		comm += (double)b->comm_ns;
	}
	for (int i = 0; i < n; i++)
		p->buckets[i].comm_ns =
			startup + 1 + (int64_t)((double)p->buckets[i].comm_ns * cr * all / comm);
	ck_assert_msg(!df_plan_check(p, err, sizeof(err)), "%s", err);
}

/*
 * The sets of gradients as the definition describes them: the iterations whose gradients they
 * contain, and the items that were sent.
 */
struct sets {
	int64_t current_from, current_to; /* ranges of iterations; the end is excluded */
	int64_t future_from, future_to;
	unsigned char sent[DF_PLAN_BUCKETS];
	int nr_sent;
};

static void check_step(const struct df_plan_deft *d, const struct df_plan_step *s, int64_t it,
		       struct sets *set)
{
	const struct df_plan_profile *p = d->profile;
	int64_t busy[2][DF_PLAN_LINKS] = {{0}}, release[DF_PLAN_BUCKETS];
	int was = set->current_to > set->current_from, complete;

	df_plan_release(p, release);
	set->future_to = it + 1;
	/*
	 * In the order of the stages: CURRENT is sent in the forward pass and at the beginning of
	 * the backward pass.
	 */
	for (int stage = DF_PLAN_FORWARD; stage <= DF_PLAN_OLD; stage++)
		for (int i = 0; i < s->nr_sends; i++)
			if (s->sends[i].stage == stage) {
				ck_assert(was);
				ck_assert_msg(!set->sent[s->sends[i].item], "sent twice");
				set->sent[s->sends[i].item] = 1;
				set->nr_sent++;
			}
	complete = !was || set->nr_sent == d->nr_items;
	ck_assert_int_eq(s->which == 2, !complete);
	ck_assert_int_eq(s->k, was && complete ? set->current_to - set->current_from : 0);
	if (s->k)
		ck_assert_int_eq(s->late, it - set->current_from);
	if (complete) {
		set->current_from = set->future_from;
		set->current_to = set->future_from = set->future_to;
		memset(set->sent, 0, sizeof(set->sent));
		set->nr_sent = 0;
	}
	for (int i = 0; i < s->nr_sends; i++) {
		const struct df_plan_send *c = &s->sends[i];
		int64_t *clock = &busy[c->stage != DF_PLAN_FORWARD][c->link];

		ck_assert_int_lt(c->link, p->nr_links);
		ck_assert_int_eq(c->end_ns - c->begin_ns, d->items[c->item].ns[c->link]);
		ck_assert_msg(c->begin_ns >= *clock, "two at once on a link");
		*clock = c->end_ns;
		ck_assert_msg(
			c->end_ns <= (c->stage == DF_PLAN_FORWARD ? s->forward_ns : s->backward_ns),
			"not over when its pass is");
		if (c->stage != DF_PLAN_NEW)
			continue;
		ck_assert(complete);
		ck_assert_msg(c->begin_ns >= release[d->items[c->item].bucket],
			      "sent before its release");
		ck_assert_msg(!set->sent[c->item], "sent twice");
		set->sent[c->item] = 1;
		set->nr_sent++;
	}
	ck_assert_int_eq(d->nr_current, d->nr_items - set->nr_sent);
}

START_TEST(properties)
{
	static struct df_plan_profile p;
	static struct df_plan_deft d;
	static struct df_plan_step step;

	state = df_test_seed();
	for (int n = 0; n < 300 / df_test_slow(); n++) {
		static struct sets set;
		int64_t merged = 0, updates = 0;
		double capacity = below(4) ? 0 : 1 + unit();

		memset(&set, 0, sizeof(set));
		network(&p, 1 + (int)below(20), 0.1 + 4 * unit(), 1 + (int)below(3),
			below(2) * below(5000));
		p.capacity = capacity;
		if (df_plan_deft_init(&d, &p))
			continue;
		for (int64_t it = 0; it < 120; it++) {
			df_plan_deft_step(&d, &step);
			check_step(&d, &step, it, &set);
			merged += step.k;
			updates += step.k > 0;
			if (!capacity) {
				ck_assert_int_eq(step.forward_ns, df_plan_forward_ns(&p));
				ck_assert_int_eq(step.backward_ns, df_plan_backward_ns(&p));
			}
		}
		/*
		 * No gradient is lost or counted twice. CURRENT and FUTURE contain those that are
		 * not applied yet.
		 */
		ck_assert_int_eq(merged + d.current_k + d.future_k, 120);
		/*
		 * Each item fits into a pass, so each pass sends at least one. A slow network may
		 * need more than 120 passes.
		 */
		ck_assert_msg(updates > 0 || d.nr_items > 120, "no update with %d items",
			      d.nr_items);
		df_plan_deft_fini(&d);
	}
}
END_TEST

/*
 * The sent gradients equal the applied ones. They are at most as many as the links can carry, and
 * at least half of that.
 */
START_TEST(frequency)
{
	static struct df_plan_profile p;

	state = df_test_seed();
	for (int n = 0; n < 40 / df_test_slow(); n++) {
		double cr = 0.3 + 3 * unit(), carried = 0;
		struct df_plan_outcome o;
		int64_t sum = 0;

		network(&p, 12 + (int)below(12), cr, 1 + (int)below(2), 0);
		ck_assert_int_eq(df_plan_deft_replay(&p, p.nr_links, 2000, &o), 0);
		ck_assert(fabs(o.bubble_ns) < 1);
		for (int l = 0; l < p.nr_links; l++) {
			ck_assert(o.link_use[l] <= 1 + 1e-9);
			carried += o.link_use[l] / p.links[l].slowdown;
		}
		ck_assert_msg(fabs(carried - o.updates * cr) < 0.02 * cr,
			      "%g carried, %g updates of %g", carried, o.updates, cr);
		for (int i = 0; i < o.nr_k; i++)
			sum += o.k[i];
		if (o.period)
			ck_assert_int_eq(sum, o.period);
		if (cr > 1.2 && p.nr_links == 1)
			ck_assert_msg(o.updates > 0.5 / cr, "%g updates at CR %g", o.updates, cr);
		df_plan_outcome_fini(&o);
	}
}
END_TEST

/* -- the schemes of old ------------------------------------------------------------------------ */

/* Finds the best order of whole buckets by trying all. */
static int64_t best_order(const struct df_plan_profile *p, int *order, int at)
{
	int64_t best = INT64_MAX, t = 0, done[8], release[8];

	if (at < p->nr_buckets) {
		for (int i = at; i < p->nr_buckets; i++) {
			int swap = order[at];
			int64_t v;

			order[at] = order[i];
			order[i] = swap;
			v = best_order(p, order, at + 1);
			best = v < best ? v : best;
			order[i] = order[at];
			order[at] = swap;
		}
		return best;
	}
	df_plan_release(p, release);
	for (int i = 0; i < p->nr_buckets; i++) {
		int b = order[i];

		t = (t > release[b] ? t : release[b]) + p->buckets[b].comm_ns;
		done[b] = t;
	}
	t = release[0];
	for (int i = 0; i < p->nr_buckets; i++)
		t = (t > done[i] ? t : done[i]) + p->buckets[i].forward_ns;
	return t;
}

/*
 * Schemes without late updates: not slower than the best order of whole buckets or than DDP, and
 * not faster than the lower bound.
 */
START_TEST(bounds)
{
	static struct df_plan_profile p;

	state = df_test_seed();
	for (int n = 0; n < 200 / df_test_slow(); n++) {
		struct df_plan_outcome ddp, bs, us;
		int64_t release[8], least, t = 0;
		int order[8] = {0, 1, 2, 3, 4, 5, 6, 7}, last;

		network(&p, 1 + (int)below(6), 0.1 + 3 * unit(), 1, 0);
		last = p.nr_buckets - 1;
		p.partition = 1 + below(3000000);
		df_plan_release(&p, release);
		/*
		 * The link waits for the first gradient, and the last forward computation waits for
		 * the link.
		 */
		least = p.buckets[last].backward_ns + df_plan_comm_ns(&p) +
			p.buckets[last].forward_ns;
		for (int i = last; i >= 0; i--)
			t = (t > release[i] ? t : release[i]) + p.buckets[i].comm_ns;
		ck_assert_int_eq(df_plan_ddp(&p, &ddp), 0);
		ck_assert_int_eq(df_plan_bytescheduler(&p, &bs), 0);
		ck_assert_int_eq(df_plan_usbyte(&p, &us), 0);
		ck_assert_double_eq(ddp.iteration_ns, (double)(t + df_plan_forward_ns(&p)));
		ck_assert_double_ge(us.iteration_ns, (double)least);
		ck_assert_double_ge(bs.iteration_ns, (double)least);
		ck_assert(us.iteration_ns <= ddp.iteration_ns + 100 &&
			  bs.iteration_ns <= ddp.iteration_ns + 100);
		ck_assert(ddp.iteration_ns >= (double)best_order(&p, order, 0));
		for (int i = 0; i < 3; i++) {
			struct df_plan_outcome *o = i == 0 ? &ddp : i == 1 ? &bs : &us;

			/* Everything is sent once, so the link is busy for the same time. */
			ck_assert(fabs(o->link_use[0] * o->iteration_ns -
				       (double)df_plan_comm_ns(&p)) < 1000);
			ck_assert(o->bubble_ns >= 0);
			df_plan_outcome_fini(o);
		}
	}
}
END_TEST

/* Table II of the DeFT paper, with the sum that the paper prints. */
static const struct df_plan_profile vgg = {
	.name = "VGG-19",
	.nr_buckets = 6,
	.nr_links = 2,
	.partition = 6500000,
	.links = {{"NCCL", 1, 0}, {"gloo", 1.65, 0}},
	.buckets = {{1238000, 72496000, 11968000, 5865536},
		    {28799000, 12786000, 11262000, 7079424},
		    {4801000, 4872000, 15447000, 7079424},
		    {1899000, 2319000, 178643000, 102764544},
		    {326000, 484000, 31754000, 16781312},
		    {103000, 162000, 8651000, 4097000}},
};

static void near(double ms, const struct df_plan_outcome *o)
{
	ck_assert_msg(fabs(o->iteration_ns / 1e6 - ms) < 0.01 * ms, "%s: %g ms, want %g", o->name,
		      o->iteration_ns / 1e6, ms);
}

START_TEST(vgg19)
{
	struct df_plan_outcome o;
	int order[8] = {0, 1, 2, 3, 4, 5};

	ck_assert_int_eq(df_plan_ddp(&vgg, &o), 0);
	near(295.1, &o);
	df_plan_outcome_fini(&o);
	ck_assert_int_eq(df_plan_bytescheduler(&vgg, &o), 0);
	near(258.3, &o);
	df_plan_outcome_fini(&o);
	ck_assert_int_eq(df_plan_usbyte(&vgg, &o), 0);
	near(259.0, &o);
	df_plan_outcome_fini(&o);
	ck_assert(fabs((double)best_order(&vgg, order, 0) / 1e6 - 258.3) < 0.1);
	ck_assert_int_eq(df_plan_deft_replay(&vgg, 2, 10000, &o), 0);
	near(130.3, &o);
	ck_assert(fabs(o.updates - 0.75) < 0.01);
	df_plan_outcome_fini(&o);
	/* One link carries at most 1 / CR of the gradients. */
	ck_assert_int_eq(df_plan_deft_replay(&vgg, 1, 10000, &o), 0);
	near(130.3, &o);
	ck_assert(o.updates > 0.46 && o.updates < 1 / 1.978);
	df_plan_outcome_fini(&o);
}
END_TEST

/* -- preserver --------------------------------------------------------------------------------- */

START_TEST(expected)
{
	/*
	 * The distance to the target after the mean step is 0.2; `a` is this distance in standard
	 * deviations.
	 */
	const struct {
		double a, want;
	} row[] = {{1, .23333}, {2, .20170}, {3, .20005}, {.5, .35824}};

	for (int i = 0; i < 4; i++) {
		struct df_plan_walk w = {.rate = 1, .mu = 0, .sigma = .2 / row[i].a, .batch = 1};

		ck_assert_double_eq_tol(df_plan_expected(&w, .2, 1), row[i].want, 5e-6);
		/*
		 * The same with a separate rate, a target, a mean step, and four steps of a quarter
		 * of the batch.
		 */
		w = (struct df_plan_walk){
			.rate = .1, .mu = .5, .target = .3, .sigma = 20 / row[i].a, .batch = 25};
		ck_assert_double_eq_tol(df_plan_expected(&w, .55, 4), .3 + row[i].want, 5e-6);
	}
}
END_TEST

/*
 * Table V of the paper. mu and sigma, which the paper does not print, follow from its first step.
 * Later steps agree as well as one pair of values can (the paper's values vary from step to step).
 */
START_TEST(table5)
{
	const struct df_plan_walk w = {.loss = .2103,
				       .rate = .01,
				       .mu = .962,
				       .sigma = 192.2,
				       .batch = 256,
				       .epsilon = .01};
	const double plain[] = {.2054, .1989, .1967, .1922};
	const double merged[] = {.2012, .1979, .1935};
	const int k[] = {2, 1, 1};
	double s = w.loss;

	for (int i = 0; i < 4; i++) {
		s = df_plan_expected(&w, s, 1);
		ck_assert_double_eq_tol(s, plain[i], i ? .0022 : .00005);
	}
	s = w.loss;
	for (int i = 0; i < 3; i++) {
		s = df_plan_expected(&w, s, k[i]);
		ck_assert_double_eq_tol(s, merged[i], i ? .0008 : .00005);
	}
	ck_assert_double_eq_tol(df_plan_preserve(&w, k, 3), .9995, .0005);
	ck_assert(fabs(df_plan_preserve(&w, k, 3) - 1) < w.epsilon);
}
END_TEST

/*
 * Merging does harm here (fast progress, little noise), so the capacity is raised until updates are
 * frequent enough.
 */
START_TEST(feedback)
{
	struct df_plan_profile p = vgg;
	const struct df_plan_walk w = {
		.loss = 1, .rate = .01, .mu = 2, .sigma = .1, .batch = 256, .epsilon = .01};
	struct df_plan_outcome before, o;
	double ratio;
	int rounds = 0;

	ck_assert_int_eq(df_plan_deft_replay(&p, 2, 1000, &before), 0);
	ck_assert(fabs(df_plan_preserve(&w, before.k, before.nr_k) - 1) > w.epsilon);
	ck_assert_int_eq(df_plan_feedback(&p, &w, 1000, &o, &ratio, &rounds), 0);
	ck_assert(rounds >= 1 && rounds <= 10);
	ck_assert(fabs(ratio - 1) <= w.epsilon);
	ck_assert(o.updates > before.updates);
	ck_assert_msg(o.bubble_ns > 0, "more communication than computation hides, for free");
	df_plan_outcome_fini(&o);
	df_plan_outcome_fini(&before);
}
END_TEST

/*
 * Whole buckets for exact gating: each is sent once and not before its release. The time is checked
 * by hand and is never longer than DDP's.
 */
START_TEST(whole)
{
	static struct df_plan_profile p;

	state = df_test_seed();
	for (int n = 0; n < 300 / df_test_slow(); n++) {
		int64_t release[DF_PLAN_BUCKETS], done[DF_PLAN_BUCKETS] = {0}, t = 0;
		int order[DF_PLAN_BUCKETS];
		double ns;
		struct df_plan_outcome ddp;

		network(&p, 1 + (int)below(20), 0.1 + 4 * unit(), 1, 0);
		ck_assert_int_eq(df_plan_whole(&p, order, &ns), 0);
		ck_assert_int_eq(df_plan_ddp(&p, &ddp), 0);
		df_plan_release(&p, release);
		for (int i = 0; i < p.nr_buckets; i++) {
			int b = order[i];

			ck_assert(b >= 0 && b < p.nr_buckets && !done[b]);
			/* No bucket closer to the input was ready when this one was sent. */
			t = t > release[b] ? t : release[b];
			for (int j = 0; j < b; j++)
				ck_assert(done[j] || release[j] > t);
			done[b] = t += p.buckets[b].comm_ns;
		}
		t = df_plan_backward_ns(&p);
		for (int i = 0; i < p.nr_buckets; i++)
			t = (t > done[i] ? t : done[i]) + p.buckets[i].forward_ns;
		ck_assert_double_eq_tol(ns, (double)t, .5);
		ck_assert(ns <= ddp.iteration_ns + .5);
		df_plan_outcome_fini(&ddp);
	}
}
END_TEST

/* -- what late updates ask of a learning rate -------------------------------------------------- */

/*
 * Gradient descent with momentum on the loss w^2/2, with DeFT's schedule or (`d` is NULL) without
 * delay. Returns 1 if w vanishes. `rate` is the learning rate times the curvature. The loop uses
 * only the sets of gradients and not how they are sent, so the result is a property of the method.
 */
static int vanishes(struct df_plan_deft *d, double rate, double momentum)
{
	double w = 1, v = 0, current = 0, future = 0;
	static struct df_plan_step step;

	if (d)
		df_plan_deft_restart(d);
	for (int it = 0; it < 4000 && fabs(w) < 1e6; it++) {
		if (d)
			df_plan_deft_step(d, &step);
		future += w;
		if (!d) {
			v = momentum * v + w;
			w -= rate * v;
			continue;
		}
		if (step.k) {
			v = momentum * v + current / step.k;
			w -= rate * v;
		}
		if (step.which != 2) {
			current = future;
			future = 0;
		}
	}
	return fabs(w) < 1e-3;
}

static double largest_rate(struct df_plan_deft *d, double momentum)
{
	double low = 0, high = 8;

	for (int i = 0; i < 30; i++) {
		double rate = (low + high) / 2;

		*(vanishes(d, rate, momentum) ? &low : &high) = rate;
	}
	return low;
}

/*
 * One update is late, with momentum m. The roots of z^2 - (1+m) z + m + rate have absolute values
 * below 1 up to a rate of 1 - m; without delay the limit is 2 + 2 m. So with momentum 0.9 a 38th of
 * the rate remains, without momentum half.
 */
START_TEST(momentum)
{
	static struct df_plan_profile p = {.nr_buckets = 4, .nr_links = 1, .links = {{"l", 1, 0}}};
	static struct df_plan_deft d;

	/* Coverage rate 2: two iterations are merged, and sent while the next two are computed. */
	for (int i = 0; i < 4; i++)
		p.buckets[i] = (struct df_plan_bucket){3000000, 3000000, 12000000, 1000000};
	ck_assert_int_eq(df_plan_deft_init(&d, &p), 0);
	for (int tenths = 0; tenths <= 9; tenths += 3) {
		double m = tenths / 10.0, plain = largest_rate(NULL, m), late = largest_rate(&d, m);

		printf("momentum %.1f: rate up to %.3f at once, %.3f late\n", m, plain, late);
		ck_assert_double_eq_tol(plain, 2 + 2 * m, .05);
		ck_assert_double_eq_tol(late, 1 - m, .1 * (1 - m));
	}
	df_plan_deft_fini(&d);
}
END_TEST

int main(void)
{
	return DF_TESTS("plan_deft", {properties}, {frequency}, {bounds}, {vgg19}, {expected},
			{table5}, {feedback}, {whole}, {momentum});
}
