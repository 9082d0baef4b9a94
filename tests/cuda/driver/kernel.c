/*
 * Executes kernels for the test driver. The emulator (tests/cuda/ptx) executes a kernel whose PTX
 * is known, with all its threads. For any other kernel, the function that a test registered under
 * its name is executed, with one CPU thread for each block.
 *
 * As on a GPU, a fault ends the context. It is reported on standard error and in the file
 * FAKE_CUDA_FAULTS. A race is reported there too, but ends nothing. FAKE_CUDA_SEED: seed of the
 * order in which warps run. FAKE_CUDA_WEAK=1: the emulator's memory is weakly ordered. If
 * FAKE_CUDA_SMS is set, only as many blocks of a launch run at a time as fit on that number of
 * multiprocessors.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/cuda/driver/internal.h"
#include "tests/cuda/ptx/ptx.h"

int fake_launch_error, fake_emulates;
static struct {
	char name[64];
	fake_kernel_fn fn;
} kernels[16];

void fake_set_kernel(const char *name, fake_kernel_fn fn)
{
	int i;

	for (i = 0; i < 15 && kernels[i].fn && strcmp(kernels[i].name, name) != 0; i++)
		;
	snprintf(kernels[i].name, sizeof(kernels[i].name), "%s", name);
	kernels[i].fn = fn;
}

fake_kernel_fn fake_function(const char *name)
{
	for (int i = 0; i < 16 && kernels[i].fn; i++)
		if (strcmp(kernels[i].name, name) == 0)
			return kernels[i].fn;
	return NULL;
}

/*
 * Launches are never freed, because a graph may repeat them. The list keeps them reachable, so that
 * a leak checker does not report them.
 */
struct launch {
	struct launch *next;
	const struct fake_kernel *kernel;
	struct df_hkernel_shape shape;
	void *param; /* registered function: its first parameter */
	void *block; /* PTX kernel: the block with all parameters */
};

static struct launch *launches;

/* ---- registered functions -------------------------------------------------------------------- */

struct block {
	struct launch *of;
	unsigned int index;
	pthread_t thread;
};

static void *run_block(void *arg)
{
	struct block *b = arg;

	b->of->kernel->fn(&b->of->param, b->index);
	return NULL;
}

static void run_function(struct launch *l)
{
	struct block *b = calloc(l->shape.grid[0], sizeof(*b));
	unsigned int i;

	for (i = 0; i < l->shape.grid[0]; i++) {
		b[i].of = l;
		b[i].index = i;
		pthread_create(&b[i].thread, NULL, run_block, &b[i]);
	}
	for (i = 0; i < l->shape.grid[0]; i++)
		pthread_join(b[i].thread, NULL);
	free(b);
}

/* ---- PTX ------------------------------------------------------------------------------------- */

static int usable(void *arg, uintptr_t at, size_t bytes, uintptr_t *from, uintptr_t *to)
{
	const struct launch *l = arg;

	return fake_usable(l->shape.device, at, bytes, from, to);
}

static void fault(void *arg, const char *text)
{
	const char *path = getenv("FAKE_CUDA_FAULTS");
	struct launch *l = arg;
	int race = strstr(text, ": race in ") != NULL, fd, none = 0;
	char line[1600];
	int n = snprintf(line, sizeof(line), "fake libcuda: %s: %s\n", race ? "race" : "fault",
			 text);

	fputs(line, stderr);
	if (path) {
		fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
		if (fd < 0 || write(fd, line, (size_t)n) != n)
			fprintf(stderr, "fake libcuda: %s can't be written\n", path);
		if (fd >= 0)
			close(fd);
	}
	if (race)
		return;
	/* RELAXED: only the value counts. The first fault stays; the next caller gets its error. */
	__atomic_compare_exchange_n(
		&fake_errors[l->shape.device], &none,
		strstr(text, "which is not a multiple of")	 ? CUDA_ERROR_MISALIGNED_ADDRESS
		: strstr(text, "which the device does not know") ? CUDA_ERROR_ILLEGAL_ADDRESS
								 : CUDA_ERROR_LAUNCH_FAILED,
		0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	__atomic_store_n(&fake_stops[l->shape.device], 1, __ATOMIC_RELAXED);
}

static void touched(void *arg, uintptr_t at, unsigned int bytes, int writes)
{
	(void)arg, (void)bytes;
	if (!writes)
		fake_looked(at);
}

static unsigned int occupancy(unsigned int threads)
{
	unsigned int warps = (threads + 31) / 32, nr = warps ? 64 / warps : 0;

	return nr > 32 ? 32 : nr;
}

static void run_ptx(struct launch *of)
{
	static uint64_t launches;
	const char *seed = getenv("FAKE_CUDA_SEED");
	const unsigned int *b = of->shape.block;
	struct ptx_launch l = {
		.kernel = of->kernel->ptx,
		.grid = {of->shape.grid[0], of->shape.grid[1], of->shape.grid[2]},
		.block = {b[0], b[1], b[2]},
		.dynamic_shared = of->shape.shared,
		.params = of->block,
		.seed = (seed ? strtoull(seed, NULL, 0) : 1) +
			/* RELAXED: only has to be unique for each launch. */
			__atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED),
		.weak = getenv("FAKE_CUDA_WEAK") != NULL,
		.known = usable,
		.generation = &fake_generation,
		.fault = fault,
		.touched = fake_looks() ? touched : NULL,
		.arg = of,
		.stop = &fake_stops[of->shape.device],
	};

	if (getenv("FAKE_CUDA_SMS"))
		l.resident = fake_multiprocessors() * occupancy(b[0] * b[1] * b[2]);
	ptx_run(&l);
}

static pthread_mutex_t one_kernel = PTHREAD_MUTEX_INITIALIZER; /* for the fault "serial" */

/* After a fault, kernels on that device are not executed. */
void fake_run(void *launch)
{
	struct launch *l = launch;

	if (fake_error(l->shape.device))
		return;
	fake_fault_kernel(!l->kernel->ptx);
	if (l->kernel->ptx && fake_fault("serial")) {
		pthread_mutex_lock(&one_kernel);
		run_ptx(l);
		pthread_mutex_unlock(&one_kernel);
	} else if (l->kernel->ptx)
		run_ptx(l);
	else
		run_function(l);
}

/* ---- launches -------------------------------------------------------------------------------- */

unsigned int fake_most_threads(void *kernel)
{
	const struct fake_kernel *k = kernel;

	return k->ptx ? ptx_max_threads(k->ptx) : 1024;
}

/*
 * Returns a copy of the parameters as the kernel sees them; the caller frees it. Returns NULL if
 * not all parameters were given.
 */
static void *block_of(const struct ptx_kernel *k, void **params, void **extra)
{
	size_t bytes = ptx_param_bytes(k), offset, size, given = 0;
	const void *whole = NULL;
	uint8_t *b = calloc(1, bytes + 1);
	unsigned int i;

	for (i = 0; params && i < ptx_nr_params(k); i++) {
		ptx_param(k, i, &offset, &size);
		memcpy(b + offset, params[i], size);
	}
	for (; !params && extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			whole = extra[1];
		else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			given = *(size_t *)extra[1];
	}
	if (whole && given >= bytes)
		memcpy(b, whole, bytes);
	else if (!params && bytes) {
		free(b);
		return NULL;
	}
	return b;
}

void *fake_take(void *kernel, const struct df_hkernel_shape *shape, void **params, void **extra)
{
	struct launch *l = calloc(1, sizeof(*l));

	l->kernel = kernel;
	l->shape = *shape;
	if (l->kernel->ptx) {
		/* RELAXED: a thread that waits for this launch reads the flag after the launch. */
		__atomic_store_n(&fake_emulates, 1, __ATOMIC_RELAXED);
		l->block = block_of(l->kernel->ptx, params, extra);
	} else if (params) {
		memcpy(&l->param, params[0], sizeof(l->param));
	}
	if (l->kernel->ptx && !l->block) {
		free(l);
		return NULL;
	}
	/* RELAXED: no thread follows the list. */
	l->next = __atomic_load_n(&launches, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&launches, &l->next, l, 1, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED))
		;
	return l;
}

/* Checks and waits before a launch. Returns the error that the launch fails with, if any. */
static CUresult before(CUfunction f, CUstream s)
{
	int device = fake_device_of(s);

	if (fake_is_over())
		return CUDA_ERROR_DEINITIALIZED;
	if (fake_launch_error)
		return fake_launch_error;
	if (fake_error(device))
		return fake_error(device);
	fake_limit_lock(device);
	fake_limit_load(device, f);
	fake_limit_room(s, 0);
	return CUDA_SUCCESS;
}
#define LAUNCHES(name, params, stream, args)                                                       \
	API CUresult name params                                                                   \
	{                                                                                          \
		CUresult r;                                                                        \
                                                                                                   \
		SEEN(name);                                                                        \
		r = before(f, stream);                                                             \
		if (r == CUDA_SUCCESS)                                                             \
			r = REAL(name) args;                                                       \
		if (r == CUDA_SUCCESS)                                                             \
			fake_limit_launched(stream);                                               \
		return r;                                                                          \
	}
#define SHAPE                                                                                      \
	unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,       \
		unsigned int bz, unsigned int shared
LAUNCHES(cuLaunchKernel, (CUfunction f, SHAPE, CUstream s, void **params, void **extra), s,
	 (f, gx, gy, gz, bx, by, bz, shared, s, params, extra))
LAUNCHES(cuLaunchCooperativeKernel, (CUfunction f, SHAPE, CUstream s, void **params), s,
	 (f, gx, gy, gz, bx, by, bz, shared, s, params))
LAUNCHES(cuLaunchKernelEx, (const CUlaunchConfig *c, CUfunction f, void **params, void **extra),
	 c->hStream, (c, f, params, extra))
API CUresult cuFuncLoad(CUfunction f)
{
	SEEN(cuFuncLoad);
	fake_limit_load(fake_device(), f);
	return REAL(cuFuncLoad)(f);
}
