/* The devices and contexts of the stand-in driver, its answers to cuGetProcAddress, and what tests ask of it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/cuda/fake/internal.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define MAX_DEVICES 8

static struct CUctx_st primary[MAX_DEVICES];
static struct {
	const char *symbol;
	uint64_t n;
} counts[1024];
static __thread CUcontext current[16];
static __thread int depth;

void fake_count(const char *symbol)
{
	static FILE *log;
	int i;

	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < 1023 && counts[i].symbol && strcmp(counts[i].symbol, symbol) != 0; i++)
		;
	counts[i].symbol = symbol;
	counts[i].n++;
	if (!log && getenv("FAKE_CUDA_LOG"))
		log = fopen(getenv("FAKE_CUDA_LOG"), "ae");
	if (log) {
		fprintf(log, "%s\n", symbol);
		fflush(log);
	}
	pthread_mutex_unlock(&fake_lock);
}
CUcontext fake_ctx_now(void)
{
	return depth ? current[depth - 1] : NULL;
}

static int nr_devices(void)
{
	const char *v = getenv("FAKE_CUDA_DEVICES");
	int n = v ? atoi(v) : 1;

	return n < 1 ? 0 : n > MAX_DEVICES ? MAX_DEVICES : n;
}
int fake_over;

/* At exit() the driver ends when it is its turn; what is called then fails. */
static void over(void)
{
	__atomic_store_n(&fake_over, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < MAX_DEVICES; i++)
		__atomic_store_n(&primary[i].stop, 1, __ATOMIC_RELAXED);
}
static void begin(void)
{
	atexit(over);
}

API CUresult cuInit(unsigned int flags)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)flags;
	SEEN();
	fake_fault_hang("late");
	pthread_once(&once, begin);
	return nr_devices() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
API CUresult cuDriverGetVersion(int *version)
{
	SEEN();
	*version = getenv("FAKE_CUDA_GREEN") ? 13010 : CUDA_VERSION;
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetCount(int *nr)
{
	SEEN();
	*nr = nr_devices();
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGet(CUdevice *out, int i)
{
	SEEN();
	*out = i;
	return i >= 0 && i < nr_devices() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
API CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	SEEN();
	snprintf(name, (size_t)len, "fake %d", dev);
	return CUDA_SUCCESS;
}
API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	(void)dev;
	SEEN();
	*bytes = FAKE_DEVICE_BYTES;
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	SEEN();
	memset(uuid, dev + 1, sizeof(*uuid));
	return CUDA_SUCCESS;
}
unsigned int fake_multiprocessors(void)
{
	const char *v = getenv("FAKE_CUDA_SMS");

	return v && atoi(v) > 0 ? (unsigned int)atoi(v) : 1;
}
API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what, CUdevice dev)
{
	const char *mps;

	(void)dev;
	SEEN();
	switch (what) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		*value = 0;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = 1024;
		break;
	/* kHz: a kernel's clock counts nanoseconds. */
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
		*value = 1000000;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
		*value = getenv("FAKE_CUDA_EXCLUSIVE") ? CU_COMPUTEMODE_EXCLUSIVE_PROCESS
						       : CU_COMPUTEMODE_DEFAULT;
		break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = (int)fake_multiprocessors();
		break;
	case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
		/* "old": a driver that does not know the question. */
		mps = getenv("FAKE_CUDA_MPS");
		if (mps && strcmp(mps, "old") == 0)
			return CUDA_ERROR_INVALID_VALUE;
		*value = mps && atoi(mps);
		break;
	default:
		*value = 1;
	}
	return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev)
{
	SEEN();
	if (fake_fault("busy") || !fake_limit_exclusive(dev))
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	pthread_mutex_lock(&fake_lock);
	primary[dev].device = dev;
	primary[dev].refs++;
	if (!primary[dev].id)
		primary[dev].id = fake_next_id++;
	pthread_mutex_unlock(&fake_lock);
	*out = &primary[dev];
	return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	SEEN();
	*flags = 0;
	*active = primary[dev].refs > 0;
	return CUDA_SUCCESS;
}
API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUcontext ctx = fake_ctx_now();
	CUresult ret = CUDA_SUCCESS;

	(void)flags;
	SEEN();
	if (!ctx || !peer)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (getenv("FAKE_CUDA_NO_P2P"))
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	pthread_mutex_lock(&fake_lock);
	if (ctx->peers >> peer->device & 1)
		ret = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	ctx->peers |= 1u << peer->device;
	pthread_mutex_unlock(&fake_lock);
	return ret;
}
API CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
	SEEN();
	ctx = ctx ? ctx : fake_ctx_now();
	*id = ctx->id;
	return CUDA_SUCCESS;
}
API CUresult cuCtxSetCurrent(CUcontext ctx)
{
	SEEN();
	if (!depth)
		depth = 1;
	current[depth - 1] = ctx;
	return CUDA_SUCCESS;
}
API CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	SEEN();
	if (fake_is_over())
		return CUDA_ERROR_DEINITIALIZED;
	current[depth++] = ctx;
	return CUDA_SUCCESS;
}
API CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	SEEN();
	depth--;
	if (ctx)
		*ctx = current[depth];
	return CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	SEEN();
	if (fake_is_over())
		return CUDA_ERROR_DEINITIALIZED;
	*ctx = fake_ctx_now();
	return CUDA_SUCCESS;
}
API CUresult cuCtxGetDevice(CUdevice *dev)
{
	SEEN();
	if (!fake_ctx_now())
		return CUDA_ERROR_INVALID_CONTEXT;
	*dev = fake_ctx_now()->device;
	return CUDA_SUCCESS;
}
API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	SEEN();
	*least = 0;
	*greatest = -5;
	return CUDA_SUCCESS;
}
API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	SEEN();
	(void)mode;
	return CUDA_SUCCESS;
}
API CUresult cuGetErrorName(CUresult error, const char **name)
{
	SEEN();
	(void)error;
	*name = "FAKE";
	return CUDA_SUCCESS;
}

/* ---- asking for functions --------------------------------------------------------------------------- */

static CUresult newer_form(void)
{
	return CUDA_SUCCESS;
}

API CUresult cuGetProcAddress_v2(const char *base, void **out, int version, cuuint64_t flags,
				 CUdriverProcAddressQueryResult *status)
{
	const struct fake_symbol *s;
	const char *newer = getenv("FAKE_CUDA_NEWER");
	void *best = NULL;
	unsigned int nr, i;
	int pass, since = 0;

	SEEN();
	s = fake_symbols(&nr);
	/* First the per-thread form if that is wanted, then the other. */
	for (pass = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? 1 : 0;
	     pass >= 0 && !best; pass--)
		for (i = 0; i < nr; i++)
			if (s[i].ptds == pass && strcmp(s[i].base, base) == 0 &&
			    s[i].since <= version && s[i].since > since) {
				best = s[i].fn;
				since = s[i].since;
			}
	*out = NULL;
	if (strcmp(base, "cuGraphInstantiate") == 0 && version >= 12000)
		best = (void *)cuGraphInstantiateWithFlags;
	if (best && newer && strcmp(newer, base) == 0 && version >= 13010)
		*out = (void *)newer_form;
	else if (best)
		*out = best;
	if (status)
		*status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
API CUresult cuGetProcAddress(const char *base, void **out, int version, cuuint64_t flags)
{
	SEEN();
	return cuGetProcAddress_v2(base, out, version, flags, NULL);
}

/* ---- for tests -------------------------------------------------------------------------------------- */

static uint64_t calls(const char *symbol)
{
	uint64_t n = 0;
	int i;

	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < 1024 && counts[i].symbol; i++)
		if (!symbol || strcmp(counts[i].symbol, symbol) == 0)
			n += counts[i].n;
	pthread_mutex_unlock(&fake_lock);
	return n;
}
static int pending(void)
{
	int n;

	pthread_mutex_lock(&fake_lock);
	n = fake_all_pending(NULL);
	pthread_mutex_unlock(&fake_lock);
	return n;
}
static void fail_launch(int result)
{
	fake_launch_error = result;
}
static void sync_alloc(int on)
{
	fake_alloc_waits = on;
}
static void fail_alloc(int nr)
{
	fake_alloc_fails = nr;
}

API const struct fake_cuda *fake_cuda(void)
{
	static const struct fake_cuda f = {calls,      fake_set_kernel, pending,  fail_launch,
					   sync_alloc, fail_alloc,	fake_hide};

	return &f;
}
