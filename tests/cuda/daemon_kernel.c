#include <string.h>
#include <time.h>
#include <unistd.h>
#include "kernels/port.h"
#define DFK_WAYS       2
#define DFK_LOOK_EVERY 4
#include "kernels/abi.h"
#include "kernels/reduce.h"
#include "kernels/daemon.inl"
#include "tests/cuda/daemon_kernel.h"

void (*daemon_turn)(const struct df_kdaemon *d, const struct df_kblock *blk, unsigned int block);

uint64_t dfk_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void daemon_kernel(void **params, unsigned int block)
{
	struct df_kdaemon *d = params[0];
	struct dfk_local local;
	struct dfk_shared sh;
	struct dfk_stage stage;
	struct dfk_heed heed = {0};
	enum df_turn turn;

	/* A GPU does not clear shared memory, so a block must not rely on zeros. */
	memset(&local, 0x5a, sizeof(local));
	memset(&sh, 0x5a, sizeof(sh));
	dfk_block_enter(&local, d, block);
	do {
		turn = dfk_block_turn(&local.d, &local.blk, &sh, &stage);
		if (turn != DF_TURN_PROGRESS && !sh.fetch.home)
			usleep(20);
		if (daemon_turn)
			daemon_turn(d, &local.blk, block);
	} while (!dfk_leaves(&local, turn, &heed));
	dfk_block_leave(&local);
}
