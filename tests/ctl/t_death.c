/*
 * Description: processes are killed at random times. Every other process learns of the death, and
 * survivors go on.
 */
#include "tests/ctl/ctl_test.h"

#include "runtime/ctl/tree_int.h"

#define NR_MAX 12

struct job {
	struct ct_share share;
	uint64_t seed;
	int n, k, tcp;
	int nr_victims, victims[4];
	uint64_t killed_at[NR_MAX];
	uint64_t worst_ns;
	pid_t pid[NR_MAX];
	uint32_t go, lost;
};

static struct job *job;
static uint64_t procs[NR_MAX];
static uint64_t dead[NR_MAX * 2], dead_ns[NR_MAX * 2];
static int orderly[NR_MAX * 2];
static uint32_t nr_dead;

static void setup(void)
{
	job = ct_shared(sizeof(*job));
	job->seed = df_test_seed();
}

static int is_victim(int index)
{
	int i;

	for (i = 0; i < job->nr_victims; i++)
		if (job->victims[i] == index)
			return 1;
	return 0;
}

static void on_death(uint64_t proc, int in_order)
{
	uint32_t n = __atomic_load_n(&nr_dead, __ATOMIC_RELAXED);

	ck_assert_uint_lt(n, NR_MAX * 2);
	dead[n] = proc;
	dead_ns[n] = df_now_ns();
	orderly[n] = in_order;
	__atomic_store_n(&nr_dead, n + 1, __ATOMIC_RELEASE); /* pairs with nr_deaths() */
}

static const struct df_ctl_events events = {.death = on_death};

/* Returns the number of reported deaths of a process. Stores the index of the last one in *at. */
static uint32_t nr_deaths(int index, uint32_t *at)
{
	uint32_t i, nr = 0,
		    n = __atomic_load_n(&nr_dead, __ATOMIC_ACQUIRE); /* pairs with on_death() */

	for (i = 0; i < n; i++) {
		if (dead[i] != procs[index])
			continue;
		nr++;
		*at = i;
	}
	return nr;
}

static uint32_t wait_death(int victim)
{
	uint64_t ns, worst;
	uint32_t at = 0;

	while (!nr_deaths(victim, &at))
		usleep(500);
	ns = __atomic_load_n(&job->killed_at[victim], __ATOMIC_RELAXED);
	ns = ns && dead_ns[at] > ns ? dead_ns[at] - ns : 0;
	worst = __atomic_load_n(&job->worst_ns, __ATOMIC_RELAXED);
	while (ns > worst && !__atomic_compare_exchange_n(&job->worst_ns, &worst, ns, 0,
							  __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return at;
}

/* Joins all ranks to one communicator. With tcp each rank is on its own node. */
static struct df_ctl_comm *begin(int index)
{
	struct ct_rank r;
	int i;

	df_tree_k = job->k;
	df_ctl_set_events(&events);
	ck_assert_int_eq(df_ctl_start(), 0);
	if (job->tcp) {
		df_ctl_lock();
		df_ctl.self.host = (uint64_t)index + 1;
		df_ctl_unlock();
	}
	if (index == job->n - 1)
		ck_assert_int_eq(df_id_create(job->share.ids[0]), 0);
	ct_arrive(&job->share, 0, (uint32_t)job->n);
	r = (struct ct_rank){.ids = (const unsigned char(*)[128])job->share.ids,
			     .nranks = job->n,
			     .rank = index};
	ck_assert_int_eq(ct_join(&r), 0);
	for (i = 0; i < job->n; i++)
		procs[i] = df_ctl_members(r.comm)[i].proc;
	return r.comm;
}

static void kill_victims(void)
{
	int i;

	for (i = 0; i < job->nr_victims; i++) {
		__atomic_store_n(&job->killed_at[job->victims[i]], df_now_ns(), __ATOMIC_RELAXED);
		kill(job->pid[job->victims[i]], SIGKILL);
	}
}

static void reap(void)
{
	int i;

	for (i = 0; i < job->n; i++)
		ck_assert_int_eq(ct_wait(job->pid[i]), is_victim(i) ? 256 + SIGKILL : 0);
	printf("# noticed by all after %.1f ms\n", (double)job->worst_ns / 1e6);
}

/* ---- a kill in the midst of gathers ---------------------------------------------------------- */

/*
 * The world gathers for ever. So do communicators of survivors that were derived before, whose
 * messages may pass through a victim. The world's gathers end with -ECONNRESET. The survivors'
 * gathers never fail.
 */
static int gathers(int index, void *arg)
{
	struct df_ctl_comm *world = begin(index), *rest = NULL;
	int i, n = 0, me = 0, ret = 0, ranks[NR_MAX];
	uint32_t at = 0;

	(void)arg;
	for (i = 0; i < job->n; i++) {
		if (is_victim(i))
			continue;
		if (i == index)
			me = n;
		ranks[n++] = i;
	}
	if (!is_victim(index))
		ck_assert_int_eq(df_ctl_derive(world, 4711, ranks, n, me, 0, &rest), 0);
	ct_arrive(&job->share, 1, (uint32_t)job->n + 1);
	for (i = 0; !ret; i++)
		ret = ct_gather(world, index, job->n, (uint64_t)i, 5, NULL);
	ck_assert_int_eq(ret, -ECONNRESET);
	if (is_victim(index))
		pause(); /* another victim was killed first */
	ck_assert_int_eq(ct_gather(world, index, job->n, 0, 1, NULL), -ECONNRESET);
	for (i = 0; i < 20; i++)
		ck_assert_int_eq(ct_gather(rest, me, n, (uint64_t)i, 3, NULL), 0);
	for (i = 0; i < job->nr_victims; i++)
		wait_death(job->victims[i]);
	for (i = 0; i < 20; i++)
		ck_assert_int_eq(ct_gather(rest, me, n, (uint64_t)i, 3, NULL), 0);
	df_ctl_lock();
	ck_assert_int_le(df_tree.nr_down + !!df_tree.up.link, job->k + 1);
	df_ctl_unlock();
	ct_arrive(&job->share, 2, (uint32_t)n);
	for (i = 0; i < job->n; i++)
		ck_assert_uint_eq(nr_deaths(i, &at), is_victim(i)); /* one report for each victim */
	ct_arrive(&job->share, 3, (uint32_t)n);
	df_ctl_leave(world);
	df_ctl_leave(rest);
	return 0;
}

static void play_gathers(struct df_rng *r)
{
	int i;

	for (i = 0; i < job->n; i++)
		job->pid[i] = ct_fork(gathers, i, job);
	ct_arrive(&job->share, 1, (uint32_t)job->n + 1);
	usleep((useconds_t)df_rng_below(r, 20000));
	kill_victims();
	reap();
}

START_TEST(t_gathers)
{
	static const int shapes[][3] = {{2, 8, 0}, {8, 8, 0}, {8, 2, 0}, {11, 2, 0},
					{6, 1, 0}, {8, 2, 1}, {5, 8, 1}};
	struct df_rng r;
	int i, v, turn;

	for (turn = 0; turn < 3; turn++) {
		memset(job, 0, sizeof(*job));
		df_rng_init(&r, df_test_seed() + (uint64_t)(_i * 100 + turn));
		job->n = shapes[_i][0];
		job->k = shapes[_i][1];
		job->tcp = shapes[_i][2];
		v = job->n > 4 ? (int)df_rng_range(&r, 1, 3) : 1;
		for (i = 0; i < v; i++) {
			int victim;

			do {
				victim = (int)df_rng_below(&r, (uint64_t)job->n);
			} while (is_victim(victim));
			job->victims[job->nr_victims++] = victim;
		}
		play_gathers(&r);
	}
}
END_TEST

/* ---- one after the other --------------------------------------------------------------------- */

/*
 * Two processes at the far ends of the overlay keep communicating, and learn of every death, while
 * all others die one by one.
 */
static int chain(int index, void *arg)
{
	struct df_ctl_comm *world = begin(index), *pair = NULL;
	const int ranks[2] = {1, job->n - 1};
	int i, me = index == 1 ? 0 : 1, order;

	(void)arg;
	if (index != 1 && index != job->n - 1) {
		ct_arrive(&job->share, 1, (uint32_t)job->n);
		pause();
	}
	ck_assert_int_eq(df_ctl_derive(world, 99, ranks, 2, me, 0, &pair), 0);
	ct_arrive(&job->share, 1, (uint32_t)job->n);
	for (i = 0; i < job->n - 1; i++) {
		if (i == 1)
			continue;
		order = i;
		if (me == 0) {
			__atomic_store_n(&job->killed_at[order], df_now_ns(), __ATOMIC_RELAXED);
			kill(job->pid[order], SIGKILL);
		}
		ck_assert_int_eq(ct_gather(pair, me, 2, (uint64_t)i, 2, NULL), 0);
		wait_death(order);
	}
	ck_assert_int_eq(ct_gather(pair, me, 2, 1, 2, NULL), 0);
	ct_arrive(&job->share, 2, 2);
	df_ctl_leave(pair);
	df_ctl_leave(world);
	return 0;
}

START_TEST(t_chain)
{
	int i;

	job->n = 8;
	job->k = _i ? 2 : 1;
	job->tcp = 0;
	for (i = 0; i < job->n; i++)
		job->pid[i] = ct_fork(chain, i, job);
	for (i = 0; i < job->n; i++)
		ck_assert_int_eq(ct_wait(job->pid[i]),
				 i == 1 || i == job->n - 1 ? 0 : 256 + SIGKILL);
	printf("# noticed by both after %.1f ms\n", (double)job->worst_ns / 1e6);
}
END_TEST

/* ---- orderly --------------------------------------------------------------------------------- */

static const uint64_t word[] = {5, 6, 7};

static void count_words(void *nr, const void *words, size_t bytes)
{
	ck_assert_uint_eq(bytes, sizeof(word));
	ck_assert_int_eq(memcmp(words, word, bytes), 0);
	++*(int *)nr;
}

static int leaves(int index, void *arg)
{
	struct df_ctl_comm *world = begin(index), *late;
	int i, ranks[NR_MAX], nr_words = 0;
	uint32_t at = 0;

	(void)arg;
	ct_arrive(&job->share, 1, (uint32_t)job->n);
	if (index == 0) {
		df_ctl_goodbye(word, sizeof(word), UINT64_MAX);
		return 0;
	}
	ck_assert_int_eq(orderly[wait_death(0)], 1);
	ck_assert_uint_eq(nr_deaths(0, &at), 1);
	/* Every process has received the words that the process sent at its end. */
	df_ctl_each_words(count_words, &nr_words);
	ck_assert_int_eq(nr_words, 1);
	/* A communicator that is opened now has missed the death, and is informed. */
	for (i = 0; i < job->n; i++)
		ranks[i] = i;
	ck_assert_int_eq(df_ctl_derive(world, 77, ranks, job->n, index, 0, &late), 0);
	df_ctl_tell_deaths(late);
	while (nr_deaths(0, &at) < 2)
		usleep(500);
	ck_assert_int_eq(orderly[at], 1);
	df_ctl_leave(late);
	ck_assert_int_eq(ct_gather(world, index, job->n, 1, 1, NULL), -ECONNRESET);
	for (i = 1; i < job->n; i++)
		ck_assert_uint_eq(nr_deaths(i, &at), 0);
	ct_arrive(&job->share, 2, (uint32_t)job->n - 1);
	return 0;
}

START_TEST(t_leaves)
{
	int i;

	job->n = 5;
	job->k = 2;
	for (i = 0; i < job->n; i++)
		job->pid[i] = ct_fork(leaves, i, job);
	for (i = 0; i < job->n; i++)
		ck_assert_int_eq(ct_wait(job->pid[i]), 0);
}
END_TEST

/*
 * Several processes leave at once. Each may be the only neighbour of another. The remaining
 * processes receive all their goodbyes. See tests/model/goodbye.pml.
 */
static int leave_at_once(int index, void *arg)
{
	struct df_rng r;
	int i, nr_words = 0;

	(void)arg;
	begin(index);
	df_rng_init(&r, job->seed + (uint64_t)index);
	ct_arrive(&job->share, 1, (uint32_t)job->n);
	if (is_victim(index)) {
		usleep((unsigned)df_rng_below(&r, 2) * (unsigned)df_rng_below(&r, 1000));
		df_ctl_goodbye(word, sizeof(word), UINT64_MAX);
		return 0;
	}
	for (i = 0; i < job->nr_victims; i++)
		ck_assert_int_eq(orderly[wait_death(job->victims[i])], 1);
	df_ctl_each_words(count_words, &nr_words);
	ck_assert_int_eq(nr_words, job->nr_victims);
	ct_arrive(&job->share, 2, (uint32_t)(job->n - job->nr_victims));
	return 0;
}

START_TEST(t_leave_at_once)
{
	struct df_rng r;
	int i;

	df_rng_init(&r, job->seed += (uint64_t)_i);
	job->n = (int)df_rng_range(&r, 3, 7);
	job->k = (int)df_rng_range(&r, 1, 2);
	job->tcp = (int)df_rng_below(&r, 2);
	for (i = 0; i < job->n - 1 && job->nr_victims < 4; i++)
		if (df_rng_below(&r, 2) || !i)
			job->victims[job->nr_victims++] = i;
	for (i = 0; i < job->n; i++)
		job->pid[i] = ct_fork(leave_at_once, i, job);
	for (i = 0; i < job->n; i++)
		ck_assert_int_eq(ct_wait(job->pid[i]), 0);
}
END_TEST

/*
 * The neighbour does not answer, as if it got no CPU time: its control plane is locked for longer
 * than an answer may take. A process that leaves waits for the neighbour, unless the neighbour is
 * stopped.
 */
static int leaves_behind(int index, void *arg)
{
	uint32_t *stops = arg;

	begin(index);
	if (index == 0) {
		ct_arrive(&job->share, 1, 2);
		if (*stops)
			ck_assert_int_eq(kill(job->pid[1], SIGSTOP), 0);
		df_ctl_goodbye(word, sizeof(word), UINT64_MAX);
		/* ACQUIRE pairs with the RELEASE below. */
		ck_assert_uint_eq(__atomic_load_n(&job->go, __ATOMIC_ACQUIRE), !*stops);
		if (*stops)
			ck_assert_int_eq(kill(job->pid[1], SIGCONT), 0);
		return 0;
	}
	df_ctl_lock();
	ct_arrive(&job->share, 1, 2);
	usleep(1500000);
	/* RELEASE pairs with the ACQUIRE above. */
	__atomic_store_n(&job->go, 1, __ATOMIC_RELEASE);
	df_ctl_unlock();
	ck_assert_int_eq(orderly[wait_death(0)], 1);
	return 0;
}

START_TEST(t_slow_neighbour)
{
	uint32_t stops = (uint32_t)_i;

	job->n = 2;
	job->k = 1;
	for (int i = job->n - 1; i >= 0; i--)
		job->pid[i] = ct_fork(leaves_behind, i, &stops);
	for (int i = 0; i < job->n; i++)
		ck_assert_int_eq(ct_wait(job->pid[i]), 0);
}
END_TEST

/* ---- in the rendezvous ----------------------------------------------------------------------- */

/* Informs the parent when the rendezvous lacks only the rank that never arrives. */
static void *all_but_one(void *arg)
{
	int ranks[4];

	while (df_ctl_missing(df_id_hash(job->share.ids[0]), ranks, 4) != 1)
		usleep(500);
	ct_arrive(&job->share, 1, 1);
	return arg;
}

static void on_lost(const struct df_member *who)
{
	__atomic_store_n(&job->lost, who->pid, __ATOMIC_RELAXED);
}

static int dies_early(int index, void *arg)
{
	static const struct df_ctl_events lost = {.lost = on_lost};
	struct ct_rank r;
	pthread_t t;

	(void)arg;
	df_ctl_set_events(&lost);
	if (index == 1)
		ck_assert_int_eq(df_id_create(job->share.ids[0]), 0);
	ct_arrive(&job->share, 0, 3);
	if (index == 1)
		pthread_create(&t, NULL, all_but_one, NULL);
	r = (struct ct_rank){
		.ids = (const unsigned char(*)[128])job->share.ids, .nranks = 4, .rank = index};
	ck_assert_int_eq(ct_join(&r), -ECONNRESET);
	if (index == 1)
		pthread_join(t, NULL);
	return 0;
}

/*
 * A rank, or the process that serves the id, dies while others wait. The table, or the id, names
 * the dead process.
 */
START_TEST(t_rendezvous)
{
	int i;

	for (i = 0; i < 3; i++)
		job->pid[i] = ct_fork(dies_early, i, job);
	ct_arrive(&job->share, 1, 2);
	kill(job->pid[_i], SIGKILL);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(ct_wait(job->pid[i]), i == _i ? 256 + SIGKILL : 0);
	/* RELAXED, because the processes have ended. */
	ck_assert_int_eq((pid_t)__atomic_load_n(&job->lost, __ATOMIC_RELAXED), job->pid[_i]);
}
END_TEST

static int makes_id(int index, void *arg)
{
	(void)index;
	(void)arg;
	ck_assert_int_eq(df_id_create(job->share.ids[0]), 0);
	return 0;
}

static int joins_stale(int index, void *arg)
{
	struct ct_rank r = {
		.ids = (const unsigned char(*)[128])job->share.ids, .nranks = 2, .rank = index};

	dup2(*(int *)arg, STDERR_FILENO);
	ck_assert_int_eq(ct_join(&r), -ECONNRESET);
	return 0;
}

/*
 * After a restart a rank may have the id of the previous start. It fails and explains the id. With
 * _i == 1 the id is from another machine.
 */
START_TEST(t_stale)
{
	char text[4096] = "";
	int fd[2];
	size_t n = 0;
	ssize_t got;
	pid_t pid = ct_fork(makes_id, 0, NULL);
	struct df_id_tail *id = (struct df_id_tail *)(job->share.ids[0] + DF_ID_TAIL);

	ck_assert_int_eq(ct_wait(pid), 0);
	ck_assert_int_eq(pipe(fd), 0);
	if (_i) {
		id->host++;
		id->flags &= ~(DF_ID_HAS_TCP4 | DF_ID_HAS_TCP6);
	}
	pid = ct_fork(joins_stale, 1, &fd[1]);
	close(fd[1]);
	while (n < sizeof(text) - 1 && (got = read(fd[0], text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)got;
	close(fd[0]);
	ck_assert_int_eq(ct_wait(pid), 0);
	ck_assert_msg(strstr(text, _i ? "cannot reach the process that serves the id"
				      : "the id is stale") != NULL,
		      "it says: %s", text);
	ck_assert_msg(strstr(text, "rank 0 has to make a new") != NULL, "it says: %s", text);
}
END_TEST

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	return DF_TESTS("ctl death", {.before = setup}, {t_gathers, 7}, {t_chain, 2}, {t_leaves},
			{t_leave_at_once, 60}, {t_slow_neighbour, 2}, {t_rendezvous, 2},
			{t_stale, 2});
}
