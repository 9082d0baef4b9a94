/*
 * The kernel of the stand-in driver for programs that run collectives on it: one block of the daemon on a CPU thread.
 */
#ifndef DF_TESTS_DAEMON_KERNEL_H
#define DF_TESTS_DAEMON_KERNEL_H

#include <unistd.h>
#include "kernels/daemon.h"
#include "tests/cuda/fake/fake.h"

static void daemon_kernel(void **params, unsigned int block)
{
	struct df_kdaemon *d = params[0];
	struct df_kblock *blk = &d->blocks[block];
	int empty = 0;

	while (!__atomic_load_n(&d->quit, __ATOMIC_RELAXED) && empty < 50) {
		enum df_turn turn = df_block_turn(d, blk);

		if (turn == DF_TURN_QUIT)
			break;
		empty = turn == DF_TURN_EMPTY ? empty + 1 : 0;
		if (turn != DF_TURN_PROGRESS)
			usleep(20);
	}
}

#endif
