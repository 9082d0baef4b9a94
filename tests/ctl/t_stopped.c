/*
 * Description: a process of the overlay is stopped. Its children take another place, so messages
 * reach all others. No process counts as dead, and after it continues it gets messages, too.
 */
#include "tests/ctl/ctl_test.h"

#include "runtime/ctl/tree_int.h"

#define NR     9
#define ROUNDS 4

enum { IS_PART_OF_THE_TEST = DF_MSG_USER };

struct job {
	struct ct_share share;
	int tcp,
		root; /* whether processes are on nodes of their own; whether the root is stopped */
	uint64_t up[NR], proc[NR];
	int nr_down[NR];
	uint32_t victim, go;
	uint32_t got[NR][ROUNDS]; /* by process: messages of each round */
	uint32_t deaths;
};

static struct job *job;
static int me;

static void message(uint64_t from, uint32_t kind, const void *data, size_t bytes)
{
	uint32_t round;

	(void)from;
	if (kind != IS_PART_OF_THE_TEST || bytes != sizeof(round))
		return;
	memcpy(&round, data, sizeof(round));
	__atomic_add_fetch(&job->got[me][round], 1, __ATOMIC_RELAXED);
}

static void death(uint64_t proc, int in_order)
{
	(void)proc;
	(void)in_order;
	__atomic_add_fetch(&job->deaths, 1, __ATOMIC_RELAXED);
}

static const struct df_ctl_events events = {.message = message, .death = death};

static void wait_for(const uint32_t *word, uint32_t least)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < least) /* pairs with the stores of `go` */
		usleep(500);
}

static void send_round(uint32_t round)
{
	ck_assert_int_eq(df_ctl_send(NULL, 0, IS_PART_OF_THE_TEST, &round, sizeof(round)), 0);
}

static int member(int index, void *arg)
{
	struct ct_rank r;

	(void)arg;
	me = index;
	df_tree_k = 2;
	df_ctl_set_events(&events);
	ck_assert_int_eq(df_ctl_start(), 0);
	df_ctl_lock();
	if (job->tcp)
		df_ctl.self.host = (uint64_t)index + 1;
	job->proc[index] = df_ctl.self.proc;
	df_ctl_unlock();
	if (!index)
		ck_assert_int_eq(df_id_create(job->share.ids[0]), 0);
	ct_arrive(&job->share, 0, NR);
	r = (struct ct_rank){
		.ids = (const unsigned char(*)[128])job->share.ids, .nranks = NR, .rank = index};
	ck_assert_int_eq(ct_join(&r), 0);
	send_round(0);
	wait_for(&job->got[index][0], NR - 1);
	df_ctl_lock();
	job->up[index] = df_tree.up.link ? df_tree.up.who.proc : 0;
	job->nr_down[index] = df_tree.nr_down;
	df_ctl_unlock();
	ct_arrive(&job->share, 1, NR + 1);
	/* Now the victim is stopped. */
	wait_for(&job->go, 1);
	if ((uint32_t)index != job->victim) {
		df_ctl_doubt();
		/* A message that finds the old routes is sent again after the repair. */
		send_round(1);
		wait_for(&job->got[index][1], NR - 2);
		ct_arrive(&job->share, 2, NR);
	}
	/* It continues. */
	wait_for(&job->go, 2);
	wait_for(&job->got[index][1], (uint32_t)index == job->victim ? NR - 1 : NR - 2);
	/* It is a part of the overlay again, as a sender, too. */
	if ((uint32_t)index == job->victim)
		usleep(300000);
	send_round(2);
	wait_for(&job->got[index][2], NR - 1);
	ct_arrive(&job->share, 3, NR + 1);
	wait_for(&job->go, 3);
	df_ctl_leave(r.comm);
	return 0;
}

/* Chooses the root, or a process between its parent and a child. */
static uint32_t choose(void)
{
	for (uint32_t i = 0; i < NR; i++)
		if (job->nr_down[i] && job->root == (job->up[i] == 0))
			return i;
	ck_abort_msg("no such process in the overlay");
	return 0;
}

START_TEST(t_stopped)
{
	pid_t pid[NR];
	uint64_t began;
	int status;

	job = ct_shared(sizeof(*job));
	job->tcp = _i & 1;
	job->root = _i >> 1;
	for (int i = 0; i < NR; i++)
		pid[i] = ct_fork(member, i, NULL);
	ct_arrive(&job->share, 1, NR + 1);
	job->victim = choose();
	kill(pid[job->victim], SIGSTOP);
	ck_assert_int_eq(waitpid(pid[job->victim], &status, WUNTRACED), pid[job->victim]);
	began = df_now_ns();
	__atomic_store_n(&job->go, 1, __ATOMIC_RELEASE); /* pairs with wait_for() */
	ct_arrive(&job->share, 2, NR);
	printf("# %s, %s: all others reach each other after %.1f s\n",
	       job->root ? "the root" : "an inner process", job->tcp ? "TCP" : "unix sockets",
	       (double)(df_now_ns() - began) / 1e9);
	kill(pid[job->victim], SIGCONT);
	__atomic_store_n(&job->go, 2, __ATOMIC_RELEASE); /* pairs with wait_for() */
	ct_arrive(&job->share, 3, NR + 1);
	/* Later they exit without a goodbye. */
	ck_assert_uint_eq(__atomic_load_n(&job->deaths, __ATOMIC_RELAXED), 0);
	__atomic_store_n(&job->go, 3, __ATOMIC_RELEASE); /* pairs with wait_for() */
	for (int i = 0; i < NR; i++)
		ck_assert_int_eq(ct_wait(pid[i]), 0);
}
END_TEST

int main(void)
{
	return DF_TESTS("ctl stopped", {t_stopped, 4});
}
