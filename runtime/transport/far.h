/*
 * Memory of GPUs as the transport "p2p" sees it: blocks that blocks of the daemon can reach and the host can't. The
 * machine below (runtime/device/cuda_arena.c) provides it; without one there is no such transport.
 *
 * Nothing here waits: what needs the driver is begun aside, and asked for again.
 */
#ifndef DF_TRANSPORT_FAR_H
#define DF_TRANSPORT_FAR_H

#include <stdint.h>

#include "kernels/abi.h"
#include "runtime/ctl/ctl.h"
#include "runtime/transport/pool.h"

/* Memory of one of our GPUs. */
struct df_far_block {
	int device;
	struct df_pool_piece piece; /* seg: the chunk */
	uint64_t addr, chunk_bytes;
	uint8_t handle[sizeof(((struct df_conn_far *)0)->handle)];
};

struct df_far_ops {
	/* 1: these two ranks have agreed that each reaches the other's GPU memory (df_cuda_meet()). Cheap. */
	int (*agreed)(const struct df_member *self, const struct df_member *peer);
	/* -EAGAIN: soon; -ENOMEM: there is none, or it takes too long. */
	int (*alloc)(int device, uint64_t bytes, struct df_far_block *out);
	void (*free)(const struct df_far_block *block);
	/* Where a chunk of another process's GPU memory lies for our device. -EAGAIN: being opened, or refused. */
	int (*open)(int device, uint64_t proc, const struct df_conn_far *far, uint64_t *addr);
	/* Nobody uses chunks of that process any more. */
	void (*close)(uint64_t proc);
	/* Lets at most so many bytes be handed out; for tests. 0: no limit. */
	void (*limit)(uint64_t bytes);
};

/* Set before the first communicator is made; NULL: no GPU. */
extern const struct df_far_ops *df_far;

#endif
