/*
 * Between the files of the stand-in for libcuda. One lock for everything but the words and the kernels themselves.
 *
 * FAKE_CUDA_LOG: file to which every call is appended. FAKE_CUDA_NEWER: name of a function of which the driver
 * has a form from 13.1 on that nobody here knows. FAKE_CUDA_DEVICES: 1. What processes share is in share.c.
 */
#ifndef DF_TESTS_FAKE_CUDA_INTERNAL_H
#define DF_TESTS_FAKE_CUDA_INTERNAL_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include "tests/cuda/fake/fake.h"

#define API    __attribute__((visibility("default")))
#define SEEN() fake_count(__func__)

enum op_kind { OP_WRITE, OP_WAIT, OP_HOST, OP_KERNEL, OP_RECORD, OP_AFTER, OP_COPY };

struct op {
	enum op_kind kind;
	uint64_t *addr, value;
	CUhostFn fn;
	void *data;
	fake_kernel_fn kernel;
	void *params[4];
	unsigned int grid;
	struct CUevent_st *event;
	uint64_t point; /* of the event */
	void *to;
	const void *from;
	size_t bytes;
	struct op *next;
};

struct CUstream_st {
	struct CUctx_st *ctx;
	uint64_t id;
	int priority;
	unsigned int flags;
	int nr, stop;
	struct op *head, **tail;
	CUgraph capture; /* not NULL: operations go there */
	uint64_t capture_id;
	pthread_t thread;
	struct CUstream_st *next;
};

struct CUevent_st {
	unsigned int flags;
	uint64_t recorded, reached;
	struct timespec when; /* it was reached */
};

struct CUctx_st {
	int device;
	int refs;
	uint64_t id;
	struct CUstream_st *legacy;
};

struct CUgraph_st {
	struct op *head, **tail;
	int nr;
	CUhostFn destroy[16];
	void *destroy_arg[16];
	int nr_destroy;
};

struct CUgraphExec_st {
	struct op *head;
};

struct CUfunc_st {
	char name[64];
};

struct mem {
	uintptr_t at;
	size_t bytes;
	int host, device;
	int fd; /* device memory: a file that other processes can map; -1 none */
	struct mem *next;
};

struct fake_symbol {
	const char *symbol, *base;
	int since, ptds;
	void *fn;
};

extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_moved; /* something is done */
extern uint64_t fake_next_id;

/* stream.c */
CUstream fake_stream_of(CUstream s, int ptds); /* the default streams are made on first use */
void fake_put(CUstream s, const struct op *from);
int fake_all_pending(CUcontext ctx); /* NULL: of all; fake_lock held */
extern int fake_launch_error;
void fake_set_kernel(const char *name, fake_kernel_fn fn);

/* device.c */
CUcontext fake_ctx_now(void);
void fake_count(const char *symbol);

/* share.c */
void *fake_pages(size_t bytes, int *fd);
void fake_unmap(void *at, size_t bytes, int fd);
void fake_hide(int on);

/* memory.c: the table of memory. */
extern int fake_alloc_waits, fake_alloc_fails;
void fake_mem_add(void *p, size_t bytes, int host, int fd);
void fake_mem_gone(uintptr_t at);
/* -1: not the start of device memory of this process. */
int fake_mem_fd(uintptr_t at, size_t *bytes);
void fake_mem_each(void (*fn)(void *at, size_t bytes, int arg), int arg); /* of devices */

/* all.c */
const struct fake_symbol *fake_symbols(unsigned int *nr);

#endif
