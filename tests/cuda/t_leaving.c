/*
 * The daemon's kernel frees the device when needed: quiet times, and launches of the application
 * that need the device. No block stays behind. On the test driver.
 */
#define _GNU_SOURCE
#include <unistd.h>
#include "runtime/base/err.h"
#include "runtime/base/time.h"
#include "runtime/device/cuda/cuda_int.h"
#include "runtime/device/cuda/front/cuda_front.h"
#include "tests/cuda/backend.h"

static unsigned int nap_us;    /* pause of block 1 in each turn */
static int stuck;	       /* whether block 0 does not end its turn */
static unsigned int turns[16]; /* turns that each block has made */

static void turned(const struct df_kdaemon *d, const struct df_kblock *blk, unsigned int block)
{
	(void)d, (void)blk;
	__atomic_add_fetch(&turns[block % 16], 1, __ATOMIC_RELAXED);
	if (block == 1 && nap_us)
		usleep(nap_us);
	while (!block && __atomic_load_n(&stuck, __ATOMIC_RELAXED))
		usleep(1000);
}

static void *alloc_thread(void *arg)
{
	int *stop = arg;
	void *p;

	df_device_set(0);
	while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		if (df_mem_alloc(4096, &p) == 0)
			df_mem_free(p);
		usleep(3000);
	}
	return NULL;
}

/* The driver's memory functions wait for everything that runs: kernels, and streams that wait. */
START_TEST(quiet_times)
{
	int stop = 0;
	pthread_t t;

	start();
	fake->sync_alloc(1);
	pthread_create(&t, NULL, alloc_thread, &stop);
	job(1000, 20, 0);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
}
END_TEST

/* Makes five quiet times. */
static void *quiet_thread(void *arg)
{
	for (int i = 0; i < 5; i++) {
		usleep(20000);
		df_cuda_quiet(-1, 1);
		df_cuda_quiet(-1, 0);
	}
	return arg;
}

/*
 * Quiet times that end before all blocks have seen them, because one block has long turns. The
 * blocks that have quit must start again, although no block ever quits by itself.
 */
START_TEST(short_quiet_times)
{
	pthread_t t;

	setenv("DFSHIM_QUIT_US", "1200000000", 1);
	setenv("DFSHIM_BLOCKS", "2", 1);
	nap_us = 1000;
	start();
	pthread_create(&t, NULL, quiet_thread, NULL);
	job(1 << 20, 30, 0);
	pthread_join(t, NULL);
}
END_TEST

static unsigned int turns_of(int block)
{
	return __atomic_load_n(&turns[block], __ATOMIC_RELAXED);
}

/*
 * The kernel has as many blocks as the operations need. Blocks without work quit, even if block 0
 * stays busy.
 */
START_TEST(widths)
{
	unsigned int seen;

	setenv("DFSHIM_QUIT_US", "1200000000", 1);
	setenv("DFSHIM_BLOCKS", "4", 1);
	keep = 1;
	start();
	job(4, 3, 0);
	ck_assert_uint_gt(turns_of(0), 0);
	ck_assert_uint_eq(turns_of(1) + turns_of(2) + turns_of(3), 0);
	job(4 << 20, 2, 0);
	ck_assert_uint_gt(turns_of(3), 0);
	do {
		seen = turns_of(3);
		job(4, 10, 0);
	} while (turns_of(3) != seen);
}
END_TEST

/* Until the stream has reached an operation, the operation needs only the block that polls. */
START_TEST(wide_when_ready)
{
	static uint64_t gate;
	struct rank r = {.count = 4 << 20};
	struct df_stream_info s;
	struct df_comm *comm;

	setenv("DFSHIM_QUIT_US", "1200000000", 1);
	setenv("DFSHIM_BLOCKS", "4", 1);
	start();
	comm = behind_gate(&r, &gate, &s);
	while (turns_of(0) < 1000)
		usleep(1000);
	ck_assert_uint_eq(turns_of(1) + turns_of(2) + turns_of(3), 0);
	open_gate(&r, &gate, &s);
	ck_assert_uint_gt(turns_of(3), 0);
	df_comm_destroy(comm);
}
END_TEST

static unsigned int nr_beside; /* calls of the driver in the background */

struct call {
	void (*fn)(void *arg);
	void *arg;
};

static void counted(void *arg)
{
	struct call c = *(struct call *)arg;

	free(arg);
	c.fn(c.arg);
	__atomic_sub_fetch(&nr_beside, 1, __ATOMIC_RELAXED);
}

int __real_df_cuda_aside(void (*fn)(void *arg), void *arg);
int __wrap_df_cuda_aside(void (*fn)(void *arg), void *arg);
int __wrap_df_cuda_aside(void (*fn)(void *arg), void *arg)
{
	struct call *c = malloc(sizeof(*c));

	*c = (struct call){fn, arg};
	__atomic_add_fetch(&nr_beside, 1, __ATOMIC_RELAXED);
	return __real_df_cuda_aside(counted, c);
}

/* Whether calls in the background make a kernel quit, or a kernel that was asked has not quit. */
static int is_restless(void)
{
	int asked = __atomic_load_n(&nr_beside, __ATOMIC_RELAXED) != 0;

	for (int i = 0; i < RANKS; i++)
		asked |= __atomic_load_n(&df_rt.devs[i].exec.d.quit, __ATOMIC_RELAXED) != 0;
	return asked;
}

#define DAEMON 2 /* entries on its stream: the kernel, and the write behind it */

/* Leaves the kernel of a job on the device. It stays until it is asked to quit. */
static void stay(void)
{
	setenv("DFSHIM_QUIT_US", "1200000000", 1);
	setenv("DFSHIM_BLOCKS", "2", 1);
	keep = 1;
	start();
	do {
		job(1000, 1, 0);
		usleep(50000);
	} while (is_restless() || fake->pending(NULL) != 2 * DAEMON);
	ck_assert_int_eq(df_cuda_enter(df_cuda_ctx(0)) >= 0, 1);
}

/* Waits until `nr` kernels run: a quiet time waits only briefly for the kernel to quit. */
static void await_pending(int nr)
{
	while (fake->pending(NULL) != nr)
		usleep(100);
}

/*
 * Loading a function may wait for the device. So the daemon quits for a function's first launch,
 * and only for that one.
 */
START_TEST(first_launches)
{
	static int functions[10000];
	struct df_cuda_launch l;
	int i, token;

	if (_i)
		setenv("FAKE_CUDA_EAGER", "1", 1);
	stay();
	for (i = 0; i < 3; i++) {
		l = (struct df_cuda_launch){.fn = &functions[0], .threads = 32};
		token = df_cuda_front.launch_enter(&l);
		/* The first launch failed, so the second is the first one that loads. */
		ck_assert_int_eq(token, _i || i > 1 ? -1 : 0);
		if (i == 0)
			await_pending(_i ? 2 * DAEMON : DAEMON);
		df_cuda_front.launch_leave(&l, token, i > 0);
	}
	/* More functions than the table has entries. */
	for (i = 1; i < 10000 && !_i; i++) {
		l.fn = &functions[i];
		token = df_cuda_front.launch_enter(&l);
		ck_assert_int_eq(token, 0);
		df_cuda_front.launch_leave(&l, token, 1);
	}
}
END_TEST

/* A cooperative kernel runs beside the daemon if there is room. If not, the daemon quits. */
START_TEST(cooperative)
{
	struct df_cuda_launch l = {.threads = 256, .together = 16};
	CUresult (*load)(CUmodule *, const void *), (*get)(CUfunction *, CUmodule, const char *);
	CUmodule module;
	CUfunction fn;
	int token;

	setenv("FAKE_CUDA_SMS", "4", 1);
	setenv("FAKE_CUDA_EAGER", "1", 1);
	/*
	 * The test loads this without the hook, so the daemon is not asked to quit for it. The
	 * limit `lock` must be off.
	 */
	setenv("FAKE_CUDA_LIMITS", "queue,hardware,sync,one", 1);
	stay();
	*(void **)&load = dlsym(RTLD_DEFAULT, "cuModuleLoadData");
	*(void **)&get = dlsym(RTLD_DEFAULT, "cuModuleGetFunction");
	ck_assert_int_eq(load(&module, "no code"), CUDA_SUCCESS);
	ck_assert_int_eq(get(&fn, module, "application"), CUDA_SUCCESS);
	l.fn = fn;
	/* Eight blocks fit on a multiprocessor, and the daemon has two of four multiprocessors. */
	ck_assert_int_eq(df_cuda_front.launch_enter(&l), -1);
	ck_assert_int_eq(fake->pending(NULL), 2 * DAEMON);
	l.together = 17;
	token = df_cuda_front.launch_enter(&l);
	ck_assert_int_eq(token, 0);
	await_pending(DAEMON);
	df_cuda_front.launch_leave(&l, token, 1);
	job(1000, 3, 0);
}
END_TEST

/* Calls the driver without the hook, so that dfshim does not wait first. */
static void *load_thread(void *arg)
{
	static const char code[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
				   ".visible .entry one()\n{\nret;\n}\n";
	CUresult (*load)(CUmodule *, const void *);
	CUmodule m;

	*(void **)&load = dlsym(RTLD_DEFAULT, "cuModuleLoadData");
	ck_assert_int_eq(df_cuda_enter(df_cuda_ctx(0)) >= 0, 1);
	ck_assert_int_eq(load(&m, code), CUDA_SUCCESS);
	return arg;
}

/*
 * A thread holds the context's lock until a stream is idle that waits for an operation whose peer
 * never issues it. After an abort the stream must continue: dfshim writes the word that the stream
 * waits for without calling the driver.
 */
START_TEST(abort_behind_lock)
{
	struct rank r = {.count = 1000};
	struct df_comm *comm[RANKS];
	struct df_stream_info s;
	struct df_op op;
	pthread_t t;
	int i;

	setenv("DFSHIM_QUIT_US", "1200000000", 1);
	start();
	comms_new(comm);
	r.in = calloc(r.count, sizeof(float));
	r.out = calloc(r.count, sizeof(float));
	ck_assert_int_eq(df_cuda_api.stream_new(0, &s), 0);
	op = all_reduce(comm[0], &r, (CUstream)s.stream->handle);
	ck_assert_int_eq(df_submit(&op, 1), 0);
	df_stream_hooks.before_work(&s, DF_WORK_KERNEL, NULL);
	while (!df_cuda_daemon_launches())
		usleep(100);
	pthread_create(&t, NULL, load_thread, NULL);
	while (!fake->held())
		usleep(100);
	ck_assert(!df_cuda_api.stream_idle(s.stream));
	df_comm_abort(comm[0]);
	pthread_join(t, NULL);
	ck_assert(df_cuda_api.stream_idle(s.stream));
	for (i = 0; i < RANKS; i++)
		df_comm_destroy(comm[i]);
}
END_TEST

/* A collective of one rank on the device, behind a gate. */
struct alone {
	struct rank r;
	struct df_comm *comm;
	struct df_stream_info s;
	uint64_t gate;
};

static void alone_begin(struct alone *a, int device)
{
	struct df_comm_config config = {.name = "alone"};
	unsigned char id[1][DF_ID_BYTES];
	struct df_op op;

	a->r.count = 1000;
	a->r.in = calloc(a->r.count, sizeof(float));
	a->r.out = calloc(a->r.count, sizeof(float));
	a->r.in[a->r.count - 1] = 1;
	ck_assert_int_eq(df_device_set(device), 0);
	ck_assert_int_eq(df_id_create(id[0]), 0);
	ck_assert_int_eq(df_comm_create(device, &config, &a->comm), 0);
	ck_assert_int_eq(df_comm_join(a->comm, 1, (const void *)id, 1, 0), 0);
	ck_assert_int_eq(df_cuda_api.stream_new(device, &a->s), 0);
	ck_assert_int_eq(df_cuda_api.stream_wait(a->s.stream, &a->gate, 1), 0);
	op = all_reduce(a->comm, &a->r, (CUstream)a->s.stream->handle);
	ck_assert_int_eq(df_submit(&op, 1), 0);
}

static int pending(const struct alone *a)
{
	return fake->pending(a->s.stream->handle);
}

/*
 * Another thread keeps the lock of the first device's context, and a launch there waits for it: the
 * daemon of the second device is launched all the same.
 */
START_TEST(other_device)
{
	static struct alone a[2];

	setenv("DFSHIM_QUIT_US", "1", 1);
	start();
	alone_begin(&a[0], 0);
	alone_begin(&a[1], 1);
	fake->hold(1);
	/* No kernel from before the lock may run, or the collective needs no launch. */
	while (fake->pending(NULL) != pending(&a[0]) + pending(&a[1]))
		usleep(100);
	/* RELEASE pairs with the stream's wait. The launch that it needs waits for the lock. */
	__atomic_store_n(&a[0].gate, 1, __ATOMIC_RELEASE);
	usleep(50000);
	open_gate(&a[1].r, &a[1].gate, &a[1].s);
	ck_assert(a[0].r.out[a[0].r.count - 1] != 1);
	fake->hold(0);
	open_gate(&a[0].r, &a[0].gate, &a[0].s);
	df_comm_destroy(a[0].comm);
	df_comm_destroy(a[1].comm);
}
END_TEST

/* While nothing happens, the poller asks the driver every few milliseconds at most. */
START_TEST(few_calls)
{
	static const char *const asked[] = {"cuStreamQuery", "cuCtxGetCurrent",
					    "cuCtxPushCurrent_v2", "cuCtxPushCurrent"};
	static struct alone a;
	uint64_t before, from, ms;
	size_t i;

	setenv("DFSHIM_QUIT_US", "1200000000", 1);
	start();
	alone_begin(&a, 0);
	while (!df_cuda_daemon_launches())
		usleep(100);
	usleep(20000);
	for (i = 0; i < DF_ARRAY_LEN(asked); i++) {
		before = fake->calls(asked[i]);
		from = df_now_ns();
		usleep(200000);
		before = fake->calls(asked[i]) - before;
		ms = (df_now_ns() - from) / DF_NS_PER_MS;
		ck_assert_msg(before <= ms / 2 + 2, "%s: %llu times in %llu ms", asked[i],
			      (unsigned long long)before, (unsigned long long)ms);
	}
	open_gate(&a.r, &a.gate, &a.s);
	df_comm_destroy(a.comm);
}
END_TEST

/*
 * A kernel that does not leave: an abort returns nevertheless, streams go on, and what the kernel
 * may still use stays. The device is given up.
 */
START_TEST(abort_of_stuck)
{
	struct rank r = {.count = 1000};
	struct df_comm *comm[RANKS];
	struct df_stream_info s;
	struct df_op op;

	setenv("DFSHIM_TIMEOUT_MS", "1000", 1);
	setenv("DFSHIM_QUIT_US", "1200000000", 1);
	start();
	comms_new(comm);
	r.in = calloc(r.count, sizeof(float));
	r.out = calloc(r.count, sizeof(float));
	ck_assert_int_eq(df_cuda_api.stream_new(0, &s), 0);
	op = all_reduce(comm[0], &r, (CUstream)s.stream->handle);
	ck_assert_int_eq(df_submit(&op, 1), 0);
	df_stream_hooks.before_work(&s, DF_WORK_KERNEL, NULL);
	while (!df_cuda_daemon_launches())
		usleep(100);
	__atomic_store_n(&stuck, 1, __ATOMIC_RELAXED);
	df_comm_abort(comm[0]);
	while (!df_cuda_api.stream_idle(s.stream))
		usleep(100);
	__atomic_store_n(&stuck, 0, __ATOMIC_RELAXED);
	df_comm_destroy(comm[0]);
	df_comm_destroy(comm[1]);
}
END_TEST

int main(void)
{
	if (access(fake_path(), R_OK) || !df_cuda_fatbin()) {
		printf("skipped: built without CUDA headers or without nvcc\n");
		return 77;
	}
	daemon_turn = turned;
	return DF_TESTS("leaving", {quiet_times}, {short_quiet_times}, {widths}, {wide_when_ready},
			{first_launches, 2}, {abort_behind_lock}, {cooperative}, {other_device},
			{few_calls}, {abort_of_stuck});
}
