/*
 * Measures the cost of recording for the application: the nanoseconds for each record on one thread
 * (the median of batches), and with two threads that append at once. `b_trace [GLOB]` runs the
 * figures whose names match.
 */
#include <fnmatch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "trace/record/site.h"
#include "trace/record/writer.h"

#define BATCH	10000
#define BATCHES 400

static const char *glob = "*";

static double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median_ns(uint32_t comm)
{
	static _Thread_local double per[BATCHES];

	for (int b = 0; b < BATCHES; b++) {
		double t = now_ns();

		for (int i = 0; i < BATCH; i++)
			df_trace(DF_REC_OP_ISSUE, 0, comm, 0, (uint64_t)i, 1, 2, 3, 4);
		per[b] = (now_ns() - t) / BATCH;
	}
	qsort(per, BATCHES, sizeof(per[0]), by_value);
	return per[BATCHES / 2];
}

/* Records operations as the submit path does. */
static double op_ns(uint32_t comm)
{
	static double per[BATCHES];

	for (int b = 0; b < BATCHES; b++) {
		double t = now_ns();

		for (int i = 0; i < BATCH; i++)
			df_trace_op(
				&(struct df_trace_op){.op = (uint64_t)i, .comm = comm, .site = 4});
		per[b] = (now_ns() - t) / BATCH;
	}
	qsort(per, BATCHES, sizeof(per[0]), by_value);
	return per[BATCHES / 2];
}

/* Measures a record whose call site is found from inside. A wait of CUDA costs that much more. */
static double wait_ns(void)
{
	static double per[BATCHES];

	for (int b = 0; b < BATCHES; b++) {
		double t = now_ns();

		for (int i = 0; i < BATCH; i++)
			df_trace(DF_REC_CALL_ENTER, 0, 0, -1, (uint64_t)i, 1, 2, 3,
				 df_trace_caller());
		per[b] = (now_ns() - t) / BATCH;
	}
	qsort(per, BATCHES, sizeof(per[0]), by_value);
	return per[BATCHES / 2];
}

static void *thread_main(void *arg)
{
	*(double *)arg = median_ns(0);
	return NULL;
}

static void report(const char *name, double ns, double limit)
{
	printf("BENCH %s %.1f ns target <=%.0f %s\n", name, ns, limit, ns <= limit ? "ok" : "MISS");
}

static int wanted(const char *name)
{
	return !fnmatch(glob, name, 0);
}

int main(int argc, char **argv)
{
	struct df_trace_config cfg = {.dir = NULL, .mb = 16, .rank = -1};
	const char *dir = getenv("TMPDIR");
	uint32_t comm;
	double t[2];
	pthread_t id;

	if (argc > 1)
		glob = argv[1];
	if (df_trace_open(&cfg)) {
		fprintf(stderr, "b_trace: no memory for the ring\n");
		return 1;
	}
	comm = df_trace_comm(1, 2, 0, 0, 0, "bench");
	median_ns(comm);
	if (wanted("trace_append_memory"))
		report("trace_append_memory", median_ns(comm), 100);
	if (wanted("trace_append_op"))
		report("trace_append_op", op_ns(comm), 150);
	if (wanted("trace_append_two_threads")) {
		pthread_create(&id, NULL, thread_main, &t[0]);
		thread_main(&t[1]);
		pthread_join(id, NULL);
		report("trace_append_two_threads", (t[0] + t[1]) / 2, 300);
	}
	if (wanted("trace_site")) {
		double start = now_ns();

		for (int i = 0; i < 1000000; i++)
			df_trace_site(__builtin_return_address(0));
		report("trace_site", (now_ns() - start) / 1e6, 20);
	}
	if (wanted("trace_append_wait"))
		report("trace_append_wait", wait_ns(), 100);
	df_trace_close();
	if (wanted("trace_append_file")) {
		char path[2048], file[4096];

		snprintf(path, sizeof(path), "%s/dfshim-bench-trace", dir ? dir : "/tmp");
		cfg.dir = path;
		if (df_trace_open(&cfg)) {
			fprintf(stderr, "b_trace: cannot write a trace below %s\n", path);
			return 1;
		}
		snprintf(file, sizeof(file), "%s", df_trace_path());
		median_ns(0);
		report("trace_append_file", median_ns(0), 100);
		df_trace_close();
		remove(file);
	}
	return 0;
}
