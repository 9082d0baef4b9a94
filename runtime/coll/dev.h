/*
 * The host's ends of the rings of a device's daemon. Guarded by df_dev.lock, which is never held
 * across a call that can block.
 */
#ifndef DF_RUNTIME_DAEMON_DEV_H
#define DF_RUNTIME_DAEMON_DEV_H

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
 * The daemon's block for a block of the collective's program. Ranks of one daemon begin at
 * different blocks: a rank whose peer has the same block waits for the turns of both.
 */
uint32_t df_dev_block(const struct df_coll *coll, uint32_t b);
void df_sq_push(struct df_dev *dev, uint32_t block, const struct df_sqe *e); /* dev->lock */
/* An instance begins, or ends (more = -1); dev->lock. */
void df_dev_needs(struct df_coll *coll, int more);
/*
 * The number of leading blocks that have work for instances that may start. 0: unknown, because
 * many instances may not start. Needs dev->lock.
 */
uint32_t df_dev_ready_width(const struct df_dev *dev);
void df_sq_flush(struct df_dev *dev);	/* moves overflow to the rings; dev->lock */
void df_sq_drop(struct df_dev *dev);	/* drops overflow of aborted instances; dev->lock */
void df_dev_retire(struct df_dev *dev); /* processes completions; dev->lock */
int df_dev_cq_pending(const struct df_dev *dev);

#endif
