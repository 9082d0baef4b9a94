/*
 * Compares the choice of what a link sends in a stage with all subsets, on random instances. Also
 * tests partition.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "trace/plan/plan_int.h"

#define MAX_JOBS 11

static uint64_t state;

static int64_t below(int64_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)((state >> 33) % (uint64_t)n);
}

/*
 * Returns the busy time of these jobs, sent in order of release, or -1 if they miss the deadline.
 */
static int64_t busy(const struct df_plan_job *jobs, int nr, unsigned set, int64_t deadline)
{
	int64_t t = 0, sum = 0;

	for (int j = 0; j < nr; j++)
		if (set & 1u << j) {
			t = (t > jobs[j].release ? t : jobs[j].release) + jobs[j].ns;
			sum += jobs[j].ns;
		}
	return t <= deadline ? sum : -1;
}

static void one(struct df_plan_solver *s, int64_t unit)
{
	struct df_plan_job jobs[MAX_JOBS];
	unsigned char picked[MAX_JOBS];
	int nr = 1 + (int)below(MAX_JOBS);
	int64_t deadline = (20 + below(230)) * unit, best = 0, got, enough = deadline / 1024;
	int released = (int)below(3);
	unsigned set = 0;

	for (int j = 0; j < nr; j++) {
		jobs[j].ns = 1 + below(90 * unit);
		jobs[j].release = released ? below(deadline + 10 * unit) : 0;
		for (int i = j; i > 0 && jobs[i].release < jobs[i - 1].release; i--) {
			struct df_plan_job swap = jobs[i];

			jobs[i] = jobs[i - 1];
			jobs[i - 1] = swap;
		}
	}
	for (unsigned m = 0; m < 1u << nr; m++)
		if (busy(jobs, nr, m, deadline) > best)
			best = busy(jobs, nr, m, deadline);
	got = df_plan_pick(s, jobs, nr, deadline, picked);
	for (int j = 0; j < nr; j++)
		set |= (unsigned)picked[j] << j;
	ck_assert_msg(busy(jobs, nr, set, deadline) == got,
		      "it says %lld, its choice is worth %lld (-1: misses the deadline)",
		      (long long)got, (long long)busy(jobs, nr, set, deadline));
	ck_assert_msg(got || !best, "nothing is picked of %lld", (long long)best);
	/*
	 * Deadlines below 256 units, and up to nine jobs, are solved exactly. With more jobs, sets
	 * that need the last 256ths of the deadline may be missed.
	 */
	if (nr > 9 && unit > 1) {
		best = 0;
		deadline -= nr * (deadline / 256 + 1);
		for (unsigned m = 0; m < 1u << nr; m++)
			if (busy(jobs, nr, m, deadline) > best)
				best = busy(jobs, nr, m, deadline);
	}
	ck_assert_msg(got >= best - enough, "%d jobs, deadline %lld: %lld, best %lld", nr,
		      (long long)deadline, (long long)got, (long long)best);
}

START_TEST(all_subsets)
{
	struct df_plan_solver *s = df_plan_solver_create(MAX_JOBS);

	state = df_test_seed();
	ck_assert_ptr_nonnull(s);
	for (int i = 0; i < 4000 / df_test_slow(); i++)
		one(s, 1);
	for (int i = 0; i < 1000 / df_test_slow(); i++)
		one(s, 1000003);
	df_plan_solver_destroy(s);
}
END_TEST

/* The paper's recursion picks the last bucket for the whole stage, as if it were ready. */
START_TEST(late_bucket_is_not_ready)
{
	const struct df_plan_job jobs[] = {{10, 40}, {90, 100}};
	struct df_plan_solver *s = df_plan_solver_create(2);
	unsigned char picked[2];

	ck_assert_int_eq(df_plan_pick(s, jobs, 2, 100, picked), 40);
	ck_assert(picked[0] && !picked[1]);
	ck_assert_int_eq(df_plan_pick(s, jobs, 2, 190, picked), 140);
	ck_assert_int_eq(df_plan_pick(s, jobs, 0, 190, picked), 0);
	df_plan_solver_destroy(s);
}
END_TEST

START_TEST(parts)
{
	static struct df_plan_item items[DF_PLAN_BUCKETS];
	static struct df_plan_profile p = {
		.nr_links = 2,
		.nr_buckets = 2,
		.links = {{"a", 1, 1000}, {"b", 2, 3000}},
		.buckets = {{50000, 50000, 201000, 5}, {50000, 50000, 9000, 5}},
	};
	int nr = df_plan_partition(&p, items), first = 0;
	int64_t bytes = 0;

	/*
	 * 200,000 ns without the start-up, and 100,000 ns of room on a link of half the speed with
	 * a start-up of 3,000 ns, give 5 parts.
	 */
	for (int i = 0; i < nr; i++) {
		first += items[i].bucket == 0;
		ck_assert(items[i].ns[1] <= 100000);
		if (!items[i].bucket)
			bytes += items[i].ns[0] - 1000;
	}
	ck_assert_int_eq(first, 5);
	ck_assert_int_eq(nr, 6);
	ck_assert_int_eq(bytes, 200000);
	p.links[1].startup_ns = 100000;
	ck_assert_int_eq(df_plan_partition(&p, items), -ERANGE);
}
END_TEST

int main(void)
{
	return DF_TESTS("plan_solve", {all_subsets}, {late_bucket_is_not_ready}, {parts});
}
