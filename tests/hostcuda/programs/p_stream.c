/*
 * Streams: they are asynchronous, independent of one another unless CUDA says otherwise, and a
 * waiting stream never stops others.
 */
#include "tests/hostcuda/programs/cu.h"

static void set(void *arg)
{
	++*(int *)arg;
}

/* A host function that blocks stops only its own stream, however many of them block. */
static void blocking_functions(void)
{
	enum { N = 12 };
	cudaStream_t s[N + 1];
	struct gate g[N] = {{0}};
	int ran[N + 1] = {0}, i;

	for (i = 0; i <= N; i++)
		CU(cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking));
	for (i = 0; i < N; i++) {
		CU(cudaLaunchHostFunc(s[i], gate_wait, &g[i]));
		CU(cudaLaunchHostFunc(s[i], set, &ran[i]));
	}
	for (i = 0; i < N; i++)
		gate_await_arrival(&g[i]);
	CU(cudaLaunchHostFunc(s[N], set, &ran[N]));
	CU(cudaStreamSynchronize(s[N]));
	CHECK(ran[N] == 1);
	for (i = N - 1; i >= 0; i--) {
		GIVES(cudaErrorNotReady, cudaStreamQuery(s[i]));
		gate_open(&g[i]);
		CU(cudaStreamSynchronize(s[i]));
		CHECK(ran[i] == 1);
		CU(cudaStreamQuery(s[i]));
	}
	CHECK(cudaGetLastError() == cudaErrorNotReady);
	for (i = 0; i <= N; i++)
		CU(cudaStreamDestroy(s[i]));
}

static void end_thread(void *arg)
{
	set(arg);
	pthread_exit(NULL);
}

static void end_thread_callback(cudaStream_t s, cudaError_t err, void *arg)
{
	(void)s;
	CHECK(err == cudaSuccess);
	end_thread(arg);
}

/* A host function that ends its thread does not stop the stream. */
static void ending_functions(void)
{
	cudaStream_t s;
	int ran = 0, i;

	CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	for (i = 0; i < 20; i++) {
		CU(cudaLaunchHostFunc(s, end_thread, &ran));
		CU(cudaStreamAddCallback(s, end_thread_callback, &ran, 0));
		CU(cudaLaunchHostFunc(s, set, &ran));
	}
	CU(cudaStreamSynchronize(s));
	CHECK(ran == 60);
	CU(cudaStreamDestroy(s));
	CU(cudaDeviceSynchronize());
}

/*
 * The legacy stream waits for blocking streams, and they wait for it. Non-blocking streams are not
 * affected.
 */
static void legacy(void)
{
	cudaStream_t blocking, free_stream;
	struct gate g = {0}, h = {0};
	int a = 0, b = 0, c = 0;

	CU(cudaStreamCreate(&blocking));
	CU(cudaStreamCreateWithFlags(&free_stream, cudaStreamNonBlocking));
	CU(cudaLaunchHostFunc(blocking, gate_wait, &g));
	CU(cudaLaunchHostFunc(NULL, set, &a));
	CU(cudaLaunchHostFunc(free_stream, set, &b));
	CU(cudaStreamSynchronize(free_stream));
	CHECK(b == 1);
	GIVES(cudaErrorNotReady, cudaStreamQuery(NULL));
	CHECK(a == 0);
	gate_open(&g);
	CU(cudaStreamSynchronize(NULL));
	CHECK(a == 1);
	CU(cudaLaunchHostFunc(cudaStreamLegacy, gate_wait, &h));
	CU(cudaLaunchHostFunc(blocking, set, &c));
	CU(cudaLaunchHostFunc(cudaStreamPerThread, set, &a));
	usleep(2000);
	GIVES(cudaErrorNotReady, cudaStreamQuery(blocking));
	GIVES(cudaErrorNotReady, cudaStreamQuery(cudaStreamPerThread));
	gate_open(&h);
	CU(cudaStreamSynchronize(blocking));
	CU(cudaStreamSynchronize(cudaStreamPerThread));
	CHECK(c == 1 && a == 2);
	CU(cudaStreamDestroy(blocking));
	CU(cudaStreamDestroy(free_stream));
	(void)cudaGetLastError();
}

/* Destroying a stream lets its work finish. */
static void destroy(void)
{
	struct gate g = {0};
	cudaStream_t s;
	int ran = 0;

	CU(cudaStreamCreate(&s));
	CU(cudaLaunchHostFunc(s, gate_wait, &g));
	CU(cudaLaunchHostFunc(s, set, &ran));
	CU(cudaStreamDestroy(s));
	GIVES(cudaErrorInvalidResourceHandle, cudaStreamQuery(s));
	gate_open(&g);
	CU(cudaDeviceSynchronize());
	CHECK(ran == 1);
	(void)cudaGetLastError();
}

struct thread {
	pthread_t t;
	cudaStream_t mine;
	unsigned long long id;
	int ran;
};

static void *per_thread(void *arg)
{
	struct thread *t = arg;

	CU(cudaStreamGetId(cudaStreamPerThread, &t->id));
	CU(cudaLaunchHostFunc(cudaStreamPerThread, set, &t->ran));
	CU(cudaStreamSynchronize(cudaStreamPerThread));
	CHECK(t->ran == 1);
	return NULL;
}

static void per_thread_streams(void)
{
	struct thread t[4] = {0};
	unsigned i, j;

	for (i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i].t, NULL, per_thread, &t[i]));
	for (i = 0; i < 4; i++)
		pthread_join(t[i].t, NULL);
	for (i = 0; i < 4; i++)
		for (j = 0; j < i; j++)
			CHECK(t[i].id != t[j].id);
}

/*
 * Words in memory: a stream that waits for a word does not stop others, and continues without a
 * call.
 */
static void words(void)
{
	const struct df_backend *api = hostcuda();
	struct df_stream_info a, b;
	cudaStream_t s, t;
	uint64_t *word;
	int ran = 0, other = 0;

	CU(cudaMallocHost((void **)&word, 2 * sizeof(*word)));
	word[0] = word[1] = 0;
	CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CU(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
	CHECK(!api->stream_info(s, &a) && !api->stream_info(t, &b));
	CHECK(api->stream_idle(a.stream) && a.id && a.id != b.id && !a.blocking && !a.legacy);
	CHECK(!api->stream_wait(a.stream, &word[0], 3));
	CHECK(!api->stream_write(a.stream, &word[1], NULL, 7));
	CU(cudaLaunchHostFunc(s, set, &ran));
	CHECK(!api->stream_idle(a.stream));
	CU(cudaLaunchHostFunc(t, set, &other));
	CU(cudaStreamSynchronize(t));
	CHECK(other == 1);
	GIVES(cudaErrorNotReady, cudaStreamQuery(s));
	/*
	 * One stream writes the word for the other. Then the CPU writes it, without and with
	 * kick().
	 */
	CHECK(!api->stream_write(b.stream, &word[0], NULL, 5));
	CU(cudaStreamSynchronize(s));
	CHECK(ran == 1 && __atomic_load_n(&word[1], __ATOMIC_ACQUIRE) == 7);
	CHECK(!api->stream_wait(a.stream, &word[0], 9));
	__atomic_store_n(&word[0], 9, __ATOMIC_RELEASE);
	CU(cudaStreamSynchronize(s));
	CHECK(!api->stream_wait(a.stream, &word[0], 10));
	CU(cudaLaunchHostFunc(s, set, &ran));
	__atomic_store_n(&word[0], 10, __ATOMIC_RELEASE);
	api->kick(0);
	CU(cudaDeviceSynchronize());
	CHECK(ran == 2);
	CU(cudaStreamDestroy(s));
	CU(cudaStreamDestroy(t));
	CU(cudaFreeHost(word));
	(void)cudaGetLastError();
}

static void *sync_it(void *arg)
{
	CU(cudaStreamSynchronize(arg));
	return NULL;
}

/* Several threads wait for the same stream. */
static void many_waiters(void)
{
	struct gate g = {0};
	pthread_t t[6];
	cudaStream_t s;
	int i, ran = 0;

	CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CU(cudaLaunchHostFunc(s, gate_wait, &g));
	CU(cudaLaunchHostFunc(s, set, &ran));
	for (i = 0; i < 6; i++)
		CHECK(!pthread_create(&t[i], NULL, sync_it, s));
	usleep(5000);
	gate_open(&g);
	for (i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	CHECK(ran == 1);
	CU(cudaStreamDestroy(s));
}

static void callback(cudaStream_t s, cudaError_t status, void *arg)
{
	CHECK(status == cudaSuccess);
	*(cudaStream_t *)arg = s;
	GIVES(cudaErrorNotPermitted, cudaDeviceSynchronize());
}

static void attributes(void)
{
	cudaStream_t s, seen = NULL;
	unsigned flags;
	int prio, device;

	CU(cudaSetDevice(1));
	CU(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -3));
	CU(cudaSetDevice(0));
	CU(cudaStreamGetPriority(s, &prio));
	CU(cudaStreamGetFlags(s, &flags));
	CU(cudaStreamGetDevice(s, &device));
	CHECK(prio == -3 && flags == cudaStreamNonBlocking && device == 1);
	CU(cudaStreamAddCallback(s, callback, &seen, 0));
	CU(cudaStreamSynchronize(s));
	CHECK(seen == s);
	CU(cudaStreamDestroy(s));
}

int main(void)
{
	blocking_functions();
	ending_functions();
	legacy();
	destroy();
	per_thread_streams();
	words();
	many_waiters();
	attributes();
	return 0;
}
