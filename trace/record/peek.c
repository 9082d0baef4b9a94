/*
 * process_vm_readv() is one system call. A container's filter of system calls may refuse it; then
 * the same bytes are read from /proc/self/mem, which is opened each time: after a fork an open file
 * would still lead to the parent's memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>
#include "trace/record/peek.h"

static _Atomic(int) is_refused;

ssize_t df_peek_pieces(const struct iovec *to, const struct iovec *from, unsigned nr)
{
	ssize_t all = 0, got;
	int fd;

	if (!atomic_load_explicit(&is_refused, memory_order_relaxed)) {
		got = process_vm_readv(getpid(), to, nr, from, nr, 0);
		if (got >= 0 || (errno != EPERM && errno != ENOSYS))
			return got;
		atomic_store_explicit(&is_refused, 1, memory_order_relaxed);
	}
	fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; fd >= 0 && i < nr; i++) {
		got = pread(fd, to[i].iov_base, to[i].iov_len, (off_t)(uintptr_t)from[i].iov_base);
		all += got < 0 ? 0 : got;
		if (got != (ssize_t)to[i].iov_len)
			break;
	}
	if (fd >= 0)
		close(fd);
	return fd < 0 ? -1 : all;
}

int df_peek(const void *at, void *to, size_t bytes)
{
	struct iovec here = {to, bytes}, there = {(void *)(uintptr_t)at, bytes};

	return df_peek_pieces(&here, &there, 1) == (ssize_t)bytes;
}
