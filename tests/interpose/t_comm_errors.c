/*
 * Description: communicators that are revoked, that fail, that are aborted while other threads use
 * them, or that are never made.
 */
#include "tests/interpose/comm_test.h"

START_TEST(t_revoke)
{
	ncclComm_t comms[2], children[2];
	char buf[8];
	int i;

	init_group(comms, 2);
	ck_assert_int_eq(ncclCommRevoke(comms[0], 1), ncclInvalidArgument);
	OK(ncclCommRevoke(comms[0], 0));
	OK(ncclCommRevoke(comms[1], 0));
	ck_assert_int_eq(fake.nr_revokes, 2);
	ck_assert_int_eq(ncclCommRevoke(comms[0], 0), ncclInvalidArgument);
	ck_assert_int_eq(ncclCommFinalize(comms[0]), ncclInvalidArgument);
	ck_assert_int_eq(ncclAllReduce(buf, buf, 1, ncclInt8, ncclSum, comms[0], NULL),
			 ncclInvalidUsage);
	SAYS("AllReduce: communicator was revoked");
	OK(ncclGroupStart());
	for (i = 0; i < 2; i++)
		OK(ncclCommSplit(comms[i], 0, i, &children[i], NULL));
	OK(ncclGroupEnd());
	for (i = 0; i < 2; i++) {
		OK(ncclCommDestroy(children[i]));
		OK(ncclCommDestroy(comms[i]));
	}
	ck_assert_int_eq(fake.nr_live, 0);
}
END_TEST

START_TEST(t_async)
{
	ncclComm_t comm;
	ncclResult_t state;
	int v;

	init_group(&comm, 1);
	OK(ncclCommGetAsyncError(comm, &state));
	OK(state);
	fake.comm_err = -ECONNRESET;
	OK(ncclCommGetAsyncError(comm, &state));
	ck_assert_int_eq(state, ncclRemoteError);
	ck_assert_int_eq(ncclCommCount(comm, &v), ncclRemoteError);
	ck_assert_int_eq(ncclCommGetAsyncError(NULL, &state), ncclInvalidArgument);
	ck_assert_int_eq(ncclCommGetAsyncError(comm, NULL), ncclInvalidArgument);
	OK(ncclCommAbort(comm));
	ck_assert_int_eq(fake.nr_live, 0);
}
END_TEST

static void *watchdog(void *p)
{
	ncclComm_t comm = p;
	ncclResult_t state, res;
	int i;

	for (i = 0; i < 2000; i++) {
		res = ncclCommGetAsyncError(comm, &state);
		if (res != ncclSuccess)
			break;
	}
	return NULL;
}

static void *issuer(void *p)
{
	char buf[8];

	while (ncclAllReduce(buf, buf, 1, ncclInt8, ncclSum, (ncclComm_t)p, NULL) == ncclSuccess)
		;
	return NULL;
}

/*
 * Aborts while other threads poll and issue operations: none may use the communicator after it is
 * freed (the fake runtime poisons it).
 */
START_TEST(t_abort_race)
{
	pthread_t threads[2];
	ncclComm_t comm;
	int i;

	for (i = 0; i < 50; i++) {
		init_group(&comm, 1);
		pthread_create(&threads[0], NULL, watchdog, comm);
		pthread_create(&threads[1], NULL, issuer, comm);
		nanosleep(&(struct timespec){0, 200000}, NULL);
		OK(ncclCommAbort(comm));
		pthread_join(threads[0], NULL);
		pthread_join(threads[1], NULL);
		ck_assert_int_eq(fake.nr_live, 0);
	}
}
END_TEST

START_TEST(t_start_fails)
{
	ncclComm_t comm;
	ncclUniqueId id;
	void *p;

	fake.start_err = -EOPNOTSUPP;
	setenv("DFSHIM_STRICT", "1", 1);
	ck_assert_int_eq(ncclGetUniqueId(&id), ncclSystemError);
	SAYS("the test wants it so");
	memset(&id, 0, sizeof(id));
	ck_assert_int_eq(ncclCommInitRank(&comm, 1, id, 0), ncclSystemError);
	ck_assert_int_eq(ncclCommInitAll(&comm, 1, NULL), ncclSystemError);
	ck_assert_int_eq(ncclMemAlloc(&p, 8), ncclSystemError);
}
END_TEST

int main(void)
{
	return DF_TESTS("comm errors", {t_revoke}, {t_async}, {t_abort_race}, {t_start_fails});
}
