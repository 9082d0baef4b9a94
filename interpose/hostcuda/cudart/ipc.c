/*
 * Memory shared between processes of one node. A handle names the process, its descriptor, and the
 * allocation's offset in that file. The importer opens the descriptor through /proc and maps the
 * range. The handle has the file's device and inode, so that a descriptor number that was reused is
 * refused. Any thread.
 */
#define _GNU_SOURCE
#include "interpose/hostcuda/internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x31637069686664ull /* "dfhipc1" */

struct handle {
	uint64_t magic;
	int32_t pid, fd;
	uint64_t dev, ino;
	uint64_t offset, bytes;
	int32_t device, unused;
};

_Static_assert(sizeof(struct handle) <= sizeof(cudaIpcMemHandle_t), "fits in CUDA's handle");

DF_H_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *ptr)
{
	struct handle h = {.magic = MAGIC, .pid = getpid()};
	struct df_mem_info info;
	struct stat st;
	cudaError_t err = df_henter();

	if (!err && (!out || !ptr))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	df_hmem_info(ptr, &info, NULL);
	if (info.kind != DF_MEM_DEVICE || info.fd < 0)
		return df_hret(cudaErrorInvalidValue);
	if (fstat(info.fd, &st))
		return df_hret(cudaErrorOperatingSystem);
	h.fd = info.fd;
	h.dev = st.st_dev;
	h.ino = st.st_ino;
	h.offset = info.offset;
	h.bytes = info.bytes;
	h.device = info.device;
	memset(out, 0, sizeof(*out));
	memcpy(out, &h, sizeof(h));
	return cudaSuccess;
}

DF_H_API cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned flags)
{
	cudaError_t err = df_henter();
	struct handle h;
	struct stat st;
	char path[64];
	void *ptr;
	int fd;

	if (!err && (!out || flags != cudaIpcMemLazyEnablePeerAccess))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	memcpy(&h, &handle, sizeof(h));
	if (h.magic != MAGIC || h.pid <= 0 || h.fd < 0 || !h.bytes)
		return df_hret(cudaErrorInvalidValue);
	if (h.pid == getpid())
		return df_hret(cudaErrorDeviceUninitialized);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", h.pid, h.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		df_warn("host CUDA: cannot open memory of process %d: %s", h.pid, strerror(errno));
		return df_hret(cudaErrorMapBufferObjectFailed);
	}
	if (fstat(fd, &st) || st.st_dev != h.dev || st.st_ino != h.ino ||
	    h.offset > (uint64_t)st.st_size || h.bytes > (uint64_t)st.st_size - h.offset) {
		close(fd);
		return df_hret(cudaErrorInvalidResourceHandle);
	}
	ptr = df_hmem_import(fd, h.offset, h.bytes, df_htls.device, h.ino);
	if (!ptr) {
		close(fd);
		return df_hret(cudaErrorMapBufferObjectFailed);
	}
	*out = ptr;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaIpcCloseMemHandle(void *ptr)
{
	cudaError_t err = df_henter();

	if (err)
		return df_hret(err);
	/* First wait until the device's work with the memory is done. */
	if (df_hdev_current())
		df_hwait_device(df_hdev_current());
	return df_hret(df_hmem_unimport(ptr) ? cudaErrorInvalidValue : cudaSuccess);
}
