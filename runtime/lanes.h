/*
 * The calls of the real NCCL library that the executor "nccl" (runtime/exec/nccl) needs.
 * interpose/real/real_lanes.c implements them, so that the runtime includes no header of NCCL. All
 * may block. They are called with no lock held; all but abort() by one thread at a time for each
 * communicator.
 */
#ifndef DF_RUNTIME_LANES_H
#define DF_RUNTIME_LANES_H

#include <stddef.h>

struct df_comm;
struct df_op;

struct df_lane_calls {
	/*
	 * Makes the real library's communicator of the same ranks, for the thread's device, and
	 * connects it, except for messages. Collective. config: df_comm_config.real; NULL: this
	 * rank cannot take part, so the call fails on all ranks. ctas: its most CTAs. Returns 0 or
	 * -errno; the reason is logged.
	 */
	int (*make)(struct df_comm *comm, const void *config, int ctas, void **real);
	/*
	 * Puts the operations of one group on the stream (a cudaStream_t). Returns 0 or -errno; the
	 * reason is logged.
	 */
	int (*put)(void *real, const struct df_op *const *ops, size_t nr, const void *stream);
	/* Returns 0, or -errno if the communicator has an asynchronous error. */
	int (*error)(void *real);
	/*
	 * Ends its operations, so that put() by another thread returns, calls wait(arg), which
	 * returns when none is in put(), and frees it. wait NULL: none is.
	 */
	void (*abort)(void *real, void (*wait)(void *arg), void *arg);
	/* Frees it; its operations have ended. */
	void (*destroy)(void *real);
};

/*
 * Before df_start(). find: looks for the calls if lanes are to execute; it returns NULL if there is
 * no library that can, on this machine.
 */
void df_lanes_set(const struct df_lane_calls *(*find)(void));

#endif
