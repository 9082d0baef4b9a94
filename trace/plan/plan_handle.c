/* DeFT's state machine for callers with arrays instead of structs: see plan_handle.h. */
#include <errno.h>
#include <stdlib.h>

#include "trace/plan/plan_handle.h"
#include "trace/plan/plan_int.h"

struct df_plan_handle {
	struct df_plan_profile profile;
	struct df_plan_deft deft;
	struct df_plan_step step;
	int rounds; /* of the preserver */
};

/* Iterations of a replay: enough for a period of networks with a few buckets. */
#define REPLAY 2000

struct df_plan_handle *df_plan_open(int nr, const int64_t *forward_ns, const int64_t *backward_ns,
				    const int64_t *comm_ns, const int64_t *params, int nr_links,
				    const double *slowdown, const int64_t *startup_ns, char *err,
				    int64_t size)
{
	struct df_plan_handle *h = calloc(1, sizeof(*h));
	int rc = -ENOMEM;

	if (!h)
		goto err_said;
	h->profile.nr_buckets = nr;
	h->profile.nr_links = nr_links;
	for (int i = 0; i < nr && i < DF_PLAN_BUCKETS; i++)
		h->profile.buckets[i] = (struct df_plan_bucket){forward_ns[i], backward_ns[i],
								comm_ns[i], params[i]};
	for (int l = 0; l < nr_links && l < DF_PLAN_LINKS; l++) {
		h->profile.links[l].slowdown = slowdown[l];
		h->profile.links[l].startup_ns = startup_ns ? startup_ns[l] : 0;
	}
	if (df_plan_check(&h->profile, err, (size_t)size))
		goto err_free;
	rc = df_plan_deft_init(&h->deft, &h->profile);
	if (!rc)
		return h;
err_said:
	df_plan_refuse(err, (size_t)size,
		       rc == -ENOMEM ? "out of memory"
				     : "communication takes too much longer than the forward pass");
err_free:
	free(h);
	return NULL;
}

void df_plan_close(struct df_plan_handle *h)
{
	if (h)
		df_plan_deft_fini(&h->deft);
	free(h);
}

int df_plan_items(const struct df_plan_handle *h, int32_t *bucket, int32_t *part, int32_t *parts)
{
	for (int i = 0; i < h->deft.nr_items && bucket; i++) {
		bucket[i] = h->deft.items[i].bucket;
		part[i] = h->deft.items[i].part;
		parts[i] = h->deft.items[i].parts;
	}
	return h->deft.nr_items;
}

int df_plan_next(struct df_plan_handle *h, int32_t *item, int32_t *link, int32_t *stage,
		 int32_t *merged, int32_t *formed)
{
	df_plan_deft_step(&h->deft, &h->step);
	for (int i = 0; i < h->step.nr_sends; i++) {
		item[i] = h->step.sends[i].item;
		link[i] = h->step.sends[i].link;
		stage[i] = h->step.sends[i].stage;
	}
	*merged = h->step.k;
	*formed = h->step.which != 2;
	return h->step.nr_sends;
}

void df_plan_restart(struct df_plan_handle *h)
{
	df_plan_deft_restart(&h->deft);
}

int df_plan_preserved(struct df_plan_handle *h, double loss, double fall, double noise,
		      double epsilon, double *ratio)
{
	const struct df_plan_walk walk = {.loss = loss,
					  .rate = 1,
					  .mu = fall,
					  .sigma = noise,
					  .batch = 1,
					  .epsilon = epsilon};
	struct df_plan_outcome o;
	int rc = df_plan_feedback(&h->profile, &walk, REPLAY, &o, ratio, &h->rounds);

	if (rc)
		return rc;
	df_plan_outcome_fini(&o);
	return h->rounds;
}

double df_plan_order(const struct df_plan_handle *h, int32_t *order)
{
	double ns;

	return df_plan_whole(&h->profile, order, &ns) ? -1 : ns / 1e6;
}

double df_plan_expect_ddp(const struct df_plan_handle *h)
{
	struct df_plan_outcome o;
	double ms;

	if (df_plan_ddp(&h->profile, &o))
		return 0;
	ms = o.iteration_ns / 1e6;
	df_plan_outcome_fini(&o);
	return ms;
}

double df_plan_expect(const struct df_plan_handle *h)
{
	struct df_plan_outcome o;
	double ms;

	if (df_plan_deft_replay(&h->profile, h->profile.nr_links, REPLAY, &o))
		return 0;
	ms = o.iteration_ns / 1e6;
	df_plan_outcome_fini(&o);
	return ms;
}
