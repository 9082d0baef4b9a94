/*
 * Memory that programs map themselves: addresses, memory and access follow the driver's
 * documentation; copies treat adjacent mappings as one buffer; new memory counts against its
 * device; another process gets it by a descriptor; invalid values are refused.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include "tests/hostcuda/programs/drv.h"

#include <sys/socket.h>
#include <sys/wait.h>

#define UNIT ((size_t)2 << 20)

static CUmemAllocationProp prop(int device)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static CUmemAccessDesc both(int device)
{
	return (CUmemAccessDesc){.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
				 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

static CUmemGenericAllocationHandle make(size_t units)
{
	CUmemAllocationProp p = prop(0);
	CUmemGenericAllocationHandle h;

	OK(DRV(cuMemCreate)(&h, units * UNIT, &p, 0));
	return h;
}

static size_t room(void)
{
	size_t here, all;

	CU(cudaMemGetInfo(&here, &all));
	return here;
}

static void addresses(void)
{
	CUdeviceptr a, b;

	OK(DRV(cuMemAddressReserve)(&a, 4 * UNIT, 0, 0, 0));
	CHECK(a % UNIT == 0);
	OK(DRV(cuMemAddressReserve)(&b, UNIT, 64 * UNIT, 0, 0));
	CHECK(b % (64 * UNIT) == 0);
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemAddressReserve)(&b, UNIT + 4096, 0, 0, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemAddressReserve)(&b, 0, 0, 0, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemAddressReserve)(&b, UNIT, 3 * UNIT, 0, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemAddressReserve)(&b, UNIT, 0, 0, 1));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemAddressReserve)(NULL, UNIT, 0, 0, 0));
	SAYS(CUDA_ERROR_OUT_OF_MEMORY, DRV(cuMemAddressReserve)(&a, (size_t)1 << 62, 0, 0, 0));
	/* A part of a reservation, and a range that is not reserved any more. */
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemAddressFree)(a, UNIT));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemAddressFree)(a + UNIT, 3 * UNIT));
	OK(DRV(cuMemAddressFree)(a, 4 * UNIT));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemAddressFree)(a, 4 * UNIT));
	/* The hint is used if there is room; it is no guarantee. */
	OK(DRV(cuMemAddressReserve)(&a, 4 * UNIT, 0, 0, 0));
	OK(DRV(cuMemAddressFree)(a, 4 * UNIT));
	OK(DRV(cuMemAddressReserve)(&b, UNIT, 0, a, 0));
	CHECK(a == b);
	OK(DRV(cuMemAddressReserve)(&b, UNIT, 0, a, 0));
	CHECK(a != b);
	OK(DRV(cuMemAddressFree)(a, UNIT));
	OK(DRV(cuMemAddressFree)(b, UNIT));
}

static void rights(void)
{
	CUmemAccessDesc d = both(0), other = both(1), none = both(99);
	CUmemGenericAllocationHandle h = make(2), again;
	struct cudaPointerAttributes attr;
	CUmemLocation at0 = d.location, at1 = other.location;
	unsigned long long flags;
	CUdeviceptr a, base;
	size_t bytes;
	char byte = 7;

	OK(DRV(cuMemAddressReserve)(&a, 4 * UNIT, 0, 0, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemMap)(a, 2 * UNIT, UNIT, h, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemMap)(a, 3 * UNIT, 0, h, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemMap)(a + 4096, UNIT, 0, h, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemMap)(a + 3 * UNIT, 2 * UNIT, 0, h, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemMap)(a, UNIT, 0, 4711, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemSetAccess)(a, UNIT, &d, 1));
	OK(DRV(cuMemMap)(a, 2 * UNIT, 0, h, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemMap)(a + UNIT, UNIT, 0, h, 0));
	/* The memory is mapped, but not accessible yet, so copies refuse it. */
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemcpyDtoH_v2)(&byte, a, 1));
	OK(DRV(cuMemGetAccess)(&flags, &at0, a));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemSetAccess)(a, UNIT, &d, 1));
	SAYS(CUDA_ERROR_INVALID_DEVICE, DRV(cuMemSetAccess)(a, 2 * UNIT, &none, 1));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemSetAccess)(a, 2 * UNIT, &d, 0));
	none = d;
	none.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemSetAccess)(a, 2 * UNIT, &none, 1));
	OK(DRV(cuMemSetAccess)(a, 2 * UNIT, &d, 1));
	OK(DRV(cuMemGetAccess)(&flags, &at0, a + UNIT));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(DRV(cuMemGetAccess)(&flags, &at1, a + UNIT));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemGetAccess)(&flags, &at0, a + 2 * UNIT));
	OK(DRV(cuMemsetD8_v2)(a, 5, 2 * UNIT));
	OK(DRV(cuMemcpyDtoH_v2)(&byte, a + 2 * UNIT - 1, 1));
	CHECK(byte == 5);
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemsetD8_v2)(a, 5, 2 * UNIT + 1));
	CU(cudaPointerGetAttributes(&attr, (void *)(uintptr_t)(a + 9)));
	CHECK(attr.type == cudaMemoryTypeDevice && attr.device == 0);
	OK(DRV(cuMemGetAddressRange_v2)(&base, &bytes, a + UNIT + 1));
	CHECK(base == a && bytes == 2 * UNIT);
	/* cuMemFree() refuses it, and it has no IPC handle. */
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemFree_v2)(a));
	{
		cudaIpcMemHandle_t ipc;

		GIVES(cudaErrorInvalidValue, cudaIpcGetMemHandle(&ipc, (void *)(uintptr_t)a));
	}
	/* Access can be revoked. */
	d.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	OK(DRV(cuMemSetAccess)(a, 2 * UNIT, &d, 1));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemsetD8_v2)(a, 5, 1));
	OK(DRV(cuMemSetAccess)(a, 2 * UNIT, &other, 1));
	OK(DRV(cuMemcpyDtoH_v2)(&byte, a, 1));

	/*
	 * Only whole mappings can be unmapped. The memory exists as long as a handle or a mapping
	 * does.
	 */
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemUnmap)(a, UNIT));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemUnmap)(a, 3 * UNIT));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemAddressFree)(a, 4 * UNIT));
	OK(DRV(cuMemRelease)(h));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemRelease)(h));
	OK(DRV(cuMemcpyDtoH_v2)(&byte, a, 1));
	CHECK(byte == 5);
	OK(DRV(cuMemRetainAllocationHandle)(&again, (void *)(uintptr_t)(a + UNIT)));
	CHECK(again == h);
	OK(DRV(cuMemUnmap)(a, 2 * UNIT));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemUnmap)(a, 2 * UNIT));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemcpyDtoH_v2)(&byte, a, 1));
	OK(DRV(cuMemMap)(a + UNIT, 2 * UNIT, 0, again, 0));
	d = both(0);
	OK(DRV(cuMemSetAccess)(a + UNIT, 2 * UNIT, &d, 1));
	byte = 0;
	OK(DRV(cuMemcpyDtoH_v2)(&byte, a + UNIT, 1));
	CHECK(byte == 5);
	OK(DRV(cuMemRelease)(again));
	OK(DRV(cuMemUnmap)(a + UNIT, 2 * UNIT));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemRelease)(again));
	SAYS(CUDA_ERROR_INVALID_VALUE,
	     DRV(cuMemRetainAllocationHandle)(&again, (void *)(uintptr_t)a));
	OK(DRV(cuMemAddressFree)(a, 4 * UNIT));
}

/* Adjacent pieces, as growing allocators map them, in any order. */
static void neighbours(void)
{
	CUmemGenericAllocationHandle h[5];
	CUmemAccessDesc d = both(0);
	size_t before = room(), i, order[5] = {3, 0, 4, 1, 2};
	CUdeviceptr a;
	char *host = malloc(5 * UNIT);

	OK(DRV(cuMemAddressReserve)(&a, 8 * UNIT, 0, 0, 0));
	for (i = 0; i < 5; i++) {
		h[order[i]] = make(1);
		OK(DRV(cuMemMap)(a + order[i] * UNIT, UNIT, 0, h[order[i]], 0));
		OK(DRV(cuMemSetAccess)(a + order[i] * UNIT, UNIT, &d, 1));
	}
	CHECK(before - room() == 5 * UNIT);
	for (i = 0; i < 5 * UNIT; i++)
		host[i] = (char)(i % 251);
	OK(DRV(cuMemcpyHtoD_v2)(a, host, 5 * UNIT));
	memset(host, 0, 5 * UNIT);
	OK(DRV(cuMemcpyDtoH_v2)(host, a, 5 * UNIT));
	for (i = 0; i < 5 * UNIT; i++)
		CHECK(host[i] == (char)(i % 251));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemcpyDtoH_v2)(host, a + 1, 5 * UNIT));
	/* With a gap in the middle. */
	OK(DRV(cuMemUnmap)(a + 2 * UNIT, UNIT));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemcpyDtoH_v2)(host, a, 5 * UNIT));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemUnmap)(a, 5 * UNIT));
	OK(DRV(cuMemcpyDtoH_v2)(host, a + 3 * UNIT, 2 * UNIT));
	OK(DRV(cuMemUnmap)(a, 2 * UNIT));
	OK(DRV(cuMemUnmap)(a + 3 * UNIT, 2 * UNIT));
	for (i = 0; i < 5; i++)
		OK(DRV(cuMemRelease)(h[i]));
	CHECK(room() == before);
	OK(DRV(cuMemAddressFree)(a, 8 * UNIT));
	free(host);
}

static void refused(void)
{
	CUmemAllocationProp p = prop(0), got;
	CUmemGenericAllocationHandle h, garbage[] = {0, 1, 64, 4711, ~0ull, 0x7fff12345678};
	size_t all = 0, i, bytes;
	int fd, pipes[2];

	OK(DRV(cuMemGetAllocationGranularity)(&bytes, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	CHECK(bytes == UNIT);
	SAYS(CUDA_ERROR_INVALID_VALUE,
	     DRV(cuMemGetAllocationGranularity)(&bytes, &p, (CUmemAllocationGranularity_flags)7));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemCreate)(&h, UNIT / 2, &p, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemCreate)(&h, 0, &p, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemCreate)(&h, UNIT, &p, 1));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemCreate)(&h, UNIT, NULL, 0));
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemCreate)(NULL, UNIT, &p, 0));
	p.location.id = 99;
	SAYS(CUDA_ERROR_INVALID_DEVICE, DRV(cuMemCreate)(&h, UNIT, &p, 0));
	p = prop(0);
	p.type = CU_MEM_ALLOCATION_TYPE_INVALID;
	SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemCreate)(&h, UNIT, &p, 0));
	p = prop(0);
	p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
	SAYS(CUDA_ERROR_NOT_SUPPORTED, DRV(cuMemCreate)(&h, UNIT, &p, 0));
	p = prop(0);
	CU(cudaMemGetInfo(&bytes, &all));
	SAYS(CUDA_ERROR_OUT_OF_MEMORY, DRV(cuMemCreate)(&h, all / UNIT * UNIT + UNIT, &p, 0));
	SAYS(CUDA_ERROR_OUT_OF_MEMORY, DRV(cuMemCreate)(&h, ~(size_t)0 / UNIT * UNIT, &p, 0));
	/* Both kinds of memory share the device: cuMemCreate() leaves no room for cudaMalloc(). */
	OK(DRV(cuMemCreate)(&h, bytes / UNIT * UNIT, &p, 0));
	{
		void *more;

		GIVES(cudaErrorMemoryAllocation, cudaMalloc(&more, 2 * UNIT));
		cudaGetLastError();
	}
	OK(DRV(cuMemRelease)(h));
	for (i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
		SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemRelease)(garbage[i]));
		SAYS(CUDA_ERROR_INVALID_VALUE,
		     DRV(cuMemGetAllocationPropertiesFromHandle)(&got, garbage[i]));
		SAYS(CUDA_ERROR_INVALID_VALUE,
		     DRV(cuMemExportToShareableHandle)(
			     &fd, garbage[i], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemUnmap)(garbage[i], UNIT));
		SAYS(CUDA_ERROR_INVALID_VALUE, DRV(cuMemAddressFree)(garbage[i], UNIT));
	}
	/* Export was not requested when the memory was created. */
	h = make(1);
	OK(DRV(cuMemGetAllocationPropertiesFromHandle)(&got, h));
	CHECK(got.location.id == 0 && got.type == p.type && !got.requestedHandleTypes);
	SAYS(CUDA_ERROR_NOT_SUPPORTED,
	     DRV(cuMemExportToShareableHandle)(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					       0));
	OK(DRV(cuMemRelease)(h));
	/* Descriptors of other files, and invalid ones. */
	CHECK(!pipe(pipes));
	SAYS(CUDA_ERROR_INVALID_VALUE,
	     DRV(cuMemImportFromShareableHandle)(&h, (void *)(intptr_t)pipes[0],
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	SAYS(CUDA_ERROR_INVALID_VALUE,
	     DRV(cuMemImportFromShareableHandle)(&h, (void *)(intptr_t)-1,
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	SAYS(CUDA_ERROR_INVALID_VALUE,
	     DRV(cuMemImportFromShareableHandle)(&h, (void *)(intptr_t)pipes[0],
						 CU_MEM_HANDLE_TYPE_WIN32));
	close(pipes[0]);
	close(pipes[1]);
}

/* Memory of the host: devices can access it only if access is granted. */
static void of_the_host(void)
{
	CUmemAllocationProp p = prop(0);
	CUmemAccessDesc d[2] = {both(0), both(0)};
	CUmemGenericAllocationHandle h;
	unsigned long long flags;
	CUdeviceptr a;
	size_t before = room();

	p.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
	d[1].location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
	OK(DRV(cuMemCreate)(&h, UNIT, &p, 0));
	CHECK(room() == before);
	OK(DRV(cuMemAddressReserve)(&a, UNIT, 0, 0, 0));
	OK(DRV(cuMemMap)(a, UNIT, 0, h, 0));
	OK(DRV(cuMemSetAccess)(a, UNIT, d, 2));
	OK(DRV(cuMemGetAccess)(&flags, &d[1].location, a));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	*(char *)(uintptr_t)a = 3;
	OK(DRV(cuMemsetD8_v2)(a + 1, 4, 1));
	CU(cudaDeviceSynchronize());
	CHECK(((char *)(uintptr_t)a)[1] == 4);
	OK(DRV(cuMemUnmap)(a, UNIT));
	OK(DRV(cuMemAddressFree)(a, UNIT));
	OK(DRV(cuMemRelease)(h));
}

/* -- two processes --------------------------------------------------------------------------- */

static void give(int to, int fd)
{
	char byte = 'f', space[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = space,
			   .msg_controllen = sizeof(space)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	CHECK(sendmsg(to, &m, 0) == 1);
}

static int get(int from)
{
	char byte, space[CMSG_SPACE(sizeof(int))];
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = space,
			   .msg_controllen = sizeof(space)};
	int fd;

	CHECK(recvmsg(from, &m, 0) == 1 && CMSG_FIRSTHDR(&m));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle h, int device)
{
	CUmemAccessDesc d = both(device);
	CUdeviceptr a;

	OK(DRV(cuMemAddressReserve)(&a, UNIT, 0, 0, 0));
	OK(DRV(cuMemMap)(a, UNIT, 0, h, 0));
	OK(DRV(cuMemSetAccess)(a, UNIT, &d, 1));
	return a;
}

static void child(int sock)
{
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp p;
	CUdeviceptr a;
	char byte;
	int fd;

	OK(DRV(cuInit)(0));
	CU(cudaSetDevice(0));
	fd = get(sock);
	OK(DRV(cuMemImportFromShareableHandle)(&h, (void *)(intptr_t)fd,
					       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	OK(DRV(cuMemGetAllocationPropertiesFromHandle)(&p, h));
	CHECK(p.location.id == 1);
	a = mapped(h, 0);
	OK(DRV(cuMemRelease)(h));
	OK(DRV(cuMemcpyDtoH_v2)(&byte, a + 100, 1));
	CHECK(byte == 11);
	OK(DRV(cuMemsetD8_v2)(a, 22, UNIT));
	CU(cudaDeviceSynchronize());
	_exit(0);
}

static void given_away(int sock, pid_t pid)
{
	CUmemAllocationProp p = prop(1);
	CUmemGenericAllocationHandle h;
	CUdeviceptr a;
	int fd, status;
	char byte;

	p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	OK(DRV(cuMemCreate)(&h, UNIT, &p, 0));
	a = mapped(h, 1);
	OK(DRV(cuMemsetD8_v2)(a, 11, UNIT));
	CU(cudaDeviceSynchronize());
	SAYS(CUDA_ERROR_NOT_SUPPORTED,
	     DRV(cuMemExportToShareableHandle)(&fd, h, CU_MEM_HANDLE_TYPE_FABRIC, 0));
	OK(DRV(cuMemExportToShareableHandle)(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	give(sock, fd);
	close(fd);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	OK(DRV(cuMemcpyDtoH_v2)(&byte, a + UNIT - 1, 1));
	CHECK(byte == 22);
}

int main(void)
{
	int pair[2], has;
	pid_t pid;

	driver_open();
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid = fork(); /* before either process uses CUDA */
	CHECK(pid >= 0);
	if (!pid)
		child(pair[1]);
	OK(DRV(cuInit)(0));
	CU(cudaSetDevice(0));
	CU(cudaFree(NULL));
	OK(DRV(cuDeviceGetAttribute)(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
				     0));
	CHECK(has);
	addresses();
	rights();
	neighbours();
	refused();
	of_the_host();
	given_away(pair[0], pid);
	return 0;
}
