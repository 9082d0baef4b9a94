/*
 * Which gradients one link can send in a stage: a 0/1 knapsack whose items have release times. (The
 * recursion printed in the DeFT paper picks items as if all were ready at the start.)
 *
 * Jobs are processed in the order of release. A state is (when the link is free, how long it was
 * busy). If two states have the same end, the busier is kept, and a state that ends later without
 * being busier is dropped, so states stay sorted by both. That is exact. If more than STATES are
 * left, each cell of a 256th of the deadline keeps its busiest state: then nothing is lost that
 * would fit if the deadline were a cell earlier per job.
 */
#include <stdlib.h>
#include <string.h>

#include "trace/plan/plan_int.h"

#define STATES	  512
#define CELLS	  256
#define TOLERANCE 1024 /* the search ends within this part of the bound */

struct state {
	int64_t end, busy;
	int32_t node;
};

/* The origin of a state: the last job, and the state before. */
struct node {
	int32_t before, job;
};

struct df_plan_solver {
	struct state a[2 * STATES], b[2 * STATES];
	struct node nodes[];
};

struct df_plan_solver *df_plan_solver_create(int max_jobs)
{
	return malloc(sizeof(struct df_plan_solver) +
		      (size_t)max_jobs * STATES * sizeof(struct node));
}

void df_plan_solver_destroy(struct df_plan_solver *s)
{
	free(s);
}

/*
 * Appends a state that ends after all others, but only if it is busier than the last of them. If it
 * is not, the last one is at least as good in both respects.
 */
static inline int keep(struct state *to, int nr, struct state s)
{
	if (nr && to[nr - 1].busy >= s.busy)
		return nr;
	to[nr] = s;
	return nr + 1;
}

/* Keeps the busiest state of each cell. */
static int thin(struct state *v, int nr, int64_t cell)
{
	int kept = 0;

	for (int i = 0; i < nr; i++)
		if (i + 1 == nr || v[i + 1].end / cell != v[i].end / cell)
			v[kept++] = v[i];
	return kept;
}

int64_t df_plan_pick(struct df_plan_solver *s, const struct df_plan_job *jobs, int nr,
		     int64_t deadline, unsigned char *picked)
{
	int64_t cell = deadline / CELLS + 1, left = 0, bound = 0, t = 0;
	struct state *from = s->a, *to = s->b, *swap;
	int nr_states = 1, nr_nodes = 0;

	memset(picked, 0, (size_t)nr);
	/* An upper bound: all jobs are sent, cut off at the deadline. */
	for (int j = 0; j < nr; j++) {
		int64_t end;

		t = t > jobs[j].release ? t : jobs[j].release;
		end = t + jobs[j].ns < deadline ? t + jobs[j].ns : deadline;
		if (end > t)
			bound += end - t;
		t += jobs[j].ns;
		left += jobs[j].ns;
	}
	from[0] = (struct state){0, 0, -1};
	for (int j = 0; j < nr; j++) {
		int64_t busiest = from[nr_states - 1].busy;
		int i = 0, c = 0, nr_to = 0;

		/*
		 * Stop near the bound, not near the deadline: a few small jobs stay far below the
		 * deadline and would otherwise never be sent.
		 */
		if (busiest >= bound - bound / TOLERANCE)
			break;
		/* Skip states that cannot reach the busiest any more. */
		while (from[i].busy + left < busiest)
			i++;
		/*
		 * Among states that end before the release, only the busiest is worth continuing.
		 */
		for (c = i; c + 1 < nr_states && from[c + 1].end <= jobs[j].release;)
			c++;
		left -= jobs[j].ns;
		while (i < nr_states || c < nr_states) {
			struct state n = {INT64_MAX, 0, -1};

			if (c < nr_states) {
				n.end = from[c].end > jobs[j].release ? from[c].end
								      : jobs[j].release;
				n.end += jobs[j].ns;
				n.busy = from[c].busy + jobs[j].ns;
			}
			if (n.end > deadline) {
				c = nr_states;
				if (i == nr_states)
					break;
				nr_to = keep(to, nr_to, from[i++]);
			} else if (i < nr_states &&
				   (from[i].end < n.end ||
				    (from[i].end == n.end && from[i].busy >= n.busy))) {
				nr_to = keep(to, nr_to, from[i++]);
			} else {
				s->nodes[nr_nodes] = (struct node){from[c++].node, j};
				n.node = nr_nodes++;
				nr_to = keep(to, nr_to, n);
			}
		}
		if (nr_to > STATES)
			nr_to = thin(to, nr_to, cell);
		swap = from;
		from = to;
		to = swap;
		nr_states = nr_to;
	}
	for (int32_t n = from[nr_states - 1].node; n >= 0; n = s->nodes[n].before)
		picked[s->nodes[n].job] = 1;
	return from[nr_states - 1].busy;
}
