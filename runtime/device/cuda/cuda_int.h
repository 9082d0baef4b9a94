/*
 * Between the files of the GPU backend: the driver's functions, streams and devices as it knows them.
 */
#ifndef DF_RUNTIME_DEVICE_CUDA_CUDA_INT_H
#define DF_RUNTIME_DEVICE_CUDA_CUDA_INT_H

#include <cuda.h>
#include <uthash.h>
#include "runtime/backend.h"
#include "runtime/base/lock.h"
#include "runtime/device/cuda/cuda_front.h"

struct df_drv_table {
#define DF_DRV(member, name, version, params) CUresult(*member) params;
#include "runtime/device/cuda/cuda_drv.def"
#undef DF_DRV
};

/* Filled by df_drv_open(), never changed afterwards. */
extern struct df_drv_table df_drv_table;

/* For one call: no lock of ours is held across it, which debug builds check. */
static inline const struct df_drv_table *df_drv_now(void)
{
	df_lock_none_held("the CUDA driver");
	return &df_drv_table;
}
#define df_drv (*df_drv_now())

/* Opens libcuda.so.1 and everything of the table. 0, or -errno with the reason as a sentence. */
int df_drv_open(char *reason, size_t reason_bytes);
/* A function that not every driver has; NULL: this one has not. */
void *df_drv_find(const char *name, int version);
/* The edges of a graph, or with NULL how many; drivers have two forms. 0 or -errno. */
int df_drv_graph_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *nr);
/* -errno for a result of the driver. */
int df_drv_errno(CUresult r);
const char *df_drv_name(CUresult r);

/* A stream by its handle, and for the default streams by its number too. */
struct df_mstream_key {
	uint64_t handle, id;
};

struct df_mstream {
	struct df_mstream_key key;
	UT_hash_handle hh;
	CUstream handle;
	CUcontext ctx;
	uint64_t id;
	int device, priority;
	unsigned int flags;
	void *user;
	uint8_t own; /* ours: no hook sees it */
};

struct df_cudev {
	CUdevice device;
	CUcontext ctx;	   /* the primary one, retained for good; NULL: not used yet */
	const char *lacks; /* what the daemon needs and it has not; NULL: nothing */
	char pci[16];	   /* its address; "": not known */
};

#define DF_CUDA_DEVICES_MAX 64

extern struct df_cudev df_cudevs[DF_CUDA_DEVICES_MAX];
extern int df_nr_cudevs;
extern const struct df_backend df_cuda_api;
extern const struct df_cuda_front df_cuda_front;

/* One that this process has already, on whatever device, or would have next: for memory that all see. NULL: none. */
CUcontext df_cuda_ctx_any(void);
int df_cuda_device_any(void); /* whose that is */
/* The primary context of a device; NULL: the driver refuses. Any thread. */
CUcontext df_cuda_ctx(int device);
/*
 * Makes a context current if it is not; returns what df_cuda_leave() takes, or -errno; -ESHUTDOWN: the process ends, and
 * the driver has. Does not nest.
 */
int df_cuda_enter(CUcontext ctx);
void df_cuda_leave(int entered);

/* The stream behind a handle; made on first sight. NULL: not a stream of this process, or no memory. */
struct df_mstream *df_cuda_stream(CUstream handle, int ptds);
/* As above, but never made. */
struct df_mstream *df_cuda_stream_known(CUstream handle, int ptds);
void df_cuda_stream_describe(struct df_mstream *s, struct df_stream_info *out);
void df_cuda_stream_forget(struct df_mstream *s);
/* Has a stream of our own at hand for struct df_backend's stream_new(). May wait for the device. */
void df_cuda_spare_stream(int device);
/* All streams of a device; -1: of every device. fn runs with no lock held. */
void df_cuda_stream_each(int device, void (*fn)(const struct df_stream_info *s, void *arg),
			 void *arg);

/* cuda_event.c: what was seen of their creation. An event that was not seen counts as one with timing. */
int df_cuda_event(CUevent event, struct df_event_info *out);
void df_cuda_event_made(CUevent event, unsigned int flags);
void df_cuda_event_forget(CUevent event);
/* For struct df_backend. */
int df_cuda_event_record(void *event, struct df_mstream *s);
int df_cuda_event_wait(struct df_mstream *s, void *event);
int df_cuda_event_new(int device, void **event);
void df_cuda_event_delete(void *event);

/* cuda_peers.c, for struct df_backend. */
int df_cuda_reaches(int device, int other);
/* Kernels of a device may touch the other's memory from now on; -1: of any. */
void df_cuda_peers_note(int device, int other);

extern int df_cuda_captures; /* captures in progress, as the hook counts them; -1: nobody counts */
extern const struct df_hooks *df_cuda_hooks;
/* 1: opened by df_device_open_any() only to look on: there is no daemon that could be in the way. */
extern int df_cuda_recording;

/* cuda_alloc.c, for struct df_backend. */
int df_cuda_mem_info(const void *ptr, struct df_mem_info *out);
int df_cuda_mem_alloc(int device, size_t bytes, void **out);
int df_cuda_mem_free(void *ptr);
/* Waits, for a bounded time, until what df_cuda_mem_free() was given is back with the driver. */
void df_cuda_frees_settle(void);

/* cuda_graph.c */
int df_cuda_capture_nodes(struct df_mstream *s, const struct df_capture_ops *ops, void *const *args,
			  uint32_t nr);
/* -errno: it can't be executed, and is refused when it is launched. */
int df_cuda_graph_made(CUgraphExec exec, CUgraph graph);
/* A node of an executable graph is to become this; 1: that is refused. */
int df_cuda_graph_set(CUgraphNode node, const struct df_node_set *to);
void df_cuda_graph_gone(CUgraphExec exec);
/* A graph of nothing but collectives: 1: they are on the stream, and that is all; 0: it has to be launched. -errno. */
int df_cuda_graph_issue(CUgraphExec exec, const struct df_stream_info *s);
int df_cuda_graph_launch(CUgraphExec exec, struct df_mstream *s);
/* Graphs keep objects of the application alive. */
void df_cuda_graph_kept(void);
/* Looks at replays in progress, and lets graphs go on whose collectives have been ended. How many are left. */
int df_cuda_graph_poll(void);
/* Another one says that a graph has come to a collective since. The poller's. */
uint64_t df_cuda_graph_arrivals(void);

/* Not every call of the application's is seen: no order is relaxed from now on. */
void df_cuda_strict(void);

/* cuda_engine.c, for struct df_blocks. */
int df_cuda_pass(int device);
void df_cuda_wait(int device, int (*ready)(void *arg), void *arg);
void df_cuda_first_turns(int device);
uint64_t df_cuda_device_id(int device);
uint32_t df_cuda_blocks(void);

/* cuda_mem.c: memory that host and device see under one address, from large pinned pieces. */
void *df_cuda_pinned(size_t bytes, int zero);
void df_cuda_pinned_free(void *p);
/* With no lock held: waits, for a bounded time, until there is enough for what the next submission allocates. */
void df_cuda_reserve(void);

/*
 * cuda_aside.c: runs fn on a thread of its own, for calls of the driver that may take long. -ENOMEM. Nobody who holds a
 * lock makes such calls himself.
 */
int df_cuda_aside(void (*fn)(void *arg), void *arg);
/* The transports' arena is shown to the GPUs, and taken from them. */
int df_cuda_show(void *base, uint64_t bytes);
void df_cuda_hide(void *base);

/* cuda_gate.c: an event that all of a device wait for, and what a stream has to wait for of that when it is made. */
void df_cuda_gate_wait(int device, const struct df_event_info *event);
void df_cuda_gate_follow(struct df_mstream *s);

/* cuda_kernels.c: around a launch of the application's; see struct df_cuda_front. */
int df_cuda_launch_enter(const struct df_cuda_launch *l);
void df_cuda_launch_leave(const struct df_cuda_launch *l, int token, int launched);

/* cuda_mps.c. 1: processes share the device through MPS. */
int df_cuda_mps(int device);
/* Those that this process may use; 0: the driver does not say. */
int df_cuda_multiprocessors(int device);
struct df_member;
/* Warns, once, if the daemons of a communicator's processes do not fit on the GPU of that rank together. */
void df_cuda_mps_fits(const struct df_member *members, int nranks, int rank);

/* cuda_queue.c: the stream and the kernel of a device's daemon. */
CUresult df_cuda_queue(int device, CUstream *stream, CUfunction *fn, const char *kernel,
		       const void *image);

/* cuda_daemon.c: the driver may wait for the device: asks the daemon to leave, and waits a little until it has. */
void df_cuda_quiet(int device, int enter);

/*
 * cuda_front.c: around a call of the calling thread's that waits for all of the device's streams (-1: of all devices', as one that frees what
 * other devices may see) with a lock that others need (runtime/order/waits.h). wait: until none of them waits; else 0 if one does.
 */
int df_cuda_alone_enter(int device, int wait);
void df_cuda_alone_leave(void);
/* cuda_aside.c: a quiet time of all devices for such a call of our own, on a thread that may wait. */
void df_cuda_alone(int enter);

#endif
