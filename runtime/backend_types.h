/* Types of the interface between the runtime and a machine (runtime/backend.h). */
#ifndef DF_RUNTIME_BACKEND_TYPES_H
#define DF_RUNTIME_BACKEND_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include "kernels/abi.h"

/*
 * A stream as the machine knows it. Each cudaStream_t has one, as have the legacy and per-thread
 * streams of each device.
 */
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

/*
 * Returns the flags of STREAM_CREATE records. STREAM_WORK records have the same flags, because the
 * ring may have lost the former, and the legacy stream is not created.
 */
static inline uint32_t df_stream_flags(const struct df_stream_info *info)
{
	return (uint32_t)(info->blocking | info->legacy << 1 | info->per_thread << 2);
}

struct df_event_info {
	uint64_t id; /* unique in the process, never reused, never 0 */
	int device;
	uint8_t timing; /* cudaEventElapsedTime may be called with it */
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

/* The reason for a device-wide wait. Only the first one was promised to the application. */
enum df_sync_kind {
	DF_SYNC_DEVICE,	       /* cudaDeviceSynchronize */
	DF_SYNC_FREE,	       /* cudaFree, cudaFreeHost: implicit */
	DF_SYNC_HOST_ALLOC,    /* cudaHostAlloc, cudaMallocHost: implicit */
	DF_SYNC_HOST_REGISTER, /* cudaHostRegister, Unregister: implicit */
	DF_SYNC_MEMCPY,	       /* synchronous copies and memsets on the legacy stream: implicit */
	DF_SYNC_RESET,	       /* cudaDeviceReset: implicit */
	DF_SYNC_DRIVER,	       /* another call that may wait for the device: implicit */
	DF_SYNC_LOAD,	       /* code is loaded, or stacks grow: implicit */
	DF_SYNC_NR
};

enum df_mem_kind { DF_MEM_UNKNOWN, DF_MEM_DEVICE, DF_MEM_HOST, DF_MEM_MANAGED };

struct df_mem_info {
	enum df_mem_kind kind;
	int device;
	void *base; /* of the allocation */
	size_t bytes;
	int fd;		 /* the shared file that holds it, or -1; the machine owns it */
	uint64_t offset; /* offset of base in that file */
	uint8_t shown;	 /* GPUs that can access the memory of its GPU can access it */
};

/* The bytes that a copy reads and writes. */
struct df_touch {
	uintptr_t in, in_end, out, out_end;
};

/*
 * How a replay reports that the work before its collectives is done. The machine reads the done
 * words itself.
 */
struct df_arrival {
	/*
	 * Becomes `value`. It is never freed, because it may be read after the graph was destroyed.
	 * Another graph that gets it continues counting.
	 */
	const uint64_t *ready;
	uint64_t value;
	struct df_kgate *gate; /* or this reports it, and is opened at the end */
};

/*
 * A replay of a captured collective. It is done when *done >= value; its executor has opened the
 * gate when df_kgate.opened >= opens.
 */
struct df_replayed {
	const uint64_t *done;
	uint64_t value, opens;
};

/*
 * A collective captured into a graph. cudaGraphLaunch calls, on the caller's thread and for all
 * such nodes of the graph in capture order, first prepare() and then launch().
 */
struct df_capture_ops {
	/*
	 * A replay is about to be launched. Nothing is submitted yet: what can fail, fails here
	 * with -errno, and the graph is not launched. May be NULL.
	 */
	int (*prepare)(void *arg, const struct df_arrival *a);
	/* One replay. On -errno it is not submitted, and the graph is not launched. */
	int (*launch)(void *arg, const struct df_arrival *a, struct df_replayed *turn);
	/*
	 * The graph is not launched although launch() has submitted the replay: it must not
	 * complete with data that was never computed. May be NULL.
	 */
	void (*lost)(void *arg);
	/*
	 * The last graph or executable graph that holds the node has been destroyed. May not call
	 * CUDA.
	 */
	void (*destroy)(void *arg);
	/*
	 * Replaces launch for a graph that holds only collectives: submits each to the stream as if
	 * it were called there now, in capture order; the graph itself enqueues nothing. Returns 1
	 * if launch must be used, which then holds for all of them. chain: each collective follows
	 * the one before it in the graph too. May be NULL.
	 */
	int (*issue)(void *arg, const struct df_stream_info *s, int chain);
};

#endif
