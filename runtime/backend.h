/*
 * The interface between the runtime and a machine: the GPUs of a node (runtime/device/cuda), or CPU memory that stands for
 * them (libdfhost.so). The runtime calls a machine through struct df_backend; a machine calls the runtime through struct
 * df_hooks. runtime/blocks.h is the interface to the threads or kernels that execute the daemon's blocks there. Facts about a machine are data, so that no caller
 * asks which one it is.
 *
 * Results: 0 or -errno; -EAGAIN: not now. Times are in ns, sizes in bytes. Every function may be called by any thread,
 * and blocks only where that is said.
 *
 * Hooks run on the thread that called CUDA, with no lock of the machine held, before the call acts unless said otherwise.
 * They may call every function of the table and may block (one that waits helps the daemon meanwhile). Without hooks
 * everything behaves as plain CUDA.
 */
#ifndef DF_RUNTIME_BACKEND_H
#define DF_RUNTIME_BACKEND_H

#include <stddef.h>
#include <stdint.h>
#include "kernels/abi.h"

/* Changes with anything below: libdfhost.so and libdfshim.so are of one build, or do not run together. */
#define DF_BACKEND_VERSION 10

struct df_blocks;

/* ---- what both speak of -------------------------------------------------------------------------------------- */

/* A stream as the machine knows it: one per cudaStream_t and device, legacy and per-thread ones too. */
struct df_mstream;

struct df_stream_info {
	struct df_mstream *stream;
	uint64_t id; /* unique in the process, never reused, never 0 */
	int device;
	int priority;
	uint8_t legacy;	  /* the legacy default stream of its device */
	uint8_t blocking; /* synchronises with the legacy default stream */
	uint8_t per_thread;
	uint8_t capturing; /* part of a capture in progress */
	void **user;	   /* a word that belongs to the hooks; NULL at first */
};

struct df_event_info {
	uint64_t id; /* unique in the process, never reused, never 0 */
	int device;
	uint8_t timing; /* cudaEventElapsedTime may be asked of it */
	uint8_t ipc;	/* other processes may wait for it */
	void **user;	/* a word that belongs to the hooks; NULL at first */
	void *event;	/* the cudaEvent_t */
};

enum df_work {
	DF_WORK_KERNEL,
	DF_WORK_MEMCPY,
	DF_WORK_MEMSET,
	DF_WORK_HOSTFN,
	DF_WORK_GRAPH,
	DF_WORK_MEMOP,
	DF_WORK_ALLOC,
	DF_WORK_FREE,
	DF_WORK_NR
};

/* What a device-wide wait is called for. */
enum df_sync_kind {
	DF_SYNC_DEVICE,	       /* cudaDeviceSynchronize: promised to the application */
	DF_SYNC_FREE,	       /* cudaFree, cudaFreeHost: implicit */
	DF_SYNC_HOST_ALLOC,    /* cudaHostAlloc, cudaMallocHost: implicit */
	DF_SYNC_HOST_REGISTER, /* cudaHostRegister, Unregister: implicit */
	DF_SYNC_MEMCPY,	       /* synchronous copies and memsets on the legacy stream */
	DF_SYNC_RESET,	       /* cudaDeviceReset */
	DF_SYNC_DRIVER,	       /* another call that may wait for the device: implicit */
	DF_SYNC_LOAD,	       /* code is brought to the device, or its stacks grow: implicit */
	DF_SYNC_NR
};

enum df_mem_kind { DF_MEM_UNKNOWN, DF_MEM_DEVICE, DF_MEM_HOST, DF_MEM_MANAGED };

struct df_mem_info {
	enum df_mem_kind kind;
	int device;
	void *base; /* of the allocation */
	size_t bytes;
	int fd;		 /* the shared file it lives in, or -1; owned by the machine */
	uint64_t offset; /* of base in that file */
	uint8_t shown;	 /* a GPU that has access to its GPU reaches it */
};

/* The bytes that a copy reads and writes. */
struct df_touch {
	uintptr_t in, in_end, out, out_end;
};

/* How a replay tells that what is before its collectives in the graph is done, and is told that they are. */
struct df_arrival {
	const uint64_t *ready; /* becomes `value`; the machine looks at the done words */
	uint64_t value;
	struct df_kgate *const *
		gates; /* or each collective that was captured together has a gate, in their order */
};

/* A collective captured into a graph. */
struct df_capture_ops {
	/*
	 * One replay, called inside cudaGraphLaunch on the caller's thread, for all such nodes of the
	 * graph in capture order. The node is done when **done >= *done_value.
	 */
	int (*launch)(void *arg, const struct df_arrival *a, const uint64_t **done,
		      uint64_t *done_value);
	/* The last graph or executable graph that holds the node is gone. May not call CUDA. */
	void (*destroy)(void *arg);
	/*
	 * Instead of launch, for a graph that holds nothing but collectives: each is put on the stream as if it were
	 * called there now, in capture order, and the graph itself is no work on the stream. 1: not this one, launch
	 * as usual (said of all or none). chain: each of them
	 * comes after the one before it in the graph too. May be NULL.
	 */
	int (*issue)(void *arg, const struct df_stream_info *s, int chain);
};

/* ---- what a machine tells the runtime -------------------------------------------------------------------------- */

struct df_hooks {
	/* Something other than a collective is about to be enqueued. t: what it touches and nothing else; NULL unknown. */
	void (*before_work)(const struct df_stream_info *s, enum df_work kind,
			    const struct df_touch *t);
	/* A graph was launched, or could not be; before_work has been called for it. May be NULL. */
	void (*after_graph)(const struct df_stream_info *s, int launched);
	/*
	 * cudaEventRecord: called before the native record. 1: the hook has recorded the event itself
	 * (through the table), the native record is skipped. 0: go on.
	 */
	int (*event_record)(const struct df_event_info *e, const struct df_stream_info *s);
	/* cudaStreamWaitEvent, before the native wait, which follows in any case. */
	void (*event_wait)(const struct df_stream_info *s, const struct df_event_info *e);
	/* cudaEventQuery: 0 the hook sees nothing unfinished (the native query decides), 1 not ready. */
	int (*event_query)(const struct df_event_info *e);
	/* cudaEventElapsedTime, of each event: 0, and *event the one whose native time counts; 1 not ready. */
	int (*event_time)(const struct df_event_info *e, void **event);
	/* cudaEventSynchronize: blocks until what the hooks know of is finished. */
	void (*event_sync)(const struct df_event_info *e);
	void (*event_destroy)(const struct df_event_info *e);
	void (*stream_create)(const struct df_stream_info *s);
	/* cudaStreamSynchronize: blocks until what the hooks know of is finished. */
	void (*stream_sync)(const struct df_stream_info *s);
	/* cudaStreamQuery: as event_query. */
	int (*stream_query)(const struct df_stream_info *s);
	/* After either, what the application is told: 1 done, 0 not ready, -1 an error. */
	void (*queried)(int done);
	/* cudaStreamDestroy: work continues to its end; the hooks must put their waits on it now. */
	void (*stream_destroy)(const struct df_stream_info *s);
	/*
	 * A wait for the whole device, before the native one. Returns 0: wait natively; 1: return to the
	 * application without the native wait (released, or nothing that it could wait for is left).
	 */
	int (*device_sync)(int device, enum df_sync_kind kind, const void *ptr);
	/*
	 * A synchronous copy on the legacy stream, before before_work: blocks until what the hooks know of, and the
	 * copy would wait for, is finished. t: what it touches, NULL unknown. 1: released: put it on the stream without
	 * before_work. May be NULL.
	 */
	int (*sync_copy)(const struct df_stream_info *s, const struct df_touch *t);
	/* cudaFree/cudaFreeHost: 1 = deferred, the hook will call mem_free() of the table later. */
	int (*free)(void *ptr, const struct df_mem_info *info);
	/* Called in the loops in which the machine waits: drives the daemon a little. 1 if it moved. */
	int (*help)(void);
	/* After the host finished waiting for anything (the trace wants it): what, id of the object. */
	void (*sync_done)(int device);
	/*
	 * An allocation found no memory (device -1: pinned): waits for what the free hook has put off, as
	 * long as anything moves. 1: try again, 0: nothing was put off. May be NULL.
	 */
	int (*flush)(int device);
	/* A range of addresses, device being the current one, is about to lose its memory: cuMemUnmap. May be NULL. */
	void (*unmap)(int device, uintptr_t at, size_t bytes);

	/*
	 * Around a call that makes the driver wait for all streams of a device, with a lock that others need: until waits_go() none of them
	 * is made to wait for an operation, and none does; device -1: of all. wait: until then; else 0 if one does, at once. May be NULL.
	 */
	int (*waits_stop)(int device, int wait);
	void (*waits_go)(int device);
	/* Relaxes no order between streams from now on: not every call of the application's is seen. */
	void (*strict)(void);
};

/* ---- what the runtime asks of a machine ------------------------------------------------------------------------ */

struct df_backend {
	uint32_t version; /* DF_BACKEND_VERSION */
	/* Executes the daemon's blocks on this machine; NULL: CPU threads do, in this memory. */
	const struct df_blocks *blocks;
	void (*set_hooks)(const struct df_hooks *hooks);
	int (*device_count)(void);
	int (*get_device)(void);       /* of the calling thread */
	int (*set_device)(int device); /* 0 or -EINVAL */

	/* Looks up a cudaStream_t (0, 1, 2 included) as the calling thread means it. -EINVAL. */
	int (*stream_info)(const void *stream, struct df_stream_info *out);
	/* A stream of the shim's own: non-blocking, seen by no hook. */
	int (*stream_new)(int device, struct df_stream_info *out);
	void (*stream_delete)(struct df_mstream *s);
	const void *(*stream_handle)(struct df_mstream *s); /* its cudaStream_t */

	/* As cuStreamWriteValue64 and cuStreamWaitValue64(GEQ). near: a word of near_words() to write first, or NULL. -ENOMEM. */
	int (*stream_write)(struct df_mstream *s, uint64_t *addr, uint64_t *near, uint64_t value);
	int (*stream_wait)(struct df_mstream *s, const uint64_t *addr, uint64_t value);
	/* 1: nothing enqueued on it is unfinished, and it waits for no other stream. Never blocks. */
	int (*stream_idle)(struct df_mstream *s);
	/* The native record of an event on a stream, without hooks. */
	int (*event_record)(void *event, struct df_mstream *s);
	/* An event of the shim's own, with timing, seen by no hook. -ENOMEM. */
	int (*event_new)(int device, void **event);
	void (*event_delete)(void *event);
	/* The native wait of a stream for an event, without hooks. */
	int (*event_wait)(struct df_mstream *s, void *event);
	/* All live streams of a device, for the legacy stream's rules; calls fn for each. */
	void (*stream_each)(int device, void (*fn)(const struct df_stream_info *s, void *arg),
			    void *arg);

	/*
	 * Adds nodes to the capture that the stream is part of, one for each argument; they begin together. -EINVAL: it is not
	 * capturing. Where the backend was opened to look on (mode trace) nothing may wait for it: *done is ignored. Each
	 * argument is destroyed in the end, also when this fails.
	 */
	int (*capture_nodes)(struct df_mstream *s, const struct df_capture_ops *ops,
			     void *const *args, uint32_t nr);

	/* Words that streams of this device wait for may have changed: look again. Cheap, any thread. */
	void (*kick)(int device);

	int (*mem_alloc)(int device, size_t bytes,
			 void **out); /* device memory, at a page's start */
	/* Device or pinned; no hook, never waits. Used again only when native work that was put on streams before has ended. -EINVAL. */
	int (*mem_free)(void *ptr);
	int (*mem_info)(const void *ptr, struct df_mem_info *out); /* 0, kind UNKNOWN if not ours */
	/* Can a kernel of the device touch the other's memory? NULL: always. */
	int (*reaches)(int device, int other);
	/* The GPU's address on the PCI bus, as sysfs writes it ("0000:17:00.0"); "": not known. NULL: there are no GPUs. */
	const char *(*pci)(int device);
	/* A rank submits its nr-th operation on a communicator. NULL: this machine does not ask. */
	void (*submitting)(int rank, uint64_t nr);
};

/* The machine of this process. Never NULL: before df_device_open() it is one without devices. */
extern const struct df_backend *df_backend;

#endif
