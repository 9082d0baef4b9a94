/*
 * The daemon on a GPU: one independent thread block per block of the daemon. They leave together,
 * when asked to or after too long without progress. State that must survive is written back to
 * df_kctx and df_kblock (hot.inl), so the host can launch the daemon again and it continues.
 *
 * Built into a fatbin that runtime/device/ loads with the driver's library API. Launch it with at
 * most DFK_MAX_THREADS threads per block, in whole warps, one grid block per entry of
 * df_kdaemon.blocks or for the first of them, and no dynamic shared memory.
 */
#include "kernels/port.h"
#include "kernels/abi.h"
#include "kernels/reduce.h"
#include "kernels/daemon.inl"

#define DFK_MAX_THREADS 512

extern "C" __global__ void __launch_bounds__(DFK_MAX_THREADS, 1) dfk_daemon(struct df_kdaemon *d)
{
	__shared__ struct dfk_local local;
	__shared__ struct dfk_shared sh;
	__shared__ struct dfk_stage stage;
	__shared__ uint32_t leave;
	struct dfk_heed heed = {0, 0, 0, 0};

	dfk_block_enter(&local, d, blockIdx.x);
	do {
		enum df_turn turn = dfk_block_turn(&local.d, &local.blk, &sh, &stage);

		if (DFK_TID == 0)
			leave = (uint32_t)dfk_leaves(&local, turn, &heed);
		/*
		 * Also prevents thread 0 from deciding again while other threads still read this
		 * turn's decision, and them from reading what it fetches before that is complete.
		 */
		dfk_sync();
	} while (!leave);
	dfk_block_leave(&local);
}
