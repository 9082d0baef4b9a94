/*
 * The runtime on the GPU backend, over the test driver, whose streams are threads and whose kernel
 * is the daemon's own code on CPU threads. Shows that collectives work with launches, stream memory
 * operations, quits and relaunches, and graphs. Shows nothing about a real GPU.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "runtime/blocks.h"
#include "runtime/coll/coll.h"
#include "runtime/device/cuda/cuda_int.h"
#include "runtime/device/cuda/front/cuda_front.h"
#include "runtime/device/cuda/cuda_far.h"
#include "tests/cuda/backend.h"

START_TEST(collectives)
{
	start();
	job(1000, 20, 0);
	job(300000, 3, 0);
	/* The daemon quit in the pauses and was launched again. */
	ck_assert_uint_gt(df_blocks->launches(), 2 * RANKS);
	ck_assert_uint_gt(fake->calls("cuStreamWaitValue64_v2"), 0);
	/* Connectors and the streams' words were in device memory. */
	ck_assert_uint_ge(fake->calls("cuMemAlloc_v2"), 4);
	ck_assert_uint_eq(fake->calls("cuCtxEnablePeerAccess"), 2);
}
END_TEST

/*
 * Loading code waits until a context is idle. So the kernel must be loaded before the application
 * has anything that waits for it.
 */
START_TEST(loaded_early)
{
	uint64_t *word;

	start();
	word = df_word_get();
	job_blocked = word;
	job(1000, 10, 0);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
}
END_TEST

/*
 * The sum of all words changes with each word. By the sum the poller sees that a stream has reached
 * an operation.
 */
START_TEST(words_sum)
{
	uint64_t *w[1200], sum;
	int i;

	start();
	for (i = 0; i < 1200; i++) {
		w[i] = df_word_get();
		ck_assert_ptr_nonnull(w[i]);
	}
	for (i = 0; i < 1200; i++) {
		sum = df_words_sum();
		++*w[i];
		ck_assert_uint_eq(df_words_sum(), sum + 1);
	}
}
END_TEST

/*
 * The daemon polls a word that a stream writes in GPU memory, and a copy in host memory serves the
 * CPU. If the driver has no device memory for it, one word serves both.
 */
START_TEST(near)
{
	static uint64_t gate;
	struct rank r = {.count = 1000};
	struct df_stream_info s;
	const struct df_coll *coll;
	struct df_kwait wait;
	struct df_comm *comm;
	const uint64_t *word;

	start();
	fake->fail_alloc(_i);
	comm = behind_gate(&r, &gate, &s);
	df_mutex_lock(&df_rt.devs[0].lock);
	coll = df_list_first(&df_rt.devs[0].flying, struct df_coll, flying);
	ck_assert_uint_eq(coll->unretired->nr_waits, 1);
	wait = coll->unretired->waits[0];
	df_mutex_unlock(&df_rt.devs[0].lock);
	word = df_word_here(wait.addr);
	ck_assert_int_eq(word != wait.addr, !_i);
	ck_assert_ptr_eq(df_word_near(word), _i ? NULL : wait.addr);
	open_gate(&r, &gate, &s);
	ck_assert_uint_eq(*word, wait.value);
	ck_assert_uint_eq(*wait.addr, wait.value);
	df_comm_destroy(comm);
}
END_TEST

/*
 * Features that a machine may lack. Without peer access connectors are in host memory; without
 * work queues the daemon's stream has the highest priority. Everything still works.
 */
START_TEST(refused)
{
	static const char *const set[][2] = {
		{"FAKE_CUDA_NO_P2P", "1"}, {"DFSHIM_P2P", "0"}, {"DFSHIM_GPU_QUEUE", "green"}};

	/*
	 * The test driver reports version 13.0, which has no work queues. Then the daemon's stream
	 * has the highest priority.
	 */
	setenv(set[_i][0], set[_i][1], 1);
	start();
	job(1000, 10, 0);
	job(300000, 2, 0);
	ck_assert_uint_eq(fake->calls("cuCtxEnablePeerAccess"), _i < 2 ? 0 : 2);
	ck_assert_uint_eq(fake->calls("cuStreamCreateWithPriority") >= 2, 1);
	ck_assert_uint_eq(fake->calls("cuGreenCtxCreate"), 0);
}
END_TEST

/*
 * Under MPS, the number of blocks follows the part of the GPU that the process may use, however the
 * driver reports MPS.
 */
START_TEST(mps)
{
	static const struct {
		const char *mps, *pipe, *percent;
		uint32_t blocks;
	} cases[] = {
		{"0", "1", "50", 32},  {"1", "0", "50", 16},   {"1", "0", "2.5", 1},
		{"1", "0", "", 32},    {"1", "0", "50%", 32},  {"1", "0", "0", 32},
		{"old", "1", "25", 8}, {"old", "0", "25", 32},
	};
	char dir[] = "/tmp/dfshim-mps-XXXXXX", path[64];

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/control", dir);
	if (atoi(cases[_i].pipe))
		ck_assert_int_eq(mkfifo(path, 0600), 0);
	setenv("CUDA_MPS_PIPE_DIRECTORY", dir, 1);
	setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", cases[_i].percent, 1);
	setenv("FAKE_CUDA_MPS", cases[_i].mps, 1);
	setenv("FAKE_CUDA_SMS", "132", 1);
	start();
	unlink(path);
	rmdir(dir);
	ck_assert_uint_eq(df_rt.devs[0].exec.d.nr_blocks, cases[_i].blocks);
	if (cases[_i].blocks <= 8)
		job(1000, 3, 0);
}
END_TEST

/*
 * Scratch of programs is in device memory. df_cuda_scratch() returns -EAGAIN until the driver has
 * allocated some.
 */
START_TEST(scratch)
{
	void *p, *q;

	start();
	fake->fail_alloc(_i);
	in_place = 1;
	job(1000, 10, 0);
	job(300000, 2, 0);
	while (df_cuda_scratch(0, 1000, &p) == -EAGAIN)
		usleep(1000);
	ck_assert_int_eq(df_cuda_scratch(0, 1000, &q), 0);
	ck_assert_ptr_ne(p, q);
	ck_assert_int_eq(df_cuda_api.mem_info(p, &(struct df_mem_info){0}), 0);
	df_cuda_scratch_free(p);
	df_cuda_scratch_free(q);
	/* The allocator uses freed scratch again. */
	ck_assert_int_eq(df_cuda_scratch(0, 1000, &p), 0);
	ck_assert_ptr_eq(p, q);
	df_cuda_scratch_free(p);
}
END_TEST

START_TEST(graphs)
{
	start();
	job(1000, 12, 1);
	ck_assert_uint_eq(fake->calls("cuGraphLaunch"), 12 * RANKS);
}
END_TEST

/* the timer slack that the poller has set */
static unsigned long slack;

int prctl(int option, ...)
{
	unsigned long v[4];
	va_list ap;

	va_start(ap, option);
	for (int i = 0; i < 4; i++)
		v[i] = va_arg(ap, unsigned long);
	va_end(ap);
	if (option == PR_SET_TIMERSLACK)
		__atomic_store_n(&slack, v[0], __ATOMIC_RELAXED);
	return (int)syscall(SYS_prctl, option, v[0], v[1], v[2], v[3]);
}

/* The default timer slack of 50 us would make a nap of 20 us last 70 us. */
START_TEST(naps)
{
	start();
	job(1000, 1, 0);
	ck_assert_uint_eq(__atomic_load_n(&slack, __ATOMIC_RELAXED), 1);
}
END_TEST

/*
 * A communicator on the second device creates no context on the first, where the context would take
 * memory.
 */
START_TEST(own_context)
{
	CUresult (*init)(unsigned int), (*retain)(CUcontext *, CUdevice), (*set)(CUcontext);
	struct df_comm_config config = {.name = "test"};
	unsigned char id[1][DF_ID_BYTES];
	struct rank r = {.count = 1000};
	struct df_stream_info s;
	struct df_comm *comm;
	struct df_op op;
	CUcontext ctx;

	fake_load(NULL);
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	*(void **)&init = dlsym(RTLD_DEFAULT, "cuInit");
	*(void **)&retain = dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxRetain");
	*(void **)&set = dlsym(RTLD_DEFAULT, "cuCtxSetCurrent");
	ck_assert_int_eq(init(0) + retain(&ctx, 1) + set(ctx), CUDA_SUCCESS);
	start();
	ck_assert_int_eq(df_id_create(id[0]), 0);
	ck_assert_int_eq(df_comm_create(1, &config, &comm), 0);
	ck_assert_int_eq(df_comm_join(comm, 1, (const void *)id, 1, 0), 0);
	ck_assert_int_eq(df_cuda_api.stream_new(1, &s), 0);
	r.in = calloc(r.count, sizeof(float));
	r.out = calloc(r.count, sizeof(float));
	op = all_reduce(comm, &r, (CUstream)s.stream->handle);
	ck_assert_int_eq(df_submit(&op, 1), 0);
	df_stream_hooks.before_work(&s, DF_WORK_KERNEL, NULL);
	while (!df_cuda_api.stream_idle(s.stream))
		usleep(50);
	ck_assert_ptr_nonnull(df_cudevs[1].ctx);
	ck_assert_ptr_null(df_cudevs[0].ctx);
	df_comm_destroy(comm);
}
END_TEST

/*
 * dfshim keeps a spare stream. So it gets one while another thread holds the driver's lock until
 * the device is idle.
 */
START_TEST(spare_stream)
{
	uint64_t before;
	struct df_stream_info s;

	start();
	ck_assert_int_eq(df_device_set(0), 0);
	ck_assert_int_eq(df_blocks->open(0, (char[64]){0}, 64), 0);
	before = fake->calls("cuStreamCreateWithPriority") + fake->calls("cuStreamCreate");
	fake->hold(1);
	ck_assert_int_eq(df_cuda_api.stream_new(0, &s), 0);
	ck_assert(df_cuda_api.stream_idle(s.stream));
	/* Meanwhile the next spare stream is being created. */
	while (fake->calls("cuStreamCreateWithPriority") + fake->calls("cuStreamCreate") == before)
		usleep(100);
	fake->hold(0);
	df_cuda_api.stream_delete(s.stream);
	ck_assert_int_eq(df_cuda_api.stream_new(0, &s), 0);
	df_cuda_api.stream_delete(s.stream);
}
END_TEST

/* If launches fail for good, the communicators end with errors and no thread hangs. */
START_TEST(lost_device)
{
	struct rank r[RANKS];
	unsigned char id[DF_ID_BYTES];
	int i;

	start();
	fake->fail_launch(CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(df_id_create(id), 0);
	for (i = 0; i < RANKS; i++) {
		r[i] = (struct rank){.rank = i, .rounds = 3, .count = 100};
		memcpy(r[i].id, id, sizeof(id));
		r[i].in = malloc(100 * sizeof(float));
		r[i].out = malloc(100 * sizeof(float));
		pthread_create(&r[i].thread, NULL, run, &r[i]);
	}
	for (i = 0; i < RANKS; i++) {
		pthread_join(r[i].thread, NULL);
		ck_assert_int_gt(r[i].bad, 0);
	}
}
END_TEST

/*
 * Connectors take a part of a GPU's memory. If the application has none left, it gets what they do
 * not use yet, and they take no more.
 */
START_TEST(short_memory)
{
	CUresult (*info)(size_t *, size_t *);
	struct df_far_block b;
	size_t room, had, all;
	int ret;

	start();
	*(void **)&info = dlsym(RTLD_DEFAULT, "cuMemGetInfo_v2");
	job(1000, 1, 0);
	ck_assert_int_eq(df_cuda_enter(df_cuda_ctx(0)) >= 0, 1);
	ck_assert_int_eq(info(&had, &all), CUDA_SUCCESS);
	ck_assert_uint_gt(df_rt.conn_budget, 0);
	ck_assert_uint_le(df_rt.conn_budget, all / 32);
	/* More than a half of the first chunk: the next one, of 128 MiB, is requested. */
	while ((ret = df_cuda_far_alloc(0, 40 << 20, &b)) == -EAGAIN)
		usleep(100);
	ck_assert_int_eq(ret, 0);
	do
		ck_assert_int_eq(info(&room, &all), CUDA_SUCCESS);
	while (room + (128 << 20) > had);
	/* The thread that has requested it may be about to note it. */
	do {
		ck_assert_int_eq(df_cuda_front.memory_short(), 1);
		ck_assert_int_eq(info(&room, &all), CUDA_SUCCESS);
	} while (room < had);
	ck_assert_uint_le(df_rt.conn_budget, 64 << 20);
	/* Memory that is needed is requested again, and no more. */
	while ((ret = df_cuda_far_alloc(0, 40 << 20, &b)) == -EAGAIN)
		usleep(100);
	ck_assert_int_eq(ret, 0);
}
END_TEST

/* ---- what a released wait leaves to later work ----------------------------------------------- */

static int seen_any;

static int peers_any(void)
{
	return seen_any;
}

static const struct df_cuda_hook hook = {.peers_any = peers_any};

/*
 * Notes an operation that a released wait left pending: it reads these bytes, and is done when
 * *word is 1.
 */
static void owe(int device, const uint64_t *word, uintptr_t at, size_t bytes)
{
	struct df_flight f = {.done = word, .value = 1, .in = at, .in_end = at + bytes};
	struct df_flights set = {0};

	ck_assert_int_eq(df_flights_add(&set, &f), 0);
	ck_assert_int_eq(df_debt_owe(&df_rt.devs[device], &set), 0);
	df_flights_free(&set);
}

static unsigned waits_of(const struct df_stream_info *s, enum df_work kind)
{
	uint64_t before = fake->calls("cuStreamWaitValue64_v2");

	df_stream_hooks.before_work(s, kind, NULL);
	return (unsigned)(fake->calls("cuStreamWaitValue64_v2") - before);
}

/*
 * A kernel waits for the pending operations of those devices whose memory it may access. Other work
 * waits for those of all devices.
 */
START_TEST(kernels_pay)
{
	struct df_stream_info s[2];
	uint64_t word = 0;
	int i;

	start();
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(df_cuda_api.stream_new(i, &s[i]), 0);
	owe(0, &word, 4096, 4096);
	/* Without the hook, access between devices cannot be excluded. */
	ck_assert_uint_eq(waits_of(&s[1], DF_WORK_KERNEL), 1);
	df_cuda_captures = 0;
	df_cuda_hook = &hook;
	ck_assert_uint_eq(waits_of(&s[1], DF_WORK_KERNEL), 0);
	ck_assert_uint_eq(waits_of(&s[0], DF_WORK_KERNEL), 1);
	ck_assert_uint_eq(waits_of(&s[1], DF_WORK_GRAPH), 1);
	ck_assert_uint_eq(waits_of(&s[1], DF_WORK_MEMCPY), 1);
	ck_assert_uint_eq(waits_of(&s[1], DF_WORK_HOSTFN), 0);
	/* Access has a direction: device 0 to 1 does not matter here. */
	df_cuda_peers_note(0, 1);
	ck_assert_uint_eq(waits_of(&s[1], DF_WORK_KERNEL), 0);
	if (_i == 0)
		df_cuda_peers_note(1, 0);
	else if (_i == 1)
		df_cuda_peers_note(1, -1);
	else if (_i == 2)
		df_cuda_peers_note(-1, 0);
	else
		seen_any = 1;
	ck_assert_uint_eq(waits_of(&s[1], DF_WORK_KERNEL), 1);
	__atomic_store_n(&word, 1, __ATOMIC_RELEASE);
	for (i = 0; i < 2; i++)
		while (!df_cuda_api.stream_idle(s[i].stream))
			usleep(50);
	ck_assert_uint_eq(waits_of(&s[1], DF_WORK_KERNEL), 0);
}
END_TEST

/*
 * After a wait of a whole context, streams that are created later wait too, while the operation is
 * pending.
 */
START_TEST(context_waits)
{
	CUresult (*make)(CUstream *, unsigned int), (*event)(CUevent *, unsigned int);
	struct df_stream_info s;
	struct df_stream *of;
	uint64_t word = 0;
	struct df_flight f = {.done = &word, .value = 1};
	CUstream before, after, late;
	CUevent e;

	start();
	*(void **)&make = dlsym(RTLD_DEFAULT, "cuStreamCreate");
	*(void **)&event = dlsym(RTLD_DEFAULT, "cuEventCreate");
	job(1000, 1, 0);
	ck_assert_int_eq(df_cuda_enter(df_cuda_ctx(0)) >= 0, 1);
	ck_assert_int_eq(make(&before, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ck_assert_int_eq(df_cuda_api.stream_info(before, &s), 0);
	df_mutex_lock(&df_rt.devs[0].lock);
	of = df_stream_get(&df_rt.devs[0], &s);
	ck_assert_int_eq(df_flights_add(&of->pending, &f), 0);
	df_mutex_unlock(&df_rt.devs[0].lock);
	ck_assert_int_eq(event(&e, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
	df_cuda_front.event_made(e, CU_EVENT_DISABLE_TIMING);
	df_cuda_front.event_record(e, before, 0);
	df_cuda_front.event_wait_ctx(e, NULL);
	/* Recording the event again or destroying it does not cancel the wait. */
	df_cuda_front.event_gone(e);
	ck_assert_int_eq(make(&after, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	df_cuda_front.stream_made(after);
	ck_assert_int_eq(df_cuda_api.stream_info(after, &s), 0);
	ck_assert_uint_eq(waits_of(&s, DF_WORK_KERNEL), 1);
	ck_assert_uint_eq(waits_of(&s, DF_WORK_KERNEL), 0);
	__atomic_store_n(&word, 1, __ATOMIC_RELEASE);
	ck_assert_int_eq(make(&late, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ck_assert_int_eq(df_cuda_api.stream_info(late, &s), 0);
	ck_assert_uint_eq(waits_of(&s, DF_WORK_KERNEL), 0);
}
END_TEST

static void *unmap_thread(void *arg)
{
	df_device_set(0);
	df_stream_hooks.unmap(0, 2 * 4096 - 1, 10);
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Unmapping waits while an operation that a released wait left pending touches the memory. */
START_TEST(unmap_pays)
{
	uint64_t word = 0;
	pthread_t t;
	int over = 0;

	start();
	/* Puts the devices into use. */
	job(1000, 1, 0);
	df_stream_hooks.unmap(0, 4096, 4096);
	owe(1, &word, 4096, 4096);
	df_stream_hooks.unmap(0, 0, 4096);
	df_stream_hooks.unmap(0, 2 * 4096, 4096);
	pthread_create(&t, NULL, unmap_thread, &over);
	usleep(50000);
	ck_assert_int_eq(__atomic_load_n(&over, __ATOMIC_ACQUIRE), 0);
	__atomic_store_n(&word, 1, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
}
END_TEST

static const struct df_blocks *whole;
static int live; /* number of allocations that the daemon can access */

static void *count_alloc(size_t bytes, int zero)
{
	__atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
	return whole->shared_alloc(bytes, zero);
}

static void count_free(void *p)
{
	__atomic_sub_fetch(&live, p != NULL, __ATOMIC_RELAXED);
	whole->shared_free(p);
}

static int is_busy(struct df_mstream *s)
{
	(void)s;
	return 0;
}

static int no_write(struct df_mstream *s, uint64_t *addr, uint64_t *near, uint64_t value)
{
	(void)s;
	(void)addr;
	(void)near;
	(void)value;
	return -EIO;
}

/*
 * Creates a communicator of one rank whose only operation the driver refuses. Returns the number of
 * allocations that remain after its end.
 */
static int refused_write(void)
{
	struct df_comm_config config = {.name = "test"};
	unsigned char id[1][DF_ID_BYTES];
	struct rank r = {.count = 1000};
	struct df_stream_info info;
	struct df_comm *comm;
	struct df_op op;
	int before = live;

	r.in = calloc(r.count, sizeof(float));
	r.out = calloc(r.count, sizeof(float));
	ck_assert_int_eq(df_id_create(id[0]), 0);
	ck_assert_int_eq(df_comm_create(0, &config, &comm), 0);
	ck_assert_int_eq(df_comm_join(comm, 1, (const void *)id, 1, 0), 0);
	ck_assert_int_eq(df_backend->stream_new(0, &info), 0);
	op = all_reduce(comm, &r, (CUstream)info.stream->handle);
	ck_assert_int_eq(df_submit(&op, 1), -EIO);
	df_comm_destroy(comm);
	free(r.in);
	free(r.out);
	return live - before;
}

/* An operation that fails in df_submit() leaks nothing. */
START_TEST(unused_instance)
{
	const struct df_backend *machine;
	struct df_backend refusing;
	struct df_blocks counting;
	int first;

	start();
	whole = df_blocks;
	counting = *whole;
	counting.shared_alloc = count_alloc;
	counting.shared_free = count_free;
	df_blocks = &counting;
	machine = df_backend;
	refusing = *machine;
	refusing.stream_idle = is_busy;
	refusing.stream_write = no_write;
	df_backend = &refusing;
	/* The first call also allocates what the process keeps. */
	first = refused_write();
	ck_assert_msg(refused_write() == 0, "more than the first's %d are left", first);
	df_backend = machine;
	df_blocks = whole;
}
END_TEST

int main(void)
{
	if (access(fake_path(), R_OK) || !df_cuda_fatbin()) {
		printf("skipped: built without CUDA headers or without nvcc\n");
		return 77;
	}
	return DF_TESTS("backend", {collectives}, {loaded_early}, {short_memory}, {words_sum},
			{near, 2}, {refused, 3}, {mps, 8}, {scratch, 2}, {graphs}, {naps},
			{own_context}, {spare_stream}, {lost_device}, {kernels_pay, 4},
			{context_waits}, {unmap_pays}, {unused_instance});
}
