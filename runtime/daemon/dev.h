/*
 * A device: the host's ends of its daemon's rings, the streams that carry collectives, what is in flight. Guarded by
 * df_dev.lock, which is never held across a call that can block.
 */
#ifndef DF_RUNTIME_DAEMON_DEV_H
#define DF_RUNTIME_DAEMON_DEV_H

#include <stdint.h>
#include "runtime/blocks.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"

struct df_coll;
struct df_stream;

/* Submissions that found their ring full, in order. */
struct df_overflow {
	struct df_sqe *v;
	uint32_t head, nr, cap;
};

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
	uint64_t told; /* exec.retired when who waits was last told; read without the lock */
	/*
	 * The legacy default stream, once something has been put on it. What it must not run ahead of, later work of
	 * blocking streams must not either: they take it over when something is put on them. legacy_added:
	 * how far its set goes, 0 while it is empty; read without the lock.
	 */
	struct df_stream *legacy;
	uint64_t legacy_added;
};

int df_dev_init(struct df_dev *dev, int index, uint32_t nr_blocks);
void df_sq_push(struct df_dev *dev, uint32_t block, const struct df_sqe *e); /* dev->lock */
void df_dev_needs(struct df_coll *coll, int more); /* an instance begins, or ends (-1); dev->lock */
/*
 * So many blocks, from the first, have something to do for instances that may start. 0: not known, because there are many
 * that may not. dev->lock
 */
uint32_t df_dev_ready_width(const struct df_dev *dev);
void df_sq_flush(struct df_dev *dev);	/* moves overflow into rings; dev->lock */
void df_sq_drop(struct df_dev *dev);	/* forgets overflow of aborted ones; dev->lock */
void df_dev_retire(struct df_dev *dev); /* takes note of completions; dev->lock */
int df_dev_cq_pending(const struct df_dev *dev);

#endif
