/*
 * The interface to whatever executes the daemon's blocks on this machine, a kernel on a GPU
 * (runtime/device/cuda) or CPU threads (runtime/device/host), and to the memory that those blocks
 * see. runtime/backend.h is the other half of a machine: its streams and memory as the application
 * knows them.
 *
 * Results, times and sizes are as there. Any thread may call any function; a function blocks only
 * where its comment says so.
 */
#ifndef DF_RUNTIME_BLOCKS_H
#define DF_RUNTIME_BLOCKS_H

#include <stddef.h>
#include <stdint.h>
#include "kernels/abi.h"
#include "runtime/backend_far.h"

#define DF_NEAR_BYTES 32768

struct df_ctl_comm;
struct df_member;
struct df_mstream;

/* ---- types of both sides ----------------------------------------------------------------- */

/*
 * A device whose blocks the machine executes. The runtime owns it and never frees it; the machine
 * reads it without a lock, and writes only the fields that are said to be the machine's.
 */
struct df_exec {
	struct df_kdaemon d;
	struct df_kblock *blocks;
	uint32_t *needs;	  /* operations in flight, by block, if `gpu` */
	uint64_t issued, retired; /* operations */
	uint64_t quits; /* the machine's: launches that ended because nothing made progress */
	uint32_t used;	/* a communicator has been ready here */
};

/* Calls from the executing side to the runtime, with no lock held. */
struct df_block_hooks {
	/*
	 * Retires what a device's blocks have completed and connects connectors. Returns 1 if
	 * something moved.
	 */
	int (*chores)(int device);
	/*
	 * Returns n if only the first n blocks have work that may start; 0: unknown. Never waits.
	 */
	uint32_t (*width)(int device);
	/* The application runs short of memory: connectors take no more than they have now. */
	void (*frugal)(void);
	/* Whether streams of the device may have taken all hardware queues. Never waits. */
	int (*crowded)(int device);
	/* Whether peers have asked for connectors of the device back since the last chores(). */
	int (*asked)(int device);
	/*
	 * The device is lost, which has been logged: its communicators end. Returns before they
	 * have.
	 */
	void (*failed)(int device);
	/*
	 * Returns a number that changes when a stream or a peer reports that it has written a word
	 * that a block may wait for.
	 */
	uint64_t (*words)(void);
};

/* All devices, by number, and how many processes share the node. */
struct df_execs {
	struct df_exec **v;
	int nr, nr_cores;
	uint32_t nr_procs; /* the most processes on this node of any one communicator */
	const struct df_block_hooks *hooks;
};

/* ---- calls from the runtime -------------------------------------------------------------- */

struct df_blocks {
	/*
	 * Whether a kernel executes the blocks, behind a bus. It then reads what it needs from its
	 * submission queue and caches connectors. Otherwise CPU threads execute them, in this
	 * memory.
	 */
	uint8_t gpu;
	/*
	 * The number of hardware queues that the streams of a device share. A stream that waits
	 * for a word keeps its queue. 0: each stream has its own.
	 */
	uint8_t queues;

	/*
	 * Makes the device ready for communicators; idempotent, blocks. Called before the first
	 * one there. On failure the reason is filled in.
	 */
	int (*open)(int device, char *reason, size_t reason_bytes);
	/* How many CTAs of NCCL's kernels are on the device together, whatever else is there. */
	long (*ctas)(int device);

	/* -- executing blocks -- */

	/* Whether this machine can execute blocks at all: 0, or -errno and the reason. */
	int (*able)(char *reason, size_t reason_bytes);

	/* The number of blocks of a daemon, unless the user sets it. */
	uint32_t (*blocks)(void);
	/* Returns a number that all processes have in common for the device; 0: unknown. */
	uint64_t (*device_id)(int device);
	/*
	 * After open(): makes the device able to execute a daemon; idempotent, blocks. Called
	 * while nothing that waits for us can block it. On failure the reason is filled in.
	 */
	int (*prepare)(int device, char *reason, size_t reason_bytes);
	/* All members of a new communicator call it, with no lock held. Blocks. */
	int (*meet)(struct df_ctl_comm *ctl, int nranks, int rank, const uint32_t *stop);
	/*
	 * Called after a device is first used; idempotent. Fails with -ENOMEM if no thread can be
	 * started.
	 */
	int (*start)(const struct df_execs *execs);
	/*
	 * Called before a device's lock is taken to submit. Under the lock shared_alloc() must not
	 * call the driver, so this waits, for a bounded time, until enough memory is there.
	 */
	void (*reserve)(void);
	/*
	 * If the blocks are otherwise idle, the submitting thread executes the start of a small
	 * operation itself, so that its data are sent before the call returns. Bounded; no lock is
	 * held.
	 */
	void (*first_turns)(int device);
	/* Called after a submission: makes sure that a thread or a GPU executes it. */
	void (*submitted)(void);
	/*
	 * Looks once at all blocks, those of the device first if it is >= 0. Returns 1 if something
	 * moved.
	 */
	int (*pass)(int device);
	/*
	 * Waits until ready(arg). The caller executes blocks meanwhile, or leaves its core to a
	 * thread that does.
	 */
	void (*wait)(int device, int (*ready)(void *arg), void *arg);
	/*
	 * Until resume(), nothing executes the device's blocks. Returns 1 if the device is lost,
	 * with all that its blocks held; 2 if it is lost because it did not stop in time: then
	 * nothing that the blocks access may be freed. Bounded.
	 */
	int (*stop)(int device);
	void (*resume)(int device);
	/*
	 * Streams of the device are about to take all hardware queues. Returns 1 if no launch is
	 * needed until df_block_hooks.crowded() returns 0; returns 0 if one may be needed. Bounded.
	 * May be NULL.
	 */
	int (*stay)(int device);
	/* Number of launches after the daemon had quit. */
	uint64_t (*launches)(void);

	/* -- memory -- */

	/*
	 * Memory that CPU and devices see at one address, on cache lines of its own. zero: clear
	 * it. Returns NULL if there is none.
	 */
	void *(*shared_alloc)(size_t bytes, int zero);
	void (*shared_free)(void *p);
	/* Memory for a program, which only blocks of that device access. Fails with -EAGAIN. */
	int (*scratch)(int device, uint64_t bytes, void **out);
	void (*scratch_free)(void *p);
	/*
	 * Returns DF_NEAR_BYTES of device memory that its blocks read and this stream can write,
	 * zeroed; NULL: none. May be NULL.
	 */
	uint64_t *(*near_words)(const struct df_mstream *s);
	/*
	 * Map segments of the transports' arena into the devices, and unmap them; NULL: devices see
	 * all memory. Both may take long: they are called with no lock held, on a thread that
	 * aside() started. If show() fails, the segment cannot be used.
	 */
	int (*show)(void *base, uint64_t bytes);
	void (*hide)(void *base);
	/* Runs fn on a new thread. Fails with -ENOMEM. */
	int (*aside)(void (*fn)(void *arg), void *arg);
	/*
	 * GPU memory for the transport "p2p"; NULL: this machine has no such transport. Work that
	 * needs the driver is started aside; until it is done they return -EAGAIN, and the caller
	 * asks again.
	 *
	 * far_agreed: whether these two ranks reach each other's memory (known since meet());
	 * cheap. far_alloc: -ENOMEM also if it takes too long. far_open: where a chunk of another
	 * process is mapped for our device; -EAGAIN also if mapping is refused. far_close: no user
	 * of that process's memory is left. far_limit: at most this number of bytes, for tests; 0:
	 * no limit. far_bytes: all memory of the device; 0: unknown.
	 */
	int (*far_agreed)(const struct df_member *self, const struct df_member *peer);
	int (*far_alloc)(int device, uint64_t bytes, struct df_far_block *out);
	void (*far_free)(const struct df_far_block *block);
	int (*far_open)(int device, uint64_t proc, const struct df_conn_far *far, uint64_t *addr);
	void (*far_close)(uint64_t proc);
	void (*far_limit)(uint64_t bytes);
	uint64_t (*far_bytes)(int device);
	/*
	 * Describes a chunk that far_alloc() has named. Fails with -EOPNOTSUPP if RDMA devices
	 * do not reach it; out->why has the reason. Any lock.
	 */
	int (*far_rdma)(int device, uint32_t seg, struct df_far_rdma *out);
};

/*
 * The functions of this process's machine. Never NULL: before df_device_open() they are those of
 * the CPU threads, none of which has been started.
 */
extern const struct df_blocks *df_blocks;

/* Memory that the daemon reads; raw: not zeroed. */
static inline void *df_kalloc(size_t bytes)
{
	return df_blocks->shared_alloc(bytes, 1);
}

static inline void *df_kalloc_raw(size_t bytes)
{
	return df_blocks->shared_alloc(bytes, 0);
}

static inline void df_kfree(void *p)
{
	df_blocks->shared_free(p);
}

#endif
