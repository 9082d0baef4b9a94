/*
 * The threads of mode trace against each other, for ThreadSanitizer. Threads issue operations on
 * shared streams that are unknown before, so that all are created at once. Streams write their
 * ticks at any time, threads wait, and the watcher sleeps whenever no operation is open. Each
 * operation's begin and end is recorded once, in this order. An end that the sleeping watcher
 * missed would never be recorded, and the test would hang. A thread that blocks in a write to a
 * full stream must not delay another thread.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "runtime/backend.h"
#include "runtime/base/rng.h"
#include "runtime/record/record.h"
#include "runtime/dfshim.h"
#include "tests/lib/test.h"
#include "trace/read/reader.h"
#include "trace/record/writer.h"

#define STREAMS 4
#define THREADS 4
#define ROUNDS	200
#define DEPTH	1024

/* A stream: a queue of writes that a thread of its own executes. */
struct df_mstream {
	pthread_mutex_t lock;
	struct {
		uint64_t *at, value;
	} q[DEPTH];
	unsigned head, tail;
	void *user;
	uint64_t id;
};

static struct df_mstream streams[STREAMS];
static const struct df_hooks *hooks;
static uint64_t seed;
static uint32_t comm;
static int over;

static int stream_info(const void *stream, struct df_stream_info *out)
{
	struct df_mstream *s = &streams[(uintptr_t)stream];

	memset(out, 0, sizeof(*out));
	out->stream = s;
	out->id = s->id;
	out->legacy = s == &streams[0];
	out->user = &s->user;
	return 0;
}

/* In test_full() the first of two writes waits until the second one is on the stream. */
static uint32_t exchange, writers, passed;

static int stream_write(struct df_mstream *s, uint64_t *at, uint64_t *near, uint64_t value)
{
	(void)near;
	if (exchange && !__atomic_fetch_add(&writers, 1, __ATOMIC_RELAXED))
		while (!__atomic_load_n(&passed, __ATOMIC_RELAXED))
			usleep(100);
	for (int full = 1; full;) {
		pthread_mutex_lock(&s->lock);
		full = s->tail - s->head == DEPTH;
		if (!full) {
			s->q[s->tail % DEPTH].at = at;
			s->q[s->tail++ % DEPTH].value = value;
		}
		pthread_mutex_unlock(&s->lock);
	}
	__atomic_store_n(&passed, 1, __ATOMIC_RELAXED);
	return 0;
}

static void set_hooks(const struct df_hooks *h)
{
	hooks = h;
}

static int get_device(void)
{
	return 0;
}

static struct df_backend api;

static void *device_main(void *arg)
{
	struct df_rng r;

	(void)arg;
	df_rng_init(&r, seed);
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		struct df_mstream *s = &streams[df_rng_below(&r, STREAMS)];

		pthread_mutex_lock(&s->lock);
		if (s->head != s->tail) {
			/*
			 * RELEASE, as for a stream's write: pairs with the watcher's ACQUIRE of the
			 * tick.
			 */
			__atomic_store_n(s->q[s->head % DEPTH].at, s->q[s->head % DEPTH].value,
					 __ATOMIC_RELEASE);
			s->head++;
		}
		pthread_mutex_unlock(&s->lock);
		if (!df_rng_below(&r, 8))
			sched_yield();
	}
	return NULL;
}

static uint64_t nr_done(void)
{
	const struct df_trace_comm *c =
		(const void *)((const char *)df_trace_ring() + df_trace_ring()->off_comms);

	return __atomic_load_n(&c[comm - 1].done, __ATOMIC_RELAXED);
}

static pthread_barrier_t round_begins, round_ends;
static uint64_t nr_issued;

static void *issue_main(void *arg)
{
	struct df_record_call call = {.kind = DF_COLL_ALLREDUCE, .count = 8, .peer = -1};
	struct df_record_op op[3];
	struct df_stream_info info;
	struct df_rng r;

	df_rng_init(&r, seed + 1 + (uintptr_t)arg);
	call.comm = comm;
	for (int i = 0; i < ROUNDS / df_test_slow(); i++) {
		size_t nr = 1 + df_rng_below(&r, 3), k;
		uintptr_t s = i ? df_rng_below(&r, STREAMS) : 1;

		pthread_barrier_wait(&round_begins);
		for (k = 0; k < nr; k++)
			ck_assert_int_eq(df_record_issue(&call, (void *)s, nr > 1, &op[k]), 1);
		df_record_before(op, nr);
		df_record_after(op, nr, 1);
		stream_info((void *)s, &info);
		if (!df_rng_below(&r, 4)) {
			hooks->stream_sync(&info);
			hooks->sync_done(0);
		}
		if (!df_rng_below(&r, 4))
			hooks->before_work(&info, DF_WORK_KERNEL, NULL);
		hooks->stream_query(&info);
		__atomic_add_fetch(&nr_issued, nr, __ATOMIC_RELAXED);
		pthread_barrier_wait(&round_ends);
	}
	return NULL;
}

static pthread_t device;

static void begin(void)
{
	struct df_trace_config cfg = {
		.dir = getenv("T") ? getenv("T") : "/tmp", .mb = 16, .rank = 0, .mode = 1};

	seed = df_test_seed();
	ck_assert_int_eq(df_trace_open(&cfg), 0);
	comm = df_trace_comm(7, 2, 0, 0, 0, "A");
	for (int i = 0; i < STREAMS; i++) {
		pthread_mutex_init(&streams[i].lock, NULL);
		streams[i].id = (uint64_t)i + 1;
	}
	api = *df_backend;
	api.set_hooks = set_hooks;
	api.stream_info = stream_info;
	api.stream_write = stream_write;
	api.get_device = get_device;
	df_record_behind(&api, 0);
	ck_assert_int_eq(df_record_watch_start(NULL), 0);
	pthread_create(&device, NULL, device_main, NULL);
}

static void end(void)
{
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	pthread_join(device, NULL);
}

static void *issue_one(void *arg)
{
	struct df_record_call call = {.kind = DF_COLL_ALLREDUCE, .count = 8, .peer = -1};
	struct df_record_op op;

	call.comm = comm;
	ck_assert_int_eq(df_record_issue(&call, arg, 0, &op), 1);
	df_record_after(&op, 1, 1);
	return NULL;
}

/* The stream has room for one thread's tick only after another thread's tick. */
START_TEST(test_full)
{
	pthread_t t[2];

	begin();
	exchange = 1;
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, issue_one, (void *)1);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	/*
	 * The word went backwards when the first tick followed the second, so a third write stores
	 * the right position.
	 */
	ck_assert_uint_eq(writers, 3);
	while (nr_done() < 2)
		usleep(20);
	end();
}
END_TEST

START_TEST(test_stress)
{
	pthread_t t[THREADS];
	unsigned char *state;
	struct df_reader rd;
	const struct df_rec *rec;
	const char *why;
	uint64_t index;
	size_t nr_odd = 0;

	begin();
	pthread_barrier_init(&round_begins, NULL, THREADS + 1);
	pthread_barrier_init(&round_ends, NULL, THREADS + 1);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, issue_main, (void *)i);
	for (int i = 0; i < ROUNDS / df_test_slow(); i++) {
		pthread_barrier_wait(&round_begins);
		pthread_barrier_wait(&round_ends);
		/* After this the watcher falls asleep, and the next round must wake it. */
		while (nr_done() < __atomic_load_n(&nr_issued, __ATOMIC_RELAXED))
			usleep(20);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	end();
	ck_assert_uint_eq(nr_done(), nr_issued);

	state = calloc(1u << 20, 1);
	/* Read the file, because the watcher is still running. */
	ck_assert_int_eq(df_reader_open(&rd, df_trace_path(), &why), 0);
	while ((rec = df_reader_next(&rd, &index))) {
		int want = rec->type == DF_REC_OP_ISSUE	  ? 0
			   : rec->type == DF_REC_OP_START ? 1
			   : rec->type == DF_REC_OP_DONE  ? 2
							  : -1;

		if (want < 0)
			continue;
		ck_assert_msg(rec->op < 1u << 20 && state[rec->op] == want,
			      "operation %llu: record of type %u in state %d",
			      (unsigned long long)rec->op, rec->type, state[rec->op]);
		state[rec->op]++;
	}
	/*
	 * One assertion for all. Each assertion is a message to the process that runs the tests,
	 * which takes long with a sanitizer.
	 */
	for (size_t i = 0; i < 1u << 20; i++)
		nr_odd += state[i] != 0 && state[i] != 3;
	ck_assert_uint_eq(nr_odd, 0);
	df_reader_close(&rd);
	free(state);
}
END_TEST

int main(void)
{
	/*
	 * The watcher looks by itself only after a quarter of this time, so an operation that it
	 * forgets is not found by chance.
	 */
	setenv("DFSHIM_TIMEOUT_MS", "3600000", 1);
	return DF_TESTS("record", {test_stress}, {test_full});
}
