/*
 * Giving a communicator of ours to the real library as a whole (handover.c).
 */
#ifndef DF_INTERPOSE_REAL_HANDOVER_H
#define DF_INTERPOSE_REAL_HANDOVER_H

#include "interpose/nccl/nccl_handle.h"

/*
 * Makes the real library's communicator of the same ranks; from then on every call on the handle is the real
 * library's. Collective; blocks. ncclSuccess at once if that has happened; ncclInvalidUsage on all ranks if
 * one of them can't.
 */
ncclResult_t df_hand_over(struct df_handle *h, const char *func);

/*
 * The same for one that is being made, when df_comm_join() has said DF_JOIN_UNABLE: with one warning, which names
 * the rank that could not start, and why. Collective; blocks.
 */
ncclResult_t df_hand_over_at_start(struct df_handle *h, const char *func);

/* The calling thread's context of the driver, where there is no runtime to ask; NULL: none, or no driver. */
void *df_context_get(void);
void df_context_set(void *ctx);

/* ncclCommWindowRegister for a communicator that is handed over first. */
ncclResult_t df_window_hand_over(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
				 int flags, const char *func);

#endif
