/*
 * DeFT, one iteration at a time: the four cases of plan_int.h. The algorithm as printed in the
 * paper loses gradients that it did not send in case 3 and counts gradients twice in case 4. Here
 * every gradient joins FUTURE, FUTURE becomes CURRENT as a whole, and an update takes CURRENT when
 * all of it has been sent.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "trace/plan/plan_int.h"

int df_plan_deft_init(struct df_plan_deft *d, const struct df_plan_profile *p)
{
	memset(d, 0, sizeof(*d));
	d->profile = p;
	d->nr_items = df_plan_partition(p, d->items);
	if (d->nr_items < 0)
		return d->nr_items;
	df_plan_release(p, d->release);
	d->solver = df_plan_solver_create(d->nr_items);
	return d->solver ? 0 : -ENOMEM;
}

void df_plan_deft_fini(struct df_plan_deft *d)
{
	df_plan_solver_destroy(d->solver);
	d->solver = NULL;
}

void df_plan_deft_restart(struct df_plan_deft *d)
{
	memset(d->current, 0, sizeof(d->current));
	d->nr_current = d->current_k = d->future_k = 0;
	d->iteration = d->current_at = 0;
}

/* The communication that fits a stage with this much computation. */
static int64_t room(const struct df_plan_deft *d, int64_t compute_ns)
{
	double capacity = d->profile->capacity;

	return capacity > 1 ? (int64_t)((double)compute_ns * capacity) : compute_ns;
}

static void send(const struct df_plan_deft *d, struct df_plan_step *step, int item, int link,
		 enum df_plan_stage stage, int64_t release, int64_t *clock)
{
	struct df_plan_send *s = &step->sends[step->nr_sends++];
	int64_t begin = clock[link] > release ? clock[link] : release;

	*s = (struct df_plan_send){.item = (uint16_t)item,
				   .link = (uint8_t)link,
				   .stage = (uint8_t)stage,
				   .begin_ns = begin,
				   .end_ns = begin + d->items[item].ns[link]};
	clock[link] = s->end_ns;
}

/*
 * Assigns items of CURRENT to links until the deadline. The slower links are filled first, the
 * slowest one before the others, each with the longest items that fit. The first link is then
 * filled as well as possible. link_of[]: by item; -1: not sent. Returns the number of sent items.
 */
static int fill(struct df_plan_deft *d, int64_t deadline, int *link_of)
{
	struct df_plan_job jobs[DF_PLAN_BUCKETS];
	unsigned char picked[DF_PLAN_BUCKETS];
	int of_job[DF_PLAN_BUCKETS], nr_jobs = 0, nr = 0, done = 0;
	const struct df_plan_link *links = d->profile->links;

	memset(link_of, -1, (size_t)d->nr_items * sizeof(*link_of));
	for (int n = 1; n < d->profile->nr_links; n++) {
		int64_t left = deadline;
		int l = 0;

		for (int i = 1; i < d->profile->nr_links; i++)
			if (!(done & 1 << i) && (!l || links[i].slowdown > links[l].slowdown))
				l = i;
		done |= 1 << l;
		for (;;) {
			int best = -1;

			for (int i = 0; i < d->nr_items; i++)
				if (d->current[i] && link_of[i] < 0 && d->items[i].ns[l] <= left &&
				    (best < 0 || d->items[i].ns[l] > d->items[best].ns[l]))
					best = i;
			if (best < 0)
				break;
			link_of[best] = l;
			left -= d->items[best].ns[l];
			nr++;
		}
	}
	for (int i = 0; i < d->nr_items; i++)
		if (d->current[i] && link_of[i] < 0) {
			jobs[nr_jobs] = (struct df_plan_job){0, d->items[i].ns[0]};
			of_job[nr_jobs++] = i;
		}
	df_plan_pick(d->solver, jobs, nr_jobs, deadline, picked);
	for (int j = 0; j < nr_jobs; j++)
		if (picked[j]) {
			link_of[of_job[j]] = 0;
			nr++;
		}
	return nr;
}

/* Sends the items of CURRENT that fill() chose. */
static void launch(struct df_plan_deft *d, struct df_plan_step *step, enum df_plan_stage stage,
		   const int *link_of, int64_t *clock)
{
	for (int i = 0; i < d->nr_items; i++)
		if (link_of[i] >= 0) {
			send(d, step, i, link_of[i], stage, 0, clock);
			d->current[i] = 0;
			d->nr_current--;
		}
}

/*
 * Sends items of FUTURE with the new gradient: as many as fit on the first link, then on each other
 * link.
 */
static void send_new(struct df_plan_deft *d, struct df_plan_step *step, int64_t deadline,
		     int64_t *clock)
{
	struct df_plan_job jobs[DF_PLAN_BUCKETS];
	unsigned char picked[DF_PLAN_BUCKETS];
	int nr = d->nr_items, left = 0;

	/* Items are in the order of buckets; the last bucket is released first. */
	for (int j = 0; j < nr; j++) {
		const struct df_plan_item *it = &d->items[nr - 1 - j];
		int64_t r = d->release[it->bucket];

		jobs[j] = (struct df_plan_job){r > clock[0] ? r : clock[0], it->ns[0]};
	}
	df_plan_pick(d->solver, jobs, nr, deadline, picked);
	for (int j = 0; j < nr; j++)
		if (picked[j])
			send(d, step, nr - 1 - j, 0, DF_PLAN_NEW,
			     d->release[d->items[nr - 1 - j].bucket], clock);
	for (int l = 1; l < d->profile->nr_links; l++)
		for (int j = 0; j < nr; j++) {
			const struct df_plan_item *it = &d->items[nr - 1 - j];
			int64_t r = d->release[it->bucket], begin = r > clock[l] ? r : clock[l];

			if (picked[j] || begin + it->ns[l] > deadline)
				continue;
			picked[j] = 1;
			send(d, step, nr - 1 - j, l, DF_PLAN_NEW, r, clock);
		}
	for (int j = 0; j < nr; j++)
		left += d->current[nr - 1 - j] = !picked[j];
	d->nr_current = left;
}

/* The end of a pass: when its computation and all its transfers have ended. */
static int64_t over(const struct df_plan_deft *d, int64_t compute_ns, const int64_t *clock)
{
	for (int l = 0; l < d->profile->nr_links; l++)
		if (clock[l] > compute_ns)
			compute_ns = clock[l];
	return compute_ns;
}

void df_plan_deft_step(struct df_plan_deft *d, struct df_plan_step *step)
{
	int64_t forward = df_plan_forward_ns(d->profile), clock[DF_PLAN_LINKS] = {0};
	int64_t backward = df_plan_backward_ns(d->profile);
	int link_of[DF_PLAN_BUCKETS];

	step->nr_sends = step->k = step->late = 0;
	if (d->nr_current) {
		fill(d, room(d, forward), link_of);
		launch(d, step, DF_PLAN_FORWARD, link_of, clock);
	}
	step->forward_ns = over(d, forward, clock);

	memset(clock, 0, sizeof(clock));
	d->future_k++;
	step->which = d->nr_current ? 3 : 4;
	if (d->nr_current) {
		if (fill(d, room(d, backward), link_of) < d->nr_current)
			step->which = 2;
		launch(d, step, DF_PLAN_OLD, link_of, clock);
	}
	if (step->which != 2) {
		if (d->current_k) {
			step->k = d->current_k;
			step->late = (int)(d->iteration - d->current_at) + d->current_k - 1;
		}
		send_new(d, step, room(d, backward), clock);
		d->current_k = d->future_k;
		d->current_at = d->iteration;
		d->future_k = 0;
	}
	step->backward_ns = over(d, backward, clock);
	d->iteration++;
}
