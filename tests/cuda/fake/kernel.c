/*
 * Launches of the stand-in driver. A kernel whose PTX is known is executed by the emulator (tests/cuda/ptx), with all its
 * threads; another is the function that a test registered by its name, a thread a block; one of which nothing is known does
 * nothing.
 *
 * A fault ends the context, as on a GPU, and is said on standard error and in the file FAKE_CUDA_FAULTS; a race is only said.
 * FAKE_CUDA_SEED: of the order in which warps come along. FAKE_CUDA_WEAK=1: to the emulator memory is weak. With FAKE_CUDA_SMS no more blocks of a launch are there at a
 * time than fit on so many multiprocessors.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/cuda/fake/internal.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

int fake_launch_error;
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

/* ---- functions ---------------------------------------------------------------------------------------- */

struct block {
	struct op *op;
	unsigned int index;
	pthread_t thread;
};

static void *run_block(void *arg)
{
	struct block *b = arg;

	b->op->kernel(b->op->params, b->index);
	return NULL;
}

static void run_function(struct op *op)
{
	struct block *b = calloc(op->grid[0], sizeof(*b));
	unsigned int i;

	for (i = 0; i < op->grid[0]; i++) {
		b[i].op = op;
		b[i].index = i;
		pthread_create(&b[i].thread, NULL, run_block, &b[i]);
	}
	for (i = 0; i < op->grid[0]; i++)
		pthread_join(b[i].thread, NULL);
	free(b);
}

/* ---- PTX ------------------------------------------------------------------------------------------------ */

static int usable(void *arg, uintptr_t at, size_t bytes, uintptr_t *from, uintptr_t *to)
{
	const struct op *op = arg;

	return fake_mem_usable(op->ctx, at, bytes, from, to);
}

static void fault(void *arg, const char *text)
{
	const char *path = getenv("FAKE_CUDA_FAULTS");
	struct op *op = arg;
	int race = strstr(text, ": race in ") != NULL, fd;
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
	pthread_mutex_lock(&fake_lock);
	if (!op->ctx->error)
		__atomic_store_n(&op->ctx->error,
				 strstr(text, "which is not a multiple of")
					 ? CUDA_ERROR_MISALIGNED_ADDRESS
				 : strstr(text, "which the device does not know")
					 ? CUDA_ERROR_ILLEGAL_ADDRESS
					 : CUDA_ERROR_LAUNCH_FAILED,
				 __ATOMIC_RELAXED);
	__atomic_store_n(&op->ctx->stop, 1, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&fake_moved);
	pthread_mutex_unlock(&fake_lock);
}

static void run_ptx(struct op *op)
{
	static uint64_t launches;
	const char *seed = getenv("FAKE_CUDA_SEED");
	struct ptx_launch l = {
		.kernel = op->ptx,
		.grid = {op->grid[0], op->grid[1], op->grid[2]},
		.block = {op->block[0], op->block[1], op->block[2]},
		.dynamic_shared = op->shared,
		.params = op->own,
		.seed = (seed ? strtoull(seed, NULL, 0) : 1) +
			/* RELAXED: only that no two launches have the same. */
			__atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED),
		.weak = getenv("FAKE_CUDA_WEAK") != NULL,
		.known = usable,
		.generation = &fake_mem_generation,
		.fault = fault,
		.arg = op,
		.stop = &op->ctx->stop,
	};

	if (getenv("FAKE_CUDA_SMS"))
		l.resident = fake_multiprocessors() *
			     fake_occupancy(op->block[0] * op->block[1] * op->block[2]);
	ptx_run(&l);
}

void fake_kernel_run(struct op *op)
{
	if (op->event) {
		pthread_mutex_lock(&fake_lock);
		if (op->event->reached < op->point)
			op->event->reached = op->point;
		pthread_cond_broadcast(&fake_moved);
		pthread_mutex_unlock(&fake_lock);
	}
	if (op->ptx)
		run_ptx(op);
	else if (op->kernel)
		run_function(op);
}

/* ---- launches ---------------------------------------------------------------------------------------------- */

unsigned int fake_occupancy(unsigned int threads)
{
	unsigned int warps = (threads + 31) / 32, nr = warps ? 64 / warps : 0;

	return nr > 32 ? 32 : nr;
}

/* Bringing code to the device waits for all that the context has, as a driver may that loads lazily. */
static void load(CUfunction f)
{
	CUcontext ctx = fake_ctx_now();

	pthread_mutex_lock(&fake_lock);
	if (!f->loaded) {
		fake_limit_loading(ctx, 1);
		while (fake_all_pending(ctx))
			pthread_cond_wait(&fake_moved, &fake_lock);
		fake_limit_loading(ctx, 0);
	}
	f->loaded = 1;
	pthread_mutex_unlock(&fake_lock);
}

/* The parameter block as the kernel sees it. NULL: not all of it was given. */
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

static CUresult fits(const CUlaunchConfig *c, CUfunction f, int cooperative)
{
	uint64_t grid = (uint64_t)c->gridDimX * c->gridDimY * c->gridDimZ;
	uint64_t threads = (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ;

	if (!f->ptx && !cooperative)
		return CUDA_SUCCESS;
	if (!grid || c->gridDimY > 65535 || c->gridDimZ > 65535 || !threads || threads > 1024 ||
	    c->blockDimZ > 64 || (f->ptx && threads > ptx_max_threads(f->ptx)) ||
	    c->sharedMemBytes > f->most_shared)
		return CUDA_ERROR_INVALID_VALUE;
	if (cooperative &&
	    grid > (uint64_t)fake_multiprocessors() * fake_occupancy((unsigned int)threads))
		return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	return CUDA_SUCCESS;
}

/* What the launch asks for besides; what is only a hint is taken and does nothing. */
struct wish {
	int cooperative, clustered;
	CUevent started, ended;
};
static CUresult wishes(const CUlaunchConfig *c, struct wish *w)
{
	memset(w, 0, sizeof(*w));
	for (unsigned int i = 0; i < c->numAttrs; i++) {
		const CUlaunchAttribute *a = &c->attrs[i];

		switch (a->id) {
		case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
			w->cooperative = a->value.cooperative;
			break;
		case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
			w->clustered = a->value.clusterDim.x * a->value.clusterDim.y *
					       a->value.clusterDim.z >
				       1;
			break;
		case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
			w->started = a->value.launchCompletionEvent.event;
			break;
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
			/* Nobody triggers it, so it is reached with the kernel's end. */
			w->ended = a->value.programmaticEvent.event;
			break;
		case CU_LAUNCH_ATTRIBUTE_PRIORITY:
			if (a->value.priority < -5 || a->value.priority > 0)
				return CUDA_ERROR_INVALID_VALUE;
			break;
		case CU_LAUNCH_ATTRIBUTE_IGNORE:
		case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
		case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
			break;
		default:
			return CUDA_ERROR_NOT_SUPPORTED;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult launch(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	struct op op = {.kind = OP_KERNEL,
			.grid = {c->gridDimX, c->gridDimY, c->gridDimZ},
			.block = {c->blockDimX, c->blockDimY, c->blockDimZ},
			.shared = c->sharedMemBytes};
	CUstream s;
	struct wish w;
	CUresult r;

	if (fake_is_over())
		return CUDA_ERROR_DEINITIALIZED;
	if (fake_launch_error)
		return fake_launch_error;
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	s = fake_stream_of(c->hStream, 0);
	op.ctx = s->ctx;
	r = fake_ctx_error(op.ctx);
	if (r == CUDA_SUCCESS)
		r = wishes(c, &w);
	if (r == CUDA_SUCCESS)
		r = fits(c, f, w.cooperative);
	/* The emulator has no clusters; events of a capture would be edges of its graph. */
	if (r == CUDA_SUCCESS &&
	    ((w.clustered && f->ptx) || ((w.started || w.ended) && s->capture)))
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (r != CUDA_SUCCESS)
		return r;
	if (f->ptx) {
		op.ptx = f->ptx;
		op.own_bytes = ptx_param_bytes(f->ptx);
		op.own = block_of(f->ptx, params, extra);
		if (!op.own)
			return CUDA_ERROR_INVALID_VALUE;
	}
	fake_limit_lock(s->ctx);
	load(f);
	if (!f->ptx)
		op.kernel = fake_function(f->name);
	if (op.kernel && params)
		memcpy(&op.params[0], params[0], sizeof(void *));
	if (w.started) {
		pthread_mutex_lock(&fake_lock);
		op.event = w.started;
		op.point = ++w.started->recorded;
		pthread_mutex_unlock(&fake_lock);
	}
	fake_put(s, &op);
	fake_limit_launched(s);
	return w.ended ? cuEventRecordWithFlags(w.ended, s, 0) : CUDA_SUCCESS;
}
API CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
			    unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			    CUstream s, void **params, void **extra)
{
	SEEN();
	return launch(&(CUlaunchConfig){.gridDimX = gx,
					.gridDimY = gy,
					.gridDimZ = gz,
					.blockDimX = bx,
					.blockDimY = by,
					.blockDimZ = bz,
					.sharedMemBytes = shared,
					.hStream = s},
		      f, params, extra);
}
API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned int gy,
				       unsigned int gz, unsigned int bx, unsigned int by,
				       unsigned int bz, unsigned int shared, CUstream s,
				       void **params)
{
	CUlaunchAttribute a = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};

	SEEN();
	return launch(&(CUlaunchConfig){.gridDimX = gx,
					.gridDimY = gy,
					.gridDimZ = gz,
					.blockDimX = bx,
					.blockDimY = by,
					.blockDimZ = bz,
					.sharedMemBytes = shared,
					.hStream = s,
					.attrs = &a,
					.numAttrs = 1},
		      f, params, NULL);
}
API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	SEEN();
	return launch(c, f, params, extra);
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *nr, CUfunction f, int threads,
							 size_t shared)
{
	SEEN();
	*nr = threads > 0 && shared <= f->most_shared ? (int)fake_occupancy((unsigned int)threads)
						      : 0;
	return CUDA_SUCCESS;
}
API CUresult cuFuncLoad(CUfunction f)
{
	SEEN();
	load(f);
	return CUDA_SUCCESS;
}
