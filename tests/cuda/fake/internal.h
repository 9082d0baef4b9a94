/* Between the files of the stand-in for libcuda. */
#ifndef DF_TESTS_FAKE_CUDA_INTERNAL_H
#define DF_TESTS_FAKE_CUDA_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

struct fake_symbol {
	const char *symbol, *base;
	int since, ptds;
	void *fn;
};

/* share.c */
void *fake_pages(size_t bytes, int *fd);
void fake_unmap(void *at, size_t bytes, int fd);
void fake_hide(int on);
/* fake.c: the table of memory. */
void fake_mem_add(void *p, size_t bytes, int host, int fd);
void fake_mem_gone(uintptr_t at);
int fake_mem_fd(uintptr_t at,
		size_t *bytes); /* -1: not the start of device memory of this process */
void fake_mem_each(void (*fn)(void *at, size_t bytes, int arg), int arg); /* of devices */

const struct fake_symbol *fake_symbols(unsigned int *nr);
void fake_count(const char *symbol);

#endif
