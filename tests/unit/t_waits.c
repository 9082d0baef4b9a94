/*
 * Description: waits of streams (runtime/order/waits.h). A call that waits for all streams is made
 * only when no stream waits. Until it returns, no stream is made to wait.
 */
#include <pthread.h>
#include <unistd.h>
#include "runtime/backend.h"
#include "runtime/blocks.h"
#include "runtime/device/device.h"
#include "runtime/comm/flights.h"
#include "runtime/order/waits.h"
#include "tests/lib/test.h"

static uint64_t done; /* done word of the collective */
/*
 * number of streams that were made to wait; number of threads in a call that waits for all streams
 */
static uint32_t waiting, alone;

static int stream_wait(struct df_mstream *s, const uint64_t *addr, uint64_t value)
{
	(void)s, (void)addr, (void)value;
	/* No thread is in a call that waits for all streams. */
	ck_assert_uint_eq(__atomic_load_n(&alone, __ATOMIC_RELAXED), 0);
	__atomic_add_fetch(&waiting, 1, __ATOMIC_RELAXED);
	return 0;
}

static const struct df_backend machine = {.stream_wait = stream_wait};

static struct df_flight flight(uint64_t value)
{
	return (struct df_flight){.done = &done, .value = value};
}

START_TEST(none_waits)
{
	struct df_flight f = flight(1);

	ck_assert_int_eq(df_waits_stop(0, 0), 1);
	df_waits_go(0);
	ck_assert_int_eq(df_waits_put(0, NULL, &f, 1), 0);
	ck_assert_uint_eq(waiting, 1);
	ck_assert_int_eq(df_waits_stop(0, 0), 0);
	/* A call for all devices may not be made either. */
	ck_assert_int_eq(df_waits_stop(-1, 0), 0);
	/* A call for another device may be made. */
	ck_assert_int_eq(df_waits_stop(1, 0), 1);
	df_waits_go(1);
	done = 1;
	ck_assert_int_eq(df_waits_stop(-1, 0), 1);
	df_waits_go(-1);
	ck_assert_int_eq(df_waits_stop(0, 0), 1);
	df_waits_go(0);
	/* The wait of a graph counts too. */
	f = flight(2);
	df_waits_note(0, NULL, NULL, &f, 1);
	ck_assert_int_eq(df_waits_stop(0, 0), 0);
	done = 2;
	ck_assert_int_eq(df_waits_stop(0, 0), 1);
	df_waits_go(0);
}
END_TEST

static void *put_one(void *arg)
{
	struct df_flight f = flight(1);

	df_waits_put(0, NULL, &f, 1);
	return arg;
}

/* _i: the call waits for its device, or for all devices. */
START_TEST(none_is_made_to)
{
	pthread_t t;

	ck_assert_int_eq(df_waits_stop(-_i, 0), 1);
	pthread_create(&t, NULL, put_one, NULL);
	usleep(20000);
	ck_assert_uint_eq(__atomic_load_n(&waiting, __ATOMIC_RELAXED), 0);
	df_waits_go(-_i);
	pthread_join(t, NULL);
	ck_assert_uint_eq(waiting, 1);
	done = 1;
}
END_TEST

/*
 * Streams are made to wait all the time, operations end, and some threads make calls that wait for
 * all streams.
 */
#define ROUNDS 3000

static void *streams(void *arg)
{
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		struct df_flight f = {.done = arg, .value = i};

		df_waits_put(0, NULL, &f, 1);
		/* RELEASE pairs with df_flight_done(). */
		__atomic_store_n((uint64_t *)arg, i, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void *calls(void *arg)
{
	uint32_t *stop = arg, nr = 0;

	while (!__atomic_load_n(stop, __ATOMIC_RELAXED) || !nr) {
		if (!df_waits_stop(0, 0))
			continue;
		__atomic_add_fetch(&alone, 1, __ATOMIC_RELAXED);
		__atomic_sub_fetch(&alone, 1, __ATOMIC_RELAXED);
		df_waits_go(0);
		nr++;
	}
	return NULL;
}

START_TEST(together)
{
	static uint64_t words[2];
	pthread_t t[4];
	uint32_t stop = 0;
	int i;

	for (i = 0; i < 2; i++) {
		pthread_create(&t[i], NULL, streams, &words[i]);
		pthread_create(&t[2 + i], NULL, calls, &stop);
	}
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 2; i < 4; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(waiting, 2 * ROUNDS);
}
END_TEST

static uint64_t crowd[33]; /* done word for which stream i waits */

static void *one_more(void *arg)
{
	struct df_flight f = {.done = &crowd[(uintptr_t)arg], .value = 1};

	df_waits_put(2, arg, &f, 1);
	return arg;
}

/* A GPU has 32 hardware queues, a quarter of which is kept free. */
START_TEST(queues_are_kept)
{
	static const struct df_blocks gpu = {.gpu = 1, .queues = 32};
	uint32_t already, n;
	pthread_t t;

	df_blocks = &gpu;
	for (uintptr_t i = 1; i <= 24; i++)
		one_more((void *)i);
	ck_assert_uint_eq(waiting, 24);
	/* A stream that already waits may wait for more. */
	one_more((void *)24);
	ck_assert_uint_eq(waiting, 25);
	pthread_create(&t, NULL, one_more, (void *)25);
	usleep(20000);
	ck_assert_uint_eq(__atomic_load_n(&waiting, __ATOMIC_RELAXED), 25);
	/* RELEASE pairs with df_flight_done(). */
	__atomic_store_n(&crowd[7], 1, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	ck_assert_uint_eq(waiting, 26);
	/*
	 * If none of the waits ends, the stream may wait after a second nevertheless, because the
	 * other streams may need what its thread does next. This holds even if waiting streams wait
	 * for more meanwhile.
	 */
	already = waiting;
	pthread_create(&t, NULL, one_more, (void *)7);
	for (n = 0; __atomic_load_n(&waiting, __ATOMIC_RELAXED) == already + n; n++) {
		one_more((void *)24);
		usleep(1000);
	}
	pthread_join(t, NULL);
	ck_assert_uint_eq(waiting, already + n + 1);
	for (int i = 0; i < 33; i++)
		__atomic_store_n(&crowd[i], 1, __ATOMIC_RELEASE);
}
END_TEST

static void before(void)
{
	df_backend = &machine;
	df_blocks = &df_threads;
}

int main(void)
{
	return DF_TESTS("waits", {.before = before}, {none_waits}, {none_is_made_to, 2}, {together},
			{queues_are_kept});
}
