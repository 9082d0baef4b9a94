/*
 * A recorded data-parallel job becomes a profile. The test writes the traces itself, so buckets,
 * times and ranks are known. The ranks are not synchronous, so transfers seem longer on ranks that
 * arrive first.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/plan/plan_observe.h"
#include "trace/record/names.h"

#define NR_RANKS    3
#define MAX_BUCKETS 8
#define MS	    INT64_C(1000000)

/* Buckets in the order of communication, from the output side. */
struct job {
	int nr, iterations;
	int64_t params[MAX_BUCKETS], backward[MAX_BUCKETS], comm[MAX_BUCKETS];
	int64_t forward;
	int warm_up; /* number of iterations with other buckets at the start */
	int loss;    /* whether each iteration ends with a small AllReduce */
	int ended;   /* whether the job exits normally, after a barrier */
};

static char dir[64], *paths[NR_RANKS];

static void op(struct tb_image *im, uint32_t comm, int rank, uint64_t index, int64_t count,
	       int64_t issue, int64_t start, int64_t done)
{
	uint64_t serial;

	/* Each record advances the clock by one. */
	im->clock = (uint64_t)issue;
	serial = tb_issue(im, comm, rank, DF_KIND_ALLREDUCE, (uint64_t)count, -1, index);
	im->clock = (uint64_t)start;
	tb_op(im, comm, DF_REC_OP_START, serial);
	im->clock = (uint64_t)done;
	tb_op(im, comm, DF_REC_OP_DONE, serial);
}

/*
 * Rank r is ready up to 2 ms before the last rank. A transfer starts at each rank by itself and
 * ends at all ranks together.
 */
static void record(const struct job *j, int r)
{
	struct tb_image im;
	uint32_t comm, other;
	uint64_t index = 0;
	int64_t t = 1000 * MS;
	FILE *f;

	tb_image_init(&im, r, NR_RANKS, 16384);
	comm = tb_comm(&im, 0x77, NR_RANKS, r, r);
	other = tb_comm(&im, 0x99, NR_RANKS, r, r);
	for (int i = 0; i < j->iterations; i++) {
		int64_t link = 0;

		t += j->forward + i % 3 * 1000;
		if (i < j->warm_up) {
			op(&im, comm, r, index++, 12345, t, t, t + 30 * MS);
			t += 30 * MS;
			continue;
		}
		op(&im, other, r, (uint64_t)i, 10, t - 1000, t - 1000, t - 500);
		for (int b = 0; b < j->nr; b++) {
			int64_t early = (NR_RANKS - 1 - r) * MS / 2, all;

			t += j->backward[b];
			all = t > link ? t : link;
			op(&im, comm, r, index++, j->params[b], t - early,
			   link > t - early ? link : t - early, all + j->comm[b]);
			link = all + j->comm[b];
		}
		t = link > t ? link : t;
		if (j->loss) {
			op(&im, comm, r, index++, 1, t, t, t + 20000);
			t += 20000;
		}
	}
	if (j->ended)
		op(&im, comm, r, index++, 3, t, t, t + 20000);
	im.h->closed = (uint32_t)j->ended;
	paths[r] = malloc(96);
	snprintf(paths[r], 96, "%s/r%d.dft", dir, r);
	f = fopen(paths[r], "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(im.h, 1, im.bytes, f), im.bytes);
	fclose(f);
	tb_image_fini(&im);
}

static int observe(const struct job *j, const struct df_plan_hints *hints,
		   struct df_plan_profile *p, struct df_plan_observed *o, char *err)
{
	int rc;

	snprintf(dir, sizeof(dir), "/tmp/t_plan_observe.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	for (int r = 0; r < NR_RANKS; r++)
		record(j, r);
	memset(p, 0, sizeof(*p));
	*err = '\0';
	rc = df_plan_observe(p, o, paths, NR_RANKS, hints, err, 256);
	for (int r = 0; r < NR_RANKS; r++) {
		unlink(paths[r]);
		free(paths[r]);
	}
	rmdir(dir);
	return rc;
}

static void about(int64_t got, int64_t want)
{
	ck_assert_msg(llabs(got - want) <= 20000 + want / 100, "%.3f ms, want %.3f",
		      (double)got / 1e6, (double)want / 1e6);
}

static const struct job plain = {
	.nr = 4,
	.iterations = 12,
	.params = {1000, 6000, 7000, 5000},
	/* The second and third bucket wait for the link. */
	.backward = {8 * MS, 10 * MS, 12 * MS, 30 * MS},
	.comm = {15 * MS, 20 * MS, 9 * MS, 7 * MS},
	.forward = 30 * MS,
	.warm_up = 2,
	.loss = 1,
};

/* The profile's order starts at the input side. */
static void matches(const struct job *j, const struct df_plan_profile *p)
{
	ck_assert_int_eq(p->nr_buckets, j->nr);
	for (int b = 0; b < j->nr; b++) {
		const struct df_plan_bucket *k = &p->buckets[j->nr - 1 - b];

		ck_assert_int_eq(k->params, j->params[b]);
		about(k->comm_ns, j->comm[b]);
		about(k->backward_ns, j->backward[b]);
	}
	about(df_plan_forward_ns(p), j->forward);
}

START_TEST(a_job)
{
	struct df_plan_hints hints = {0};
	static struct df_plan_profile p;
	struct df_plan_observed o;
	struct df_plan_outcome ddp;
	char err[256];

	ck_assert_msg(!observe(&plain, &hints, &p, &o, err), "%s", err);
	matches(&plain, &p); /* its forward pass is a third of the computation */
	ck_assert_int_eq(o.nr_ranks, NR_RANKS);
	ck_assert_int_eq(o.nr_small, 1);
	ck_assert_int_ge(o.nr_iterations, 8);
	ck_assert_int_eq(df_plan_check(&p, err, sizeof(err)), 0);
	/* The replay of DDP takes as long as the recorded iterations. */
	ck_assert_int_eq(df_plan_ddp(&p, &ddp), 0);
	about((int64_t)ddp.iteration_ns, (int64_t)o.iteration_ns);
	df_plan_outcome_fini(&ddp);
}
END_TEST

START_TEST(another_share)
{
	struct job j = plain;
	struct df_plan_hints hints = {.forward_share = 10 / 70.0};
	static struct df_plan_profile p;
	struct df_plan_observed o;
	char err[256];

	/* The longest gap is no longer the one between iterations. */
	j.forward = 10 * MS;
	j.loss = 0;
	j.ended = 1;
	ck_assert_msg(!observe(&j, &hints, &p, &o, err), "%s", err);
	matches(&j, &p);
	ck_assert_int_eq(o.nr_small, 0);
}
END_TEST

START_TEST(equal_buckets)
{
	struct job j = plain;
	struct df_plan_hints hints = {0};
	static struct df_plan_profile p;
	struct df_plan_observed o;
	char err[256];

	for (int b = 0; b < j.nr; b++)
		j.params[b] = 5000;
	j.loss = 0;
	j.warm_up = 0;
	ck_assert_msg(!observe(&j, &hints, &p, &o, err), "%s", err);
	matches(&j, &p);
	hints.nr_buckets = 4;
	ck_assert_msg(!observe(&j, &hints, &p, &o, err), "%s", err);
	matches(&j, &p);
}
END_TEST

START_TEST(refused)
{
	struct job j = plain;
	struct df_plan_hints hints = {0};
	static struct df_plan_profile p;
	struct df_plan_observed o;
	char err[256];

	j.iterations = 4;
	ck_assert_int_eq(observe(&j, &hints, &p, &o, err), -EINVAL);
	ck_assert_msg(strstr(err, "no period in"), "%s", err);
	j = plain;
	hints.nr_buckets = 3;
	ck_assert_int_eq(observe(&j, &hints, &p, &o, err), -EINVAL);
	ck_assert_msg(strstr(err, "do not repeat after 3"), "%s", err);
	j.iterations = 0;
	ck_assert_int_eq(observe(&j, &hints, &p, &o, err), -EINVAL);
	ck_assert_msg(strstr(err, "no all-reduce"), "%s", err);
}
END_TEST

int main(void)
{
	return DF_TESTS("plan_observe", {a_job}, {another_share}, {equal_buckets}, {refused});
}
