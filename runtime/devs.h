/*
 * A device: the streams that carry collectives, what is in flight, and what executes it. Guarded by df_dev.lock, which is
 * never held across a call that can block.
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
	struct df_overflow *overflow; /* one a block */
	uint32_t nr_overflow;	      /* blocks with entries in theirs; read without the lock */
	struct df_list streams;	      /* struct df_stream */
	struct df_list events;	      /* struct df_event */
	struct df_list colls;
	struct df_list holding; /* those with connectors to recycle; the one used last at the end */
	struct df_list using;	/* those that use connectors of peers */
	struct df_list connecting; /* collectives with ends that are not connected */
	struct df_list flying;	   /* collectives with instances in flight */
	struct df_list
		lends;	   /* what other devices and ranks are to be told (runtime/coll/lend.c) */
	uint32_t nr_lends; /* read without the lock */
	uint32_t nr_connecting;			/* read without the lock */
	uint64_t released, reordered, recycled; /* counters for DFSHIM_STATS */
	uint32_t asked;				/* df_bell.asked when we last looked */
	uint64_t told; /* exec.retired when waiters were last woken; read without the lock */
	/*
	 * The legacy default stream, once work has been put on it. Later work of blocking streams waits
	 * for the same operations as its own: these streams copy its set of them when work is put on
	 * them. legacy_added: how far that set goes, 0 while it is empty; read without the lock.
	 */
	struct df_stream *legacy;
	uint64_t legacy_added;
};

/* First of all for a zeroed device: what the order layer keeps of it. */
static inline void df_dev_begin(struct df_dev *dev, int index)
{
	df_list_init(&dev->streams);
	df_list_init(&dev->events);
	df_mutex_init(&dev->lock, DF_RANK_DEVICE, "device");
	dev->index = index;
}

/* Whether a communicator has ever been ready on the device. */
static inline int df_dev_used(const struct df_dev *dev)
{
	/* RELAXED: the communicator's own flags order what it has set up. */
	return __atomic_load_n(&dev->exec.used, __ATOMIC_RELAXED) != 0;
}

/* Whether the device has unfinished operations. */
static inline int df_dev_busy(const struct df_dev *dev)
{
	/* RELAXED: the caller is not ordered with a thread that submits at the same time. */
	return __atomic_load_n(&dev->exec.issued, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&dev->exec.retired, __ATOMIC_RELAXED);
}

#endif
