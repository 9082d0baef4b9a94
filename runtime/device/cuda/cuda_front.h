/*
 * What the hook in front of the CUDA driver (interpose/cuda/cuda_hook.c) tells the backend behind it
 * (runtime/device/cuda/cuda_front.c), one function for each class of interpose/cuda/cuda_api.def. Handles are the driver's
 * (CUstream, CUevent, ...) as void *, so that neither side needs the other's headers.
 *
 * All functions run on the thread that called the driver, before the driver's own function unless said
 * otherwise, with no lock held. ptds: a NULL stream means the thread's own default stream. They may block
 * where the driver's function may.
 */
#ifndef DF_RUNTIME_DEVICE_CUDA_CUDA_FRONT_H
#define DF_RUNTIME_DEVICE_CUDA_CUDA_FRONT_H

#include <stddef.h>
#include <stdint.h>
#include "runtime/backend.h"

/* What a node of an executable graph is to become, as far as it can be one of ours: host function, memory operations, child. */
struct df_node_set {
	const void *fn, *arg;
	const void *ops; /* CUstreamBatchMemOpParams */
	unsigned int nr_ops;
	void *child;
};

/* A kernel that is about to be launched. together: blocks that have to be on the device at the same time; 0: none. */
struct df_cuda_launch {
	void *fn;
	uint64_t together;
	unsigned int threads; /* a block */
	size_t shared;
};

struct df_cuda_front {
	void (*work)(void *stream, int ptds, enum df_work kind);
	/* The same, of work that touches nothing else. */
	void (*work_range)(void *stream, struct df_touch touch, int ptds, enum df_work kind);
	/* A copy on the default stream for which the host may wait; t: what it touches, NULL unknown. Finish with sync_done(). */
	void (*sync_copy)(const struct df_touch *t, int ptds);
	void (*stream_sync)(void *stream, int ptds);
	void (*event_sync)(void *event);
	/* ctx NULL: the current one. 1: do not call the driver, the wait is over. */
	int (*device_sync)(void *ctx);
	void (*sync_done)(void);
	/* 1: not ready; 0: the driver decides. */
	int (*stream_query)(void *stream, int ptds);
	int (*event_query)(void *event);
	/* After either, what the application is told: 1 done, 0 not ready, -1 an error. */
	void (*queried)(int done);
	/* Before its time is asked for: *event becomes the one that has it. 1: not ready. */
	int (*event_time)(void **event);
	/* 1: recorded by the hooks; 0: the driver's record follows. */
	int (*event_record)(void *event, void *stream, int ptds);
	void (*event_record_ctx)(void *event, void *ctx);
	void (*event_wait)(void *event, void *stream, int ptds);
	void (*event_wait_ctx)(void *event, void *ctx);
	/* The context of a green one, for the two above; NULL: the current one. */
	void *(*green_ctx)(void *green);
	/* 1: deferred, the driver's function must not be called. */
	int (*free)(void *ptr);
	/* Before a range of addresses loses its memory. */
	void (*unmap)(uintptr_t at, size_t bytes);
	/*
	 * Before quiet_enter(), for a function that waits for streams, with a lock that launches need: waits until none waits for a
	 * collective, and none does before quiet_leave().
	 */
	void (*before_lock)(void);
	/* The current device reaches that context's; those of the access descriptors reach the memory's. */
	void (*peer_context)(void *ctx);
	void (*peer_memory)(uintptr_t at, const void *descs, size_t nr);
	/* An allocation found no memory: waits for what free() has deferred. 1: try again. */
	int (*memory_short)(void);
	/*
	 * Around a function of the driver that may wait for the whole device: the daemon is asked to leave,
	 * and is launched again while work is left if the function takes long. Returns what leave takes. kind: for
	 * the record, where nothing of ours runs (mode trace).
	 */
	int (*quiet_enter)(enum df_sync_kind kind);
	void (*quiet_leave)(int token);
	/* The same around a launch, where it may wait for the device or needs more of it than the daemon leaves. */
	int (*launch_enter)(const struct df_cuda_launch *l);
	void (*launch_leave)(const struct df_cuda_launch *l, int token, int launched);
	void (*capture)(int begin); /* after a capture began (1) or ended (0) */
	/* After it was instantiated (fresh: it is destroyed again if it is refused) or updated. -errno: it is refused. */
	int (*graph_made)(void *exec, void *graph, int fresh);
	/* 1: the node must not become that. */
	int (*graph_set)(void *node, const struct df_node_set *to);
	void (*graph_gone)(void *exec);
	/*
	 * Before cuGraphLaunch: fences the stream, starts one instance of every captured collective. 1: the driver must not be
	 * called, nothing is left to be launched; graph_launched() neither. -errno.
	 */
	int (*graph_launch)(void *exec, void *stream, int ptds);
	void (*graph_launched)(void *stream, int ptds, int launched); /* after it */
	void (*graph_keeps)(void); /* after an object was given to a graph to be kept alive */
	void (*event_made)(void *event, unsigned int flags); /* after */
	void (*event_gone)(void *event);
	void (*stream_made)(void *stream); /* after */
	void (*stream_gone)(void *stream);
	/* Some calls will not be seen (a form of a function that the hook does not know): strict order from now on. */
	void (*blind)(void);
	/* A context ends. ctx NULL: the primary one of the device is about to be reset; a negative device: ~device was
	   released by one of its users. */
	void (*context_gone)(void *ctx, int device);
};

/*
 * Puts the backend behind the hook; NULL takes it away. In interpose/; a weak reference, because the
 * runtime is also linked without interpose/ (NULL: no hook in this process, so nothing can be relaxed).
 */
void df_cuda_front_set(const struct df_cuda_front *front) __attribute__((weak));

/*
 * 1: the hook has been handed out and knows every function it was asked for, that is, the application's calls are seen.
 * 0: nothing has been asked for yet, as in a program whose first call is NCCL's. -1: some are not seen. In interpose/,
 * weak as above. Any thread.
 */
int df_cuda_front_sees(void) __attribute__((weak));

/*
 * 1: some device may have been given access to others' memory of which only that is known, or before there was a front.
 * In interpose/, weak as above. Any thread.
 */
int df_cuda_peers_any(void) __attribute__((weak));

/* The driver behind the hook: dlsym as the C library has it. In interpose/, weak as above. */
void *df_dlsym(void *handle, const char *name) __attribute__((weak));

#endif
