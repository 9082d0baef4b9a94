/*
 * What a real driver blocks on and a list of operations does not: its lock, its queues. Each can be switched;
 * FAKE_CUDA_LIMITS names those that are there, separated by commas; unset: all but sync; "none": none.
 *
 *   lock      who brings a kernel's code to the device at its first launch keeps the context's lock until the device is idle;
 *             launches, new streams and allocations of other threads wait for it (NVIDIA/nvbench issue 136,
 *             microsoft/mscclpp issue 394, NVIDIA/nccl issue 803)
 *   queue     a stream has room for 1,024 operations; who puts another one on it waits (stackoverflow 53970187; microsoft/mscclpp issue 516 is a
 *             hang of that kind)
 *   hardware  streams of one context and priority have CUDA_DEVICE_MAX_CONNECTIONS hardware queues (8, at most 32) in turn: behind
 *             a wait for a word nothing that was put into its queue later begins (CUDA's programming guide: false dependencies;
 *             its driver API: stream memory operations "may deadlock")
 *   sync      allocating and freeing memory, pinning and unpinning wait until the context is idle (programming guide: implicit
 *             synchronisation)
 *   blocking  under CUDA_LAUNCH_BLOCKING=1 a launch returns when the kernel has ended (programming guide)
 *   one       host functions and callbacks run one at a time (driver API: they may be serialised)
 *
 * FAKE_CUDA_FULL=FILE: made when a stream that waits for a word had no room. FAKE_CUDA_EXCLUSIVE=FILE: devices are in the mode EXCLUSIVE_PROCESS: the first process that has a context on one
 * keeps it to itself; the file stands for what the driver knows of them.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/cuda/fake/internal.h"

#define QUEUE_ENTRIES 1024

int fake_limit(const char *name)
{
	const char *v = getenv("FAKE_CUDA_LIMITS"), *p;
	size_t len = strlen(name);

	if (!v)
		v = "lock,queue,hardware,blocking,one";
	for (p = v; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (!strncmp(p, name, len) && (!p[len] || p[len] == ','))
			return 1;
	return 0;
}

void fake_limit_lock(CUcontext ctx)
{
	if (!ctx || !fake_limit("lock"))
		return;
	pthread_mutex_lock(&fake_lock);
	while (ctx->loading && !pthread_equal(ctx->loader, pthread_self()) && !fake_is_over())
		pthread_cond_wait(&fake_moved, &fake_lock);
	pthread_mutex_unlock(&fake_lock);
}

void fake_limit_loading(CUcontext ctx, int begin)
{
	if (!ctx || !fake_limit("lock"))
		return;
	while (begin && ctx->loading)
		pthread_cond_wait(&fake_moved, &fake_lock);
	ctx->loading = begin;
	ctx->loader = pthread_self();
	if (!begin)
		pthread_cond_broadcast(&fake_moved);
}

void fake_limit_room(CUstream s)
{
	const char *full = getenv("FAKE_CUDA_FULL");

	if (full && s->nr >= QUEUE_ENTRIES && s->head->kind == OP_WAIT &&
	    /* ACQUIRE as the stream's own look at its word. */
	    __atomic_load_n(s->head->addr, __ATOMIC_ACQUIRE) < s->head->value)
		close(open(full, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	while (s->nr >= QUEUE_ENTRIES && !fake_is_over() && fake_limit("queue"))
		pthread_cond_wait(&fake_moved, &fake_lock);
}

void fake_limit_queue(CUstream s)
{
	const char *v = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	int nr = v && atoi(v) > 0 ? atoi(v) : 8;

	s->queue = s->ctx->nr_made[-s->priority % NR_PRIORITIES]++ % (nr < 32 ? nr : 32);
}

int fake_limit_behind(const struct CUstream_st *all, const struct CUstream_st *s,
		      const struct op *op)
{
	const struct CUstream_st *t;

	if (!fake_limit("hardware"))
		return 0;
	for (t = all; t; t = t->next)
		if (t != s && t->ctx == s->ctx && t->priority == s->priority &&
		    t->queue == s->queue && t->head && t->head->kind == OP_WAIT &&
		    t->head->serial < op->serial &&
		    /* ACQUIRE as the stream's own look at its word. */
		    __atomic_load_n(t->head->addr, __ATOMIC_ACQUIRE) < t->head->value)
			return 1;
	return 0;
}

void fake_limit_launched(CUstream s)
{
	const char *v = getenv("CUDA_LAUNCH_BLOCKING");

	if (v && atoi(v) && !s->capture && fake_limit("blocking"))
		fake_stream_drain(s);
}

void fake_limit_host(int begin)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

	if (!fake_limit("one"))
		return;
	if (begin)
		pthread_mutex_lock(&one);
	else
		pthread_mutex_unlock(&one);
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
	pthread_mutex_lock(&fake_lock);
	if (fd < 0)
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ok = mine[device] || (fd >= 0 && !fcntl(fd, F_SETLK, &l));
	mine[device] = ok;
	pthread_mutex_unlock(&fake_lock);
	return ok;
}
