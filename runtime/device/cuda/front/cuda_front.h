/*
 * The functions through which the hook in front of the CUDA driver (interpose/cuda/cuda_hook.c)
 * calls the backend (runtime/device/cuda/front/cuda_front.c): one for each class of
 * interpose/cuda/cuda_api.def. Handles are the driver's (CUstream, CUevent, ...) as void *, so that
 * neither side needs the other's headers.
 *
 * All functions run on the thread that called the driver, before the driver's own function unless
 * said otherwise, with no lock held. ptds: a NULL stream means the thread's own default stream.
 * They may block where the driver's function may.
 */
#ifndef DF_RUNTIME_DEVICE_CUDA_FRONT_CUDA_FRONT_H
#define DF_RUNTIME_DEVICE_CUDA_FRONT_CUDA_FRONT_H

#include <stddef.h>
#include <stdint.h>
#include "runtime/backend.h"

/*
 * The new contents of a node of an executable graph, if it can be one of ours: a host function,
 * memory operations or a child graph.
 */
struct df_node_set {
	const void *fn, *arg;
	const void *ops; /* CUstreamBatchMemOpParams */
	unsigned int nr_ops;
	void *child;
};

/*
 * A kernel that is about to be launched. together: number of blocks that must be on the device at
 * the same time; 0: no such need.
 */
struct df_cuda_launch {
	void *fn;
	uint64_t together;
	unsigned int threads; /* per block */
	size_t shared;
};

struct df_cuda_front {
	void (*work)(void *stream, int ptds, enum df_work kind);
	/* As work(), for the launch of a kernel, by the handle that is launched. */
	void (*kernel)(void *stream, int ptds, const void *fn);
	/* As work(), for work that touches only this range. */
	void (*work_range)(void *stream, struct df_touch touch, int ptds, enum df_work kind);
	/*
	 * A copy on the default stream for which the calling thread may wait. t: the bytes that it
	 * touches; NULL: unknown. Ends with sync_done().
	 */
	void (*sync_copy)(const struct df_touch *t, int ptds);
	void (*stream_sync)(void *stream, int ptds);
	void (*event_sync)(void *event);
	/*
	 * ctx NULL: the current one. Returns 1 if the wait is over and the driver must not be
	 * called.
	 */
	int (*device_sync)(void *ctx);
	void (*sync_done)(void);
	/* Return 1 if it is not ready; 0: the driver decides. */
	int (*stream_query)(void *stream, int ptds);
	int (*event_query)(void *event);
	/*
	 * After either: `done` is the application's answer, which is 1 for done, 0 for not ready,
	 * -1 for an error.
	 */
	void (*queried)(int done);
	/*
	 * Before its time is read: sets *event to the event that has the time. Returns 1 if it is
	 * not ready.
	 */
	int (*event_time)(void **event);
	/* Returns 1 if the hooks have recorded it; 0: the driver's record follows. */
	int (*event_record)(void *event, void *stream, int ptds);
	void (*event_record_ctx)(void *event, void *ctx);
	void (*event_wait)(void *event, void *stream, int ptds);
	void (*event_wait_ctx)(void *event, void *ctx);
	/*
	 * Returns the context of a green context, for the two functions above; NULL: the current
	 * one.
	 */
	void *(*green_ctx)(void *green);
	/* Returns 1 if the free is deferred: the driver's function must not be called. */
	int (*free)(void *ptr);
	/* Before a range of addresses is unmapped. */
	void (*unmap)(uintptr_t at, size_t bytes);
	/*
	 * Before quiet_enter(), for a function that waits for streams while it holds a lock that
	 * launches need. Waits until no stream waits for a collective; none will before
	 * quiet_leave().
	 */
	void (*before_lock)(void);
	/*
	 * peer_context(): the current device gets access to that context's memory. peer_memory():
	 * the devices of the access descriptors get access to the memory.
	 */
	void (*peer_context)(void *ctx);
	void (*peer_memory)(uintptr_t at, const void *descs, size_t nr);
	/* An allocation found no memory: waits for deferred frees. Returns 1 to try again. */
	int (*memory_short)(void);
	/*
	 * Around a function of the driver that may wait for the whole device. The daemon is asked
	 * to leave; if work is left and the function takes long, it is launched again. Returns the
	 * token for quiet_leave(). kind: for the trace, if dfshim executes nothing (mode trace).
	 */
	int (*quiet_enter)(enum df_sync_kind kind);
	void (*quiet_leave)(int token);
	/*
	 * As quiet_enter(), around a launch that may wait for the device, or that needs more of it
	 * than the daemon leaves.
	 */
	int (*launch_enter)(const struct df_cuda_launch *l);
	void (*launch_leave)(const struct df_cuda_launch *l, int token, int launched);
	void (*capture)(int begin); /* after a capture began (1) or ended (0) */
	/*
	 * After a graph was instantiated (fresh: destroyed again if refused) or updated. Returns
	 * -errno if it is refused.
	 */
	int (*graph_made)(void *exec, void *graph, int fresh);
	/* Returns 1 if the node must not be changed to that. */
	int (*graph_set)(void *node, const struct df_node_set *to);
	void (*graph_gone)(void *exec);
	/*
	 * Before cuGraphLaunch(): fences the stream and submits one instance of every captured
	 * collective. Returns 1 if nothing is left to launch: then neither the driver nor
	 * graph_launched() must be called. Returns -errno on failure.
	 */
	int (*graph_launch)(void *exec, void *stream, int ptds);
	/* After it. launched: -1: graph_launch() has failed, 0: the driver has. */
	void (*graph_launched)(void *exec, void *stream, int ptds, int launched);
	void (*graph_keeps)(void); /* after an object was given to a graph to be kept alive */
	void (*event_made)(void *event, unsigned int flags); /* after */
	void (*event_gone)(void *event);
	void (*stream_made)(void *stream); /* after */
	void (*stream_gone)(void *stream);
	/*
	 * Some calls will not be seen (the hook does not know a form of a function): strict order
	 * from now on.
	 */
	void (*blind)(void);
	/*
	 * A context ends. ctx NULL: the device's primary context is about to be reset; or, if
	 * device is negative, one of its users has released that of device ~device.
	 */
	void (*context_gone)(void *ctx, int device);
};

/* The functions of the hook that the backend calls. Any thread. */
struct df_cuda_hook {
	/* Puts the backend behind the hook; NULL removes it. */
	void (*set)(const struct df_cuda_front *front);
	/*
	 * Returns 1 if the hook has been handed out and knows every function that was asked for:
	 * the application's calls are seen. 0: nothing has been asked for yet, for example because
	 * the program's first call is NCCL's. -1: some calls are not seen.
	 */
	int (*sees)(void);
	/*
	 * Returns 1 if some device may have been given access to other memory without details
	 * being known, or before the backend was there.
	 */
	int (*peers_any)(void);
	/* The name of a kernel, as cuda_names.h gives it; NULL: unknown. */
	const char *(*name_of)(const void *fn);
};

/*
 * The hook of this process. It sets itself while libraries are loaded. NULL: there is none, so no
 * order can be relaxed.
 */
extern const struct df_cuda_hook *df_cuda_hook;
extern const struct df_cuda_front df_cuda_front;

#endif
