/*
 * Measures the processor time of the planner: one iteration of DeFT's state machine for 32 buckets,
 * over coverage rates from 0.5 to 4.5 and one or two links, and a replay of 10,000 iterations.
 * Prints the worst of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "trace/plan/plan_int.h"

static uint64_t state = 2023;

static int64_t below(int64_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)((state >> 33) % (uint64_t)n);
}

/*
 * Returns the processor time of this process. The process has one thread, and other load does not
 * count.
 */
static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void network(struct df_plan_profile *p, double cr, int links)
{
	double all = 0, comm = 0;

	*p = (struct df_plan_profile){
		.nr_buckets = 32, .nr_links = links, .links = {{"a", 1, 0}, {"b", 1.65, 0}}};
	for (int i = 0; i < 32; i++) {
		struct df_plan_bucket *b = &p->buckets[i];

		*b = (struct df_plan_bucket){below(10000000), below(20000000), 1 + below(10000000),
					     6500000};
		all += (double)(b->forward_ns + b->backward_ns);
		comm += (double)b->comm_ns;
	}
	for (int i = 0; i < 32; i++)
		p->buckets[i].comm_ns =
			1 + (int64_t)((double)p->buckets[i].comm_ns * cr * all / comm);
}

static void line(const char *name, double value, const char *unit, double target)
{
	printf("BENCH %s %.4g %s target <%g %s\n", name, value, unit, target,
	       value < target ? "ok" : "MISS");
}

int main(void)
{
	static struct df_plan_profile p;
	static struct df_plan_deft d;
	static struct df_plan_step step;
	struct df_plan_outcome o;
	double worst = 0, longest = 0;
	uint64_t start;

	for (int links = 1; links <= 2; links++)
		for (double cr = 0.5; cr < 5; cr += 0.5) {
			double ms;

			network(&p, cr, links);
			if (df_plan_deft_init(&d, &p))
				return 1;
			start = cpu_ns();
			for (int i = 0; i < 500; i++)
				df_plan_deft_step(&d, &step);
			ms = (double)(cpu_ns() - start) / 1e6 / 500;
			worst = ms > worst ? ms : worst;
			df_plan_deft_fini(&d);
			start = cpu_ns();
			if (df_plan_deft_replay(&p, links, 10000, &o))
				return 1;
			ms = (double)(cpu_ns() - start) / 1e9;
			longest = ms > longest ? ms : longest;
			df_plan_outcome_fini(&o);
		}
	line("plan_solve_32_buckets", worst, "ms", 1);
	line("plan_replay_10000_iterations", longest, "s", 1);
	return 0;
}
