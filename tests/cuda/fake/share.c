/*
 * Memory of the stand-in's devices between processes and devices: a file each, whose handle for CUDA IPC names the
 * process and its descriptor. FAKE_CUDA_NO_IPC: handles are refused, as for instances of a divided GPU.
 * FAKE_CUDA_NO_OPEN: they are given and can't be opened. FAKE_CUDA_NO_P2P: no device reaches another.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/cuda/fake/internal.h"

struct handle {
	char magic[8];
	int pid, fd;
	uint64_t bytes;
};

void *fake_pages(size_t bytes, int *fd)
{
	void *p;

	*fd = memfd_create("fake device", MFD_CLOEXEC);
	if (*fd < 0 || ftruncate(*fd, (off_t)bytes))
		abort();
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *fd, 0);
	if (p == MAP_FAILED)
		abort();
	return p;
}

void fake_unmap(void *at, size_t bytes, int fd)
{
	munmap(at, bytes);
	if (fd >= 0)
		close(fd);
}

static void protect(void *at, size_t bytes, int on)
{
	mprotect(at, bytes, on ? PROT_NONE : PROT_READ | PROT_WRITE);
}

void fake_hide(int on)
{
	fake_mem_each(protect, on);
}

API CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p)
{
	struct handle h = {.magic = "fakeipc", .pid = getpid()};
	size_t bytes = 0;

	fake_count(__func__);
	memset(out, 0, sizeof(*out));
	if (getenv("FAKE_CUDA_NO_IPC"))
		return CUDA_ERROR_NOT_SUPPORTED;
	h.fd = fake_mem_fd(p, &bytes);
	h.bytes = bytes;
	if (h.fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(out, &h, sizeof(h));
	return CUDA_SUCCESS;
}

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	struct handle h;
	char path[64];
	void *p;
	int fd;

	(void)flags;
	fake_count(__func__);
	memcpy(&h, &handle, sizeof(h));
	if (strcmp(h.magic, "fakeipc") != 0 || getenv("FAKE_CUDA_NO_OPEN"))
		return CUDA_ERROR_INVALID_VALUE;
	/* As the driver: not in the process that it comes from. */
	if (h.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", h.pid, h.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	p = mmap(NULL, h.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	fake_mem_add(p, h.bytes, 0, -1);
	*out = (CUdeviceptr)(uintptr_t)p;
	return CUDA_SUCCESS;
}

API CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
	fake_count(__func__);
	fake_mem_gone(p);
	return CUDA_SUCCESS;
}

API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	fake_count(__func__);
	*can = device != peer && !getenv("FAKE_CUDA_NO_P2P");
	return CUDA_SUCCESS;
}
