/*
 * Description: communicators start, split and end as NCCL's do: groups, non-blocking mode, aborts.
 */
#include "tests/interpose/comm_test.h"

static ncclConfig_t nonblocking(void)
{
	ncclConfig_t c;
	int *p;

	for (p = (int *)&c; p < (int *)(&c + 1); p++)
		*p = NCCL_CONFIG_UNDEF_INT;
	c.size = sizeof(c);
	c.magic = DF_NCCL_API_MAGIC;
	c.version = 22809;
	c.netName = c.commName = NULL;
	c.blocking = 0;
	return c;
}

/* Polls the state until it is final, as applications do. */
static ncclResult_t poll_until_done(ncclComm_t comm)
{
	ncclResult_t state = ncclInProgress;
	int i;

	for (i = 0; i < 20000 && state == ncclInProgress; i++) {
		OK(ncclCommGetAsyncError(comm, &state));
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	return state;
}

START_TEST(t_init_group)
{
	ncclComm_t comms[6];
	int i, v;

	init_group(comms, 6);
	for (i = 0; i < 6; i++) {
		OK(ncclCommCount(comms[i], &v));
		ck_assert_int_eq(v, 6);
		OK(ncclCommUserRank(comms[i], &v));
		ck_assert_int_eq(v, i);
		/* The real library must never take dfshim's communicators for its own. */
		ck_assert_uint_ne(*(uint64_t *)comms[i], DF_NCCL_COMM_MAGIC);
	}
	for (i = 0; i < 6; i++)
		OK(ncclCommDestroy(comms[i]));
	ck_assert_int_eq(fake.nr_live, 0);
	ck_assert_int_eq(fake.nr_finalized, 6);
}
END_TEST

START_TEST(t_init_all)
{
	ncclComm_t comms[4];
	int list[4] = {5, 2, 7, 0}, twice[2] = {1, 1}, far[1] = {99}, i, v;

	OK(ncclCommInitAll(comms, 4, list));
	for (i = 0; i < 4; i++) {
		OK(ncclCommCuDevice(comms[i], &v));
		ck_assert_int_eq(v, list[i]);
		OK(ncclCommUserRank(comms[i], &v));
		ck_assert_int_eq(v, i);
	}
	ck_assert_int_eq(df_device_get(), 0);
	/* One thread destroys all of them in one group. */
	OK(ncclGroupStart());
	for (i = 0; i < 4; i++)
		OK(ncclCommDestroy(comms[i]));
	OK(ncclGroupEnd());
	ck_assert_int_eq(fake.nr_live, 0);
	ck_assert_int_eq(ncclCommInitAll(comms, 2, twice), ncclInvalidUsage);
	ck_assert_int_eq(ncclCommInitAll(comms, 1, far), ncclInvalidArgument);
	SAYS("Invalid device 99 (totalnDev=8)");
	ck_assert_int_eq(ncclCommInitAll(comms, -1, NULL), ncclInvalidArgument);
	SAYS("Invalid device count requested : -1");
	ck_assert_int_eq(ncclCommInitAll(NULL, 1, NULL), ncclInvalidArgument);
	SAYS("CommInitAll : comms argument is NULL");
}
END_TEST

START_TEST(t_init_errors)
{
	ncclConfig_t bad = nonblocking();
	ncclComm_t comm = (ncclComm_t)1;
	ncclUniqueId id, foreign;

	memset(&foreign, 7, sizeof(foreign));
	OK(ncclGetUniqueId(&id));
	ck_assert_int_eq(ncclGetUniqueId(NULL), ncclInvalidArgument);
	SAYS("GetUniqueId : out argument is NULL");
	ck_assert_int_eq(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument);
	SAYS("CommInitRank : newcomm argument is NULL");
	ck_assert_int_eq(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
	SAYS("Invalid rank requested : 2/2");
	ck_assert_ptr_null(comm);
	ck_assert_int_eq(ncclCommInitRankScalable(&comm, 2, 0, 3, &id, NULL), ncclInvalidArgument);
	SAYS("improper usage of ncclCommInitRank: nId = 3, nranks=2");
	ck_assert_int_eq(ncclCommInitRank(&comm, 1, foreign, 0), ncclInvalidUsage);
	SAYS("not made under dfshim");
	bad.magic++;
	ck_assert_int_eq(ncclCommInitRankConfig(&comm, 1, id, 0, &bad), ncclInvalidArgument);
	SAYS("NCCL_CONFIG_INITIALIZER");
	ck_assert_int_eq(fake.nr_live, 0);
	/* If the runtime refuses, no communicator remains. */
	fake.join_err_rank = 0;
	ck_assert_int_eq(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage);
	ck_assert_ptr_null(comm);
	ck_assert_int_eq(fake.nr_live, 0);
}
END_TEST

/*
 * One rank of a group fails: the others must not wait for it forever, and no communicator remains.
 */
START_TEST(t_group_init_fails)
{
	ncclComm_t comms[5];
	ncclUniqueId id;
	int i;

	fake.join_err_rank = 3;
	OK(ncclGetUniqueId(&id));
	OK(ncclGroupStart());
	for (i = 0; i < 5; i++)
		OK(ncclCommInitRank(&comms[i], 5, id, i));
	ck_assert_int_ne(ncclGroupEnd(), ncclSuccess);
	for (i = 0; i < 5; i++)
		ck_assert_ptr_null(comms[i]);
	ck_assert_int_eq(fake.nr_live, 0);
}
END_TEST

/* An error inside a group discards the whole group, including inits. */
START_TEST(t_group_discard)
{
	ncclComm_t comms[2], one;
	ncclUniqueId id;

	init_group(&one, 1);
	OK(ncclGetUniqueId(&id));
	OK(ncclGroupStart());
	OK(ncclCommInitRank(&comms[0], 2, id, 0));
	ck_assert_ptr_nonnull(comms[0]);
	ck_assert_int_eq(ncclCommInitRank(&comms[1], 2, id, 5), ncclInvalidArgument);
	OK(ncclCommDestroy(one));
	ck_assert_int_eq(ncclGroupEnd(), ncclInvalidArgument);
	ck_assert_ptr_null(comms[0]);
	ck_assert_int_eq(fake.nr_live, 1);
	/* The communicator was not destroyed in the group, so it can be destroyed now. */
	OK(ncclCommDestroy(one));
	ck_assert_int_eq(fake.nr_live, 0);
}
END_TEST

START_TEST(t_tombstones)
{
	struct df_rng rng;
	ncclComm_t comms[50];
	ncclResult_t state;
	char buf[8];
	int i, v, k;

	df_rng_init(&rng, df_test_seed());
	for (i = 0; i < 50; i++)
		init_group(&comms[i], 1);
	for (i = 0; i < 50; i++) {
		if (df_rng_below(&rng, 2))
			OK(ncclCommDestroy(comms[i]));
		else
			OK(ncclCommAbort(comms[i]));
	}
	for (i = 0; i < 200; i++) {
		k = (int)df_rng_below(&rng, 50);
		ck_assert_int_eq(ncclCommDestroy(comms[k]), ncclInvalidArgument);
		SAYS("has already been destroyed");
		ck_assert_int_eq(ncclCommAbort(comms[k]), ncclInvalidArgument);
		ck_assert_int_eq(ncclAllReduce(buf, buf, 1, ncclInt8, ncclSum, comms[k], NULL),
				 ncclInvalidArgument);
		SAYS("corrupted comm object");
		ck_assert_int_eq(ncclCommCount(comms[k], &v), ncclInvalidArgument);
		ck_assert_int_eq(ncclCommGetAsyncError(comms[k], &state), ncclInvalidArgument);
		ck_assert_int_eq(ncclCommFinalize(comms[k]), ncclInvalidArgument);
		ck_assert_int_eq(ncclCommSplit(comms[k], 0, 0, &comms[k], NULL),
				 ncclInvalidArgument);
	}
	ck_assert_int_eq(fake.nr_submits, 0);
	ck_assert_int_eq(fake.nr_live, 0);
	OK(ncclCommDestroy(NULL));
	OK(ncclCommAbort(NULL));
	OK(ncclCommFinalize(NULL));
	OK(ncclCommRevoke(NULL, 0));
}
END_TEST

START_TEST(t_finalize)
{
	ncclComm_t comm;
	char buf[8];

	init_group(&comm, 1);
	OK(ncclCommFinalize(comm));
	ck_assert_int_eq(ncclCommFinalize(comm), ncclInvalidArgument);
	ck_assert_int_eq(ncclAllReduce(buf, buf, 1, ncclInt8, ncclSum, comm, NULL),
			 ncclInvalidUsage);
	ck_assert_int_eq(ncclCommRevoke(comm, 0), ncclInvalidArgument);
	OK(ncclCommDestroy(comm));
	ck_assert_int_eq(fake.nr_finalized, 1);
}
END_TEST

struct arg {
	ncclComm_t *comm;
	ncclUniqueId id;
	int nranks, rank;
	ncclResult_t res;
};

static void *init_thread(void *p)
{
	struct arg *a = p;

	a->res = ncclCommInitRank(a->comm, a->nranks, a->id, a->rank);
	return NULL;
}

static void *finalize_thread(void *p)
{
	struct arg *a = p;

	a->res = a->rank ? ncclCommDestroy(*a->comm) : ncclCommFinalize(*a->comm);
	return NULL;
}

/*
 * Aborts a communicator while another thread is blocked in its init: both calls return, and it is
 * freed once.
 */
START_TEST(t_abort_init)
{
	ncclComm_t comm = NULL, mine;
	struct arg a = {&comm, {{0}}, 2, 0, 0};
	pthread_t thread;

	OK(ncclGetUniqueId(&a.id));
	pthread_create(&thread, NULL, init_thread, &a);
	ck_assert(fake_wait(&fake.nr_joining, 1));
	mine = __atomic_load_n(&comm, __ATOMIC_ACQUIRE);
	OK(ncclCommAbort(mine));
	pthread_join(thread, NULL);
	ck_assert_int_ne(a.res, ncclSuccess);
	ck_assert_int_eq(fake.nr_live, 0);
	ck_assert_int_eq(ncclCommAbort(mine), ncclInvalidArgument);
}
END_TEST

/* The same for ncclCommFinalize() (loop 0) and ncclCommDestroy() (loop 1). */
START_TEST(t_abort_finalize)
{
	ncclComm_t comm;
	struct arg a = {&comm, {{0}}, 1, _i, 0};
	pthread_t thread;

	init_group(&comm, 1);
	fake.finalize_blocks = 1;
	pthread_create(&thread, NULL, finalize_thread, &a);
	ck_assert(fake_wait(&fake.nr_finalized, 1));
	OK(ncclCommAbort(comm));
	pthread_join(thread, NULL);
	ck_assert_int_eq(fake.nr_live, 0);
}
END_TEST

START_TEST(t_nonblocking)
{
	ncclConfig_t config = nonblocking();
	ncclComm_t comms[3], children[3];
	ncclUniqueId id;
	char buf[8];
	int i, v;

	OK(ncclGetUniqueId(&id));
	/* The other ranks are missing: the call returns, and the state is ncclInProgress. */
	ck_assert_int_eq(ncclCommInitRankConfig(&comms[0], 3, id, 0, &config), ncclInProgress);
	ck_assert(fake_wait(&fake.nr_joining, 1));
	ck_assert_int_eq(ncclCommCount(comms[0], &v), ncclInvalidArgument);
	SAYS("before the previous operation returned ncclSuccess");
	ck_assert_int_eq(ncclAllReduce(buf, buf, 1, ncclInt8, ncclSum, comms[0], NULL),
			 ncclInvalidArgument);
	ck_assert_int_eq(ncclCommDestroy(comms[0]), ncclInvalidArgument);
	OK(ncclGroupStart());
	for (i = 1; i < 3; i++)
		ncclCommInitRankConfig(&comms[i], 3, id, i, &config);
	ck_assert_int_eq(ncclGroupEnd(), ncclInProgress);
	for (i = 0; i < 3; i++)
		OK(poll_until_done(comms[i]));
	/*
	 * A split: the child is NULL until complete, and the parent is polled. A rank without a
	 * color gets no child.
	 */
	for (i = 0; i < 3; i++) {
		children[i] = (ncclComm_t)1;
		ck_assert_int_eq(ncclCommSplit(comms[i], i == 1 ? NCCL_SPLIT_NOCOLOR : 4, -i,
					       &children[i], NULL),
				 ncclInProgress);
		if (i < 2)
			ck_assert_ptr_null(children[i]);
	}
	for (i = 0; i < 3; i++)
		OK(poll_until_done(comms[i]));
	ck_assert_ptr_null(children[1]);
	OK(ncclCommCount(children[0], &v));
	ck_assert_int_eq(v, 2);
	OK(ncclCommUserRank(children[2], &v));
	ck_assert_int_eq(v, 0); /* key -2 precedes key 0 */
	/* Operations are submitted at once, also in non-blocking mode. */
	OK(ncclAllReduce(buf, buf, 1, ncclInt8, ncclSum, comms[0], NULL));
	ck_assert_int_eq(fake.nr_submits, 1);
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(ncclCommFinalize(comms[i]), ncclInProgress);
		OK(poll_until_done(comms[i]));
		OK(ncclCommDestroy(comms[i]));
	}
	OK(ncclCommDestroy(children[0]));
	OK(ncclCommDestroy(children[2]));
	ck_assert_int_eq(fake.nr_live, 0);
}
END_TEST

START_TEST(t_nonblocking_abort)
{
	ncclConfig_t config = nonblocking();
	ncclComm_t comm;
	ncclUniqueId id;

	OK(ncclGetUniqueId(&id));
	ck_assert_int_eq(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
	if (_i)
		ck_assert(fake_wait(&fake.nr_joining, 1));
	OK(ncclCommAbort(comm));
	ck_assert_int_eq(fake.nr_live, 0);
	/* A communicator whose init fails keeps its error until it is aborted. */
	fake.join_err_rank = 1;
	OK(ncclGetUniqueId(&id));
	ck_assert_int_eq(ncclCommInitRankConfig(&comm, 2, id, 1, &config), ncclInProgress);
	ck_assert_int_eq(poll_until_done(comm), ncclInvalidUsage);
	OK(ncclCommAbort(comm));
	ck_assert_int_eq(fake.nr_live, 0);
}
END_TEST

START_TEST(t_mixed_group)
{
	ncclConfig_t config = nonblocking();
	ncclComm_t a, b;
	ncclUniqueId id;

	OK(ncclGetUniqueId(&id));
	OK(ncclGroupStart());
	ncclCommInitRankConfig(&a, 2, id, 0, &config);
	ncclCommInitRankConfig(&b, 2, id, 1, NULL);
	ck_assert_int_eq(ncclGroupEnd(), ncclInvalidArgument);
	SAYS("Blocking and nonblocking communicators are not allowed in the same group.");
	ck_assert_int_eq(fake.nr_live, 0);
}
END_TEST

/* Several splits of one parent in one group with random colors and keys, compared with a model. */
START_TEST(t_split)
{
	enum { N = 6, ROUNDS = 2 };
	ncclComm_t comms[N], children[ROUNDS][N];
	int color[ROUNDS][N], key[ROUNDS][N], i, j, r, v, want, size;
	struct df_rng rng;

	df_rng_init(&rng, df_test_seed() + 1);
	init_group(comms, N);
	for (r = 0; r < ROUNDS; r++)
		for (i = 0; i < N; i++) {
			color[r][i] = (int)df_rng_range(&rng, -1, 2);
			key[r][i] = (int)df_rng_range(&rng, -2, 2);
		}
	OK(ncclGroupStart());
	for (r = 0; r < ROUNDS; r++)
		for (i = 0; i < N; i++)
			OK(ncclCommSplit(comms[i], color[r][i], key[r][i], &children[r][i], NULL));
	OK(ncclGroupEnd());
	for (r = 0; r < ROUNDS; r++)
		for (i = 0; i < N; i++) {
			if (color[r][i] < 0) {
				ck_assert_ptr_null(children[r][i]);
				continue;
			}
			want = size = 0;
			for (j = 0; j < N; j++) {
				if (color[r][j] != color[r][i])
					continue;
				size++;
				want += key[r][j] < key[r][i] || (key[r][j] == key[r][i] && j < i);
			}
			OK(ncclCommUserRank(children[r][i], &v));
			ck_assert_int_eq(v, want);
			OK(ncclCommCount(children[r][i], &v));
			ck_assert_int_eq(v, size);
			OK(ncclCommDestroy(children[r][i]));
		}
	for (i = 0; i < N; i++)
		OK(ncclCommDestroy(comms[i]));
	ck_assert_int_eq(fake.nr_live, 0);
}
END_TEST

static void *split_thread(void *p)
{
	struct arg *a = p;
	ncclComm_t child;

	a->res = ncclCommSplit(*a->comm, 0, 0, &child, NULL);
	return NULL;
}

/* Aborts the parent while its split waits for a rank that never arrives. */
START_TEST(t_abort_split)
{
	ncclComm_t comms[2];
	struct arg a = {&comms[0], {{0}}, 0, 0, 0};
	pthread_t thread;

	init_group(comms, 2);
	pthread_create(&thread, NULL, split_thread, &a);
	ck_assert(fake_wait(&fake.nr_joining, 1));
	OK(ncclCommAbort(comms[0]));
	pthread_join(thread, NULL);
	ck_assert_int_ne(a.res, ncclSuccess);
	OK(ncclCommDestroy(comms[1]));
	ck_assert_int_eq(fake.nr_live, 0);
}
END_TEST

START_TEST(t_shrink)
{
	ncclComm_t comms[4], children[4];
	int list[2] = {3, 1}, i, v;

	init_group(comms, 4);
	ck_assert_int_eq(ncclCommShrink(comms[1], list, 2, &children[1], NULL, 0),
			 ncclInvalidArgument);
	ck_assert_int_eq(list[0], 1); /* sorted in place */
	ck_assert_int_eq(ncclCommShrink(comms[0], list, 0, &children[1], NULL, 0),
			 ncclInvalidArgument);
	ck_assert_int_eq(ncclCommShrink(comms[0], NULL, 1, &children[1], NULL, 0),
			 ncclInvalidArgument);
	SAYS("excludeRanksList argument is NULL");
	OK(ncclGroupStart());
	for (i = 0; i < 4; i += 2)
		OK(ncclCommShrink(comms[i], list, 2, &children[i], NULL, NCCL_SHRINK_ABORT));
	OK(ncclGroupEnd());
	OK(ncclCommUserRank(children[2], &v));
	ck_assert_int_eq(v, 1);
	OK(ncclCommDestroy(children[0]));
	OK(ncclCommDestroy(children[2]));
	for (i = 0; i < 4; i++)
		OK(ncclCommDestroy(comms[i]));
	ck_assert_int_eq(fake.nr_live, 0);
}
END_TEST

int main(void)
{
	return DF_TESTS("comm", {t_init_group}, {t_init_all}, {t_init_errors}, {t_group_init_fails},
			{t_group_discard}, {t_tombstones}, {t_finalize}, {t_abort_init},
			{t_abort_finalize, 2}, {t_nonblocking}, {t_nonblocking_abort, 2},
			{t_mixed_group}, {t_split}, {t_abort_split}, {t_shrink});
}
