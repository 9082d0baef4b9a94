/*
 * The dma-buf of the tests: a file that names a range of memory. The test driver writes the file
 * (cuMemGetHandleForAddressRange); the tests' libibverbs in the same process reads it
 * (tests/net/fake). On a real machine the kernel passes the range from one driver to the other.
 */
#ifndef DF_TESTS_DMABUF_H
#define DF_TESTS_DMABUF_H

#include <stdint.h>

#define FAKE_DMABUF_MAGIC 0x66756261646b6166ull

struct fake_dmabuf {
	uint64_t magic;
	int64_t fd; /* file descriptor of the memory's file */
	uint64_t offset, bytes;
};

#endif
