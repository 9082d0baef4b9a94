/*
 * The interface between the runtime and a machine: the GPUs of a node (runtime/device/cuda), or CPU
 * memory in their place (libdfhost.so). The runtime calls a machine through struct df_backend; a
 * machine calls the runtime through struct df_hooks. runtime/blocks.h is the interface to the
 * threads or kernels that execute the daemon's blocks there. Facts about a machine are data, so
 * that no caller asks which machine it is.
 *
 * Results are 0 or -errno; -EAGAIN means not now. Times are in ns, sizes in bytes. Any thread may
 * call any function; a function blocks only where its comment says so.
 *
 * Hooks run on the thread that called CUDA, with no lock of the machine held, before the call acts
 * unless said otherwise. They may call every function of the table and may block; a hook that waits
 * helps the daemon meanwhile. Without hooks everything behaves as plain CUDA.
 */
#ifndef DF_RUNTIME_BACKEND_H
#define DF_RUNTIME_BACKEND_H

#include <stddef.h>
#include <stdint.h>
#include "runtime/backend_types.h"

/* Increased with any change below: libdfhost.so and libdfshim.so must be of one build. */
#define DF_BACKEND_VERSION 15

struct df_blocks;

/* ---- what a machine reports to the runtime ---------------------------------------------- */

struct df_hooks {
	/*
	 * Work other than a collective is about to be enqueued. t: all that it touches; NULL:
	 * unknown.
	 */
	void (*before_work)(const struct df_stream_info *s, enum df_work kind,
			    const struct df_touch *t);
	/*
	 * After before_work, for a kernel: its name, one pointer for equal names; NULL: unknown.
	 * May be NULL.
	 */
	void (*before_kernel)(const struct df_stream_info *s, const char *name);
	/*
	 * A graph was launched, or the launch failed; before_work has been called for it. May be
	 * NULL.
	 */
	void (*after_graph)(const struct df_stream_info *s, int launched);
	/*
	 * cudaEventRecord, before the native record. Returns 1 if the hook has recorded the event
	 * itself (through the table), so that the native record is skipped; 0: continue.
	 */
	int (*event_record)(const struct df_event_info *e, const struct df_stream_info *s);
	/* cudaStreamWaitEvent, before the native wait, which follows in any case. */
	void (*event_wait)(const struct df_stream_info *s, const struct df_event_info *e);
	/* cudaEventQuery. Returns 1 if the event is not ready, 0 if the native query decides. */
	int (*event_query)(const struct df_event_info *e);
	/*
	 * cudaEventElapsedTime, for each event. Returns 1 if it is not ready; else 0, and *event is
	 * the one to take the native time of.
	 */
	int (*event_time)(const struct df_event_info *e, void **event);
	/*
	 * cudaEventSynchronize: blocks until the operations that the hooks know of have finished.
	 */
	void (*event_sync)(const struct df_event_info *e);
	void (*event_destroy)(const struct df_event_info *e);
	void (*stream_create)(const struct df_stream_info *s);
	/* cudaStreamSynchronize: blocks as event_sync does. */
	void (*stream_sync)(const struct df_stream_info *s);
	/* cudaStreamQuery: as event_query. */
	int (*stream_query)(const struct df_stream_info *s);
	/*
	 * After both queries: the result that the application gets; 1 done, 0 not ready, -1 an
	 * error.
	 */
	void (*queried)(int done);
	/*
	 * cudaStreamDestroy: queued work still runs to its end; the hooks must enqueue their waits
	 * now.
	 */
	void (*stream_destroy)(const struct df_stream_info *s);
	/*
	 * A wait for the whole device, before the native one. Returns 0: wait natively, 1 to return
	 * to the application without the native wait (released, or nothing is left to wait for).
	 */
	int (*device_sync)(int device, enum df_sync_kind kind, const void *ptr);
	/*
	 * A synchronous copy on the legacy stream, before before_work. Blocks until the operations
	 * have finished that the copy would wait for and the hooks know of. t: what it touches;
	 * NULL: unknown. Returns 1 if the wait was released: enqueue the copy without before_work.
	 * May be NULL.
	 */
	int (*sync_copy)(const struct df_stream_info *s, const struct df_touch *t);
	/* cudaFree, cudaFreeHost. Returns 1 if the hook will call mem_free() of the table later. */
	int (*free)(void *ptr, const struct df_mem_info *info);
	/* Called in the machine's wait loops: helps the daemon. Returns 1 if something moved. */
	int (*help)(void);
	/* A thread has finished a wait for the device. */
	void (*sync_done)(int device);
	/*
	 * An allocation found no memory (device -1: pinned memory). Waits, as long as something
	 * moves, for the frees that the free hook has deferred. Returns 1: try again; 0: none was
	 * deferred. May be NULL.
	 */
	int (*flush)(int device);
	/*
	 * cuMemUnmap: a range of addresses of the current device is about to lose its memory. May
	 * be NULL.
	 */
	void (*unmap)(int device, uintptr_t at, size_t bytes);

	/*
	 * Around a call that makes the driver wait for all streams of a device (-1: of all) while
	 * it holds a lock that others need. After waits_stop() no stream waits for an operation,
	 * and none is made to until waits_go(). If one waits: with `wait`, blocks until none does;
	 * else returns 0. May be NULL.
	 */
	int (*waits_stop)(int device, int wait);
	void (*waits_go)(int device);
	/*
	 * From now on no order between streams is relaxed, because some calls of the application
	 * are not seen.
	 */
	void (*strict)(void);
};

/* ---- what the runtime calls in a machine ------------------------------------------------- */

struct df_backend {
	uint32_t version; /* DF_BACKEND_VERSION */
	/* Executes the daemon's blocks on this machine; NULL: CPU threads do. */
	const struct df_blocks *blocks;
	void (*set_hooks)(const struct df_hooks *hooks);
	int (*device_count)(void);
	int (*get_device)(void);       /* of the calling thread */
	int (*set_device)(int device); /* 0 or -EINVAL */

	/*
	 * Looks up a cudaStream_t (0, 1, 2 included) as the calling thread means it. Fails with
	 * -EINVAL.
	 */
	int (*stream_info)(const void *stream, struct df_stream_info *out);
	/* Makes an internal stream: non-blocking, seen by no hook. */
	int (*stream_new)(int device, struct df_stream_info *out);
	void (*stream_delete)(struct df_mstream *s);
	const void *(*stream_handle)(struct df_mstream *s); /* its cudaStream_t */

	/*
	 * As cuStreamWriteValue64 and cuStreamWaitValue64(GEQ). near: a word of near_words() to
	 * write first, or NULL. Fail with -ENOMEM.
	 */
	int (*stream_write)(struct df_mstream *s, uint64_t *addr, uint64_t *near, uint64_t value);
	int (*stream_wait)(struct df_mstream *s, const uint64_t *addr, uint64_t value);
	/*
	 * Whether the stream has no unfinished work and waits for no other stream. Never blocks. No
	 * other thread may destroy the stream meanwhile.
	 */
	int (*stream_idle)(struct df_mstream *s);
	/* The native record of an event on a stream, without hooks. */
	int (*event_record)(void *event, struct df_mstream *s);
	/* Makes an internal event, with timing, seen by no hook. Fails with -ENOMEM. */
	int (*event_new)(int device, void **event);
	void (*event_delete)(void *event);
	/* The native wait of a stream for an event, without hooks. */
	int (*event_wait)(struct df_mstream *s, void *event);
	/*
	 * As stream_idle(), for all streams of a device except those of stream_new(). For threads
	 * that do not know the application's streams: others may make or destroy some meanwhile.
	 */
	int (*streams_idle)(int device);

	/*
	 * Adds nodes to the capture that the streams are part of, one for each argument, on the
	 * stream of the same index; those on one stream start together. A graph that has one has
	 * all. Fails with -EINVAL if a stream does not capture, or not into the same graph. In mode
	 * trace nothing may wait for a node: its turn is ignored. Each argument is destroyed in the
	 * end, also on failure.
	 */
	int (*capture_nodes)(struct df_mstream *const *s, const struct df_capture_ops *ops,
			     void *const *args, uint32_t nr);

	/*
	 * Checks again the words that streams of this device wait for. Returns 1 if one waits for
	 * the next call. Cheap; any thread.
	 */
	int (*kick)(int device);
	/*
	 * Returns when ready(arg) is not 0. Executes the device's streams meanwhile; sleeps while
	 * they do not move, at most ns at a time. NULL: they move without the help of a thread, and
	 * no thread can sleep until they do.
	 */
	void (*wait)(int device, int (*ready)(void *arg), void *arg, int64_t ns);

	int (*mem_alloc)(int device, size_t bytes,
			 /* Device memory, aligned to a page. */
			 void **out);
	/*
	 * Frees device or pinned memory without a hook and without waiting. It is reused only when
	 * native work that was enqueued before has ended. Fails with -EINVAL if it is not ours.
	 */
	int (*mem_free)(void *ptr);
	/* Returns 0; kind is DF_MEM_UNKNOWN if the memory is not ours. */
	int (*mem_info)(const void *ptr, struct df_mem_info *out);
	/* Whether a kernel of the device can access the other's memory. NULL: always. */
	int (*reaches)(int device, int other);
	/*
	 * The GPU's PCI address, as sysfs writes it ("0000:17:00.0"); "": unknown. NULL: there are
	 * no GPUs.
	 */
	const char *(*pci)(int device);
	/* Called when a rank submits its nr-th operation on a communicator. May be NULL. */
	void (*submitting)(int rank, uint64_t nr);
	/*
	 * Whether operations on that many bytes of the type (enum df_type; -1: a message, whose two
	 * ends may name different types) wait for one another as always but move no data. NULL: all
	 * move their data.
	 */
	int (*skips_data)(int type, uint64_t bytes);
};

/* The machine of this process. Never NULL: before df_device_open() it has no devices. */
extern const struct df_backend *df_backend;

/* ---- the choice (runtime/device) ---- */

/*
 * Sets df_backend and df_blocks as DFSHIM_BACKEND and the machine require. Returns 0, or
 * -EOPNOTSUPP and the reason.
 */
int df_device_open(char *reason, size_t reason_bytes);
/*
 * After df_device_open(): whether NCCL's kernels on lanes execute on this machine, by
 * DFSHIM_EXECUTOR or by the self-test.
 */
int df_device_lanes(void);
/*
 * As df_device_open(), for a process that only records (mode trace): uses the GPU even if it was
 * not asked for by name.
 */
int df_device_open_any(char *reason, size_t reason_bytes);
/* Returns to no device, and to CPU threads as executor. */
void df_device_none(void);

#endif
