/*
 * The kernel of the test driver for programs that run collectives on it: kernels/daemon_cuda.cu
 * as one CPU thread a block, with the copies of contexts that a GPU's block works on
 * (kernels/hot.inl).
 */
#ifndef DF_TESTS_DAEMON_KERNEL_H
#define DF_TESTS_DAEMON_KERNEL_H

#include "tests/cuda/driver/fake.h"

struct df_kdaemon;
struct df_kblock;

/* For fake_cuda.kernel(); params[0] is the daemon's struct df_kdaemon. */
void daemon_kernel(void **params, unsigned int block);

/*
 * A test's additions to each turn of a block, if any: the daemon, the block's own copy of its state
 * and its number.
 */
extern void (*daemon_turn)(const struct df_kdaemon *d, const struct df_kblock *blk,
			   unsigned int block);

#endif
