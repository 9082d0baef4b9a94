/*
 * Who executes the blocks of the daemon on this machine: a kernel on a GPU (runtime/device/cuda), or CPU threads
 * (runtime/device/host); and the memory that those blocks see. The other half of a machine, its streams and memory as the
 * application knows them, is runtime/backend.h.
 *
 * Results, times and sizes as there. Every function may be called by any thread, and blocks only where that is said.
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

/* ---- what both speak of -------------------------------------------------------------------------------------- */

/*
 * A device whose blocks the machine executes. The runtime's, which never frees it; the machine reads it without a lock,
 * except what is said to be the machine's.
 */
struct df_exec {
	struct df_kdaemon d;
	struct df_kblock *blocks;
	uint32_t *needs;	  /* operations in flight, by block, where `gpu` */
	uint64_t issued, retired; /* operations */
	uint64_t quits;		  /* the machine's: its blocks found nothing to do for a time */
	uint32_t used;		  /* some communicator lives here */
};

/* What whoever executes the blocks of a device asks of the runtime and tells it, with no lock held. */
struct df_block_hooks {
	/*
	 * Takes note of what a device's blocks have completed, connects what is not connected. 1 if something moved.
	 */
	int (*chores)(int device);
	/* So many blocks, from the first, have something to do that may start; 0: not known now. Never waits. */
	uint32_t (*width)(int device);
	/* Peers have asked for connectors of the device back, and chores() has not looked since. */
	int (*asked)(int device);
	/* The device is lost, which has been logged: its communicators end. Returns before they have. */
	void (*failed)(int device);
	/* Another one says that a stream, or a peer, has written something that a block may wait for. */
	uint64_t (*words)(void);
};

/* All of them, by number of the device, and who else is on this node. */
struct df_execs {
	struct df_exec **v;
	int nr, nr_cores;
	uint32_t nr_procs; /* the most processes of one communicator on this node */
	const struct df_block_hooks *hooks;
};

/* ---- what the runtime asks ------------------------------------------------------------------------------------ */

struct df_blocks {
	/*
	 * 1: a kernel executes the blocks, behind a bus: it reads what it needs from its submission, and remembers
	 * connectors. 0: threads do, in this memory.
	 */
	uint8_t gpu;

	/* -- executing blocks -- */

	/* Of a device's daemon, unless the user says how many. */
	uint32_t (*blocks)(void);
	/* The same for all processes that use the device; 0: not known. */
	uint64_t (*device_id)(int device);
	/*
	 * The device can execute a daemon; idempotent, blocks. Before the first communicator there, when nothing that
	 * waits for us can stand in its way. -errno with the reason.
	 */
	int (*prepare)(int device, char *reason, size_t reason_bytes);
	/* All members of a new communicator call it, with no lock held; blocks. */
	int (*meet)(struct df_ctl_comm *ctl, int nranks, int rank, const uint32_t *stop);
	/* After a device came into use; idempotent. -ENOMEM: no thread. */
	int (*start)(const struct df_execs *execs);
	/*
	 * Before a device's lock is taken to submit: shared_alloc() must not call the driver under it, so this waits, for
	 * a bounded time, until it need not.
	 */
	void (*reserve)(void);
	/*
	 * The submitting thread sends what an operation of few bytes begins with, if the blocks have nothing else to do: the
	 * data are on their way while the call returns. Bounded; no lock is held.
	 */
	void (*first_turns)(int device);
	/* After a submission: makes sure that somebody works. */
	void (*submitted)(void);
	/* One look at all blocks, those of the device first where >= 0; 1 if something moved. */
	int (*pass)(int device);
	/* Waits until ready(arg); the caller drives the blocks meanwhile, or lends its core to who does. */
	void (*wait)(int device, int (*ready)(void *arg), void *arg);
	/* The blocks of the device are nobody's until resume. 1: it is lost, and what they had with it. */
	int (*stop)(int device);
	void (*resume)(int device);
	uint64_t (*launches)(void); /* resumed after a quit */

	/* -- memory -- */

	/* Seen by host and devices under one address, from a line of its own on; zero: zeroed. NULL: none. */
	void *(*shared_alloc)(size_t bytes, int zero);
	void (*shared_free)(void *p);
	/* For a program that only blocks of that device touch. -EAGAIN. */
	int (*scratch)(int device, uint64_t bytes, void **out);
	void (*scratch_free)(void *p);
	/* DF_NEAR_BYTES of a device that its blocks read and this stream can write: zeros at first; NULL: none. May be NULL. */
	uint64_t *(*near_words)(const struct df_mstream *s);
	/*
	 * Segments of the transports' arena, which devices are to see; NULL: they see all memory. Either may take long:
	 * called with no lock held, on a thread that aside() started. show not 0: the segment can't be used.
	 */
	int (*show)(void *base, uint64_t bytes);
	void (*hide)(void *base);
	/* Runs fn on a thread of its own. -ENOMEM. */
	int (*aside)(void (*fn)(void *arg), void *arg);
	/*
	 * Memory of GPUs for the transport "p2p", which is not there where these are NULL. What needs the driver is begun
	 * aside, and asked for again. agreed: 1 when these two ranks reach each other's (since meet()); cheap.
	 * alloc: -ENOMEM also where it takes too long. open: where a chunk of another process's memory lies for our device;
	 * -EAGAIN also where it is refused. close: nobody uses that process's any more. limit: at most so many bytes, for
	 * tests; 0: no limit. bytes: what a device has altogether; 0: not known.
	 */
	int (*far_agreed)(const struct df_member *self, const struct df_member *peer);
	int (*far_alloc)(int device, uint64_t bytes, struct df_far_block *out);
	void (*far_free)(const struct df_far_block *block);
	int (*far_open)(int device, uint64_t proc, const struct df_conn_far *far, uint64_t *addr);
	void (*far_close)(uint64_t proc);
	void (*far_limit)(uint64_t bytes);
	uint64_t (*far_bytes)(int device);
	/* Of a chunk that far_alloc() has named. -EOPNOTSUPP: they do not reach it, because out->why. Under any lock. */
	int (*far_rdma)(int device, uint32_t seg, struct df_far_rdma *out);
};

/* Those of the process's machine. Never NULL: before df_device_open() they are CPU threads, of which none is started. */
extern const struct df_blocks *df_blocks;

/* What the daemon looks at; raw: not zeroed. */
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
