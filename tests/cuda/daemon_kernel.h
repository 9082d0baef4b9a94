/*
 * The daemon kernel for the test driver: does what kernels/daemon_cuda.cu does, with one CPU thread
 * for each block. As on a GPU, a block works on copies of the contexts (kernels/hot.inl).
 */
#ifndef DF_TESTS_DAEMON_KERNEL_H
#define DF_TESTS_DAEMON_KERNEL_H

#include "tests/cuda/driver/fake.h"

struct df_kdaemon;
struct df_kblock;

/* A body for fake_cuda.kernel(). params[0] points to the daemon's struct df_kdaemon. */
void daemon_kernel(void **params, unsigned int block);

/*
 * If not NULL, every block calls this function after each of its turns. `blk` is the block's own
 * copy of its state.
 */
extern void (*daemon_turn)(const struct df_kdaemon *d, const struct df_kblock *blk,
			   unsigned int block);

#endif
