/*
 * Runs rounds on all cores; the result does not depend on their number.
 *
 * With our own random numbers every round has its own stream. Threads take rounds in blocks whose
 * size depends only on the workload, and results are counted in the order of rounds. So the totals,
 * the per-round lines and the round at which --until-width stops are the same for any number of
 * jobs. With CPython's numbers all rounds share one sequence, so one thread runs them in order.
 *
 * Threads: df_sim_run() starts `jobs` workers and waits; its own thread reports progress. One lock
 * guards the counters and the window of blocks that are finished but not yet counted.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/err.h"
#include "trace/sim/sim_int.h"

#define WINDOW	  256 /* number of blocks that may be finished before they are counted */
#define MAX_BLOCK 1024

/* One worker's engines for one shape of part. */
struct tools {
	struct df_sim_program prog;
	struct df_sim_plain *plain;
	struct df_sim_sparse *sparse;
	struct df_sim_order *order;
	/* For BY_GROUP_STATE: the outcome without disorder. -1 means not computed yet. */
	int undisturbed;
};

struct block {
	int nr, done;
	int64_t nr_parts, nr_skipped;
	int releases[MAX_BLOCK];
	unsigned char dead[MAX_BLOCK];
};

struct run {
	const struct df_sim_options *opt;
	struct df_sim_result *res;
	struct df_sim_system sys;
	struct df_sim_setup setup;
	int64_t limit; /* maximum number of rounds */
	int block_size;
	int one_sequence; /* the rounds share one sequence of CPython's numbers */
	int64_t replay;	  /* if > 0, the sequence restarts after this number of rounds */

	pthread_mutex_t lock;
	pthread_cond_t moved; /* signalled when a block was counted and when the run ends */
	/* next block to be taken; number of blocks counted into *res, in order */
	int64_t next_block, counted;
	int ended, rc, nr_running;
	struct block *window;
	struct timespec began;
};

void df_sim_wilson(int64_t k, int64_t n, double ci[2])
{
	const double z = 1.959963984540054;
	double p, centre, half, den;

	if (n <= 0) {
		ci[0] = 0;
		ci[1] = 1;
		return;
	}
	p = (double)k / (double)n;
	den = 1 + z * z / (double)n;
	centre = (p + z * z / (2 * (double)n)) / den;
	half = z / den * sqrt(p * (1 - p) / (double)n + z * z / (4 * (double)n * (double)n));
	ci[0] = k == 0 ? 0 : fmax(0, centre - half);
	ci[1] = k == n ? 1 : fmin(1, centre + half);
}

void df_sim_setup_init(struct df_sim_setup *s, const struct df_sim_config *cfg)
{
	memset(s, 0, sizeof(*s));
	s->with_sync = cfg->model == DF_SIM_SYNC;
	df_sim_odds_init(&s->odds, cfg->disorder_prob, s->with_sync ? cfg->sync_prob : 0);
	if (cfg->rules != DF_SIM_NCCL) {
		s->method = DF_SIM_BY_CYCLE;
		s->release = cfg->rules == DF_SIM_RELEASE;
	} else if (cfg->semantics == DF_SIM_FIFO) {
		s->method = DF_SIM_BY_SLOTS;
		s->slots = 1;
	} else if (cfg->model == DF_SIM_SINGLE) {
		s->method = cfg->semantics == DF_SIM_ARTIFACT ? DF_SIM_BY_GROUP_STATE
							      : DF_SIM_BY_GROUP_ORDER;
	} else if (cfg->semantics == DF_SIM_ARTIFACT) {
		s->method = DF_SIM_BY_INTERSECTION;
		s->limit = DF_MAX(cfg->resource_limit, 0);
	} else if (cfg->resource_limit > 0) {
		s->method = DF_SIM_BY_SLOTS;
		s->slots = cfg->resource_limit;
	} else {
		s->method = DF_SIM_BY_CYCLE;
	}
}

static double seconds_since(const struct timespec *t)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - t->tv_sec) + 1e-9 * (double)(now.tv_nsec - t->tv_nsec);
}

/* -- one part of one round --------------------------------------------------------------------- */

static int tools_init(struct tools *t, const struct run *r, const struct df_sim_part *part)
{
	int plain = r->opt->plain || r->one_sequence;

	memset(t, 0, sizeof(*t));
	t->undisturbed = -1;
	if (df_sim_program_init(&t->prog, part))
		return -ENOMEM;
	if (plain || r->setup.method == DF_SIM_BY_GROUP_STATE ||
	    (r->setup.method == DF_SIM_BY_SLOTS && r->setup.slots > 1) || r->setup.limit > 0) {
		t->plain = df_sim_plain_create(part);
		return t->plain ? 0 : -ENOMEM;
	}
	if (r->setup.method == DF_SIM_BY_SLOTS || r->setup.method == DF_SIM_BY_GROUP_ORDER) {
		t->order = df_sim_order_create(part);
		return t->order ? 0 : -ENOMEM;
	}
	t->sparse = df_sim_sparse_create(part);
	return t->sparse ? 0 : -ENOMEM;
}

static void tools_fini(struct tools *t)
{
	df_sim_program_fini(&t->prog);
	df_sim_plain_destroy(t->plain);
	df_sim_sparse_destroy(t->sparse);
	df_sim_order_destroy(t->order);
}

/*
 * Decides one part from its program. Sets *skipped if no simulation was needed. Fails with -ENOMEM.
 *
 * Without disorder all GPUs issue in one total order. The lowest incomplete collective is then the
 * next one of each member that has not issued it, and no member can be suspended or queued before
 * it, so there is no deadlock. The published tests may find one all the same. The single-queue test
 * then always has the same outcome, which is computed once. The intersection test needs two
 * synchronisations.
 */
static int decide(struct tools *t, const struct df_sim_setup *s, int plain,
		  struct df_sim_outcome *out, int *skipped)
{
	int calm = !t->prog.nr_disorder, rc;

	*skipped = 0;
	*out = (struct df_sim_outcome){0};
	if (plain) {
		df_sim_plain_round(t->plain, s, &t->prog, NULL, out);
		return 0;
	}
	switch (s->method) {
	case DF_SIM_BY_GROUP_STATE:
		if (calm && t->undisturbed >= 0) {
			out->deadlock = t->undisturbed;
			*skipped = 1;
			return 0;
		}
		df_sim_plain_round(t->plain, s, &t->prog, NULL, out);
		if (calm)
			t->undisturbed = out->deadlock;
		return 0;
	case DF_SIM_BY_INTERSECTION:
		*skipped = !s->limit && t->prog.nr_sync < 2;
		if (*skipped)
			return 0;
		break;
	case DF_SIM_BY_CYCLE:
		*skipped = !t->prog.nr_danger;
		break;
	default:
		*skipped = calm;
	}
	if (*skipped)
		return 0;
	if (t->order) {
		rc = s->method == DF_SIM_BY_GROUP_ORDER ? df_sim_order_groups(t->order, &t->prog)
							: df_sim_order_fifo(t->order, &t->prog);
		out->deadlock = rc > 0;
		return DF_MIN(rc, 0);
	}
	if (t->sparse)
		df_sim_sparse_round(t->sparse, s, &t->prog, out);
	else
		df_sim_plain_round(t->plain, s, &t->prog, NULL, out);
	return 0;
}

static int run_round(struct run *r, struct tools *tools, int64_t round, struct block *b, int i)
{
	struct df_sim_outcome out;
	int64_t releases = 0;
	struct df_rng rng;
	int rc, skipped;

	b->dead[i] = 0;
	for (int k = 0; k < r->sys.nr_parts; k++) {
		int kind = r->sys.part_of[k];
		struct tools *t = &tools[kind];

		df_rng_seed(&rng, r->opt->seed, (uint64_t)round, (uint64_t)k);
		rc = df_sim_program_draw(&t->prog, &r->sys.parts[kind], &r->setup.odds, &rng);
		if (!rc)
			rc = decide(t, &r->setup, r->opt->plain, &out, &skipped);
		if (rc)
			return rc;
		b->nr_parts++;
		b->nr_skipped += skipped;
		releases += out.releases;
		if (out.deadlock) {
			b->dead[i] = 1;
			break;
		}
	}
	b->releases[i] = releases < INT32_MAX ? (int)releases : INT32_MAX;
	return 0;
}

/* -- workers ----------------------------------------------------------------------------------- */

/* Adds one round to the result. The caller holds the lock. */
static void count_round(struct run *r, int dead, int releases)
{
	struct df_sim_result *res = r->res;

	res->rounds++;
	res->deadlocks += dead;
	res->releases += releases;
	res->released_rounds += releases > 0;
	if (r->opt->round)
		r->opt->round(r->opt->arg, res->rounds, dead, res->deadlocks);
}

static int narrow_enough(const struct run *r)
{
	double ci[2];

	if (r->opt->until_width <= 0)
		return 0;
	df_sim_wilson(r->res->deadlocks, r->res->rounds, ci);
	return ci[1] - ci[0] <= r->opt->until_width;
}

/* Adds finished blocks to the result, in order. The caller holds the lock. */
static void count_blocks(struct run *r)
{
	int64_t nr_blocks = (r->limit + r->block_size - 1) / r->block_size;

	while (!r->ended && r->window[r->counted % WINDOW].done) {
		struct block *b = &r->window[r->counted % WINDOW];

		for (int i = 0; i < b->nr; i++)
			count_round(r, b->dead[i], b->releases[i]);
		r->res->nr_parts += b->nr_parts;
		r->res->nr_parts_skipped += b->nr_skipped;
		b->done = 0;
		if (++r->counted == nr_blocks || narrow_enough(r))
			r->ended = 1;
	}
	pthread_cond_broadcast(&r->moved);
}

static int asked_to_stop(const struct run *r)
{
	return r->opt->stop && atomic_load_explicit(r->opt->stop, memory_order_relaxed);
}

static void run_blocks(struct run *r, struct tools *tools)
{
	int64_t nr_blocks = (r->limit + r->block_size - 1) / r->block_size;

	pthread_mutex_lock(&r->lock);
	while (!r->ended && r->next_block < nr_blocks) {
		int64_t id, first;
		struct block *b;
		int rc = 0;

		if (r->next_block >= r->counted + WINDOW) {
			pthread_cond_wait(&r->moved, &r->lock);
			continue;
		}
		id = r->next_block++;
		pthread_mutex_unlock(&r->lock);

		b = &r->window[id % WINDOW];
		first = id * r->block_size;
		b->nr = (int)DF_MIN((int64_t)r->block_size, r->limit - first);
		b->nr_parts = b->nr_skipped = 0;
		for (int i = 0; i < b->nr && !rc; i++) {
			rc = run_round(r, tools, first + i, b, i);
			if (!rc && asked_to_stop(r))
				rc = -ECANCELED;
		}

		pthread_mutex_lock(&r->lock);
		if (!rc) {
			b->done = 1;
			count_blocks(r);
			continue;
		}
		if (!r->ended)
			r->rc = rc;
		r->ended = 1;
		pthread_cond_broadcast(&r->moved);
	}
	pthread_mutex_unlock(&r->lock);
}

/* Runs all rounds with CPython's numbers, which form one sequence over all rounds and all GPUs. */
static void run_sequence(struct run *r, struct tools *t)
{
	double bound = fmax(r->setup.odds.disorder, r->setup.odds.sync);
	struct df_sim_outcome out;
	struct df_mt mt;

	df_mt_seed(&mt, r->opt->seed, bound);
	for (int64_t i = 0; i < r->limit; i++) {
		int stop;

		if (r->replay && i && i % r->replay == 0)
			df_mt_seed(&mt, r->opt->seed, bound);
		df_sim_plain_round(t->plain, &r->setup, NULL, &mt, &out);
		pthread_mutex_lock(&r->lock);
		count_round(r, out.deadlock, (int)out.releases);
		r->res->nr_parts++;
		stop = narrow_enough(r) || asked_to_stop(r);
		if (asked_to_stop(r))
			r->rc = -ECANCELED;
		pthread_mutex_unlock(&r->lock);
		if (stop)
			break;
	}
}

static void *worker(void *arg)
{
	struct run *r = arg;
	int nr = r->sys.nr_kinds, rc = 0, i = 0;
	struct tools *tools = calloc((size_t)nr + 1, sizeof(*tools));

	if (!tools)
		rc = -ENOMEM;
	for (; i < nr && !rc; i++)
		rc = tools_init(&tools[i], r, &r->sys.parts[i]);
	if (!rc && r->one_sequence)
		run_sequence(r, tools);
	else if (!rc)
		run_blocks(r, tools);
	while (tools && i-- > 0)
		tools_fini(&tools[i]);
	free(tools);

	pthread_mutex_lock(&r->lock);
	if (rc && !r->ended) {
		r->rc = rc;
		r->ended = 1;
	}
	r->nr_running--;
	pthread_cond_broadcast(&r->moved);
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* Reports progress until all workers have ended. The caller holds the lock. */
static void watch(struct run *r)
{
	while (r->nr_running) {
		struct df_sim_progress p = {.limit = r->limit};
		struct timespec until;
		double ci[2];

		if (!r->opt->progress) {
			pthread_cond_wait(&r->moved, &r->lock);
			continue;
		}
		p.seconds = seconds_since(&r->began);
		p.rounds = r->res->rounds;
		p.deadlocks = r->res->deadlocks;
		p.until_width = r->opt->until_width;
		df_sim_wilson(p.deadlocks, p.rounds, ci);
		p.width = ci[1] - ci[0];
		if (r->opt->until_width > 0 && !r->opt->rounds)
			p.limit = 0;
		r->opt->progress(r->opt->arg, &p);
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += 200000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		while (r->nr_running &&
		       pthread_cond_timedwait(&r->moved, &r->lock, &until) != ETIMEDOUT)
			;
	}
}

/*
 * Returns the number of rounds in a block. A block takes some milliseconds if no part can be
 * skipped.
 */
static int block_size(const struct df_sim_config *cfg)
{
	int64_t n = 4000000 / (df_sim_workload_events(&cfg->load) + 1);

	return (int)DF_MAX(1, DF_MIN(n, MAX_BLOCK));
}

int df_sim_run(const struct df_sim_config *cfg, const struct df_sim_options *opt,
	       struct df_sim_result *result)
{
	struct df_sim_result res = {0};
	struct run r = {.opt = opt, .res = &res};
	int jobs = DF_MAX(1, opt->jobs), nr_started = 0, rc;
	pthread_t *threads = NULL;
	pthread_condattr_t attr;

	r.one_sequence = opt->rng == DF_SIM_RNG_CPYTHON ||
			 (opt->rng == DF_SIM_RNG_AUTO && cfg->fix_seed &&
			  cfg->semantics == DF_SIM_ARTIFACT && cfg->rules == DF_SIM_NCCL);
	r.limit = opt->rounds > 0 ? opt->rounds : cfg->total_rounds * cfg->num_process;
	if (opt->rounds <= 0 && opt->until_width > 0)
		r.limit = INT64_MAX / (2 * MAX_BLOCK);
	if (r.one_sequence && cfg->fix_seed && cfg->num_process > 1)
		r.replay = cfg->total_rounds;
	if (r.one_sequence)
		jobs = 1;
	df_sim_setup_init(&r.setup, cfg);
	r.block_size = block_size(cfg);
	rc = df_sim_system_init(&r.sys, &cfg->load, cfg->dispatch, !r.one_sequence);
	if (rc)
		return rc;
	rc = -ENOMEM;
	threads = calloc((size_t)jobs, sizeof(*threads));
	r.window = calloc(WINDOW, sizeof(*r.window));
	if (!threads || !r.window)
		goto out;
	pthread_mutex_init(&r.lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r.moved, &attr);
	pthread_condattr_destroy(&attr);
	clock_gettime(CLOCK_MONOTONIC, &r.began);

	pthread_mutex_lock(&r.lock);
	for (; nr_started < jobs; nr_started++) {
		if (pthread_create(&threads[nr_started], NULL, worker, &r))
			break;
		r.nr_running++;
	}
	if (nr_started)
		watch(&r);
	pthread_mutex_unlock(&r.lock);
	for (int i = 0; i < nr_started; i++)
		pthread_join(threads[i], NULL);
	pthread_cond_destroy(&r.moved);
	pthread_mutex_destroy(&r.lock);
	rc = nr_started ? r.rc : -EAGAIN;
	if (rc && rc != -ECANCELED)
		goto out;
	res.stopped = rc == -ECANCELED;
	res.seconds = seconds_since(&r.began);
	res.ratio = res.rounds ? (double)res.deadlocks / (double)res.rounds : 0;
	res.rounds_per_second = res.seconds > 0 ? (double)res.rounds / res.seconds : 0;
	/* Rounds that repeat the sequence add no evidence. */
	if (r.replay && res.rounds > r.replay)
		df_sim_wilson((int64_t)llround(res.ratio * (double)r.replay), r.replay, res.ci95);
	else
		df_sim_wilson(res.deadlocks, res.rounds, res.ci95);
	*result = res;
	rc = 0;
out:
	free(threads);
	free(r.window);
	df_sim_system_fini(&r.sys);
	return rc;
}
