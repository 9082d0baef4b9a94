/*
 * Reproduces the published program bit for bit: CPython's random numbers, and the count of
 * deadlocks after each round of recorded runs (tests/sim/data: *.cumulative.txt by the program as
 * shipped, with its seed 2023; *.cycle.txt by the same program with its own cycle test enabled).
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "trace/sim/sim_rng.h"
#include "trace/sim/sim.h"

START_TEST(cpython_numbers)
{
	/* float.hex() of the values of random.random() after random.seed(2023). */
	static const double first[] = {0x1.881caf59cf100p-2, 0x1.f197e85c9490ep-1,
				       0x1.b008d658e9334p-1, 0x1.47f7a5ce3c470p-2};
	struct df_mt mt;
	double x = 0;

	df_mt_seed(&mt, 2023, 0.5);
	for (int i = 0; i < 1000; i++) {
		x = (double)df_mt_draw(&mt) * 0x1p-53;
		if (i < 4)
			ck_assert(x == first[i]);
	}
	ck_assert(x == 0x1.df390e7ae6bc0p-4);
	df_mt_seed(&mt, (1ull << 40) + 7, 0.5);
	ck_assert((double)df_mt_draw(&mt) * 0x1p-53 == 0x1.3a3761afd4291p-1);
	df_mt_seed(&mt, 0, 0.5);
	ck_assert((double)df_mt_draw(&mt) * 0x1p-53 == 0x1.b0580f98a7dbep-1);
}
END_TEST

/* Up to next_low all draws are at or above the bound, and skipping them loses no other draw. */
START_TEST(skipping_is_reading)
{
	static const double bounds[] = {1, 0.7, 0.1, 4e-3, 1e-5, 0};

	for (int b = 0; b < 6; b++) {
		static struct df_mt skip, read;
		uint64_t low = df_mt_threshold(bounds[b]);
		int nr_skipped = 0;

		df_mt_seed(&skip, df_test_seed() + (uint64_t)b, bounds[b]);
		df_mt_seed(&read, df_test_seed() + (uint64_t)b, bounds[b]);
		for (int i = 0; i < 200000; i++) {
			int n = 1 + (i % 3 == 0);

			if (skip.next + n <= skip.next_low) {
				skip.next += n;
				nr_skipped += n;
				while (n--)
					ck_assert(df_mt_draw(&read) >= low);
			} else {
				ck_assert(df_mt_draw(&skip) == df_mt_draw(&read));
			}
		}
		ck_assert(bounds[b] > 0.01 || nr_skipped > 150000);
	}
}
END_TEST

static const struct vector {
	const char *config, *lines, *semantics;
} vectors[] = {
	{"val_a.json", "val_a.cumulative.txt", "artifact"},
	{"val_b.json", "val_b.cumulative.txt", "artifact"},
	{"val_c.json", "val_c.cumulative.txt", "artifact"},
	{"limit.json", "limit.cumulative.txt", "artifact"},
	{"overlap.json", "overlap.cumulative.txt", "artifact"},
	{"chatter.json", "chatter.cumulative.txt", "artifact"},
	{"ring.json", "ring.cumulative.txt", "artifact"},
	{"ring.json", "ring.cycle.txt", "exact"},
};

struct reading {
	FILE *f;
	const char *name;
};

static void compare_line(void *arg, int64_t round, int deadlock, int64_t deadlocks)
{
	struct reading *r = arg;
	long long want_round = -1, want = -1;

	(void)deadlock;
	ck_assert_msg(fscanf(r->f, "%lld %lld", &want_round, &want) == 2, "%s: too short", r->name);
	ck_assert_msg(want_round == round && want == deadlocks, "%s: round %lld: %lld, want %lld",
		      r->name, (long long)round, (long long)deadlocks, want);
}

static void load(struct df_sim_config *cfg, const char *name, const char *semantics)
{
	char path[256], err[512] = "";
	json_t *root = NULL;
	int rc;

	snprintf(path, sizeof(path), "tests/sim/data/%s", name);
	rc = df_sim_json_load(&root, path, err, sizeof(err));
	ck_assert_msg(!rc, "%s: %s", path, err);
	ck_assert(!df_sim_json_set(root, "semantics", semantics, err, sizeof(err)));
	rc = df_sim_config_from_json(cfg, root, err, sizeof(err));
	ck_assert_msg(!rc, "%s: %s", path, err);
	json_decref(root);
}

START_TEST(recorded_runs)
{
	const struct vector *v = &vectors[_i];
	struct reading r = {.name = v->lines};
	struct df_sim_options o = {.seed = 2023,
				   .jobs = 3,
				   .rng = DF_SIM_RNG_CPYTHON,
				   .round = compare_line,
				   .arg = &r};
	struct df_sim_result res;
	struct df_sim_config cfg;
	char path[256];

	load(&cfg, v->config, v->semantics);
	snprintf(path, sizeof(path), "tests/sim/data/%s", v->lines);
	r.f = fopen(path, "r");
	ck_assert_msg(r.f != NULL, "%s", path);
	ck_assert(!df_sim_run(&cfg, &o, &res));
	ck_assert_int_eq(res.rounds, cfg.total_rounds);
	ck_assert_int_eq(fscanf(r.f, "%*d"), EOF);
	fclose(r.f);
	df_sim_config_fini(&cfg);
}
END_TEST

static void note(void *arg, int64_t round, int deadlock, int64_t deadlocks)
{
	(void)deadlocks;
	((unsigned char *)arg)[round] = (unsigned char)deadlock;
}

/* With a fixed seed all processes of the published program replay the same rounds. */
START_TEST(processes_replay)
{
	static unsigned char dead[1000];
	struct df_sim_options o = {.seed = 2023, .jobs = 1, .round = note, .arg = dead};
	struct df_sim_result res;
	struct df_sim_config cfg;
	double ci[2];

	load(&cfg, "val_a.json", "artifact");
	cfg.num_process = 3;
	ck_assert(!df_sim_run(&cfg, &o, &res));
	ck_assert_int_eq(res.rounds, 600);
	for (int i = 1; i <= 400; i++)
		ck_assert_int_eq(dead[i], dead[i + 200]);
	/*
	 * Three processes count the same rounds, which are no more evidence than one process gives.
	 */
	df_sim_wilson(res.deadlocks / 3, 200, ci);
	ck_assert(res.ci95[0] == ci[0] && res.ci95[1] == ci[1]);
	df_sim_config_fini(&cfg);
}
END_TEST

int main(void)
{
	return DF_TESTS("sim vectors", {cpython_numbers}, {skipping_is_reading},
			{recorded_runs, (int)(sizeof(vectors) / sizeof(vectors[0]))},
			{processes_replay});
}
