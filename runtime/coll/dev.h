/*
 * The host's ends of the rings of a device's daemon. Guarded by df_dev.lock, which is never held
 * across a call that can block.
 */
#ifndef DF_RUNTIME_COLL_DEV_H
#define DF_RUNTIME_COLL_DEV_H

#include <stdint.h>
#include "runtime/blocks.h"
#include "runtime/devs.h"

struct df_coll;

/* Submissions that found their ring full, in order. */
struct df_overflow {
	struct df_sqe *v;
	uint32_t head, nr, cap;
};

int df_dev_init(struct df_dev *dev, uint32_t nr_blocks); /* after df_dev_begin() */
/*
 * Returns the daemon's block that executes block b of the collective's program. Ranks that share a
 * daemon start at different blocks: on one block, a rank and its peer would take turns.
 */
uint32_t df_dev_block(const struct df_coll *coll, uint32_t b);
void df_sq_push(struct df_dev *dev, uint32_t block, const struct df_sqe *e); /* dev->lock */
/*
 * On a GPU: adds `more` (1: an instance begins, -1: it has ended) to the work of each block that
 * the collective uses; dev->lock.
 */
void df_dev_needs(struct df_coll *coll, int more);
/*
 * Returns how many blocks, from the first, have instances that may start; at least 1. 0: unknown,
 * because too many collectives have instances in flight. Needs dev->lock.
 */
uint32_t df_dev_ready_width(const struct df_dev *dev);
void df_sq_flush(struct df_dev *dev);	/* moves overflow to the rings; dev->lock */
void df_sq_drop(struct df_dev *dev);	/* drops overflow of aborted instances; dev->lock */
void df_dev_retire(struct df_dev *dev); /* processes completions; dev->lock */
int df_dev_cq_pending(const struct df_dev *dev);

#endif
