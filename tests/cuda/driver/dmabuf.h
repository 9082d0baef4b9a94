/*
 * The dma-buf of the tests: a file that says which memory it is. The tests' libcuda.so.1 writes it
 * (cuMemGetHandleForAddressRange), their libibverbs reads it (tests/net/fake): in the same process,
 * as on a machine the kernel is between the two drivers.
 */
#ifndef DF_TESTS_DMABUF_H
#define DF_TESTS_DMABUF_H

#include <stdint.h>

#define FAKE_DMABUF_MAGIC 0x66756261646b6166ull

struct fake_dmabuf {
	uint64_t magic;
	int64_t fd; /* of the file in which the device's memory lies */
	uint64_t offset, bytes;
};

#endif
