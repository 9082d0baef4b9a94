/*
 * Between the files of the stand-in for libcuda. One lock for everything but the words and the kernels themselves.
 *
 * FAKE_CUDA_LOG: file to which every call is appended. FAKE_CUDA_NEWER: name of a function of which the driver
 * has a form from 13.1 on that nobody here knows. FAKE_CUDA_DEVICES: 1. FAKE_CUDA_SMS: multiprocessors; 1.
 * FAKE_CUDA_MPS: 1: they are shared through MPS; "old": the driver can't say.
 * FAKE_CUDA_NO_CODE: the device that no module can be loaded on. What processes share is in share.c, where code comes
 * from in module.c, how it is executed in kernel.c.
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
#include "tests/cuda/ptx/ptx.h"

#define API    __attribute__((visibility("default")))
#define SEEN() fake_count(__func__)

enum op_kind {
	OP_WRITE,
	OP_WAIT,
	OP_HOST,
	OP_CALLBACK,
	OP_KERNEL,
	OP_RECORD,
	OP_AFTER,
	OP_COPY,
	OP_FILL,
	OP_GRAPH,
	OP_EMPTY,
};

/* What has to be done before: the first so many operations of a stream. */
struct mark {
	struct CUstream_st *s;
	uint64_t nr;
};

struct op {
	enum op_kind kind;
	uint64_t *addr, value;
	CUhostFn fn;
	CUstreamCallback callback;
	void *data;
	fake_kernel_fn kernel;
	const struct ptx_kernel *ptx; /* or this; own: the parameter block */
	void *params[4];
	unsigned int grid[3], block[3];
	size_t shared;
	CUcontext ctx;		  /* of a kernel */
	struct CUevent_st *event; /* a kernel's: reached as it starts */
	uint64_t point;		  /* of the event */
	void *to;
	const void *from;
	void *own; /* freed with it */
	size_t own_bytes;
	/* Rows of so many bytes, this far apart: copies and fills; value: what is filled in, width bytes each. */
	size_t bytes, rows, to_pitch, from_pitch, width;
	struct CUgraph_st *graph; /* a child, or what is launched: ours to drop */
	struct mark *after;
	size_t nr_after;
	uint64_t serial; /* of all streams */
	struct op *next;
};

/* A node of a graph: what it does, and the nodes before it. */
struct CUgraphNode_st {
	struct op op;
	struct CUgraph_st *graph;
	CUgraphNode *before;
	size_t nr_before;
	CUgraphNode copy;  /* while its graph is copied */
	int left, started; /* while its graph runs */
};

struct CUstream_st {
	struct CUctx_st *ctx;
	uint64_t id;
	int priority;
	unsigned int flags;
	int nr, stop, gone, queue;
	uint64_t put, done; /* operations */
	struct op *head, **tail;
	CUgraph capture; /* not NULL: operations go there, behind these nodes */
	uint64_t capture_id;
	CUgraphNode *behind;
	size_t nr_behind;
	pthread_t thread;
	struct CUstream_st *next;
};

struct CUevent_st {
	unsigned int flags;
	uint64_t recorded, reached;
	struct timespec when; /* it was reached */
	CUgraph capture;      /* recorded there, behind these nodes */
	uint64_t capture_id;
	CUgraphNode *behind;
	size_t nr_behind;
};

#define NR_PRIORITIES 6 /* 0 to -5 */

struct CUctx_st {
	int device;
	int refs;
	uint64_t id;
	struct CUstream_st *legacy;
	unsigned int peers;	    /* bits of devices whose memory its kernels may use */
	int error;		    /* CUresult: a kernel's fault, which nothing takes away */
	int stop;		    /* its kernels end */
	int nr_made[NR_PRIORITIES]; /* streams */
	int loading;		    /* somebody has its lock until it is idle */
	pthread_t loader;
};

struct CUgraph_st {
	CUgraphNode *nodes;
	size_t nr;
	struct CUuserObject_st **objects;
	size_t nr_objects;
	CUcontext ctx; /* while it runs */
	int refs;      /* of a graph that is only executed: its launches, and the handle */
	int busy;
};

struct CUgraphExec_st {
	CUgraph graph; /* a copy */
};

struct CUuserObject_st {
	int refs;
	CUhostFn destroy;
	void *arg;
};

struct CUfunc_st {
	char *name;
	int loaded; /* its code is on the device */
	const struct ptx_kernel *ptx;
	struct CUmod_st *module;
	size_t most_shared; /* dynamic, a block */
	struct CUfunc_st *next;
};

struct mem {
	uintptr_t at;
	size_t bytes;
	int host; /* 1: pinned, 2: registered, the program's own */
	int device, managed;
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
void fake_run_op(struct CUstream_st *s, CUcontext ctx, struct op *op);
/* Until what has been put on it is done; the legacy stream: on the blocking ones of its context too. */
void fake_stream_drain(CUstream s);
void fake_stream_leave(CUgraph g);   /* all streams that are captured into it; fake_lock held */
int fake_all_pending(CUcontext ctx); /* NULL: of all; fake_lock held */

/* kernel.c */
extern int fake_launch_error;
void fake_set_kernel(const char *name, fake_kernel_fn fn);
fake_kernel_fn fake_function(const char *name); /* NULL: none was registered */
void fake_kernel_run(struct op *op);
/* Threads a block -> blocks a multiprocessor. */
unsigned int fake_occupancy(unsigned int threads);

/* graph.c: fake_lock held but for running. */
CUgraph fake_graph_new(void);
CUgraphNode fake_graph_add(CUgraph g, const struct op *op, const CUgraphNode *before, size_t nr);
void fake_graph_run(CUcontext ctx, CUgraph g);
void fake_graph_put(CUgraph g);
void fake_nodes_join(CUgraphNode **to, size_t *nr, const CUgraphNode *from, size_t nr_from);

/* device.c */
extern int fake_over;
static inline int fake_is_over(void)
{
	return __atomic_load_n(&fake_over, __ATOMIC_RELAXED);
}
CUcontext fake_ctx_now(void);
unsigned int fake_multiprocessors(void);
/* A kernel of it made a fault; NULL: none. */
static inline CUresult fake_ctx_error(CUcontext ctx)
{
	return ctx ? (CUresult)__atomic_load_n(&ctx->error, __ATOMIC_RELAXED) : CUDA_SUCCESS;
}
void fake_count(const char *symbol);

/* limits.c: what a real driver blocks on. fake_lock held but for lock, launched, host, exclusive. */
int fake_limit(const char *name);
void fake_limit_lock(CUcontext ctx);
void fake_limit_loading(CUcontext ctx, int begin);
void fake_limit_room(CUstream s);
void fake_limit_queue(CUstream s);
int fake_limit_behind(const struct CUstream_st *all, const struct CUstream_st *s,
		      const struct op *op);
void fake_limit_launched(CUstream s);
void fake_limit_host(int begin);
int fake_limit_exclusive(int device); /* 0: it is another process's */

/* fault.c: faults put in. */
int fake_fault(const char *name);
void fake_fault_hang(const char *name);
int fake_fault_skips(const struct op *op); /* 1: it is not done */
void fake_fault_copied(const struct op *op);
/* Before a kernel starts; waits: how many streams stand at a wait for a word. */
void fake_fault_kernel(const struct op *op, int (*waits)(void));

/* share.c */
void *fake_pages(size_t bytes, int *fd);
void fake_unmap(void *at, size_t bytes, int fd);
void fake_hide(int on);

/* memory.c: the table of memory. */
#define FAKE_DEVICE_BYTES (4ull << 30)
extern int fake_alloc_waits, fake_alloc_fails;
void fake_mem_add(void *p, size_t bytes, int host, int fd);
void fake_mem_gone(uintptr_t at);
int fake_mem_known(uintptr_t at);
/* 1: kernels of that context may use these bytes; from, to: what around them they may use as well. */
int fake_mem_usable(const struct CUctx_st *ctx, uintptr_t at, size_t bytes, uintptr_t *from,
		    uintptr_t *to);
extern uint64_t fake_mem_generation; /* of the table */
/* -1: not the start of device memory of this process. */
int fake_mem_fd(uintptr_t at, size_t *bytes);
void fake_mem_each(void (*fn)(void *at, size_t bytes, int arg), int arg); /* of devices */

/* all.c */
const struct fake_symbol *fake_symbols(unsigned int *nr);

#endif
