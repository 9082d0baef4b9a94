/*
 * Waits of a real driver that a plain list of operations does not have: its lock and its queues.
 * FAKE_CUDA_LIMITS names those that are on, separated by commas. If it is unset, all are on. "none"
 * turns all off.
 *
 *   lock      a thread that loads code onto the device (first launch of a kernel, a module, a stack
 *             limit) holds the context's lock until the device is idle; launches, new streams and
 *             allocations of other threads wait for the lock (NVIDIA/nvbench issue 136,
 *             microsoft/mscclpp issue 394, NVIDIA/nccl issue 803)
 *   queue     a stream holds at most 1,024 operations; a thread that enqueues another one waits
 *             (stackoverflow 53970187; microsoft/mscclpp issue 516 is such a hang)
 *   hardware  the streams of a device, of all priorities and green contexts together, have
 *             CUDA_DEVICE_MAX_CONNECTIONS hardware queues (8, at most 32): a stream has a queue
 *             while it has work, and shares one if none is free. While a queue waits for a word
 *             or an event, no later work of it begins (measured by tests/gpu/litmus_queues and
 *             litmus_channels on an H200, driver 580.159, 2026-11-26; its driver API: stream
 *             memory operations "may deadlock")
 *   sync      allocating, freeing, pinning and unpinning memory wait until the context is idle
 *             (programming guide: implicit synchronisation). With `lock`, freeing and unpinning
 *             also hold the context's lock meanwhile. On that H200 cuMemFree, cuMemFreeHost and
 *             cuMemHostUnregister did so (litmus_sync). Allocating and pinning did not wait there;
 *             cuMemUnmap was not measured
 *   blocking  under CUDA_LAUNCH_BLOCKING=1 a launch returns when the kernel has finished
 *             (programming guide)
 *   one       host functions and callbacks run one at a time (driver API: they may be serialised)
 *   context   a process's context takes 534 MiB from the free memory that its device reports
 *             (meta-pytorch/torchcomms issue 777)
 *
 * FAKE_CUDA_FULL=FILE: creates FILE when a thread finds a full stream that waits for a word.
 * FAKE_CUDA_EXCLUSIVE=FILE: devices are in mode EXCLUSIVE_PROCESS: the first process that creates a
 * context on a device keeps the device to itself, by a lock on a byte of FILE.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/cuda/driver/internal.h"

#define QUEUE_ENTRIES 1024

int fake_limit(const char *name)
{
	const char *v = getenv("FAKE_CUDA_LIMITS"), *p;
	size_t len = strlen(name);

	if (!v)
		v = "lock,queue,hardware,sync,blocking,one,context";
	for (p = v; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (!strncmp(p, name, len) && (!p[len] || p[len] == ','))
			return 1;
	return 0;
}

/*
 * `loading`: whether a thread holds the device's lock; `loader`: which one. `lock` protects both.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static int loading[MAX_DEVICES];
static pthread_t loader[MAX_DEVICES];

void fake_limit_lock(int device)
{
	if (device < 0 || device >= MAX_DEVICES || !fake_limit("lock"))
		return;
	pthread_mutex_lock(&lock);
	while (loading[device] && !pthread_equal(loader[device], pthread_self()) && !fake_is_over())
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
}

static void hold(int device, int begin)
{
	if (device < 0 || device >= MAX_DEVICES || !fake_limit("lock"))
		return;
	pthread_mutex_lock(&lock);
	while (begin && loading[device])
		pthread_cond_wait(&moved, &lock);
	loading[device] = begin;
	loader[device] = pthread_self();
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
}

void fake_limit_hold(int on)
{
	hold(0, on);
	pthread_mutex_lock(&lock);
	loader[0] = 0; /* the holder is no thread of this process */
	pthread_mutex_unlock(&lock);
}

int fake_limit_held(void)
{
	int held;

	pthread_mutex_lock(&lock);
	held = loading[0];
	pthread_mutex_unlock(&lock);
	return held;
}

/* Returns 1 at the first call for a function, 0 later. */
static int first(CUfunction f)
{
	static CUfunction *loaded;
	static size_t nr;
	size_t i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < nr && loaded[i] != f; i++)
		;
	if (i == nr) {
		loaded = realloc(loaded, (nr + 1) * sizeof(CUfunction));
		loaded[nr++] = f;
		i = nr;
	}
	pthread_mutex_unlock(&lock);
	return i == nr;
}

/*
 * Loads a function's code at its first launch. As in a driver that loads lazily, this waits until
 * the context is idle.
 */
void fake_limit_load(int device, CUfunction f)
{
	const char *name;

	if (device < 0 || device >= MAX_DEVICES || REAL(cuFuncGetName)(&name, f) != CUDA_SUCCESS ||
	    !first(f))
		return;
	fake_limit_drain(device);
}

void fake_limit_alone(int device, int (*busy)(int device))
{
	hold(device, 1);
	while (busy(device))
		usleep(50);
	hold(device, 0);
}

static int pending(int device)
{
	return fake_host->pending(device, NULL) && !fake_error(device) && !fake_is_over();
}

void fake_limit_drain(int device)
{
	if (device < 0 || device >= MAX_DEVICES || !fake_limit("lock"))
		return;
	fake_limit_alone(device, pending);
}

API CUresult cuCtxSetLimit(CUlimit what, size_t value)
{
	SEEN(cuCtxSetLimit);
	if (what == CU_LIMIT_STACK_SIZE)
		fake_limit_drain(fake_device());
	return REAL(cuCtxSetLimit)(what, value);
}

void fake_limit_room(CUstream s, int per_thread)
{
	const char *full = getenv("FAKE_CUDA_FULL");

	if (!s)
		s = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	if (fake_host->pending(-1, s) < QUEUE_ENTRIES)
		return;
	if (full && fake_host->waiting(s))
		close(open(full, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	while (fake_host->pending(-1, s) >= QUEUE_ENTRIES && !fake_is_over() && fake_limit("queue"))
		usleep(50);
}

static int connections = 8;

void fake_limit_start(void)
{
	const char *v = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	int nr = v && atoi(v) > 0 ? atoi(v) : 8;

	if (getenv("FAKE_CUDA_READS"))
		fprintf(stderr, "driver %d\n", nr);
	/* RELAXED: streams that need the value are created after this call. */
	__atomic_store_n(&connections, nr, __ATOMIC_RELAXED);
}

unsigned int fake_limit_queues(void)
{
	int nr = __atomic_load_n(&connections, __ATOMIC_RELAXED);

	return !fake_limit("hardware") ? 0 : (unsigned int)(nr < 32 ? nr : 32);
}

void fake_limit_launched(CUstream s)
{
	const char *v = getenv("CUDA_LAUNCH_BLOCKING");
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!v || !atoi(v) || !fake_limit("blocking"))
		return;
	REAL(cuStreamIsCapturing)(s, &status);
	if (status == CU_STREAM_CAPTURE_STATUS_NONE)
		cuStreamSynchronize(s);
}

void fake_limit_host(int begins)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	static __thread int mine;

	if (begins)
		mine = fake_limit("one");
	if (!mine)
		return;
	if (begins)
		pthread_mutex_lock(&one);
	else
		pthread_mutex_unlock(&one);
}

API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	SEEN(cuStreamCreateWithPriority);
	fake_limit_lock(fake_device());
	return REAL(cuStreamCreateWithPriority)(out, flags, priority);
}
API CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	SEEN(cuStreamCreate);
	fake_limit_lock(fake_device());
	return REAL(cuStreamCreate)(out, flags);
}

#define CONTEXT_BYTES ((size_t)534 << 20)

API CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
	CUresult r;

	SEEN(cuMemGetInfo_v2);
	r = REAL(cuMemGetInfo_v2)(left, total);
	if (r == CUDA_SUCCESS && fake_limit("context"))
		*left -= *left < CONTEXT_BYTES ? *left : CONTEXT_BYTES;
	return r;
}

int fake_limit_exclusive(int device)
{
	static int mine[8];
	const char *path = getenv("FAKE_CUDA_EXCLUSIVE");
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = device, .l_len = 1};
	static int fd = -1;
	int ok;

	if (!path)
		return 1;
	pthread_mutex_lock(&lock);
	if (fd < 0)
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ok = mine[device] || (fd >= 0 && !fcntl(fd, F_SETLK, &l));
	mine[device] = ok;
	pthread_mutex_unlock(&lock);
	return ok;
}
