/*
 * Devices as the application sees them: their number, their abilities, the current one of a thread,
 * and access to each other's memory. The devices are alike: a share of this machine's memory each,
 * separate PCI addresses, and the limits of a device of compute capability 9.0, since no kernel
 * ever runs to see others. Any thread.
 */
#include "interpose/hostcuda/code.h"
#include "interpose/hostcuda/skins.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHARED_BLOCK 49152
#define SHARED_OPTIN 232448
#define SHARED_SM    233472
#define REGISTERS    65536
#define L2_BYTES     (50 << 20)
#define NR_SM	     132
#define THREADS_SM   2048
#define BLOCKS_SM    32
#define MEM_BUS_BITS 5120
#define CAPABILITY   9

static unsigned short pci_bus(int device)
{
	return (unsigned short)(1 + device % 255);
}

static int pci_domain(int device)
{
	return device / 255;
}

/*
 * Makes a device's UUID. It is equal in all processes of the machine and different on other
 * machines.
 */
static void uuid_of(int device, unsigned char out[16])
{
	uint64_t h = 14695981039346656037ull;
	char host[64] = "";
	size_t i;

	gethostname(host, sizeof(host) - 1);
	for (i = 0; host[i]; i++)
		h = (h ^ (unsigned char)host[i]) * 1099511628211ull;
	memcpy(out, "dfhost", 6);
	memcpy(out + 6, &h, 8);
	out[14] = (unsigned char)(device >> 8);
	out[15] = (unsigned char)device;
}

static cudaError_t device_arg(int device)
{
	cudaError_t err = df_henter();

	return err ? err : df_hdevice_ok(device) ? cudaSuccess : cudaErrorInvalidDevice;
}

DF_H_API cudaError_t cudaGetDeviceCount(int *count)
{
	cudaError_t err = df_henter();

	if (!err && !count)
		err = cudaErrorInvalidValue;
	if (!err)
		*count = df_h.nr_devices;
	return df_hret(err);
}

DF_H_API cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
	cudaError_t err = device_arg(device);

	(void)device_flags;
	if (!err && flags > cudaInitDeviceFlagsAreValid)
		err = cudaErrorInvalidValue;
	if (!err && !df_hdev_get(device))
		err = cudaErrorMemoryAllocation;
	return df_hret(err);
}

DF_H_API cudaError_t cudaGetDevice(int *device)
{
	cudaError_t err = df_henter();

	if (!err && !device)
		err = cudaErrorInvalidValue;
	if (!err)
		*device = df_htls.device;
	return df_hret(err);
}

DF_H_API cudaError_t cudaSetValidDevices(int *devices, int len)
{
	cudaError_t err = df_henter();
	int i;

	if (!err && len && !devices)
		err = cudaErrorInvalidValue;
	for (i = 0; !err && i < len; i++)
		err = df_hdevice_ok(devices[i]) ? cudaSuccess : cudaErrorInvalidDevice;
	return df_hret(err);
}

DF_H_API cudaError_t cudaSetDeviceFlags(unsigned flags)
{
	cudaError_t err = df_henter();
	struct df_hdev *dev;

	if (!err && (flags & ~(unsigned)cudaDeviceMask))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	dev = df_hdev_current();
	if (!dev)
		return df_hret(cudaErrorMemoryAllocation);
	/* RELAXED: a flag that only cudaGetDeviceFlags() reads. */
	__atomic_store_n(&dev->flags, flags, __ATOMIC_RELAXED);
	return cudaSuccess;
}

DF_H_API cudaError_t cudaGetDeviceFlags(unsigned *flags)
{
	cudaError_t err = df_henter();
	struct df_hdev *dev;

	if (!err && !flags)
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	dev = df_hdev_current();
	/* RELAXED for the reason given in cudaSetDeviceFlags(). */
	*flags = (dev ? __atomic_load_n(&dev->flags, __ATOMIC_RELAXED) : 0) | cudaDeviceMapHost;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *prop)
{
	cudaError_t err = df_henter();

	if (!err && (!device || !prop))
		err = cudaErrorInvalidValue;
	if (!err)
		*device = 0;
	return df_hret(err);
}

/* -- properties -------------------------------------------------------------------------------- */

/* For the structures of CUDA 13 and CUDA 12, which have these members in common. */
#define FILL_COMMON(p, device)                                                                     \
	do {                                                                                       \
		memset(p, 0, sizeof(*(p)));                                                        \
		snprintf((p)->name, sizeof((p)->name), "dfshim host device");                      \
		uuid_of(device, (unsigned char *)&(p)->uuid);                                      \
		(p)->totalGlobalMem = df_h.device_bytes;                                           \
		(p)->sharedMemPerBlock = SHARED_BLOCK;                                             \
		(p)->regsPerBlock = REGISTERS;                                                     \
		(p)->warpSize = 32;                                                                \
		(p)->memPitch = INT_MAX;                                                           \
		(p)->maxThreadsPerBlock = 1024;                                                    \
		(p)->maxThreadsDim[0] = (p)->maxThreadsDim[1] = 1024;                              \
		(p)->maxThreadsDim[2] = 64;                                                        \
		(p)->maxGridSize[0] = INT_MAX;                                                     \
		(p)->maxGridSize[1] = (p)->maxGridSize[2] = 65535;                                 \
		(p)->totalConstMem = 65536;                                                        \
		(p)->major = CAPABILITY;                                                           \
		(p)->textureAlignment = DF_H_ALIGN;                                                \
		(p)->texturePitchAlignment = 32;                                                   \
		(p)->multiProcessorCount = NR_SM;                                                  \
		(p)->canMapHostMemory = 1;                                                         \
		(p)->surfaceAlignment = DF_H_ALIGN;                                                \
		(p)->concurrentKernels = 1;                                                        \
		(p)->pciBusID = pci_bus(device);                                                   \
		(p)->pciDomainID = pci_domain(device);                                             \
		(p)->asyncEngineCount = 1;                                                         \
		(p)->unifiedAddressing = 1;                                                        \
		(p)->memoryBusWidth = MEM_BUS_BITS;                                                \
		(p)->l2CacheSize = L2_BYTES;                                                       \
		(p)->maxThreadsPerMultiProcessor = THREADS_SM;                                     \
		(p)->streamPrioritiesSupported = 1;                                                \
		(p)->globalL1CacheSupported = (p)->localL1CacheSupported = 1;                      \
		(p)->sharedMemPerMultiprocessor = SHARED_SM;                                       \
		(p)->regsPerMultiprocessor = REGISTERS;                                            \
		(p)->managedMemory = 1;                                                            \
		(p)->multiGpuBoardGroupID = device;                                                \
		(p)->hostNativeAtomicSupported = 1;                                                \
		(p)->concurrentManagedAccess = 1;                                                  \
		(p)->computePreemptionSupported = 1;                                               \
		(p)->canUseHostPointerForRegisteredMem = 1;                                        \
		(p)->cooperativeLaunch = 1;                                                        \
		(p)->sharedMemPerBlockOptin = SHARED_OPTIN;                                        \
		(p)->directManagedMemAccessFromHost = 1;                                           \
		(p)->maxBlocksPerMultiProcessor = BLOCKS_SM;                                       \
		(p)->reservedSharedMemPerBlock = 1024;                                             \
		(p)->hostRegisterSupported = 1;                                                    \
		(p)->memoryPoolsSupported = 1;                                                     \
		(p)->clusterLaunch = 1;                                                            \
		(p)->unifiedFunctionPointers = 1;                                                  \
	} while (0)

DF_H_API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
	cudaError_t err = device_arg(device);

	if (!err && !prop)
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	FILL_COMMON(prop, device);
	prop->deviceNumaId = -1;
	prop->hostNumaId = -1;
	return cudaSuccess;
}

/* The structure of programs that were compiled against CUDA 12. */
struct prop12 {
	char name[256];
	unsigned char uuid[16];
	char luid[8];
	unsigned luidDeviceNodeMask;
	size_t totalGlobalMem, sharedMemPerBlock;
	int regsPerBlock, warpSize;
	size_t memPitch;
	int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
	size_t totalConstMem;
	int major, minor;
	size_t textureAlignment, texturePitchAlignment;
	int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated;
	int canMapHostMemory, computeMode, textures[40];
	size_t surfaceAlignment;
	int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver;
	int asyncEngineCount, unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize;
	int persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported;
	int globalL1CacheSupported, localL1CacheSupported;
	size_t sharedMemPerMultiprocessor;
	int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID;
	int hostNativeAtomicSupported, singleToDoublePrecisionPerfRatio, pageableMemoryAccess;
	int concurrentManagedAccess, computePreemptionSupported;
	int canUseHostPointerForRegisteredMem, cooperativeLaunch, cooperativeMultiDeviceLaunch;
	size_t sharedMemPerBlockOptin;
	int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost;
	int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
	size_t reservedSharedMemPerBlock;
	int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported;
	int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
	unsigned gpuDirectRDMAFlushWritesOptions;
	int gpuDirectRDMAWritesOrdering;
	unsigned memoryPoolSupportedHandleTypes;
	int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch;
	int unifiedFunctionPointers, reserved[63];
};

_Static_assert(sizeof(struct prop12) == 1032, "size of cudaDeviceProp in CUDA 12");

DF_H_VERSION_12(cudaGetDeviceProperties_v2)
DF_H_API cudaError_t df12_cudaGetDeviceProperties_v2(struct prop12 *prop, int device);
DF_H_API cudaError_t df12_cudaGetDeviceProperties_v2(struct prop12 *prop, int device)
{
	cudaError_t err = device_arg(device);

	if (!err && !prop)
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	FILL_COMMON(prop, device);
	prop->clockRate = 1000000;
	prop->memoryClockRate = 1000000;
	prop->deviceOverlap = 1;
	prop->singleToDoublePrecisionPerfRatio = 2;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
	static const struct {
		short attr;
		int value;
	} known[] = {
		{cudaDevAttrMaxThreadsPerBlock, 1024},
		{cudaDevAttrMaxBlockDimX, 1024},
		{cudaDevAttrMaxBlockDimY, 1024},
		{cudaDevAttrMaxBlockDimZ, 64},
		{cudaDevAttrMaxGridDimX, INT_MAX},
		{cudaDevAttrMaxGridDimY, 65535},
		{cudaDevAttrMaxGridDimZ, 65535},
		{cudaDevAttrMaxSharedMemoryPerBlock, SHARED_BLOCK},
		{cudaDevAttrTotalConstantMemory, 65536},
		{cudaDevAttrWarpSize, 32},
		{cudaDevAttrMaxPitch, INT_MAX},
		{cudaDevAttrMaxRegistersPerBlock, REGISTERS},
		{cudaDevAttrClockRate, 1000000},
		{cudaDevAttrTextureAlignment, DF_H_ALIGN},
		{cudaDevAttrGpuOverlap, 1},
		{cudaDevAttrMultiProcessorCount, NR_SM},
		{cudaDevAttrCanMapHostMemory, 1},
		{cudaDevAttrSurfaceAlignment, DF_H_ALIGN},
		{cudaDevAttrConcurrentKernels, 1},
		{cudaDevAttrMemoryClockRate, 1000000},
		{cudaDevAttrGlobalMemoryBusWidth, MEM_BUS_BITS},
		{cudaDevAttrL2CacheSize, L2_BYTES},
		{cudaDevAttrMaxThreadsPerMultiProcessor, THREADS_SM},
		{cudaDevAttrAsyncEngineCount, 1},
		{cudaDevAttrUnifiedAddressing, 1},
		{cudaDevAttrTexturePitchAlignment, 32},
		{cudaDevAttrComputeCapabilityMajor, CAPABILITY},
		{cudaDevAttrStreamPrioritiesSupported, 1},
		{cudaDevAttrGlobalL1CacheSupported, 1},
		{cudaDevAttrLocalL1CacheSupported, 1},
		{cudaDevAttrMaxSharedMemoryPerMultiprocessor, SHARED_SM},
		{cudaDevAttrMaxRegistersPerMultiprocessor, REGISTERS},
		{cudaDevAttrManagedMemory, 1},
		{cudaDevAttrHostNativeAtomicSupported, 1},
		{cudaDevAttrSingleToDoublePrecisionPerfRatio, 2},
		{cudaDevAttrConcurrentManagedAccess, 1},
		{cudaDevAttrComputePreemptionSupported, 1},
		{cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
		{cudaDevAttrCooperativeLaunch, 1},
		{cudaDevAttrMaxSharedMemoryPerBlockOptin, SHARED_OPTIN},
		{cudaDevAttrHostRegisterSupported, 1},
		{cudaDevAttrDirectManagedMemAccessFromHost, 1},
		{cudaDevAttrMaxBlocksPerMultiprocessor, BLOCKS_SM},
		{cudaDevAttrReservedSharedMemoryPerBlock, 1024},
		{cudaDevAttrMemoryPoolsSupported, 1},
		{cudaDevAttrClusterLaunch, 1},
		{cudaDevAttrMemSyncDomainCount, 4},
		{(enum cudaDeviceAttr)102, 1}, /* the driver's: memory can be mapped by hand, ... */
		{(enum cudaDeviceAttr)103, 1}, /* ... and exported as a descriptor */
		{cudaDevAttrReserved122, 1},   /* the driver's: words of 64 bits in streams, ... */
		{cudaDevAttrReserved123, 1},   /* ... and waits for a bit that is not set */
		{cudaDevAttrNumaId, -1},
		{cudaDevAttrHostNumaId, -1},
	};
	cudaError_t err = device_arg(device);
	size_t i;

	if (!err && (!value || attr < 1 || attr > 200))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	*value = attr == cudaDevAttrPciBusId		   ? pci_bus(device)
		 : attr == cudaDevAttrPciDomainId	   ? pci_domain(device)
		 : attr == cudaDevAttrMultiGpuBoardGroupID ? device
							   : 0;
	for (i = 0; i < DF_ARRAY_LEN(known); i++)
		if (known[i].attr == (short)attr)
			*value = known[i].value;
	if (attr == cudaDevAttrMultiProcessorCount && df_hcode && df_hcode->multiprocessors)
		*value = (int)df_hcode->multiprocessors();
	return cudaSuccess;
}

DF_H_API cudaError_t cudaDeviceGetPCIBusId(char *out, int len, int device)
{
	cudaError_t err = device_arg(device);

	if (!err && (!out || len < 13))
		err = cudaErrorInvalidValue;
	if (!err)
		snprintf(out, (size_t)len, "%04x:%02x:00.0", pci_domain(device), pci_bus(device));
	return df_hret(err);
}

DF_H_API cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id)
{
	cudaError_t err = df_henter();
	unsigned domain = 0, bus, dev;
	int i;

	if (!err && (!device || !id))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	if (sscanf(id, "%x:%x:%x", &domain, &bus, &dev) < 3) {
		domain = 0;
		if (sscanf(id, "%x:%x", &bus, &dev) < 2)
			return df_hret(cudaErrorInvalidValue);
	}
	for (i = 0; i < df_h.nr_devices; i++) {
		if (pci_bus(i) == bus && (unsigned)pci_domain(i) == domain && !dev) {
			*device = i;
			return cudaSuccess;
		}
	}
	return df_hret(cudaErrorInvalidDevice);
}

DF_H_API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	cudaError_t err = df_henter();

	if (err)
		return df_hret(err);
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return cudaSuccess;
}

/* -- peers ------------------------------------------------------------------------------------- */

DF_H_API cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	cudaError_t err = device_arg(device);

	if (!err)
		err = device_arg(peer);
	if (!err && !can)
		err = cudaErrorInvalidValue;
	if (!err)
		*can = device != peer;
	return df_hret(err);
}

static cudaError_t peer_access(int peer, int on)
{
	cudaError_t err = device_arg(peer);
	struct df_hdev *dev;
	uint8_t bit = (uint8_t)(1 << (peer & 7));
	int was;

	if (err)
		return err;
	if (peer == df_htls.device)
		return cudaErrorInvalidDevice;
	dev = df_hdev_current();
	if (!dev)
		return cudaErrorMemoryAllocation;
	df_mutex_lock(&dev->lock);
	was = !!(dev->peers[peer / 8] & bit);
	if (on)
		dev->peers[peer / 8] |= bit;
	else
		dev->peers[peer / 8] &= (uint8_t)~bit;
	df_mutex_unlock(&dev->lock);
	if (was == on)
		return on ? cudaErrorPeerAccessAlreadyEnabled : cudaErrorPeerAccessNotEnabled;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
	return df_hret(flags ? cudaErrorInvalidValue : peer_access(peer, 1));
}

DF_H_API cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
	return df_hret(peer_access(peer, 0));
}

DF_H_API cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr, int src,
					       int dst)
{
	cudaError_t err = device_arg(src);

	if (!err)
		err = device_arg(dst);
	if (!err && src == dst)
		err = cudaErrorInvalidDevice;
	if (!err && (!value || attr < cudaDevP2PAttrPerformanceRank || attr > 5))
		err = cudaErrorInvalidValue;
	if (!err)
		*value = attr == cudaDevP2PAttrAccessSupported ||
			 attr == cudaDevP2PAttrNativeAtomicSupported;
	return df_hret(err);
}

/* -- settings without effect: checked, then ignored -------------------------------------------- */

static size_t limits[] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0};

DF_H_API cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
	cudaError_t err = df_henter();

	if (!err && (size_t)limit >= DF_ARRAY_LEN(limits))
		err = cudaErrorUnsupportedLimit;
	if (!err)
		/* RELAXED: only cudaDeviceGetLimit() reads it. */
		__atomic_store_n(&limits[limit], value, __ATOMIC_RELAXED);
	return df_hret(err);
}

DF_H_API cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
	cudaError_t err = df_henter();

	if (!err && !value)
		err = cudaErrorInvalidValue;
	if (!err && (size_t)limit >= DF_ARRAY_LEN(limits))
		err = cudaErrorUnsupportedLimit;
	if (!err)
		/* RELAXED for the reason given in cudaDeviceSetLimit(). */
		*value = __atomic_load_n(&limits[limit], __ATOMIC_RELAXED);
	return df_hret(err);
}

DF_H_API cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config)
{
	cudaError_t err = df_henter();

	if (!err && !config)
		err = cudaErrorInvalidValue;
	if (!err)
		*config = cudaFuncCachePreferNone;
	return df_hret(err);
}

DF_H_API cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config)
{
	(void)config;
	return df_hret(df_henter());
}

DF_H_API cudaError_t cudaCtxResetPersistingL2Cache(void)
{
	return df_hret(df_henter());
}

/* Host memory is coherent with everything that could write it. */
DF_H_API cudaError_t
cudaDeviceFlushGPUDirectRDMAWrites(enum cudaFlushGPUDirectRDMAWritesTarget target,
				   enum cudaFlushGPUDirectRDMAWritesScope scope)
{
	(void)target;
	(void)scope;
	return df_hret(df_henter());
}

DF_H_API cudaError_t cudaDriverGetVersion(int *version)
{
	if (!version)
		return df_hret(cudaErrorInvalidValue);
	*version = CUDART_VERSION;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaRuntimeGetVersion(int *version)
{
	return cudaDriverGetVersion(version);
}

DF_H_API cudaError_t cudaProfilerStart(void);
DF_H_API cudaError_t cudaProfilerStart(void)
{
	return df_hret(df_henter());
}

DF_H_API cudaError_t cudaProfilerStop(void);
DF_H_API cudaError_t cudaProfilerStop(void)
{
	return df_hret(df_henter());
}

DF_H_API struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
							    enum cudaChannelFormatKind f)
{
	return (struct cudaChannelFormatDesc){x, y, z, w, f};
}
