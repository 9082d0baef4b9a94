/*
 * Memory of the test driver: allocations that wait or fail, and the memory that kernels may use.
 * FAKE_CUDA_NO_IPC: IPC handles are refused, as for MIG instances. FAKE_CUDA_NO_OPEN: IPC handles
 * can be made but not opened. FAKE_CUDA_NO_P2P: no device can access another. FAKE_CUDA_NO_BYTES:
 * an allocation of this number of bytes always fails.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/cuda/driver/dmabuf.h"
#include "tests/cuda/driver/internal.h"

uint64_t fake_generation;
int fake_alloc_waits, fake_alloc_fails;

/*
 * RELEASE pairs with the ACQUIRE in known() (ptx/mem.c): a kernel that sees the new number asks
 * again which memory exists.
 */
void fake_changed(void)
{
	__atomic_fetch_add(&fake_generation, 1, __ATOMIC_RELEASE);
}

static int waits(int device)
{
	if (fake_is_over())
		return 0;
	if (fake_alloc_waits && fake_host->pending(-1, NULL))
		return 1;
	return device >= 0 && fake_limit("sync") && !fake_error(device) &&
	       fake_host->pending(device, NULL);
}
static void alloc_wait(void)
{
	int device = fake_device();

	fake_fault_hang("hang");
	fake_limit_lock(device);
	while (waits(device))
		usleep(50);
}

/* While a thread that frees waits, it holds the context's lock, so no other thread can enter. */
static void free_wait(void)
{
	fake_fault_hang("hang");
	fake_limit_alone(fake_device(), waits);
}

static CUresult device_alloc(size_t bytes)
{
	const char *no = getenv("FAKE_CUDA_NO_BYTES");

	alloc_wait();
	if (fake_error(fake_device()))
		return fake_error(fake_device());
	if ((no && strtoull(no, NULL, 10) == bytes) ||
	    __atomic_fetch_sub(&fake_alloc_fails, 1, __ATOMIC_RELAXED) > 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	__atomic_store_n(&fake_alloc_fails, 0, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

/* Defines a function that evaluates `before`, then calls libdfhost.so's unless `before` fails. */
#define WAITS(name, params, before, args)                                                          \
	API CUresult name params                                                                   \
	{                                                                                          \
		CUresult r;                                                                        \
                                                                                                   \
		SEEN(name);                                                                        \
		r = before;                                                                        \
		if (r == CUDA_SUCCESS)                                                             \
			r = REAL(name) args;                                                       \
		fake_changed();                                                                    \
		return r;                                                                          \
	}
#define SLOW  (alloc_wait(), CUDA_SUCCESS)
#define ALONE (free_wait(), CUDA_SUCCESS)
WAITS(cuMemAlloc_v2, (CUdeviceptr * out, size_t bytes), device_alloc(bytes), (out, bytes))
WAITS(cuMemAllocManaged, (CUdeviceptr * out, size_t bytes, unsigned int flags), device_alloc(bytes),
      (out, bytes, flags))
WAITS(cuMemFree_v2, (CUdeviceptr p), ALONE, (p))
WAITS(cuMemUnmap, (CUdeviceptr p, size_t bytes), ALONE, (p, bytes))
WAITS(cuMemHostAlloc, (void **out, size_t bytes, unsigned int flags), SLOW, (out, bytes, flags))
WAITS(cuMemFreeHost, (void *p), ALONE, (p))
/*
 * With sync_alloc() this takes 30 ms, so that a caller that does not wait has work on streams by
 * then.
 */
WAITS(cuMemHostRegister_v2, (void *p, size_t bytes, unsigned int flags),
      (fake_alloc_waits ? usleep(30000) : 0, SLOW), (p, bytes, flags))
WAITS(cuMemHostUnregister, (void *p), ALONE, (p))

API CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p)
{
	SEEN(cuIpcGetMemHandle);
	return getenv("FAKE_CUDA_NO_IPC") ? CUDA_ERROR_NOT_SUPPORTED
					  : REAL(cuIpcGetMemHandle)(out, p);
}
WAITS(cuIpcOpenMemHandle_v2, (CUdeviceptr * out, CUipcMemHandle handle, unsigned int flags),
      getenv("FAKE_CUDA_NO_OPEN") ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS, (out, handle, flags))

/* Finds the file of this process that holds the device memory at `base`, from its IPC handle. */
static CUresult file_of(CUdeviceptr base, struct fake_dmabuf *out)
{
	/* The layout of a handle: see interpose/hostcuda/cudart/ipc.c. */
	struct {
		uint64_t magic;
		int32_t pid, fd;
		uint64_t dev, ino, offset, bytes;
	} h;
	CUipcMemHandle handle;
	struct stat st;
	CUresult r = REAL(cuIpcGetMemHandle)(&handle, base);

	if (r != CUDA_SUCCESS)
		return r;
	memcpy(&h, &handle, sizeof(h));
	if (fstat(h.fd, &st) || st.st_dev != h.dev || st.st_ino != h.ino)
		abort();
	*out = (struct fake_dmabuf){FAKE_DMABUF_MAGIC, h.fd, h.offset, h.bytes};
	return CUDA_SUCCESS;
}

API CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr p, size_t bytes,
					   CUmemRangeHandleType type, unsigned long long flags)
{
	CUpointer_attribute what = CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE) - 1;
	CUdeviceptr start = 0;
	void *data = &start;
	struct fake_dmabuf b;
	CUresult r;
	int fd;

	SEEN(cuMemGetHandleForAddressRange);
	if (!handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags || (p & page) ||
	    (bytes & page) || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (fake_device() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!fake_gdr("dmabuf") && !fake_gdr("ordered"))
		return CUDA_ERROR_NOT_SUPPORTED;
	r = REAL(cuPointerGetAttributes)(1, &what, &data, p);
	if (r == CUDA_SUCCESS)
		r = file_of(start, &b);
	if (r != CUDA_SUCCESS)
		return r;
	if (p - start + bytes > b.bytes)
		return CUDA_ERROR_INVALID_VALUE;
	b.offset += p - start;
	b.bytes = bytes;
	/* without MFD_CLOEXEC: CUDA does not document that child programs do not inherit it */
	fd = memfd_create("dmabuf", 0);
	if (fd < 0 || write(fd, &b, sizeof(b)) != sizeof(b))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*(int *)handle = fd;
	return CUDA_SUCCESS;
}

/*
 * Whether kernels on `device` may use the memory; if so, *from and *to are set to its range. All
 * devices may use host memory that the driver allocated or registered. Peer access opens the memory
 * of another device, except memory mapped by cuMemMap(): cuMemSetAccess() decides about that.
 */
int fake_usable(int device, uintptr_t at, size_t bytes, uintptr_t *from, uintptr_t *to)
{
	CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				      CU_POINTER_ATTRIBUTE_IS_MANAGED,
				      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
				      CU_POINTER_ATTRIBUTE_RANGE_SIZE,
				      CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
	unsigned int type = 0, managed = 0, whole = 0;
	CUdeviceptr start = 0;
	size_t size = 0;
	int owner = -2;
	void *data[] = {&type, &managed, &owner, &start, &size, &whole};

	if (REAL(cuPointerGetAttributes)(6, what, data, at) != CUDA_SUCCESS || !type)
		return 0;
	if (at + bytes > start + size ||
	    !(type == CU_MEMORYTYPE_HOST || managed || owner == device ||
	      (whole && __atomic_load_n(&fake_peers[device], __ATOMIC_RELAXED) >> owner & 1)))
		return 0;
	*from = start;
	*to = start + size;
	return 1;
}
