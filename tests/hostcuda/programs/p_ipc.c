/*
 * Device memory between processes: the child maps memory that the parent has allocated, and both
 * see the same bytes.
 */
#include "tests/hostcuda/programs/cu.h"

#include <fcntl.h>
#include <sys/wait.h>

static void xread(int fd, void *p, size_t n)
{
	CHECK(read(fd, p, n) == (ssize_t)n);
}

static void xwrite(int fd, const void *p, size_t n)
{
	CHECK(write(fd, p, n) == (ssize_t)n);
}

static void child(int in, int out)
{
	const struct df_backend *api = hostcuda();
	struct cudaPointerAttributes attr;
	cudaIpcMemHandle_t h, broken;
	unsigned char *p, *again, byte = 0;
	struct df_mem_info info;

	xread(in, &h, sizeof(h));
	CU(cudaSetDevice(1));
	CU(cudaIpcOpenMemHandle((void **)&p, h, cudaIpcMemLazyEnablePeerAccess));
	CHECK(p[0] == 11 && p[4999] == 11);
	CU(cudaPointerGetAttributes(&attr, p + 100));
	CHECK(attr.type == cudaMemoryTypeDevice);
	CHECK(!api->mem_info(p + 4999, &info) && info.base == p && info.bytes == 5000 &&
	      info.fd >= 0);
	CHECK(pread(info.fd, &byte, 1, (off_t)info.offset) == 1 && byte == 11);
	GIVES(cudaErrorInvalidValue, cudaMemset(p, 0, 5001));
	CU(cudaIpcOpenMemHandle((void **)&again, h, cudaIpcMemLazyEnablePeerAccess));
	CHECK(again == p);
	CU(cudaIpcCloseMemHandle(again));
	CU(cudaMemset(p, 22, 5000));
	memcpy(&broken, &h, sizeof(h));
	broken.reserved[30] ^= 0x55;
	CHECK(cudaIpcOpenMemHandle((void **)&again, broken, 1) != cudaSuccess);
	memset(&broken, 0, sizeof(broken));
	GIVES(cudaErrorInvalidValue, cudaIpcOpenMemHandle((void **)&again, broken, 1));
	xwrite(out, "x", 1);
	xread(in, &byte, 1);
	CHECK(p[1] == 33);
	CU(cudaIpcCloseMemHandle(p));
	GIVES(cudaErrorInvalidValue, cudaIpcCloseMemHandle(p));
	_exit(0);
}

int main(void)
{
	int to[2], from[2], status;
	unsigned char *p, *pad, byte;
	cudaIpcMemHandle_t h;
	cudaEvent_t e;
	cudaIpcEventHandle_t eh;
	pid_t pid;

	CHECK(!pipe(to) && !pipe(from));
	pid = fork(); /* before either process uses CUDA */
	if (!pid)
		child(to[0], from[1]);
	CU(cudaMalloc((void **)&pad, 700));
	CU(cudaMalloc((void **)&p, 5000));
	CU(cudaMemset(p, 11, 5000));
	CU(cudaIpcGetMemHandle(&h, p));
	GIVES(cudaErrorDeviceUninitialized, cudaIpcOpenMemHandle((void **)&pad, h, 1));
	GIVES(cudaErrorInvalidValue, cudaIpcGetMemHandle(&h, &byte));
	xwrite(to[1], &h, sizeof(h));
	xread(from[0], &byte, 1);
	CHECK(p[0] == 22 && p[4999] == 22);
	p[1] = 33;
	xwrite(to[1], "x", 1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CU(cudaEventCreateWithFlags(&e, cudaEventInterprocess | cudaEventDisableTiming));
	GIVES(cudaErrorNotSupported, cudaIpcGetEventHandle(&eh, e));
	return 0;
}
