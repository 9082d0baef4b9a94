/*
 * Inside libdfhost.so: streams, events, memory, captures and graphs of the CUDA runtime on the CPU.
 *
 * Locks, outermost first: capture (one, all captures and graphs), a table (handles, memory), a
 * device (its streams and their queues). No lock is held while a hook, a host function or a
 * destructor runs, or while an operation moves data.
 *
 * A position in a stream is a *point*: the stream's index and the number of its operation. Numbers
 * only grow, also when a stream's slot is reused (on the same device), so a point is valid for ever
 * and "finished" is one comparison. Events, legacy order and graphs use only points.
 */
#ifndef DF_HOSTCUDA_INTERNAL_H
#define DF_HOSTCUDA_INTERNAL_H

#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include "interpose/hostcuda/hostcuda.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/futex.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"

#define DF_H_API __attribute__((visibility("default")))
/* Exports df12_<name>() under the name that it has in CUDA 12. Used in the file that defines it. */
#define DF_H_VERSION_12(name) __asm__(".symver df12_" #name "," #name "@libcudart.so.12,remove");
#define DF_H_MAX_DEVICES      1024
/* On an idle stream, the thread that enqueues an operation up to this size executes it itself. */
#define DF_H_INLINE_BYTES (64u << 10)
/* A waiting thread does not execute larger operations of other streams. */
#define DF_H_HELP_BYTES (256u << 10)

/* -- handles: slots of one size in reserved memory, looked up without a lock ------------------- */

struct df_hslab {
	const char *name;
	size_t slot_bytes; /* a power of two */
	size_t nr_slots;
	char *base;
	size_t nr_used; /* number of slots that were ever used */
	struct df_hslot *free;
	struct df_mutex lock;
};

/* The first member of all objects in a slab. */
struct df_hslot {
	uint32_t live;	/* DF_H_LIVE from df_hslot_publish() until the handle ends */
	uint32_t index; /* index of the slot */
	struct df_hslot *next_free;
};

#define DF_H_LIVE 0xdf11ca5eu

int df_hslab_init(struct df_hslab *slab, const char *name, size_t object_bytes, size_t nr_slots);
/* Returns a slot with stale contents, not yet live; NULL when none is left. */
void *df_hslab_get(struct df_hslab *slab);
void df_hslab_put(struct df_hslab *slab, void *object);

static inline void *df_hslab_at(const struct df_hslab *slab, uint32_t index)
{
	return slab->base + index * slab->slot_bytes;
}

/* Returns the object of a handle, or NULL. The handle may be any bit pattern. */
static inline void *df_hslab_find(const struct df_hslab *slab, const void *handle)
{
	size_t off = (size_t)((uintptr_t)handle - (uintptr_t)slab->base);

	if (off >= slab->nr_slots * slab->slot_bytes || (off & (slab->slot_bytes - 1)))
		return NULL;
	/*
	 * ACQUIRE pairs with the RELEASE in df_hslot_publish(): without it the members of a slot
	 * that another thread has just filled could be read as they were before.
	 */
	if (__atomic_load_n(&((struct df_hslot *)(uintptr_t)handle)->live, __ATOMIC_ACQUIRE) !=
	    DF_H_LIVE)
		return NULL;
	return (void *)(uintptr_t)handle;
}

static inline void df_hslot_publish(struct df_hslot *slot)
{
	/* RELEASE pairs with the ACQUIRE in df_hslab_find(), which says why. */
	__atomic_store_n(&slot->live, DF_H_LIVE, __ATOMIC_RELEASE);
}

/* Returns 1 to the only caller that ends the handle. */
static inline int df_hslot_retire(struct df_hslot *slot)
{
	uint32_t live = DF_H_LIVE;

	/*
	 * ACQ_REL pairs with df_hslot_publish() and with a second retire: without it two threads
	 * that destroy one handle could both succeed, or see members from before the publication.
	 */
	return __atomic_compare_exchange_n(&slot->live, &live, 0, 0, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

/* -- operations of streams --------------------------------------------------------------------- */

/* index of the stream << 44 | number of the operation; 0: nothing, always finished */
typedef uint64_t df_hpoint;
#define DF_H_POINT_BITS 44
#define DF_H_POINT_SEQ	((1ull << DF_H_POINT_BITS) - 1)

enum df_hop_kind {
	DF_HOP_MARK,  /* does nothing, or stores the time stamp of an event */
	DF_HOP_WRITE, /* writes a word */
	DF_HOP_WAIT,  /* waits for a word */
	DF_HOP_POINT, /* waits for a position of a stream */
	DF_HOP_COPY,  /* copies memory, up to three dimensions */
	DF_HOP_FILL,
	DF_HOP_HOST,	 /* the user's function, on a separate thread */
	DF_HOP_CALLBACK, /* a function of cudaStreamAddCallback(), on a separate thread */
	DF_HOP_FREE,	 /* frees memory (cudaFreeAsync) */
	DF_HOP_CALL,	 /* calls a short function of this library */
	DF_HOP_KERNEL,	 /* a skipped kernel */
};

/* The low two bits are the driver's CU_STREAM_WAIT_VALUE_*. */
#define DF_HWORD_TEST 3u
#define DF_HWORD_32   4u
/* The application's word. In a capture the operation becomes a node that only the driver has. */
#define DF_HWORD_API  8u
#define DF_HNODE_WORD ((enum cudaGraphNodeType)12)

struct df_hop {
	struct df_hop *next;
	uint64_t ticket; /* its turn in the hardware queue */
	enum df_hop_kind kind;
	union {
		struct {
			uint64_t *addr;
			uint64_t value;
			uint32_t how; /* DF_HWORD_*; 0: 64 bits, wait until it is at least value */
		} word;
		struct {
			struct df_hevent *event; /* or NULL */
			uint64_t record;
		} mark;
		df_hpoint point;
		struct {
			void *dst;
			const void *src;
			size_t dst_pitch, src_pitch, dst_slice, src_slice;
			size_t width, height, depth;
			void *stage; /* memory that is freed afterwards */
		} copy;
		struct {
			void *dst;
			size_t pitch, slice, width, height, depth;
			uint32_t value;
			uint32_t elem_bytes;
		} fill;
		struct {
			cudaHostFn_t fn;
			void *arg;
		} host;
		struct {
			cudaStreamCallback_t fn;
			cudaStream_t stream;
			void *arg;
		} callback;
		struct {
			void (*fn)(void *arg);
			void *arg;
		} call;
		void *ptr;
	};
};

struct df_hqueue {
	/* tickets: of the next operation to be added, and of the operation whose turn it is */
	uint64_t next, started;
	uint64_t users; /* for code.h: number of streams that use it now */
};

struct df_hcapture;
struct df_hnode;

/* A set of graph nodes. */
struct df_hnodes {
	struct df_hnode **v;
	size_t nr, cap;
};

struct df_hstream {
	struct df_hslot slot;
	/* constant while the stream lives */
	uint64_t id;
	int device, priority;
	uint8_t legacy, blocking, per_thread, internal;
	void *user; /* data that belongs to the hooks */
	struct df_hqueue
		*queue; /* for code.h while there is work; written under the device's lock */

	uint64_t submitted, completed; /* atomic; written under the device's lock */
	uint32_t watched; /* atomic; a stream of another device waits for a point of this one */

	/* under the device's lock */
	struct df_hop *head, *tail;
	struct df_list all, active;
	uint64_t legacy_seen; /* position of the legacy stream for which it already waits */
	uint8_t busy;	      /* whether a thread executes its operation */
	uint8_t dying;	      /* destroyed; its slot is released after the last operation */

	/* Under the capture lock; the pointer itself is also read without it. */
	struct df_hcapture *capture;
	struct df_hnodes frontier; /* nodes on which the next captured operation depends */
	struct df_list members;	   /* in the list of its capture */
};

struct df_hevent {
	struct df_hslot slot;
	uint64_t id;
	int device;
	uint8_t timing, ipc, internal;
	void *user;
	df_hpoint point;    /* atomic: position of the last record */
	uint64_t record;    /* atomic: number of that record; 0: none */
	uint64_t stamp;	    /* atomic: the time of a record */
	uint64_t stamp_rec; /* atomic: number of the record to which the time belongs */
	/* Under the capture lock; the id is also read without it. */
	uint64_t capture_id;
	struct df_hnodes frontier;
};

struct df_hdev {
	int index;
	struct df_mutex lock;
	struct df_list streams; /* all streams, in order of creation */
	struct df_list active;	/* streams with unfinished operations */
	struct df_hop *ops;	/* operations to reuse */
	struct df_hstream
		*free; /* slots that belonged to streams of this device, by slot.next_free */
	struct df_hstream *legacy;
	struct df_hstream *reaper; /* atomic; see reap.c */
	struct df_hqueue *queues;
	uint64_t nr_created;	/* streams created, for the mapping onto hardware queues */
	uint64_t nr_blocking;	/* atomic: unfinished operations of blocking streams */
	uint32_t nr_active;	/* atomic: length of active */
	uint32_t nr_words;	/* atomic: enqueued operations that wait for a word */
	uint32_t work, done;	/* atomic: futex words of the engine, and of waiting threads */
	uint32_t engine_sleeps; /* atomic: whether the engine sleeps */
	uint32_t sleepers;	/* atomic: waiting threads that sleep */
	uint8_t engine_started; /* under lock */
	uint8_t peers[DF_H_MAX_DEVICES / 8];
	unsigned flags;
	cudaMemPool_t pool;
};

/* -- the process ------------------------------------------------------------------------------- */

enum { DF_H_NEW, DF_H_READY, DF_H_FORKED, DF_H_FAILED };

struct df_hrt {
	int state; /* atomic */
	int nr_devices;
	int nccl_rules;
	int stub;
	struct df_hdev **dev;
	struct df_hslab streams, events, graphs, nodes, execs, pools, objects;
	const struct df_hooks *hooks; /* atomic */
	uint64_t next_id;	      /* atomic */
	uint64_t device_bytes;	      /* memory of one device */
};

extern struct df_hrt df_h;

struct df_htls {
	cudaError_t last_error;
	int device;
	int bound;	  /* the runtime has used that device, so it is current for the driver */
	int capture_mode; /* enum cudaStreamCaptureMode */
	int in_host_fn;
	struct df_hstream **per_thread; /* by device */
};

extern __thread struct df_htls df_htls __attribute__((tls_model("initial-exec")));

cudaError_t df_hinit(void);

/* Begins every entry point that needs the runtime. */
static inline cudaError_t df_henter(void)
{
	/*
	 * ACQUIRE pairs with the RELEASE in df_hinit(): without it a thread that finds the runtime
	 * ready could see its tables empty.
	 */
	if (df_likely(__atomic_load_n(&df_h.state, __ATOMIC_ACQUIRE) == DF_H_READY))
		return cudaSuccess;
	return df_hinit();
}

/* Ends every entry point: stores the error for cudaGetLastError(). */
static inline cudaError_t df_hret(cudaError_t err)
{
	if (df_unlikely(err != cudaSuccess))
		df_htls.last_error = err;
	return err;
}

/* Returns the device; NULL if it is not used yet. */
static inline struct df_hdev *df_hdev(int device)
{
	/*
	 * ACQUIRE pairs with the RELEASE in df_hdev_get(): without it a thread could use a device
	 * whose lock and lists it still sees as zeros.
	 */
	return __atomic_load_n(&df_h.dev[device], __ATOMIC_ACQUIRE);
}

static inline uint64_t df_hid(void)
{
	return __atomic_add_fetch(&df_h.next_id, 1, __ATOMIC_RELAXED);
}

static inline const struct df_hooks *df_hhooks(void)
{
	/* ACQUIRE pairs with the RELEASE in set_hooks(): without it the table could look empty. */
	return __atomic_load_n(&df_h.hooks, __ATOMIC_ACQUIRE);
}

#define DF_H_HOOK(name) (df_hhooks() && df_hhooks()->name)

/* Called at the end of each wait whose beginning was reported to a hook. */
static inline void df_hsync_done(int device)
{
	if (DF_H_HOOK(sync_done))
		df_hhooks()->sync_done(device);
}

/* Converts -errno of the layers below to CUDA's error. */
cudaError_t df_herr(int err);

/* -- process.c, device.c ----------------------------------------------------------------------- */

/* Returns the device, and makes it at the first call; NULL: no memory. index must be valid. */
struct df_hdev *df_hdev_get(int index);
struct df_hdev *df_hdev_current(void);
static inline int df_hdevice_ok(int device)
{
	return device >= 0 && device < df_h.nr_devices;
}

/* -- stream.c: the objects --------------------------------------------------------------------- */

int df_hstream_new(struct df_hdev *dev, int priority, int blocking, int internal,
		   struct df_hstream **out);
/* Ends the handle; enqueued operations still run. */
void df_hstream_delete(struct df_hstream *s);
/* Makes the slot of a deleted stream without operations free. The device's lock is held. */
void df_hstream_retire(struct df_hdev *dev, struct df_hstream *s);
/* Returns the stream that a cudaStream_t means for the calling thread, or NULL if there is none. */
struct df_hstream *df_hstream_find(cudaStream_t stream);
/* As df_hstream_find(), for calls that enqueue: fails for a bad handle and in a host function. */
cudaError_t df_hstream_enter(cudaStream_t stream, struct df_hstream **out);
void df_hstream_describe(struct df_hstream *s, struct df_stream_info *out);
/* Calls the hook for work other than collectives, unless the stream captures. */
void df_hbefore_work(struct df_hstream *s, enum df_work kind, const struct df_touch *touch);
void df_hafter_graph(struct df_hstream *s, int launched);

static inline cudaStream_t df_hpt(cudaStream_t stream)
{
	return stream ? stream : cudaStreamPerThread;
}

static inline struct df_hstream *df_hpoint_stream(df_hpoint p)
{
	return df_hslab_at(&df_h.streams, (uint32_t)(p >> DF_H_POINT_BITS));
}

static inline df_hpoint df_hpoint_make(const struct df_hstream *s, uint64_t seq)
{
	return (uint64_t)s->slot.index << DF_H_POINT_BITS | seq;
}

static inline int df_hpoint_done(df_hpoint p)
{
	/*
	 * ACQUIRE pairs with the SEQ_CST store in the engine's complete(): without it a thread
	 * could see the operation finished but not the memory it wrote.
	 */
	return !p || __atomic_load_n(&df_hpoint_stream(p)->completed, __ATOMIC_ACQUIRE) >=
			     (p & DF_H_POINT_SEQ);
}

static inline df_hpoint df_hstream_tail(const struct df_hstream *s)
{
	/* RELAXED: a thread that waits for an operation is ordered after it by other means. */
	return df_hpoint_make(s, __atomic_load_n(&s->submitted, __ATOMIC_RELAXED));
}

/* Whether everything has finished for which a synchronisation of the stream would wait. */
int df_hstream_idle(struct df_hstream *s);
/* For code.h. Returns the number of hardware queues, or 0. A stream has a queue while it works. */
int df_hstream_queues(struct df_hstream *s);
void df_hstream_queue(struct df_hdev *dev, struct df_hstream *s, int works);

/* -- engine.c ---------------------------------------------------------------------------------- */

/* Appends a copy of the operation, after the waits that the legacy stream's rules require. */
int df_hstream_put(struct df_hstream *s, const struct df_hop *op, df_hpoint *end);
void df_hdev_kick(struct df_hdev *dev);
/* Frees the staging memory of an operation. */
void df_hop_drop(struct df_hop *op);
size_t df_hop_bytes(const struct df_hop *op);
int df_hop_word_is(const struct df_hop *op);

/* A waiting thread sleeps this long at first, and then longer each time. */
#define DF_H_SLEEP_MIN_NS (50 * DF_NS_PER_US)
#define DF_H_SLEEP_MAX_NS (2 * DF_NS_PER_MS)
/* Executes the stream's ready operations up to a size; returns their number. */
int df_hrun_stream(struct df_hdev *dev, struct df_hstream *s, size_t max_bytes);
/* As df_hrun_stream(), for all streams. *word: whether a stream waits for a memory word. */
int df_hrun_device(struct df_hdev *dev, size_t max_bytes, int is_engine, int *word);
void df_hwake_engine(struct df_hdev *dev);

/* -- wait.c ------------------------------------------------------------------------------------ */

/* Wait for a point, or until ready(arg), and execute operations meanwhile; ns: longest sleep. */
void df_hwait_point(df_hpoint p);
void df_hwait_for(struct df_hdev *dev, int (*ready)(void *arg), void *arg, int64_t ns);
/* Waits for everything that a synchronisation of the stream includes. */
void df_hwait_stream(struct df_hstream *s);
void df_hwait_device(struct df_hdev *dev);
/* The last operations of a device's streams at one moment. */
struct df_hends {
	size_t nr;
	df_hpoint *points; /* points to few, or to allocated memory */
	df_hpoint few[64];
};
/*
 * Waits for the work that is on the device's streams at the call. It does not wait for work that
 * others add meanwhile, because that may depend on this thread. Returns 1 if the wait was released.
 */
int df_hsync_device(struct df_hdev *dev, enum df_sync_kind kind);
/* Executes ready operations once, or sleeps for a moment. */
void df_hwait_slice(struct df_hdev *dev);

/* -- hostfn.c: threads for the user's functions ------------------------------------------------ */

int df_hostfn_start(struct df_hstream *s, struct df_hop *op);
/* Calls the function. Completes the operation when the function returns or ends its thread. */
void df_hstream_host_call(struct df_hstream *s, struct df_hop *op);

/* -- event.c ----------------------------------------------------------------------------------- */

struct df_hevent *df_hevent_find(cudaEvent_t event);
/* For the table: with timing. */
int df_hevent_new(int device, void **event);
void df_hevent_delete(void *event);
int df_hevent_record(struct df_hevent *e, struct df_hstream *s);
int df_hevent_wait(struct df_hstream *s, struct df_hevent *e);
void df_hevent_stamp(struct df_hevent *e, uint64_t record);

/* -- mem.c ------------------------------------------------------------------------------------- */

#define DF_H_ALIGN 512

int df_hmem_init(void);
/* device -1 means pinned host memory. Fails with -ENOMEM. */
int df_hmem_alloc(int device, enum df_mem_kind kind, unsigned flags, size_t bytes, int internal,
		  void **out);
/* Fails with -EINVAL if ptr is not the start of an allocation. */
int df_hmem_free(void *ptr);
/* Hides memory that the application has freed from the API. It exists until df_hmem_free(). */
int df_hmem_retire(void *ptr);
/* dying_too: includes memory given to df_hmem_retire(). */
void df_hmem_look(const void *ptr, int dying_too, struct df_mem_info *out, unsigned *flags);
static inline void df_hmem_info(const void *ptr, struct df_mem_info *out, unsigned *flags)
{
	df_hmem_look(ptr, 0, out, flags);
}
int df_hmem_register(void *ptr, size_t bytes, unsigned flags);
int df_hmem_unregister(void *ptr);
void df_hmem_usage(int device, size_t *free_bytes, size_t *total_bytes);
/* Frees what the application allocated on the device. */
void df_hmem_reset(int device);
/* Functions for the shared memory of other processes that is mapped here. */
void *df_hmem_import(int fd, uint64_t offset, size_t bytes, int device, uint64_t key);
int df_hmem_unimport(void *ptr);

/* -- reap.c ------------------------------------------------------------------------------------ */

/* Frees memory when all operations enqueued until now that could touch it are done. */
int df_hreap(void *ptr, int device);
/* As df_hmem_alloc(), but if that fails, waits for frees in progress and tries again. */
int df_hmem_alloc_patient(int device, enum df_mem_kind kind, unsigned flags, size_t bytes,
			  void **out);

/* -- copy_check.c ------------------------------------------------------------------------------ */

/* Checks that both sides of a copy have the right kind and are long enough. */
cudaError_t df_hcopy_check(const struct df_hop *op, enum cudaMemcpyKind kind, int *from_pageable,
			   int *to_pageable);
cudaError_t df_hcopy_box(const struct cudaMemcpy3DParms *p, struct df_hop *op);
cudaError_t df_hfill_check(const struct df_hop *op);
/* Returns the memory that a copy or a fill touches, or NULL for another operation. */
const struct df_touch *df_hop_touch(const struct df_hop *op, struct df_touch *t);

/* -- pool.c ------------------------------------------------------------------------------------ */

int df_hpool_init(void);

/* -- capture.c, graph.c ------------------------------------------------------------------------ */

int df_hgraph_init(void);

static inline int df_hstream_capturing(const struct df_hstream *s)
{
	/* RELAXED: only a hint; callers that act on it check again under the capture lock. */
	return __atomic_load_n(&s->capture, __ATOMIC_RELAXED) != NULL;
}

/*
 * Puts an operation on a stream, or into the capture that the stream is part of. Checks that a
 * legacy stream does not disturb a capture. All work of the application passes through this.
 */
cudaError_t df_hsubmit(struct df_hstream *s, const struct df_hop *op, enum df_work kind);
/* Called by functions that are forbidden during a capture; spoils the capture. */
cudaError_t df_hunsafe(void);
/* Fails, and invalidates the device's captures, if work on a legacy stream disturbs these. */
cudaError_t df_hcapture_check_legacy(struct df_hstream *s);
/* Fails while the stream captures, because it cannot be synchronised then. */
cudaError_t df_hcapture_check_sync(struct df_hstream *s);
void df_hcapture_stream_gone(struct df_hstream *s);
cudaError_t df_hcapture_record(struct df_hevent *e, struct df_hstream *s, int external);
/* Returns 1 if the call was captured, 0 if no capture is concerned, else -(int)cudaError_t. */
int df_hcapture_wait(struct df_hstream *s, struct df_hevent *e, int external);
/* Returns 1 if s captures, after adding the operation as a node; 0 if it does not; or -errno. */
int df_hcapture_add(struct df_hstream *s, const struct df_hop *op);
int df_hcapture_coll(struct df_hstream *s, const struct df_capture_ops *ops, void *arg);
cudaError_t df_hcapture_event_check(struct df_hevent *e);
void df_hcapture_event_gone(struct df_hevent *e);

#endif
