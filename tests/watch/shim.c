/*
 * A library that users preload beside dfshim. It counts allocations and some calls of NCCL and
 * CUDA, and calls the next definition. When the process ends, it prints the counts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

static unsigned long allocations, reduces, waits;

static void count(unsigned long *what)
{
	__atomic_add_fetch(what, 1, __ATOMIC_RELAXED);
}

void *realloc(void *old, size_t bytes)
{
	static void *(*next)(void *, size_t);

	if (!next)
		next = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
	count(&allocations);
	return next(old, bytes);
}

int ncclAllReduce(const void *send, void *recv, size_t n, int type, int op, void *comm,
		  void *stream)
{
	static int (*next)(const void *, void *, size_t, int, int, void *, void *);

	if (!next)
		next = (int (*)(const void *, void *, size_t, int, int, void *, void *))dlsym(
			RTLD_NEXT, "ncclAllReduce");
	count(&reduces);
	return next(send, recv, n, type, op, comm, stream);
}

int cudaStreamSynchronize(void *stream)
{
	static int (*next)(void *);

	if (!next)
		next = (int (*)(void *))dlsym(RTLD_NEXT, "cudaStreamSynchronize");
	count(&waits);
	return next(stream);
}

__attribute__((destructor)) static void report(void)
{
	fprintf(stderr, "shim: %lu allocations, %lu all-reduces, %lu waits\n", allocations, reduces,
		waits);
}
