/* Hands a communicator of ours to the real library as a whole. */
#ifndef DF_INTERPOSE_NCCL_NCCL_HANDOVER_H
#define DF_INTERPOSE_NCCL_NCCL_HANDOVER_H

#include "interpose/nccl/nccl_handle.h"

/*
 * Makes the real library's communicator of the same ranks. Afterwards all calls on the handle go to
 * the real library. Collective; blocks. Returns ncclSuccess at once if that was already done.
 * Returns ncclInvalidUsage on all ranks if one of them cannot take part.
 */
ncclResult_t df_hand_over(struct df_handle *h, const char *func);

/*
 * As df_hand_over(), for a communicator that is being made, after df_comm_join() has returned
 * DF_JOIN_UNABLE. Warns once, naming the rank that could not start and the reason. Collective;
 * blocks.
 */
ncclResult_t df_hand_over_at_start(struct df_handle *h, const char *func);

/*
 * Get and set the calling thread's driver context, in a process without our runtime. NULL means no
 * context, or no driver.
 */
void *df_context_get(void);
void df_context_set(void *ctx);

/* Executes ncclCommWindowRegister() for a communicator that must be handed over first. */
ncclResult_t df_window_hand_over(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
				 int flags, const char *func);

#endif
