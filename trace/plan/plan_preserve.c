/*
 * The preserver of DeFT: whether merging several iterations into some updates affects convergence.
 * It models training as a Gaussian walk that rebounds at its target (Yin, Luo, Nakamura, KDD '17);
 * merging k iterations is one step with k times the batch. It models the batch sizes only, not the
 * delay of updates. Pure functions.
 */
#include <math.h>

#include "trace/plan/plan_int.h"

double df_plan_expected(const struct df_plan_walk *w, double loss, int k)
{
	double mean = loss - w->target - w->rate * w->mu;
	double sd = w->rate * w->sigma / sqrt(w->batch * k);
	double a = mean / sd;

	/* Phi(a) - Phi(-a) is erf(a / sqrt 2). */
	return mean * erf(a * M_SQRT1_2) + sd * sqrt(M_2_PI) * exp(-a * a / 2) + w->target;
}

double df_plan_preserve(const struct df_plan_walk *w, const int *k, int nr)
{
	double plain = w->loss, merged = w->loss;

	for (int i = 0; i < nr; i++) {
		merged = df_plan_expected(w, merged, k[i]);
		for (int j = 0; j < k[i]; j++)
			plain = df_plan_expected(w, plain, 1);
	}
	return plain / merged;
}

int df_plan_feedback(struct df_plan_profile *p, const struct df_plan_walk *w, int64_t iterations,
		     struct df_plan_outcome *out, double *ratio, int *rounds)
{
	for (;; ++*rounds) {
		int rc = df_plan_deft_replay(p, p->nr_links, iterations, out);

		if (rc)
			return rc;
		*ratio = df_plan_preserve(w, out->k, out->nr_k);
		if (fabs(*ratio - 1) <= w->epsilon || *rounds >= 10)
			return 0;
		df_plan_outcome_fini(out);
		p->capacity = (p->capacity > 1 ? p->capacity : 1) * 1.1;
	}
}
