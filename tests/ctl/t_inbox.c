/*
 * Description: messages of other processes to the watchdog. No message and no wake-up is lost,
 * invalid messages are dropped, and a slow process is waited for.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/futex.h"
#include "runtime/base/rng.h"
#include "runtime/base/time.h"
#include "runtime/watch/ending.h"
#include "runtime/ctl/ctl.h"
#include "runtime/ctl/ctl_int.h"
#include "runtime/watch/snapshot.h"
#include "tests/lib/test.h"
#include "trace/record/writer.h"

#define NR_TURNS   20000
#define NR_FORGERS 3

static uint32_t turn, heard, stop;

/* The control thread's part. Sends the next message after the last one was received. */
static void *suspect(void *unused)
{
	uint32_t i, n = (uint32_t)(NR_TURNS / df_test_slow());

	(void)unused;
	for (i = 1; i <= n; i++) {
		df_snapshot_message(i, DF_MSG_SUSPECT, NULL, 0);
		/* ACQUIRE pairs with the RELEASE in t_inbox(). */
		while (__atomic_load_n(&heard, __ATOMIC_ACQUIRE) != i)
			df_futex_wait(&heard, i - 1, 1000000000, 0);
	}
	/* RELEASE pairs with the ACQUIRE in t_inbox. */
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	df_snapshot_wake();
	return NULL;
}

/*
 * Sends ends of communicators with wrong lengths, far beyond the message, so that reading behind
 * its end faults.
 */
static void *forge(void *seed)
{
	struct df_rng r;
	_Alignas(struct df_ending) char body[sizeof(struct df_ending) + 64];

	df_rng_init(&r, df_test_seed() + (uintptr_t)seed);
	/* ACQUIRE pairs with the RELEASE in suspect(). */
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		uint64_t nr = df_rng_below(&r, 3);
		size_t bytes = df_rng_below(&r, sizeof(body));

		memset(body, (int)df_rng_below(&r, 256), sizeof(body));
		/*
		 * A message whose lengths are right by chance is obeyed. It must not end this
		 * process.
		 */
		memset(body + offsetof(struct df_ending, at_once), 0, sizeof(uint64_t));
		body[offsetof(struct df_ending, names) - 1] = (char)df_rng_below(&r, 2);
		switch (df_rng_below(&r, 4)) {
		case 0:
			nr = (1u << 27) + df_rng_below(&r, 1000);
			break;
		case 1:
			nr = ~0ull / 8 - df_rng_below(&r, 8);
			break;
		case 2:
			nr = bytes / 8 + df_rng_below(&r, 2);
			break;
		default:
			break;
		}
		memcpy(body + offsetof(struct df_ending, nr), &nr, sizeof(nr));
		df_snapshot_message(1, DF_MSG_END, body, bytes);
		sched_yield();
	}
	return NULL;
}

/* Once alone, so that no other thread wakes the reader, and once with others. */
START_TEST(t_inbox)
{
	uintptr_t i, nr_forgers = _i ? NR_FORGERS : 0;
	pthread_t threads[1 + NR_FORGERS];

	pthread_create(&threads[0], NULL, suspect, NULL);
	for (i = 0; i < nr_forgers; i++)
		pthread_create(&threads[1 + i], NULL, forge, (void *)i);
	/* ACQUIRE pairs with the RELEASE in suspect(). */
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		uint32_t seen = df_snapshot_seen();

		df_snapshot_serve();
		if (df_snapshot_suspected()) {
			/* RELEASE pairs with the ACQUIRE in suspect(). */
			__atomic_store_n(&heard, ++turn, __ATOMIC_RELEASE);
			df_futex_wake(&heard, 1, 0);
			/* ACQUIRE pairs with the RELEASE in suspect() */
		} else if (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
			/* Without a time-out, because the test is about the wake-up. */
			df_snapshot_wait(seen, -1);
		}
	}
	for (i = 0; i < 1 + nr_forgers; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(turn, (uint32_t)(NR_TURNS / df_test_slow()));
	df_snapshot_serve();
}
END_TEST

/* If the second question finds that the hold has ended, everything that it allocated is freed. */
START_TEST(t_hold_lost)
{
	size_t before = 0;

	for (int i = 0; i < 1000; i++) {
		struct df_snapshot *other = calloc(1, sizeof(*other));
		struct df_snapshots g = {.epoch = 1};

		df_list_init(&g.answers);
		other->proc = 12345;
		df_list_add_tail(&g.answers, &other->node);
		ck_assert_int_eq(df_snapshot_gather(&g, DF_ASK_AGAIN), 0);
		ck_assert(g.busy);
		df_snapshot_done(&g);
		/* AddressSanitizer has no such counts, but finds leaks itself. */
		if (i == 0)
			before = mallinfo2().uordblks;
	}
	ck_assert_uint_lt(mallinfo2().uordblks, before + 1000);
}
END_TEST

#define SLOW_PROC 4711

/*
 * The control thread's part for a process that gets little CPU time. It confirms each question at
 * once, and answers after DF_GATHER_NS.
 */
static void *answer_late(void *unused)
{
	struct {
		uint64_t epoch;
		uint32_t stalled_ms, pad;
	} heard = {.epoch = 1}; /* confirms the first question */
	struct {
		uint64_t epoch, image_bytes, progress;
		uint32_t what, busy, same, nr_waits, nr_peers, nr_hosts, stalled_ms, pad;
	} answer = {.epoch = 1, .what = DF_ASK_LOOK, .progress = 77};

	(void)unused;
	df_snapshot_message(SLOW_PROC, DF_MSG_HEARD, &heard, sizeof(heard));
	df_sleep_ns(DF_GATHER_NS + DF_GATHER_NS / 4);
	df_snapshot_message(SLOW_PROC, DF_MSG_SNAPSHOT, &answer, sizeof(answer));
	return NULL;
}

/* A report waits for the answer of a process that has confirmed the question. */
START_TEST(t_slow)
{
	const struct df_trace_config config = {.mb = 1, .rank = 0, .world = 1, .rules = 1};
	struct df_snapshot *other = calloc(1, sizeof(*other));
	struct df_snapshots g = {.answers = DF_LIST_INIT(g.answers)};
	pthread_t thread;

	ck_assert_int_eq(df_ctl_start(), 0);
	ck_assert_int_eq(df_trace_open(&config), 0);
	other->proc = SLOW_PROC;
	df_list_add_tail(&g.answers, &other->node);
	pthread_create(&thread, NULL, answer_late, NULL);
	ck_assert_int_eq(df_snapshot_gather(&g, DF_ASK_LOOK), 0);
	ck_assert_uint_eq(g.epoch, 1);
	ck_assert_msg(other->heard && other->fresh && other->progress == 77, "not waited for");
	pthread_join(thread, NULL);
	df_snapshot_done(&g);
	df_trace_close();
}
END_TEST

static uint64_t no_progress(void)
{
	return 0;
}

static uint32_t not_stalled(void)
{
	return 0;
}

static int go_on(void)
{
	return 0;
}

/* Obeys messages as the watchdog does. */
static void told(uint32_t kind, const void *data, size_t bytes)
{
	const struct df_ending *e = kind == DF_MSG_END ? df_ending_read(data, bytes) : NULL;

	if (e)
		df_ending_obey(e);
}

int main(void)
{
	static const struct df_snapshot_owner owner = {no_progress, not_stalled, told, NULL, go_on};

	df_snapshot_owned_by(&owner);
	return DF_TESTS("inbox", {t_inbox, 2}, {t_hold_lost}, {t_slow});
}
