/*
 * The kernel of the stand-in driver for programs that run collectives on it: kernels/daemon_cuda.cu as one CPU thread a
 * block, with the copies of contexts that a GPU's block works on (kernels/hot.inl).
 */
#ifndef DF_TESTS_DAEMON_KERNEL_H
#define DF_TESTS_DAEMON_KERNEL_H

#include <string.h>
#include <time.h>
#include <unistd.h>
#include "kernels/port.h"
#define DFK_WAYS       2
#define DFK_LOOK_EVERY 4
#include "kernels/abi.h"
#include "kernels/reduce.h"
#include "kernels/daemon.inl"
#include "tests/cuda/driver/fake.h"

/* What a test adds to each turn of a block. */
#ifndef DAEMON_TURN
#define DAEMON_TURN(block) ((void)0)
#endif

uint64_t dfk_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void daemon_kernel(void **params, unsigned int block)
{
	struct df_kdaemon *d = params[0];
	struct dfk_local local;
	struct dfk_shared sh;
	struct dfk_stage stage;
	enum df_turn turn;

	/* Shared memory is not cleared. */
	memset(&local, 0x5a, sizeof(local));
	memset(&sh, 0x5a, sizeof(sh));
	dfk_block_enter(&local, d, block);
	do {
		turn = dfk_block_turn(&local.d, &local.blk, &sh, &stage);
		if (turn != DF_TURN_PROGRESS && !sh.fetch.home)
			usleep(20);
		DAEMON_TURN(block);
	} while (!dfk_leaves(&local, turn));
	dfk_block_leave(&local);
}

#endif
