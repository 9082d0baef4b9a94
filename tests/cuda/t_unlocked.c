/*
 * Description: dfshim holds no lock during a driver call: operations ordered across streams, groups
 * over two streams, times of events; and two threads that mark one stream at the same time. A held
 * lock is detected by this test's wrappers of the backend and, in debug builds (the sanitizers'),
 * by the backend itself, which aborts.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include "runtime/backend.h"
#include "runtime/device/cuda/cuda_int.h"
#if __has_include(<cuda.h>)
#include "tests/cuda/backend.h"

#ifdef DF_DEBUG
/*
 * A sanitizer's build has no GPU code (SAN=debug has). The test driver needs none: it knows the
 * kernel by its name.
 */
const void *df_cuda_fatbin(void)
{
	return "none";
}
#endif

static const struct df_backend *whole;
static struct df_backend watched;
static uint32_t calls, held;

/* Whether this thread holds `m`: a mutex stores its owner. */
static int is_mine(const struct df_mutex *m)
{
	return __atomic_load_n(&m->mutex.__data.__owner, __ATOMIC_RELAXED) == gettid();
}

static void called(const char *what)
{
	int bad = is_mine(&df_rt.lock), i;

	for (i = 0; i < df_rt.nr_devs; i++)
		bad |= is_mine(&df_rt.devs[i].lock);
	__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
	if (!bad)
		return;
	__atomic_add_fetch(&held, 1, __ATOMIC_RELAXED);
	printf("%s is called with a lock held\n", what);
}

static int w_idle(struct df_mstream *s)
{
	called("stream_idle");
	return whole->stream_idle(s);
}

static int w_wait(struct df_mstream *s, const uint64_t *addr, uint64_t value)
{
	called("stream_wait");
	return whole->stream_wait(s, addr, value);
}

/* If `exchange` is set, the first of two writes waits until the second one is on the stream. */
static uint32_t exchange, writers, passed;

static int w_write(struct df_mstream *s, uint64_t *addr, uint64_t *near, uint64_t value)
{
	int ret;

	called("stream_write");
	if (!exchange)
		return whole->stream_write(s, addr, near, value);
	if (!__atomic_fetch_add(&writers, 1, __ATOMIC_RELAXED))
		/* ACQUIRE pairs with the RELEASE below: then the other write is on the stream. */
		while (!__atomic_load_n(&passed, __ATOMIC_ACQUIRE))
			usleep(100);
	ret = whole->stream_write(s, addr, near, value);
	/* RELEASE pairs with the ACQUIRE above. */
	__atomic_store_n(&passed, 1, __ATOMIC_RELEASE);
	return ret;
}

static int w_event_record(void *event, struct df_mstream *s)
{
	called("event_record");
	return whole->event_record(event, s);
}

static int w_event_new(int device, void **event)
{
	called("event_new");
	return whole->event_new(device, event);
}

static int w_stream_new(int device, struct df_stream_info *out)
{
	called("stream_new");
	return whole->stream_new(device, out);
}

static uint64_t gate;
static struct rank r = {.count = 1000};

static void begin(void)
{
	start();
	whole = df_backend;
	watched = *whole;
	watched.stream_idle = w_idle;
	watched.stream_wait = w_wait;
	watched.stream_write = w_write;
	watched.event_record = w_event_record;
	watched.event_new = w_event_new;
	watched.stream_new = w_stream_new;
	df_backend = &watched;
	/* The test calls the driver without the hook, which would make dfshim keep strict order. */
	df_rt.strict = 0;
	r.in = calloc(r.count, sizeof(float));
	r.out = calloc(r.count, sizeof(float));
}

/* Returns a stream that waits until the gate opens. */
static struct df_stream_info busy(void)
{
	struct df_stream_info info;

	ck_assert_int_eq(whole->stream_new(0, &info), 0);
	ck_assert_int_eq(whole->stream_wait(info.stream, &gate, 1), 0);
	return info;
}

static struct df_op on(struct df_comm *comm, const struct df_stream_info *info)
{
	return all_reduce(comm, &r, (CUstream)info->stream->handle);
}

static void end(const struct df_stream_info *info)
{
	df_stream_hooks.before_work(info, DF_WORK_KERNEL, NULL);
	while (!whole->stream_idle(info->stream))
		usleep(50);
}

START_TEST(no_lock)
{
	struct df_stream_info a, b;
	struct df_event_info event = {.id = 1, .timing = 1};
	struct df_comm *comm;
	struct df_op op[2];
	void *user = NULL;

	begin();
	comm = comm_new();
	a = busy();
	b = busy();
	op[0] = on(comm, &a);
	op[1] = on(comm, &b);
	ck_assert_int_eq(df_submit(&op[0], 1), 0);
	/* This follows the communicator's last operation, which is on another stream. */
	ck_assert_int_eq(df_submit(&op[1], 1), 0);
	ck_assert_int_eq(df_submit(op, 2), 0);
	event.user = &user;
	ck_assert_int_eq(whole->event_new(0, &event.event), 0);
	df_stream_hooks.event_record(&event, &a);
	df_stream_hooks.event_wait(&b, &event);
	ck_assert_uint_gt(calls, 10);
	/* RELEASE pairs with the streams' loads of the gate. */
	__atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
	end(&a);
	end(&b);
	df_comm_destroy(comm);
	ck_assert_uint_eq(held, 0);
}
END_TEST

START_TEST(lock_held)
{
	struct df_stream_info s;

	begin();
	ck_assert_int_eq(whole->stream_new(0, &s), 0);
	df_mutex_lock(&df_rt.devs[0].lock);
	df_backend->stream_idle(s.stream);
	df_mutex_unlock(&df_rt.devs[0].lock);
	ck_assert_uint_eq(held, 1);
}
END_TEST

static void *submit(void *arg)
{
	ck_assert_int_eq(df_submit(arg, 1), 0);
	return NULL;
}

/*
 * If two threads' writes to a stream's word are exchanged, the word must not end below what an
 * operation waits for.
 */
START_TEST(two_marks)
{
	struct df_stream_info s;
	struct df_comm *comm[2];
	struct df_op op[2];
	pthread_t t[2];
	int i;

	begin();
	for (i = 0; i < 2; i++)
		comm[i] = comm_new();
	s = busy();
	for (i = 0; i < 2; i++)
		op[i] = on(comm[i], &s);
	exchange = 1;
	for (i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, submit, &op[i]);
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	/* A third write sets the word to a value at which both operations are ready. */
	ck_assert_uint_eq(writers, 3);
	__atomic_store_n(&gate, 1, __ATOMIC_RELEASE); /* pairs with the stream's load of the gate */
	end(&s);
	for (i = 0; i < 2; i++)
		df_comm_destroy(comm[i]);
}
END_TEST

int main(void)
{
	int aborts = 0;

#ifdef DF_DEBUG
	aborts = SIGABRT;
#endif
	if (access(fake_path(), R_OK) || !df_cuda_fatbin()) {
		printf("skipped: built without CUDA headers or without nvcc\n");
		return 77;
	}
	return DF_TESTS("unlocked", {no_lock}, {lock_held, .signal = aborts}, {two_marks});
}
#else
int main(void)
{
	puts("skipped: no cuda.h");
	return 77;
}
#endif
