/*
 * The kernel of the stand-in driver for programs that run collectives on it: kernels/daemon_cuda.cu as one CPU thread a
 * block, with the copies of contexts that a GPU's block works on (kernels/hot.inl).
 */
#ifndef DF_TESTS_DAEMON_KERNEL_H
#define DF_TESTS_DAEMON_KERNEL_H

#include <string.h>
#include <unistd.h>
#include "kernels/port.h"
#define DFK_WAYS       2
#define DFK_LOOK_EVERY 4
#include "kernels/abi.h"
#include "kernels/reduce.h"
#include "kernels/daemon.inl"
#include "tests/cuda/fake/fake.h"

static void daemon_kernel(void **params, unsigned int block)
{
	struct df_kdaemon *d = params[0];
	struct dfk_local local;
	struct dfk_shared sh;
	struct dfk_stage stage;
	int empty = 0;

	/* Shared memory is not cleared. */
	memset(&local, 0x5a, sizeof(local));
	memset(&sh, 0x5a, sizeof(sh));
	dfk_block_enter(&local, d, block);
	while (!__atomic_load_n(&d->quit, __ATOMIC_RELAXED)) {
		enum df_turn turn = dfk_block_turn(&local.d, &local.blk, &sh, &stage);

		if (turn == DF_TURN_QUIT)
			break;
		empty = turn == DF_TURN_EMPTY ? empty + 1 : 0;
		if (turn != DF_TURN_PROGRESS && !sh.fetch.home)
			usleep(20);
		if (empty > 50) {
			local.blk.stats.quits++;
			break;
		}
	}
	dfk_block_leave(&local);
}

#endif
