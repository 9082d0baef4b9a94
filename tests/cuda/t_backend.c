/*
 * The runtime on the GPU backend, with a stand-in for libcuda whose streams are threads and whose kernel is the
 * daemon's own code on CPU threads. Shows that collectives run through launches, stream memory operations, quits
 * and relaunches, and graphs; nothing about a GPU.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "runtime/device/cuda_int.h"
#include "runtime/device/cuda_daemon.h"
#include "runtime/device/cuda_far.h"
#include "runtime/rt.h"
#include "runtime/stream.h"
#include "tests/cuda/daemon_kernel.h"
#include "tests/cuda/load.h"

#define RANKS 2

static const struct fake_cuda *fake;
static int in_place, keep;

static void start(void)
{
	fake = fake_load(NULL);
	fake->kernel("dfk_daemon", daemon_kernel);
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	setenv("DFSHIM_BACKEND", "cuda", 1);
	setenv("DFSHIM_TRACE", "", 1);
	ck_assert_msg(df_start() == 0, "%s", df_start_reason());
	ck_assert(!df_on_host());
	ck_assert_int_eq(df_device_count(), 2);
}

struct rank {
	pthread_t thread;
	int rank, rounds, graph;
	const uint64_t
		*blocked; /* a stream of its device waits for this word, from the communicator on */
	unsigned char id[DF_ID_BYTES];
	float *in, *out;
	size_t count;
	int bad, ret;
};

static struct df_op all_reduce(struct df_comm *comm, const struct rank *r, CUstream s)
{
	return (struct df_op){
		.kind = DF_COLL_ALLREDUCE,
		.comm = comm,
		.send = in_place ? r->out : r->in,
		.recv = r->out,
		.count = r->count,
		.type = DF_FLOAT32,
		.redop = DF_SUM,
		.root = -1,
		.stream = s,
	};
}

static void check(struct rank *r, int round)
{
	size_t i;

	for (i = 0; i < r->count; i++)
		if (r->out[i] !=
		    (float)((RANKS * (RANKS + 1) / 2) * (round + 1)) + (float)(i % 7) * RANKS)
			r->bad++;
}

static void fill(struct rank *r, int round)
{
	size_t i;

	for (i = 0; i < r->count; i++)
		(in_place ? r->out : r->in)[i] =
			(float)((r->rank + 1) * (round + 1)) + (float)(i % 7);
}

static void *run(void *arg)
{
	struct rank *r = arg;
	struct df_comm_config config = {.name = "test"};
	const unsigned char(*ids)[DF_ID_BYTES] = (const void *)r->id;
	struct df_stream_info info;
	struct df_comm *comm;
	CUgraph graph = NULL;
	CUgraphExec exec = NULL;
	struct df_op op;
	int i;

	r->ret = df_device_set(r->rank);
	if (!r->ret)
		r->ret = df_comm_create(r->rank, &config, &comm);
	if (!r->ret)
		r->ret = df_comm_join(comm, 1, ids, RANKS, r->rank);
	if (!r->ret)
		r->ret = df_cuda_api.stream_new(r->rank, &info);
	if (!r->ret && r->blocked) {
		struct df_stream_info waits;

		r->ret = df_cuda_api.stream_new(r->rank, &waits);
		if (!r->ret)
			r->ret = df_cuda_api.stream_wait(waits.stream, r->blocked, 1);
	}
	if (r->ret)
		return NULL;
	op = all_reduce(comm, r, (CUstream)info.stream->handle);
	if (r->graph) {
		CUresult (*begin)(CUstream, CUstreamCaptureMode);
		CUresult (*end)(CUstream, CUgraph *);
		CUresult (*make)(CUgraphExec *, CUgraph, unsigned long long);

		*(void **)&begin = dlsym(RTLD_DEFAULT, "cuStreamBeginCapture_v2");
		*(void **)&end = dlsym(RTLD_DEFAULT, "cuStreamEndCapture");
		*(void **)&make = dlsym(RTLD_DEFAULT, "cuGraphInstantiateWithFlags");
		begin(info.stream->handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
		r->ret = df_submit(&op, 1);
		end(info.stream->handle, &graph);
		make(&exec, graph, 0);
		df_cuda_graph_made(exec, graph);
	}
	for (i = 0; i < r->rounds && !r->ret; i++) {
		CUresult (*launch)(CUgraphExec, CUstream);

		fill(r, i);
		if (r->graph) {
			*(void **)&launch = dlsym(RTLD_DEFAULT, "cuGraphLaunch");
			r->ret = df_cuda_graph_launch(exec, info.stream);
			launch(exec, info.stream->handle);
		} else {
			r->ret = df_submit(&op, 1);
			/* As the hook before work: the stream waits for the collective. */
			df_stream_hooks.before_work(&info, DF_WORK_KERNEL, NULL);
		}
		while (!df_cuda_api.stream_idle(info.stream))
			usleep(50);
		check(r, i);
		/* Long enough for the kernel to leave at times. */
		if (i % 5 == 4)
			usleep(20000);
	}
	/* Destroying takes the kernel off the device. */
	if (!keep)
		df_comm_destroy(comm);
	return NULL;
}

static const uint64_t *job_blocked;

static void job(size_t count, int rounds, int graph)
{
	struct rank r[RANKS];
	unsigned char id[DF_ID_BYTES];
	int i;

	ck_assert_int_eq(df_id_create(id), 0);
	for (i = 0; i < RANKS; i++) {
		r[i] = (struct rank){.rank = i, .rounds = rounds, .count = count, .graph = graph};
		r[i].blocked = job_blocked;
		memcpy(r[i].id, id, sizeof(id));
		r[i].in = malloc(count * sizeof(float));
		r[i].out = malloc(count * sizeof(float));
		pthread_create(&r[i].thread, NULL, run, &r[i]);
	}
	for (i = 0; i < RANKS; i++) {
		pthread_join(r[i].thread, NULL);
		ck_assert_int_eq(r[i].ret, 0);
		ck_assert_int_eq(r[i].bad, 0);
		free(r[i].in);
		free(r[i].out);
	}
}

START_TEST(collectives)
{
	start();
	job(1000, 20, 0);
	job(300000, 3, 0);
	/* The kernel left in the pauses and came back. */
	ck_assert_uint_gt(df_engine_launches(), 2 * RANKS);
	ck_assert_uint_gt(fake->calls("cuStreamWaitValue64_v2"), 0);
	/* Connectors lay in the devices' memory. */
	ck_assert_uint_ge(fake->calls("cuMemAlloc_v2"), 2);
	ck_assert_uint_eq(fake->calls("cuCtxEnablePeerAccess"), 2);
}
END_TEST

/* Loading waits for all that a context has: the kernel is there before the application has anything that waits for it. */
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

/* Whatever word changes, the sum tells: by it the poller knows that a stream has come to an operation. */
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

/* What a machine may refuse: connectors then lie in host memory, and everything works. */
START_TEST(refused)
{
	static const char *const set[][2] = {
		{"FAKE_CUDA_NO_P2P", "1"}, {"DFSHIM_P2P", "0"}, {"DFSHIM_GPU_QUEUE", "green"}};

	/* The stand-in is a driver of 13.0: no work queues; the daemon's stream has the highest priority. */
	setenv(set[_i][0], set[_i][1], 1);
	start();
	job(1000, 10, 0);
	job(300000, 2, 0);
	ck_assert_uint_eq(fake->calls("cuCtxEnablePeerAccess"), _i < 2 ? 0 : 2);
	ck_assert_uint_eq(fake->calls("cuStreamCreateWithPriority") >= 2, 1);
	ck_assert_uint_eq(fake->calls("cuGreenCtxCreate"), 0);
}
END_TEST

/* Under MPS there are blocks for what the process may use of the GPU, however the driver tells that there is MPS. */
START_TEST(mps)
{
	static const struct {
		const char *mps, *pipe, *percent;
		uint32_t blocks;
	} cases[] = {
		{"0", "1", "50", 16},  {"1", "0", "50", 8},    {"1", "0", "2.5", 1},
		{"1", "0", "", 16},    {"1", "0", "50%", 16},  {"1", "0", "0", 16},
		{"old", "1", "25", 4}, {"old", "0", "25", 16},
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
	ck_assert_uint_eq(df_rt.devs[0].d.nr_blocks, cases[_i].blocks);
	if (cases[_i].blocks <= 8)
		job(1000, 3, 0);
}
END_TEST

/* Scratch of programs lies in the devices' memory; there is none until the driver gives it. */
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
	/* Used again. */
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

/* A driver whose memory functions wait for everything that runs, kernels and blocked streams too. */
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

/* Launching fails for good: the communicators end, nobody hangs. */
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

/* ---- what a released wait owes ------------------------------------------------------------------------------- */

static int seen_any;

/* Stands in for the hook's. */
int df_cuda_peers_any(void)
{
	return seen_any;
}

/* A flight that touches these bytes and is done when the word is. */
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

/* A kernel comes after the debts of the devices whose memory it may reach, other work after all of them. */
START_TEST(kernels_pay)
{
	struct df_stream_info s[2];
	uint64_t word = 0;
	int i;

	start();
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(df_cuda_api.stream_new(i, &s[i]), 0);
	owe(0, &word, 4096, 4096);
	/* Nobody sees whether there is access. */
	ck_assert_uint_eq(waits_of(&s[1], DF_WORK_KERNEL), 1);
	df_cuda_captures = 0;
	ck_assert_uint_eq(waits_of(&s[1], DF_WORK_KERNEL), 0);
	ck_assert_uint_eq(waits_of(&s[0], DF_WORK_KERNEL), 1);
	ck_assert_uint_eq(waits_of(&s[1], DF_WORK_GRAPH), 1);
	ck_assert_uint_eq(waits_of(&s[1], DF_WORK_MEMCPY), 1);
	ck_assert_uint_eq(waits_of(&s[1], DF_WORK_HOSTFN), 0);
	/* One way is not the other. */
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

/* What a whole context waits for, streams that come later wait for as well, while it is not done. */
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
	/* Another record, or its end, takes nothing from a wait. */
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

/* The kernel of the last job is still there, and stays if nobody asks it to leave. */
static void stay(void)
{
	setenv("DFSHIM_QUIT_US", "60000000", 1);
	setenv("DFSHIM_BLOCKS", "2", 1);
	keep = 1;
	start();
	/* Until nothing goes on aside any more for which it leaves. */
	do {
		job(1000, 1, 0);
		usleep(50000);
	} while (fake->pending() != 2);
	ck_assert_int_eq(df_cuda_enter(df_cuda_ctx(0)) >= 0, 1);
}

/* A quiet time waits a little for the kernel to leave, and goes on until its end. */
static void await_pending(int nr)
{
	while (fake->pending() != nr)
		usleep(100);
}

/* Loading may wait for the device, so the daemon leaves for a function's first launch, and only then. */
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
		/* The first one failed. */
		ck_assert_int_eq(token, _i || i > 1 ? -1 : 0);
		if (i == 0)
			await_pending(_i ? 2 : 1);
		df_cuda_front.launch_leave(&l, token, i > 0);
	}
	/* More of them than there is room for. */
	for (i = 1; i < 10000 && !_i; i++) {
		l.fn = &functions[i];
		token = df_cuda_front.launch_enter(&l);
		ck_assert_int_eq(token, 0);
		df_cuda_front.launch_leave(&l, token, 1);
	}
}
END_TEST

/* Blocks that have to be there together find room beside the daemon, or it leaves. */
START_TEST(cooperative)
{
	struct df_cuda_launch l = {.threads = 256, .together = 16};
	CUresult (*load)(CUmodule *, const void *), (*get)(CUfunction *, CUmodule, const char *);
	CUmodule module;
	CUfunction fn;
	int token;

	setenv("FAKE_CUDA_SMS", "4", 1);
	setenv("FAKE_CUDA_EAGER", "1", 1);
	stay();
	*(void **)&load = dlsym(RTLD_DEFAULT, "cuModuleLoadData");
	*(void **)&get = dlsym(RTLD_DEFAULT, "cuModuleGetFunction");
	ck_assert_int_eq(load(&module, NULL), CUDA_SUCCESS);
	ck_assert_int_eq(get(&fn, module, "application"), CUDA_SUCCESS);
	l.fn = fn;
	/* Eight of them fit on a multiprocessor, and the daemon has two of four. */
	ck_assert_int_eq(df_cuda_front.launch_enter(&l), -1);
	ck_assert_int_eq(fake->pending(), 2);
	l.together = 17;
	token = df_cuda_front.launch_enter(&l);
	ck_assert_int_eq(token, 0);
	await_pending(1);
	df_cuda_front.launch_leave(&l, token, 1);
	job(1000, 3, 0);
}
END_TEST

static void *unmap_thread(void *arg)
{
	df_device_set(0);
	df_stream_hooks.unmap(0, 2 * 4096 - 1, 10);
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Addresses lose their memory when nothing that a released wait owes touches them any more. */
START_TEST(unmap_pays)
{
	uint64_t word = 0;
	pthread_t t;
	int over = 0;

	start();
	/* Devices are in use. */
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

int main(void)
{
	TCase *t;
	Suite *s;

	if (access(fake_path(), R_OK) || !df_cuda_fatbin()) {
		printf("skipped: built without CUDA headers or without nvcc\n");
		return 77;
	}
	s = suite_create("backend");
	t = tcase_create("fake");
	tcase_set_timeout(t, 60);
	tcase_add_test(t, collectives);
	tcase_add_test(t, loaded_early);
	tcase_add_test(t, words_sum);
	tcase_add_loop_test(t, refused, 0, 3);
	tcase_add_loop_test(t, mps, 0, 8);
	tcase_add_loop_test(t, scratch, 0, 2);
	tcase_add_test(t, graphs);
	tcase_add_test(t, quiet_times);
	tcase_add_test(t, lost_device);
	tcase_add_loop_test(t, kernels_pay, 0, 4);
	tcase_add_test(t, context_waits);
	tcase_add_loop_test(t, first_launches, 0, 2);
	tcase_add_test(t, cooperative);
	tcase_add_test(t, unmap_pays);
	suite_add_tcase(s, t);
	return df_test_run(s);
}
