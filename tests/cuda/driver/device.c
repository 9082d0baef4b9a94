/*
 * Devices and contexts of the test driver, and cuGetProcAddress().
 *
 * FAKE_CUDA_GDR: RDMA devices can access GPU memory (GPUDirect RDMA). "dmabuf": through a dma-buf.
 * "plain": by address only. "ordered": through a dma-buf, and the GPU sees the writes in order.
 * FAKE_CUDA_WITHOUT: the name of a function that the driver does not have.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/cuda/driver/internal.h"

int fake_over, fake_errors[MAX_DEVICES], fake_stops[MAX_DEVICES];
unsigned int fake_peers[MAX_DEVICES];

static int none(void)
{
	const char *v = getenv("FAKE_CUDA_DEVICES");

	return v && atoi(v) < 1;
}

/* At exit the driver shuts down in its exit handler's turn. Later calls fail. */
static void over(void)
{
	__atomic_store_n(&fake_over, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < MAX_DEVICES; i++)
		__atomic_store_n(&fake_stops[i], 1, __ATOMIC_RELAXED);
}
static void begin(void)
{
	atexit(over);
}

API CUresult cuInit(unsigned int flags)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	SEEN(cuInit);
	fake_fault_hang("late");
	fake_limit_start();
	pthread_once(&once, begin);
	return none() ? CUDA_ERROR_NO_DEVICE : REAL(cuInit)(flags);
}
API CUresult cuDriverGetVersion(int *version)
{
	SEEN(cuDriverGetVersion);
	*version = getenv("FAKE_CUDA_GREEN") ? 13010 : CUDA_VERSION;
	if (getenv("FAKE_CUDA_VERSION"))
		*version = atoi(getenv("FAKE_CUDA_VERSION"));
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	SEEN(cuDeviceGetName);
	if (!getenv("FAKE_CUDA_MIG"))
		return REAL(cuDeviceGetName)(name, len, dev);
	snprintf(name, (size_t)len, "a GPU MIG 1g.10gb");
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetCount(int *nr)
{
	SEEN(cuDeviceGetCount);
	*nr = 0;
	return none() ? CUDA_SUCCESS : REAL(cuDeviceGetCount)(nr);
}

int fake_device(void)
{
	CUdevice dev = -1;

	return REAL(cuCtxGetDevice)(&dev) == CUDA_SUCCESS ? dev : -1;
}
int fake_device_of(CUstream s)
{
	CUdevice dev = -1;

	if (!s || s == CU_STREAM_LEGACY || s == CU_STREAM_PER_THREAD)
		return fake_device();
	return REAL(cuStreamGetDevice)(s, &dev) == CUDA_SUCCESS ? dev : -1;
}

unsigned int fake_multiprocessors(void)
{
	const char *v = getenv("FAKE_CUDA_SMS");

	return v && atoi(v) > 0 ? (unsigned int)atoi(v) : 1;
}
int fake_gdr(const char *how)
{
	const char *is = getenv("FAKE_CUDA_GDR");

	return is && strcmp(is, how) == 0;
}
API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what, CUdevice dev)
{
	const char *mps = getenv("FAKE_CUDA_MPS"), *old = getenv("FAKE_CUDA_OLD");

	SEEN(cuDeviceGetAttribute);
	if (what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR && old && atoi(old) == dev) {
		*value = 7;
		return CUDA_SUCCESS;
	}
	switch (what) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
		*value = getenv("FAKE_CUDA_EXCLUSIVE") ? CU_COMPUTEMODE_EXCLUSIVE_PROCESS
						       : CU_COMPUTEMODE_DEFAULT;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
		/* "old": a driver that does not know this attribute. */
		if (mps && strcmp(mps, "old") == 0)
			return CUDA_ERROR_INVALID_VALUE;
		*value = mps && atoi(mps);
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
		*value = getenv("FAKE_CUDA_GDR") != NULL;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
		*value = fake_gdr("dmabuf") || fake_gdr("ordered");
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
		*value = fake_gdr("ordered") ? CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER
					     : CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
		*value = 0;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		*value = 0x10 + dev;
		return CUDA_SUCCESS;
	default:
		return REAL(cuDeviceGetAttribute)(value, what, dev);
	}
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev)
{
	SEEN(cuDevicePrimaryCtxRetain);
	fake_limit_start();
	if (fake_fault("busy") || !fake_limit_exclusive(dev))
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	return REAL(cuDevicePrimaryCtxRetain)(out, dev);
}
API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	int device = fake_device(), other = -1;
	CUresult r;

	SEEN(cuCtxEnablePeerAccess);
	if (getenv("FAKE_CUDA_NO_P2P"))
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (REAL(cuCtxPushCurrent_v2)(peer) == CUDA_SUCCESS) {
		other = fake_device();
		REAL(cuCtxPopCurrent_v2)(NULL);
	}
	r = REAL(cuCtxEnablePeerAccess)(peer, flags);
	if (r == CUDA_SUCCESS && device >= 0 && other >= 0)
		__atomic_fetch_or(&fake_peers[device % MAX_DEVICES], 1u << other, __ATOMIC_RELAXED);
	fake_changed();
	return r;
}
API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	SEEN(cuDeviceCanAccessPeer);
	*can = 0;
	return getenv("FAKE_CUDA_NO_P2P") ? CUDA_SUCCESS
					  : REAL(cuDeviceCanAccessPeer)(can, device, peer);
}
API CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	SEEN(cuCtxPushCurrent_v2);
	return fake_is_over() ? CUDA_ERROR_DEINITIALIZED : REAL(cuCtxPushCurrent_v2)(ctx);
}
API CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	SEEN(cuCtxGetCurrent);
	return fake_is_over() ? CUDA_ERROR_DEINITIALIZED : REAL(cuCtxGetCurrent)(ctx);
}
API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	SEEN(cuModuleGetLoadingMode);
	*mode = getenv("FAKE_CUDA_EAGER") ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}

/* ---- waits, which a kernel's fault ends ------------------------------------------------------ */

/*
 * Polls `question` until it returns anything but CUDA_ERROR_NOT_READY, or until a kernel on
 * `device` has caused a fault.
 */
#define WAIT(device, question)                                                                     \
	({                                                                                         \
		CUresult r_;                                                                       \
		while ((r_ = (question)) == CUDA_ERROR_NOT_READY && !fake_error(device))           \
			usleep(50);                                                                \
		fake_error(device) ? fake_error(device) : r_;                                      \
	})
static int emulates(void)
{
	return __atomic_load_n(&fake_emulates, __ATOMIC_RELAXED);
}

API CUresult cuStreamQuery(CUstream s)
{
	int device = fake_device_of(s);

	SEEN(cuStreamQuery);
	if (fake_is_over())
		return CUDA_ERROR_DEINITIALIZED;
	return fake_error(device) ? fake_error(device) : REAL(cuStreamQuery)(s);
}
API CUresult cuStreamSynchronize(CUstream s)
{
	SEEN(cuStreamSynchronize);
	return emulates() ? WAIT(fake_device_of(s), REAL(cuStreamQuery)(s))
			  : REAL(cuStreamSynchronize)(s);
}
API CUresult cuEventQuery(CUevent e)
{
	SEEN(cuEventQuery);
	return fake_error(fake_device()) ? fake_error(fake_device()) : REAL(cuEventQuery)(e);
}
API CUresult cuEventSynchronize(CUevent e)
{
	SEEN(cuEventSynchronize);
	return emulates() ? WAIT(fake_device(), REAL(cuEventQuery)(e))
			  : REAL(cuEventSynchronize)(e);
}
static CUresult idle(int device)
{
	return fake_host->pending(device, NULL) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
API CUresult cuCtxSynchronize(void)
{
	SEEN(cuCtxSynchronize);
	return emulates() ? WAIT(fake_device(), idle(fake_device())) : REAL(cuCtxSynchronize)();
}
static CUresult behind_fault(CUresult r)
{
	return fake_error(fake_device()) ? fake_error(fake_device()) : r;
}
API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	SEEN(cuMemcpyDtoH_v2);
	return behind_fault(REAL(cuMemcpyDtoH_v2)(to, from, bytes));
}
API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	SEEN(cuMemcpyHtoD_v2);
	return behind_fault(REAL(cuMemcpyHtoD_v2)(to, from, bytes));
}

/* ---- asking for functions -------------------------------------------------------------------- */

static CUresult newer_form(void)
{
	return CUDA_SUCCESS;
}

API CUresult cuGetProcAddress_v2(const char *base, void **out, int version, cuuint64_t flags,
				 CUdriverProcAddressQueryResult *status)
{
	const char *newer = getenv("FAKE_CUDA_NEWER"), *without = getenv("FAKE_CUDA_WITHOUT");
	CUresult r;

	SEEN(cuGetProcAddress_v2);
	*out = NULL;
	if (without && strcmp(without, base) == 0)
		return CUDA_ERROR_NOT_FOUND;
	r = REAL(cuGetProcAddress_v2)(base, out, version, flags, status);
	if (r == CUDA_SUCCESS && newer && strcmp(newer, base) == 0 && version >= 13010)
		*out = (void *)newer_form;
	else if (*out)
		*out = fake_ours(*out);
	return r;
}
API CUresult cuGetProcAddress(const char *base, void **out, int version, cuuint64_t flags)
{
	SEEN(cuGetProcAddress);
	return cuGetProcAddress_v2(base, out, version, flags, NULL);
}
