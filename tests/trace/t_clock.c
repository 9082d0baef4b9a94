/*
 * The clock of the records never runs backwards in a thread and stays close to the monotonic clock.
 * The monotonic clock is read before and after each reading, so a busy machine only widens the
 * bounds.
 */
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include "tests/lib/test.h"
#include "trace/record/clock.h"

static uint64_t real_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Reads the clock for so long that it calibrates itself and is re-anchored many times. */
static void *look(void *arg)
{
	uint64_t until = real_clock() + 60000000u, last = 0, before, now, after;
	unsigned long *looks = arg;

	do {
		before = real_clock();
		now = df_trace_clock();
		after = real_clock();
		if (now < last || now + DF_TRACE_CLOCK_ERROR_NS < before ||
		    now > after + DF_TRACE_CLOCK_ERROR_NS) {
			dprintf(2, "look %lu: %llu after %llu, between %llu and %llu\n", *looks,
				(unsigned long long)now, (unsigned long long)last,
				(unsigned long long)before, (unsigned long long)after);
			return "wrong";
		}
		last = now;
		(*looks)++;
	} while (after < until);
	return NULL;
}

START_TEST(threads)
{
	unsigned long looks[3] = {0};
	pthread_t t[3];
	void *wrong;
	int i;

	df_trace_clock_start();
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, look, &looks[i]), 0);
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(pthread_join(t[i], &wrong), 0);
		ck_assert_ptr_null(wrong);
		ck_assert_uint_gt(looks[i], 0);
	}
}
END_TEST

int main(void)
{
	return DF_TESTS("clock", {threads});
}
