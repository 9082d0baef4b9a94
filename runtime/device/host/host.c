/*
 * CPU threads as a machine: memory is plain, threads.c executes the blocks, and what the application's streams and memory
 * are libdfhost.so says, where it is preloaded. Without it this is the machine of a process that has none: memory, and
 * nothing is executed. Any thread.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/device/device.h"
#include "runtime/device/host/threads.h"

static struct df_backend machine;
static const struct df_hooks *hooks;
static void (*set_hooks_below)(const struct df_hooks *hooks);

/* One block a rank uses one core; more pay only where there are cores for them. */
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

static int meet(struct df_ctl_comm *ctl, int nranks, int rank, const uint32_t *stop)
{
	(void)ctl;
	(void)nranks;
	(void)rank;
	(void)stop;
	return 0;
}

static int start(const struct df_execs *execs)
{
	return df_threads_start(execs, hooks);
}

static void reserve(void) {}

/* Who purges takes the blocks' locks; threads that own one give it back after a burst of turns. */
static int stop(int device)
{
	df_threads_stop(device);
	return 0;
}

static void *shared_alloc(size_t bytes, int zero)
{
	void *p;

	bytes = DF_MAX((bytes + 63) / 64 * 64, 64);
	p = aligned_alloc(64, bytes);
	return p && zero ? memset(p, 0, bytes) : p;
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

static const struct df_backend threads = {
	.version = DF_BACKEND_VERSION,
	.blocks = blocks,
	.device_id = device_id,
	.prepare = prepare,
	.meet = meet,
	.start = start,
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

const struct df_backend *df_backend = &threads;

const struct df_backend *df_host_none(void)
{
	return &threads;
}

static void set_hooks(const struct df_hooks *h)
{
	hooks = h;
	set_hooks_below(h);
}

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
	machine = *cuda;
	/* What comes before that is about executing blocks and memory for it. */
	memcpy(&machine, &threads, offsetof(struct df_backend, set_hooks));
	set_hooks_below = cuda->set_hooks;
	machine.set_hooks = set_hooks;
	return &machine;
}
