/*
 * Shared by the files of the GPU backend: the driver's functions, and its view of streams and
 * devices.
 */
#ifndef DF_RUNTIME_DEVICE_CUDA_CUDA_INT_H
#define DF_RUNTIME_DEVICE_CUDA_CUDA_INT_H

#include <cuda.h>
#include <uthash.h>
#include "runtime/backend.h"
#include "runtime/base/lock.h"

struct df_cuda_launch;
struct df_node_set;

struct df_drv_table {
#define DF_DRV(member, name, version, params) CUresult(*member) params;
#include "runtime/device/cuda/cuda_drv.def"
#undef DF_DRV
};

/* Filled by df_drv_open(), constant afterwards. */
extern struct df_drv_table df_drv_table;

/* Returns the table for one call. Debug builds check that no lock of ours is held then. */
static inline const struct df_drv_table *df_drv_now(void)
{
	df_lock_none_held("the CUDA driver");
	return &df_drv_table;
}
#define df_drv (*df_drv_now())

/*
 * Opens libcuda.so.1 and finds all functions of the table. Returns 0, or -errno and the reason as a
 * sentence.
 */
int df_drv_open(char *reason, size_t reason_bytes);
/* Returns a function that not every driver has, or NULL. */
void *df_drv_find(const char *name, int version);
/*
 * Stores the edges of a graph or, if `from` is NULL, only their number. Drivers have two forms of
 * this call. Returns 0 or -errno.
 */
int df_drv_graph_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *nr);
/* Converts a result of the driver to -errno. */
int df_drv_errno(CUresult r);
const char *df_drv_name(CUresult r);

/* Names a stream: by its handle, and a default stream also by its number. */
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
	uint8_t own; /* whether the stream is ours, so that no hook sees it */
};

struct df_cudev {
	CUdevice device;
	/* the primary context, which is never released; NULL if it was not used yet */
	CUcontext ctx;
	/* a requirement of the daemon that the device does not meet; NULL if it meets all */
	const char *lacks;
	char pci[16]; /* PCI address; "" if unknown */
};

#define DF_CUDA_DEVICES_MAX 64

extern struct df_cudev df_cudevs[DF_CUDA_DEVICES_MAX];
extern int df_nr_cudevs;
extern const struct df_backend df_cuda_api;

/*
 * Returns a context for memory that all devices see: a context that this process already has, else
 * that of the calling thread's device. Returns NULL if there is none.
 */
CUcontext df_cuda_ctx_any(void);
int df_cuda_device_any(void); /* returns the device of that context */
/* Returns the calling thread's device, or the first one if the thread has no context yet. */
int df_cuda_get_device(void);
/* Returns the primary context of a device, or NULL if the driver refuses. Any thread. */
CUcontext df_cuda_ctx(int device);
/*
 * Makes a context current unless it is. Returns the token for df_cuda_leave(), or -errno, which is
 * -ESHUTDOWN if the process exits and the driver has ended. Does not nest.
 */
int df_cuda_enter(CUcontext ctx);
void df_cuda_leave(int entered);

/*
 * Returns our state of the stream with this handle; makes it if there is none. Returns NULL if the
 * handle is no stream of this process, or if memory is short.
 */
struct df_mstream *df_cuda_stream(CUstream handle, int ptds);
/* As df_cuda_stream(), but returns NULL if there is no state. */
struct df_mstream *df_cuda_stream_known(CUstream handle, int ptds);
void df_cuda_stream_describe(struct df_mstream *s, struct df_stream_info *out);
void df_cuda_stream_forget(struct df_mstream *s);
/* Calls fn for all streams of a device (-1: of all devices), with no lock held. */
void df_cuda_stream_each(int device, void (*fn)(const struct df_stream_info *s, void *arg),
			 void *arg);

/*
 * cuda_event.c: stores the flags with which an event was created. An event whose creation was not
 * seen counts as an event with timing.
 */
int df_cuda_event(CUevent event, struct df_event_info *out);
void df_cuda_event_made(CUevent event, unsigned int flags);
void df_cuda_event_forget(CUevent event);
/* for struct df_backend */
int df_cuda_event_record(void *event, struct df_mstream *s);
int df_cuda_event_wait(struct df_mstream *s, void *event);
int df_cuda_event_new(int device, void **event);
void df_cuda_event_delete(void *event);

/* cuda_peers.c: for struct df_backend */
int df_cuda_reaches(int device, int other);
/* Notes that kernels of the device can access another's memory (-1: that of any). */
void df_cuda_peers_note(int device, int other);

/* number of captures in progress, as counted by the hook; -1 if they are not counted */
extern int df_cuda_captures;
extern const struct df_hooks *df_cuda_hooks;
/* whether this process only records (df_cuda_open_recording()), so that it has no daemon */
extern int df_cuda_recording;

/* cuda_alloc.c: for struct df_backend */
int df_cuda_mem_info(const void *ptr, struct df_mem_info *out);
int df_cuda_mem_alloc(int device, size_t bytes, void **out);
int df_cuda_mem_free(void *ptr);
/*
 * Waits, for a bounded time, until memory given to df_cuda_mem_free() has been returned to the
 * driver.
 */
void df_cuda_frees_settle(void);

/* cuda_graph.c */
int df_cuda_capture_nodes(struct df_mstream *const *s, const struct df_capture_ops *ops,
			  void *const *args, uint32_t nr);
/* Returns -errno if the graph cannot be executed: its launch is refused. */
int df_cuda_graph_made(CUgraphExec exec, CUgraph graph);
/* Call before a node of an executable graph becomes `to`. Returns 1 to refuse that. */
int df_cuda_graph_set(CUgraphNode node, const struct df_node_set *to);
void df_cuda_graph_gone(CUgraphExec exec);
/*
 * Submits a graph that has only collectives. Returns 1 if they are on the stream and nothing else
 * is left to do, 0 if the graph must be launched, or -errno.
 */
int df_cuda_graph_issue(CUgraphExec exec, const struct df_stream_info *s);
/* Submits the collectives of a graph that is about to be launched on the stream. */
int df_cuda_graph_launch(CUgraphExec exec, struct df_mstream *s);
/* Call if the driver has not launched the graph after df_cuda_graph_launch(). */
void df_cuda_graph_lost(CUgraphExec exec, const struct df_mstream *s);
/* Notes that the application has given a graph an object to keep alive. */
void df_cuda_graph_kept(void);
/*
 * Polls replays in progress, and opens the gates of graphs whose collectives were ended. Returns
 * how many replays are left. Sets *held if one of them is done but its graph may wait for the next
 * poll.
 */
int df_cuda_graph_poll(int *held);
/* Returns a sum that changes when a graph reaches a collective. */
uint64_t df_cuda_graph_arrivals(void);

/* Keeps strict order from now on, because some calls of the application are not seen. */
void df_cuda_strict(void);

/* cuda_engine.c: for struct df_blocks */
int df_cuda_pass(int device);
void df_cuda_wait(int device, int (*ready)(void *arg), void *arg);
void df_cuda_first_turns(int device);
uint64_t df_cuda_device_id(int device);
uint32_t df_cuda_blocks(void);
long df_cuda_ctas(int device);

/* cuda_mem.c: pinned memory that host and devices see at the same address. */
void *df_cuda_pinned(size_t bytes, int zero);
void df_cuda_pinned_free(void *p);
/*
 * Waits, for a bounded time, until there is enough memory for the next submission. The caller holds
 * no lock.
 */
void df_cuda_reserve(void);

/*
 * cuda_aside.c: runs fn on a thread of its own, for driver calls that may take long. Returns 0 or
 * -ENOMEM. A thread that holds a lock must not make such calls itself.
 */
int df_cuda_aside(void (*fn)(void *arg), void *arg);
/* Registers the transports' arena with the GPUs, and removes it. */
int df_cuda_show(void *base, uint64_t bytes);
void df_cuda_hide(void *base);

/* cuda_gate.c: makes all streams of a device wait for an event. New streams inherit the wait. */
void df_cuda_gate_wait(int device, const struct df_event_info *event);
void df_cuda_gate_follow(struct df_mstream *s);

/* cuda_kernels.c: called around a launch of the application; see struct df_cuda_front. */
int df_cuda_launch_enter(const struct df_cuda_launch *l);
void df_cuda_launch_leave(const struct df_cuda_launch *l, int token, int launched);

/* cuda_mps.c: whether processes share the device through MPS. */
int df_cuda_mps(int device);
/* Returns how many multiprocessors this process may use, or 0 if the driver does not report it. */
int df_cuda_multiprocessors(int device);
struct df_member;
/*
 * Warns, once, if the daemons of a communicator's processes do not all fit on the GPU of that rank.
 */
void df_cuda_mps_fits(const struct df_member *members, int nranks, int rank);

/* cuda_queue.c: makes the stream of a device's daemon and loads its kernel. */
CUresult df_cuda_queue(int device, CUstream *stream, CUfunction *fn, const char *kernel,
		       const void *image);

/*
 * cuda_daemon.c: called before (`enter` 1) and after (0) a driver call that may wait for the
 * device. Before the call, asks the daemon to leave the device, and waits a little until it has.
 */
void df_cuda_quiet(int device, int enter);

/*
 * cuda_aside.c: called around a driver call of the calling thread that waits for all streams of the
 * device while it holds a lock that other threads need (runtime/order/waits.h). Device -1 means all
 * devices, as when the call frees memory that other devices may see. If `wait`, waits until none of
 * the streams waits. Else returns 0 if one does.
 */
int df_cuda_alone_enter(int device, int wait);
void df_cuda_alone_leave(void);
/*
 * Called around such a call of our own, on a thread that may wait: df_cuda_alone_enter() and
 * df_cuda_quiet() for all devices. `enter` is 1 before the call and 0 after it.
 */
void df_cuda_alone(int enter);

/* fatbin.c: returns the kernel's code, or NULL if this build has none. */
const void *df_cuda_fatbin(void);

#endif
