/*
 * CPU threads as the executor of blocks (threads.c), with ordinary memory. libdfhost.so, if
 * preloaded, provides the application's streams and memory. Any thread.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/device/device.h"
#include "runtime/device/host/threads.h"

#define LARGE (64u << 10) /* larger allocations are cleared without touching their pages */

/* Returns one block: a rank uses one core, and more blocks would help only with free cores. */
static uint32_t blocks(void)
{
	return 1;
}

static uint64_t device_id(int device)
{
	(void)device;
	return 0;
}

static int prepare(int device, char *reason, size_t reason_bytes)
{
	(void)device;
	(void)reason;
	(void)reason_bytes;
	return 0;
}

static int able(char *reason, size_t reason_bytes)
{
	(void)reason;
	(void)reason_bytes;
	return 0;
}

/* Counts multiprocessors as libdfnccl.so does. */
static long ctas(int device)
{
	const struct df_env *env = df_env();

	(void)device;
	return env->host_sms == DF_AUTO ? env->host_slots * 16 : env->host_sms;
}

static int meet(struct df_ctl_comm *ctl, int nranks, int rank, const uint32_t *stop)
{
	(void)ctl;
	(void)nranks;
	(void)rank;
	(void)stop;
	return 0;
}

static void reserve(void) {}

/*
 * Stops a device. df_engine_purge() takes the blocks' locks; threads that hold one release it after
 * a burst of turns.
 */
static int stop(int device)
{
	df_threads_stop(device);
	return 0;
}

/*
 * Clears new memory. A device's rings are large, and most devices that a process sees stay unused:
 * whole pages are given back to the kernel instead, which supplies zeroed pages when they are used.
 */
static void clear(void *p, size_t bytes)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const uintptr_t from = ((uintptr_t)p + page - 1) & ~(page - 1);
	const uintptr_t end = (uintptr_t)p + bytes, to = end & ~(page - 1);

	if (bytes < LARGE || to <= from || madvise((void *)from, to - from, MADV_DONTNEED)) {
		memset(p, 0, bytes);
		return;
	}
	memset(p, 0, from - (uintptr_t)p);
	memset((void *)to, 0, end - to);
}

static void *shared_alloc(size_t bytes, int zero)
{
	void *p;

	bytes = DF_MAX((bytes + 63) / 64 * 64, 64);
	p = aligned_alloc(64, bytes);
	if (p && zero)
		clear(p, bytes);
	return p;
}

static int scratch(int device, uint64_t bytes, void **out)
{
	void *p = shared_alloc(bytes, 0);

	(void)device;
	if (!p)
		return -ENOMEM;
	*out = p;
	return 0;
}

const struct df_blocks df_threads = {
	.blocks = blocks,
	.device_id = device_id,
	.open = prepare,
	.ctas = ctas,
	.able = able,
	.prepare = prepare,
	.meet = meet,
	.start = df_threads_start,
	.reserve = reserve,
	.first_turns = df_threads_first_turns,
	.submitted = df_threads_submitted,
	.pass = df_threads_pass,
	.wait = df_threads_wait,
	.stop = stop,
	.resume = df_threads_resume,
	.launches = df_threads_launches,
	.shared_alloc = shared_alloc,
	.shared_free = free,
	.scratch = scratch,
	.scratch_free = free,
};

const struct df_blocks *df_blocks = &df_threads;

static const struct df_backend *(*find(void))(void)
{
	const struct df_backend *(*get)(void) = NULL;

	*(void **)&get = dlsym(RTLD_DEFAULT, "df_hostcuda");
	return get;
}

int df_host_preloaded(void)
{
	return find() != NULL;
}

const struct df_backend *df_host_open(char *reason, size_t reason_bytes)
{
	const struct df_backend *(*get)(void) = find();
	const struct df_backend *cuda = get ? get() : NULL;

	if (!cuda || cuda->version != DF_BACKEND_VERSION) {
		snprintf(reason, reason_bytes, "libdfhost.so is of another version of dfshim");
		return NULL;
	}
	return cuda;
}
