/*
 * The states of threads on a machine that lacks CPU time (runtime/watch/hosts.c). A waiting thread
 * that wakes up now and then is always about to run while other threads use the CPU. It must not be
 * reported as running, because a running thread is no part of a cycle. A thread that does run may
 * be reported so. The test uses one CPU, threads that keep it busy, and a waiting thread of the
 * lowest priority.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "runtime/watch/hosts.h"
#include "tests/lib/test.h"
#include "trace/read/reader.h"
#include "trace/record/format.h"
#include "trace/record/writer.h"

#define BUSY 4

static uint32_t over, waits_at, waiting_tid, busy_tid;

static void *busy_main(void *arg)
{
	/* One of the busy threads is an application's thread. */
	if (!arg) {
		df_trace(DF_REC_MARK, -1, 0, -1, 0, 0, 0, 0, 0);
		__atomic_store_n(&busy_tid, (uint32_t)gettid(), __ATOMIC_RELEASE);
	}
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		;
	return NULL;
}

static void *waiting_main(void *arg)
{
	const struct timespec soon = {0, 2000000};
	struct sched_param param = {0};

	(void)arg;
	df_trace(DF_REC_MARK, -1, 0, -1, 0, 0, 0, 0, 0);
	ck_assert_int_eq(sched_setscheduler(0, SCHED_IDLE, &param), 0);
	__atomic_store_n(&waiting_tid, (uint32_t)gettid(), __ATOMIC_RELEASE);
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		syscall(SYS_futex, &waits_at, FUTEX_WAIT, 0, &soon, NULL, 0);
	return NULL;
}

START_TEST(test_starved)
{
	struct df_trace_config cfg = {
		.dir = getenv("T") ? getenv("T") : "/tmp", .mb = 1, .rank = 0, .mode = 1};
	unsigned of_busy = 0, of_waiting = 0;
	pthread_t busy[BUSY], waiting;
	const struct df_rec *rec;
	struct df_reader rd;
	const char *why;
	uint64_t index;
	cpu_set_t all, one;
	int cpu = 0;

	ck_assert_int_eq(df_trace_open(&cfg), 0);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	pthread_create(&waiting, NULL, waiting_main, NULL);
	/* The thread must reach its wait while there is still CPU time. */
	while (!__atomic_load_n(&waiting_tid, __ATOMIC_ACQUIRE))
		usleep(1000);
	for (uintptr_t i = 0; i < BUSY; i++)
		pthread_create(&busy[i], NULL, busy_main, (void *)i);
	while (!__atomic_load_n(&busy_tid, __ATOMIC_ACQUIRE))
		usleep(1000);
	for (int i = 0; i < 3; i++)
		df_hosts_note();
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < BUSY; i++)
		pthread_join(busy[i], NULL);
	pthread_join(waiting, NULL);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(all), &all), 0);

	ck_assert_int_eq(df_reader_open(&rd, df_trace_path(), &why), 0);
	while ((rec = df_reader_next(&rd, &index))) {
		if (rec->type != DF_REC_HOST_AT)
			continue;
		of_waiting += rec->a == waiting_tid;
		of_busy += rec->a == busy_tid;
		ck_assert_msg(rec->a != waiting_tid || (rec->b & 0xff) != DF_AT_RUNS,
			      "a waiting thread is reported as one that runs");
		/*
		 * On a still slower machine there may be no report, but never one that the running
		 * thread waits.
		 */
		ck_assert_msg(rec->a != busy_tid || (rec->b & 0xff) == DF_AT_RUNS,
			      "a running thread is reported in place %u",
			      (unsigned)(rec->b & 0xff));
	}
	df_reader_close(&rd);
	printf("noted: %u times the one that waits, %u times the one that runs\n", of_waiting,
	       of_busy);
}
END_TEST

int main(void)
{
	return DF_TESTS("starved", {test_starved});
}
