/*
 * Description: the test driver blocks where a real driver blocks: its lock, its queues, hardware
 * queues, memory, host functions, exclusive devices, memory of contexts; each limit can be switched
 * off.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/lib/test.h"

#if __has_include(<cuda.h>)
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include "tests/cuda/driver/fake.h"

static const char code[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
			   ".visible .entry one()\n{\nret;\n}\n.visible .entry two()\n{\nret;\n}\n";
static CUcontext ctx;
static CUmodule module;
static uint64_t word, reached, done;

#define OK(call) ck_assert_int_eq(call, CUDA_SUCCESS)

static void start(void)
{
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuModuleLoadData(&module, code));
}

static uint64_t get(uint64_t *p)
{
	/* ACQUIRE pairs with the RELEASE of a stream's write, or of set(). */
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void set(uint64_t *p)
{
	/* RELEASE pairs with the ACQUIRE of get(), and of a stream's wait. */
	__atomic_store_n(p, 1, __ATOMIC_RELEASE);
}

static CUstream made(int priority)
{
	CUstream s;

	OK(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, priority));
	return s;
}

static CUstream waiting(void)
{
	CUstream s = made(0);

	OK(cuStreamWaitValue64_v2(s, (CUdeviceptr)(uintptr_t)&word, 1, 0));
	return s;
}

/* Calls fn in a new thread. */
static pthread_t beside(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	ck_assert_int_eq(pthread_create(&t, NULL, fn, arg), 0);
	return t;
}

static void *fill(void *stream)
{
	int i;

	cuCtxSetCurrent(ctx);
	for (i = 0; i < 1100; i++)
		OK(cuStreamWriteValue64_v2(stream, (CUdeviceptr)(uintptr_t)&reached, 1, 0));
	set(&done);
	return NULL;
}

START_TEST(t_queue)
{
	CUstream s = waiting();
	pthread_t t = beside(fill, s);

	while (fake_cuda()->pending(NULL) < 1024)
		usleep(100);
	usleep(20000);
	ck_assert_int_eq(fake_cuda()->pending(NULL), 1024);
	ck_assert_uint_eq(get(&done), 0);
	set(&word);
	pthread_join(t, NULL);
}
END_TEST

START_TEST(t_queue_off)
{
	setenv("FAKE_CUDA_LIMITS", "none", 1);
	pthread_join(beside(fill, waiting()), NULL);
	ck_assert_int_gt(fake_cuda()->pending(NULL), 1024);
	set(&word);
}
END_TEST

static void *first_launch(void *stream)
{
	CUfunction f;

	cuCtxSetCurrent(ctx);
	OK(cuModuleGetFunction(&f, module, "one"));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	set(&reached);
	return NULL;
}

static void *second_launch(void *stream)
{
	CUfunction f;

	cuCtxSetCurrent(ctx);
	OK(cuModuleGetFunction(&f, module, "two"));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	set(&done);
	return NULL;
}

static void *new_stream(void *arg)
{
	(void)arg;
	cuCtxSetCurrent(ctx);
	made(0);
	set(&done);
	return NULL;
}

static void *load_module(void *arg)
{
	CUmodule m;

	(void)arg;
	cuCtxSetCurrent(ctx);
	OK(cuModuleLoadData(&m, code));
	set(&reached);
	return NULL;
}

static void *larger_stacks(void *arg)
{
	(void)arg;
	cuCtxSetCurrent(ctx);
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
	set(&reached);
	return NULL;
}

static void *memory(void *arg)
{
	CUdeviceptr p = *(CUdeviceptr *)arg;

	cuCtxSetCurrent(ctx);
	OK(p ? cuMemFree_v2(p) : cuMemAlloc_v2(&p, 64));
	set(&done);
	return NULL;
}

static void *new_memory(void *arg)
{
	CUdeviceptr none = 0;

	(void)arg;
	return memory(&none);
}

/*
 * While code is loaded and a stream waits, other calls wait too: a launch of a loaded kernel, a new
 * stream, an allocation.
 */
START_TEST(t_lock)
{
	void *(*const calls[])(void *) = {second_launch, new_stream, new_memory};
	void *(*const loads[])(void *) = {first_launch, load_module, larger_stacks};
	CUstream s = made(0), other = made(0);
	pthread_t loader, t;

	setenv("FAKE_CUDA_LIMITS", "lock", 1);
	second_launch(other);
	done = 0;
	OK(cuStreamSynchronize(other));
	OK(cuStreamWaitValue64_v2(s, (CUdeviceptr)(uintptr_t)&word, 1, 0));
	loader = beside(loads[_i / 3], other);
	while (!fake_cuda()->held())
		usleep(100);
	t = beside(calls[_i % 3], other);
	usleep(20000);
	ck_assert_uint_eq(get(&reached), 0);
	ck_assert_uint_eq(get(&done), 0);
	set(&word);
	pthread_join(loader, NULL);
	pthread_join(t, NULL);
}
END_TEST

static void wrote(CUstream s, int ended)
{
	OK(cuStreamWriteValue64_v2(s, (CUdeviceptr)(uintptr_t)&reached, 1, 0));
	if (ended)
		OK(cuStreamSynchronize(s));
	usleep(20000);
	ck_assert_uint_eq(get(&reached), ended);
}

/* With one hardware queue, no work passes a waiting stream, whatever its priority. */
START_TEST(t_hardware)
{
	CUstream s;

	setenv("FAKE_CUDA_LIMITS", "hardware", 1);
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	OK(cuInit(0));
	s = made(_i ? 0 : -5);
	waiting();
	usleep(20000);
	wrote(s, 0);
	set(&word);
	OK(cuStreamSynchronize(s));
	ck_assert_uint_eq(get(&reached), 1);
}
END_TEST

/*
 * While fewer streams wait than there are hardware queues, other streams run, however many there
 * are. When as many streams wait, all others are blocked, whatever their priority.
 */
START_TEST(t_connections)
{
	static const char *const some[] = {"1", "8", "32"};
	int nr = atoi(some[_i]), i, k;
	CUstream s[8];

	setenv("FAKE_CUDA_LIMITS", "hardware", 1);
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", some[_i], 1);
	OK(cuInit(0));
	for (i = 0; i < 8; i++)
		s[i] = made(i % 2 ? -5 : 0);
	for (k = 0; k < nr; k++) {
		for (i = 0; i < 8 && (!k || k == nr - 1); i++) {
			wrote(s[i], 1);
			reached = 0;
		}
		waiting();
	}
	usleep(20000);
	for (i = 0; i < 8; i++)
		wrote(s[i], 0);
	set(&word);
	OK(cuCtxSynchronize());
	/* Idle streams have given their queues back. */
	reached = 0;
	word = 0;
	for (k = 1; k < nr; k++)
		waiting();
	wrote(s[0], 1);
	set(&word);
}
END_TEST

/* A stream that waits for an event holds its queue as one that waits for a word does. */
START_TEST(t_event)
{
	CUstream a, b, c;
	CUevent e;

	setenv("FAKE_CUDA_LIMITS", "hardware", 1);
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2", 1);
	OK(cuInit(0));
	b = made(0);
	c = made(-5);
	a = waiting();
	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	OK(cuEventRecord(e, a));
	wrote(c, 1);
	reached = 0;
	OK(cuStreamWaitEvent(b, e, 0));
	wrote(c, 0);
	set(&word);
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(reached, 1);
}
END_TEST

/* Allocating and freeing wait until the context is idle. */
START_TEST(t_sync)
{
	CUdeviceptr p = 0;
	pthread_t t;

	if (_i % 2)
		OK(cuMemAlloc_v2(&p, 64));
	setenv("FAKE_CUDA_LIMITS", _i / 2 ? "none" : "sync", 1);
	waiting();
	t = beside(memory, &p);
	if (!(_i / 2)) {
		usleep(20000);
		ck_assert_uint_eq(get(&done), 0);
		set(&word);
	}
	pthread_join(t, NULL);
	set(&word);
}
END_TEST

static char pinned[4096] __attribute__((aligned(4096)));
static CUdeviceptr mapping;
static size_t mapping_bytes;

static void *frees(void *arg)
{
	int nr = *(int *)arg;
	static void *host;
	static CUdeviceptr dev;

	cuCtxSetCurrent(ctx);
	if (nr < 0) {
		CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					    .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
		CUmemGenericAllocationHandle h;

		OK(cuMemAlloc_v2(&dev, 64));
		OK(cuMemHostAlloc(&host, 64, 0));
		OK(cuMemHostRegister_v2(pinned, sizeof(pinned), 0));
		OK(cuMemGetAllocationGranularity(&mapping_bytes, &prop,
						 CU_MEM_ALLOC_GRANULARITY_MINIMUM));
		OK(cuMemCreate(&h, mapping_bytes, &prop, 0));
		OK(cuMemAddressReserve(&mapping, mapping_bytes, 0, 0, 0));
		OK(cuMemMap(mapping, mapping_bytes, 0, h, 0));
		return NULL;
	}
	OK(nr == 0   ? cuMemFree_v2(dev)
	   : nr == 1 ? cuMemFreeHost(host)
	   : nr == 2 ? cuMemHostUnregister(pinned)
		     : cuMemUnmap(mapping, mapping_bytes));
	set(&reached);
	return NULL;
}

/*
 * A thread that frees holds the lock while it waits, so a launch by another thread waits too. A
 * thread that allocates does not hold the lock.
 */
START_TEST(t_free_lock)
{
	CUstream other = made(0);
	pthread_t freer, t;
	int nr = -1;

	setenv("FAKE_CUDA_LIMITS", "lock,sync", 1);
	frees(&nr);
	second_launch(other);
	done = 0;
	OK(cuStreamSynchronize(other));
	waiting();
	nr = _i;
	freer = beside(_i < 4 ? frees : new_memory, &nr);
	while (_i < 4 && !fake_cuda()->held())
		usleep(100);
	usleep(20000);
	ck_assert_uint_eq(get(&done), 0);
	t = beside(second_launch, other);
	while (_i == 4 && !get(&done))
		usleep(100);
	usleep(20000);
	ck_assert_uint_eq(get(&reached), 0);
	ck_assert_uint_eq(get(&done), _i == 4);
	set(&word);
	pthread_join(freer, NULL);
	pthread_join(t, NULL);
}
END_TEST

START_TEST(t_blocking)
{
	CUfunction f;
	CUstream s = made(0);

	OK(cuModuleGetFunction(&f, module, "one"));
	setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
	ck_assert_int_eq(cuStreamQuery(s), CUDA_SUCCESS);
}
END_TEST

static void CUDA_CB in_host(void *arg)
{
	uint64_t nr = __atomic_add_fetch(&reached, 1, __ATOMIC_ACQ_REL);

	(void)arg;
	if (nr == 1)
		while (!get(&word))
			usleep(100);
}

static void CUDA_CB in_callback(CUstream s, CUresult status, void *arg)
{
	(void)s;
	ck_assert_int_eq(status, CUDA_SUCCESS);
	in_host(arg);
}

/* While a host function of one stream runs, no callback of another stream starts. */
START_TEST(t_one)
{
	CUstream s[2] = {made(0), made(0)};
	int i;

	setenv("FAKE_CUDA_LIMITS", _i ? "none" : "one", 1);
	OK(cuLaunchHostFunc(s[0], in_host, NULL));
	OK(cuStreamAddCallback(s[1], in_callback, NULL, 0));
	while (get(&reached) < (_i ? 2 : 1))
		usleep(100);
	usleep(20000);
	ck_assert_uint_eq(get(&reached), _i ? 2 : 1);
	set(&word);
	for (i = 0; i < 2; i++)
		OK(cuStreamSynchronize(s[i]));
	ck_assert_uint_eq(get(&reached), 2);
}
END_TEST

/* A context takes memory of its device, even if the process does nothing else there. */
START_TEST(t_context)
{
	size_t before, with, total;
	CUcontext other;

	setenv("FAKE_CUDA_LIMITS", _i ? "none" : "context", 1);
	OK(cuMemGetInfo_v2(&before, &total));
	OK(cuDevicePrimaryCtxRetain(&other, 1));
	OK(cuCtxSetCurrent(other));
	OK(cuMemGetInfo_v2(&with, &total));
	ck_assert_uint_eq(total - with, _i ? 0 : (size_t)534 << 20);
	ck_assert_uint_eq(before, with);
}
END_TEST

START_TEST(t_exclusive)
{
	char path[] = "/tmp/t_limits.XXXXXX";
	int fd = mkstemp(path), status, mode;
	CUcontext c;
	pid_t pid;

	ck_assert_int_ge(fd, 0);
	setenv("FAKE_CUDA_EXCLUSIVE", path, 1);
	OK(cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0));
	ck_assert_int_eq(mode, CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
	pid = fork();
	if (!pid) {
		status = cuDevicePrimaryCtxRetain(&c, 0) != CUDA_SUCCESS;
		ck_assert_int_eq(write(fd, "x", 1), 1);
		pause();
	}
	while (lseek(fd, 0, SEEK_END) < 1)
		usleep(100);
	ck_assert_int_eq(cuDevicePrimaryCtxRetain(&c, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	OK(cuDevicePrimaryCtxRetain(&c, 0));
	unlink(path);
}
END_TEST

int main(void)
{
	unsetenv("FAKE_CUDA_LIMITS");
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	return DF_TESTS("limits", {.before = start}, {t_queue}, {t_queue_off}, {t_lock, 9},
			{t_hardware, 2}, {t_connections, 3}, {t_event}, {t_sync, 4},
			{t_free_lock, 5}, {t_blocking}, {t_one, 2}, {t_context, 2}, {t_exclusive});
}
#else
int main(void)
{
	puts("skipped: no cuda.h");
	return 77;
}
#endif
