/*
 * Compares every engine and every short cut with the plain simulation and with a slow oracle, round
 * by round, on random small configurations of all models, semantics and rules. SEED=n repeats a
 * run.
 */
#include <check.h>
#include <stdlib.h>

#include "tests/lib/test.h"
#include "tests/sim/oracle.h"

static uint64_t seed;
static struct df_rng rng;

static int below(int n)
{
	return (int)(df_rng_u64(&rng) % (uint64_t)n);
}

static void setup(void)
{
	seed = df_test_seed();
	df_rng_seed(&rng, seed, 0, 0);
}

/* Random groups that together contain every GPU. */
static void random_workload(struct df_sim_workload *w)
{
	int nr_gpus = 2 + below(8), nr_groups = 1 + below(6), m = 0;
	unsigned char in[64];

	ck_assert(!df_sim_workload_init(w, nr_groups + 1, (nr_groups + 1) * nr_gpus));
	w->nr_gpus = nr_gpus;
	memset(in, 0, sizeof(in));
	for (int g = 0; g < nr_groups; g++) {
		int size = 1 + below(nr_gpus < 4 ? nr_gpus : 4), from = below(nr_gpus);
		int step = below(3) ? 1 : 2, count = 0;
		unsigned char mine[64] = {0};

		for (int i = 0; i < size; i++)
			mine[(from + i * step) % nr_gpus] = 1;
		for (int x = 0; x < nr_gpus; x++)
			if (mine[x]) {
				w->members[m++] = x;
				in[x] = 1;
				count++;
			}
		w->nr_colls[g] = below(10);
		w->start[g + 1] = m;
	}
	/* The remaining GPUs form a group of their own, so that every part is in a group. */
	w->nr_groups = nr_groups;
	for (int x = 0; x < nr_gpus; x++)
		if (!in[x])
			w->members[m++] = x;
	if (m > w->start[nr_groups]) {
		w->nr_colls[nr_groups] = below(6);
		w->start[++w->nr_groups] = m;
	}
}

static void random_config(struct df_sim_config *cfg)
{
	static const double p[] = {0, 0.003, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 0.95, 1};

	memset(cfg, 0, sizeof(*cfg));
	random_workload(&cfg->load);
	cfg->model = (enum df_sim_model)below(2);
	cfg->semantics = (enum df_sim_semantics)below(3);
	cfg->dispatch = (enum df_sim_dispatch)below(2);
	cfg->rules = below(4) ? DF_SIM_NCCL : (enum df_sim_rules)below(3);
	cfg->disorder_prob = p[below(10)];
	cfg->sync_prob = cfg->model == DF_SIM_SYNC ? p[below(9)] : 0;
	cfg->resource_limit = below(5) ? -1 : 1 + below(4);
	cfg->total_rounds = 20;
	cfg->num_process = 1;
}

static int nr_rounds, nr_deadlocks, nr_releases, nr_by_method[5], nr_dead_by_method[5];

static void compare_round(const struct df_sim_part *part, const struct df_sim_setup *s,
			  struct df_sim_program *prog, int which)
{
	struct df_sim_plain *plain = df_sim_plain_create(part);
	struct df_sim_sparse *sparse = df_sim_sparse_create(part);
	struct df_sim_order *order = df_sim_order_create(part);
	struct df_sim_outcome a, b = {-1, -1};
	int64_t releases;
	int dead;

	ck_assert(plain && sparse && order);
	for (int i = 0; i < 8; i++) {
		ck_assert(!df_sim_program_draw(prog, part, &s->odds, &rng));
		dead = oracle_round(part, s, prog, &releases);
		df_sim_plain_round(plain, s, prog, NULL, &a);
		ck_assert_msg(
			a.deadlock == dead && (dead || a.releases == releases),
			"seed %llu, configuration %d, method %d: plain says %d (%lld releases), "
			"oracle %d (%lld)",
			(unsigned long long)seed, which, s->method, a.deadlock,
			(long long)a.releases, dead, (long long)releases);
		b = a;
		if (s->method == DF_SIM_BY_CYCLE ||
		    (s->method == DF_SIM_BY_INTERSECTION && !s->limit)) {
			df_sim_sparse_round(sparse, s, prog, &b);
		} else if (s->method == DF_SIM_BY_SLOTS && s->slots == 1) {
			b.deadlock = df_sim_order_fifo(order, prog);
		} else if (s->method == DF_SIM_BY_GROUP_ORDER) {
			b.deadlock = df_sim_order_groups(order, prog);
		}
		ck_assert_msg(a.deadlock == b.deadlock && a.releases == b.releases,
			      "seed %llu, configuration %d, method %d: short cut says %d (%lld), "
			      "plain %d (%lld)",
			      (unsigned long long)seed, which, s->method, b.deadlock,
			      (long long)b.releases, a.deadlock, (long long)a.releases);
		/* The cases in which a part can be skipped without an engine. */
		if (s->method == DF_SIM_BY_CYCLE && !prog->nr_danger)
			ck_assert_msg(!a.deadlock && !a.releases, "seed %llu",
				      (unsigned long long)seed);
		if ((s->method == DF_SIM_BY_SLOTS || s->method == DF_SIM_BY_GROUP_ORDER) &&
		    !prog->nr_disorder)
			ck_assert_msg(!a.deadlock, "seed %llu", (unsigned long long)seed);
		if (s->method == DF_SIM_BY_INTERSECTION && !s->limit && prog->nr_sync < 2)
			ck_assert_msg(!a.deadlock, "seed %llu", (unsigned long long)seed);
		nr_rounds++;
		nr_deadlocks += a.deadlock;
		nr_releases += a.releases > 0;
		nr_by_method[s->method]++;
		nr_dead_by_method[s->method] += a.deadlock;
	}
	df_sim_plain_destroy(plain);
	df_sim_sparse_destroy(sparse);
	df_sim_order_destroy(order);
}

START_TEST(engines_agree)
{
	for (int which = 0; which < 6000 / df_test_slow(); which++) {
		struct df_sim_config cfg;
		struct df_sim_setup s;
		struct df_sim_system sys;

		random_config(&cfg);
		df_sim_setup_init(&s, &cfg);
		ck_assert(!df_sim_system_init(&sys, &cfg.load, cfg.dispatch, below(2)));
		for (int k = 0; k < sys.nr_kinds; k++) {
			struct df_sim_program prog;

			ck_assert(!df_sim_program_init(&prog, &sys.parts[k]));
			compare_round(&sys.parts[k], &s, &prog, which);
			df_sim_program_fini(&prog);
		}
		df_sim_system_fini(&sys);
		df_sim_config_fini(&cfg);
	}
	/* The comparison is meaningful only if both outcomes are common for every method. */
	for (int m = 0; m < 5; m++) {
		ck_assert_msg(nr_dead_by_method[m] > nr_by_method[m] / 50 &&
				      nr_dead_by_method[m] < nr_by_method[m] * 49 / 50,
			      "seed %llu: method %d deadlocks in %d of %d rounds: not a test",
			      (unsigned long long)seed, m, nr_dead_by_method[m], nr_by_method[m]);
	}
	ck_assert_msg(nr_releases > 50 / df_test_slow(), "seed %llu: %d", (unsigned long long)seed,
		      nr_releases);
}
END_TEST

/* Larger parts with low probabilities, for which the short cuts are made. */
START_TEST(engines_agree_on_larger_parts)
{
	static const enum df_sim_semantics sem[] = {DF_SIM_ARTIFACT, DF_SIM_EXACT, DF_SIM_FIFO};

	for (int which = 0; which < 60 / df_test_slow(); which++) {
		struct df_sim_config cfg = {.model = (enum df_sim_model)(which & 1),
					    .semantics = sem[which % 3],
					    .rules = below(3) ? DF_SIM_NCCL : DF_SIM_RELEASE,
					    .dispatch = (enum df_sim_dispatch)below(2),
					    .resource_limit = -1};
		int tp = 2 + below(3), dp = 2 + below(3), m = 0;
		struct df_sim_system sys;
		struct df_sim_program prog;
		struct df_sim_setup s;

		cfg.disorder_prob = cfg.model == DF_SIM_SINGLE ? 3e-4 : 0.02;
		cfg.sync_prob = cfg.model == DF_SIM_SINGLE ? 0 : 0.03;
		ck_assert(!df_sim_workload_init(&cfg.load, tp + dp, 2 * tp * dp));
		cfg.load.nr_gpus = tp * dp;
		for (int g = 0; g < tp + dp; g++) {
			for (int i = 0; i < (g < dp ? tp : dp); i++)
				cfg.load.members[m++] = g < dp ? g * tp + i : i * tp + g - dp;
			cfg.load.start[g + 1] = m;
			cfg.load.nr_colls[g] = 20 + below(40);
		}
		df_sim_setup_init(&s, &cfg);
		ck_assert(!df_sim_system_init(&sys, &cfg.load, cfg.dispatch, 1));
		ck_assert_int_eq(sys.nr_parts, 1);
		ck_assert(!df_sim_program_init(&prog, &sys.parts[0]));
		compare_round(&sys.parts[0], &s, &prog, which);
		df_sim_program_fini(&prog);
		df_sim_system_fini(&sys);
		df_sim_config_fini(&cfg);
	}
}
END_TEST

struct log {
	unsigned char dead[4096];
	int nr;
};

static void note_round(void *arg, int64_t round, int deadlock, int64_t deadlocks)
{
	struct log *l = arg;

	(void)deadlocks;
	ck_assert_int_eq(round, l->nr + 1);
	l->dead[l->nr++] = (unsigned char)deadlock;
}

/*
 * Whole runs with and without short cuts, with any number of jobs, split or whole: the same rounds
 * deadlock.
 */
START_TEST(runs_agree)
{
	for (int which = 0; which < 300 / df_test_slow(); which++) {
		struct df_sim_config cfg;
		struct df_sim_result r[4];
		static struct log log[4];
		int width = below(4) == 0, rounds = 1 + below(2000);

		random_config(&cfg);
		for (int i = 0; i < 4; i++) {
			struct df_sim_options o = {.rounds = rounds,
						   .seed = seed + (uint64_t)which,
						   .jobs = i == 3 ? 1 : 1 + i * 2,
						   .plain = i == 3,
						   .rng = DF_SIM_RNG_NATIVE,
						   .until_width = width ? 0.15 : 0,
						   .round = note_round,
						   .arg = &log[i]};

			log[i].nr = 0;
			ck_assert(!df_sim_run(&cfg, &o, &r[i]));
			ck_assert_int_eq(log[i].nr, r[i].rounds);
			ck_assert_msg(r[i].rounds == r[0].rounds &&
					      r[i].deadlocks == r[0].deadlocks &&
					      r[i].releases == r[0].releases &&
					      !memcmp(log[i].dead, log[0].dead, (size_t)log[0].nr),
				      "seed %llu, configuration %d: run %d differs from run 0",
				      (unsigned long long)seed, which, i);
		}
		df_sim_config_fini(&cfg);
	}
}
END_TEST

/*
 * Jumping from one rare turn to the next must give the same distribution as drawing every number.
 * Compares the ratio of both methods, within 5 standard errors of the difference. A correct program
 * fails once in about 10^5 runs of the test.
 */
START_TEST(programs_have_the_published_law)
{
	for (int which = 0; which < 60 / df_test_slow(); which++) {
		struct df_sim_options o = {
			.rounds = 3000, .seed = seed + (uint64_t)which, .jobs = 2};
		struct df_sim_result a, b;
		struct df_sim_config cfg;
		double p, se;

		random_config(&cfg);
		cfg.rules = DF_SIM_NCCL;
		if (cfg.sync_prob > 0.8)
			cfg.sync_prob = 0.3;
		o.rng = DF_SIM_RNG_NATIVE;
		ck_assert(!df_sim_run(&cfg, &o, &a));
		o.rng = DF_SIM_RNG_CPYTHON;
		ck_assert(!df_sim_run(&cfg, &o, &b));
		p = (double)(a.deadlocks + b.deadlocks + 1) / (double)(a.rounds + b.rounds + 2);
		se = sqrt(p * (1 - p) * (1.0 / (double)a.rounds + 1.0 / (double)b.rounds));
		ck_assert_msg(fabs(a.ratio - b.ratio) <= 5 * se,
			      "seed %llu, configuration %d: %.4f by programs, %.4f draw by draw",
			      (unsigned long long)seed, which, a.ratio, b.ratio);
		df_sim_config_fini(&cfg);
	}
}
END_TEST

/* By dfshim's rules a single queue never deadlocks, and with releases nothing deadlocks at all. */
START_TEST(own_rules_never_deadlock)
{
	int64_t nccl = 0, releases = 0;

	for (int which = 0; which < 300 / df_test_slow(); which++) {
		struct df_sim_options o = {
			.rounds = 100, .seed = seed + (uint64_t)which, .jobs = 1};
		struct df_sim_result a, b;
		struct df_sim_config cfg;

		random_config(&cfg);
		cfg.semantics = DF_SIM_EXACT;
		cfg.rules = DF_SIM_NCCL;
		cfg.resource_limit = -1;
		ck_assert(!df_sim_run(&cfg, &o, &a));
		cfg.rules = cfg.model == DF_SIM_SYNC ? DF_SIM_RELEASE : DF_SIM_PREEMPT;
		o.plain = which & 1;
		ck_assert(!df_sim_run(&cfg, &o, &b));
		ck_assert_msg(b.deadlocks == 0, "seed %llu", (unsigned long long)seed);
		if (cfg.model == DF_SIM_SYNC)
			ck_assert_int_eq(b.released_rounds, a.deadlocks);
		nccl += a.deadlocks;
		releases += b.releases;
		df_sim_config_fini(&cfg);
	}
	ck_assert(nccl > 1000 / df_test_slow() && releases > 500 / df_test_slow());
}
END_TEST

int main(void)
{
	setup();
	return DF_TESTS("sim engines", {engines_agree}, {engines_agree_on_larger_parts},
			{runs_agree}, {programs_have_the_published_law},
			{own_rules_never_deadlock});
}
