/*
 * A device: the streams that carry collectives, the operations in flight, and what executes them.
 * Guarded by df_dev.lock, which is never held across a call that can block.
 */
#ifndef DF_RUNTIME_DEVS_H
#define DF_RUNTIME_DEVS_H

#include <stdint.h>
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/blocks.h"

struct df_overflow;
struct df_stream;

struct df_dev {
	int index;
	struct df_mutex lock;
	struct df_exec exec;	      /* issued, retired: written under the lock, read without */
	struct df_overflow *overflow; /* one for each block */
	uint32_t nr_overflow;	      /* blocks whose overflow has entries; read without the lock */
	struct df_list streams;	      /* struct df_stream */
	struct df_list events;	      /* struct df_event */
	struct df_list colls;
	/* Collectives with connectors to recycle; the last used one at the end. */
	struct df_list holding;
	struct df_list using;	   /* collectives that use connectors of peers */
	struct df_list connecting; /* collectives with unconnected connectors */
	struct df_list flying;	   /* collectives with instances in flight */
	struct df_list lanes;	   /* lanes with unfinished operations */
	struct df_list
		lends;	   /* messages to send to other devices and ranks (runtime/coll/lend.c) */
	uint32_t nr_lends; /* read without the lock */
	uint32_t nr_connecting;			/* read without the lock */
	uint64_t released, reordered, recycled; /* counters for DFSHIM_STATS */
	uint32_t asked;				/* df_bell.asked when we last read it */
	uint64_t told; /* exec.retired when waiters were last woken; read without the lock */
	/*
	 * The legacy default stream, once work has been enqueued on it. Later work of blocking
	 * streams waits for the same operations as its own: when work is enqueued on them, they
	 * copy its set. legacy_added: `at` of the last operation of that set; 0: it is empty; read
	 * without the lock.
	 */
	struct df_stream *legacy;
	uint64_t legacy_added;
};

/* Called first for a zeroed device: prepares the order layer's fields. */
static inline void df_dev_begin(struct df_dev *dev, int index)
{
	df_list_init(&dev->streams);
	df_list_init(&dev->events);
	df_list_init(&dev->lanes);
	df_mutex_init(&dev->lock, DF_RANK_DEVICE, "device");
	dev->index = index;
}

/* Whether a communicator has ever been ready on the device. */
static inline int df_dev_used(const struct df_dev *dev)
{
	/* RELAXED: flags of the communicator order the fields that it has set up. */
	return __atomic_load_n(&dev->exec.used, __ATOMIC_RELAXED) != 0;
}

/* Whether the device has unfinished operations. */
static inline int df_dev_busy(const struct df_dev *dev)
{
	/* RELAXED: nothing orders the caller with a thread that submits at the same time. */
	return __atomic_load_n(&dev->exec.issued, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&dev->exec.retired, __ATOMIC_RELAXED);
}

#endif
