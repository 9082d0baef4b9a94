/*
 * Windows of our communicators.
 */
#ifndef DF_INTERPOSE_NCCL_NCCL_MEM_H
#define DF_INTERPOSE_NCCL_NCCL_MEM_H

struct df_handle;

/* 1 if the pointer is a window of ours that is alive; reads nothing it points to. */
int df_window_is_ours(const void *window);

/* 1 if the communicator has a window of ours. */
int df_window_any(const struct df_handle *owner);

/* Forgets all windows of a communicator that goes. */
void df_windows_drop(const struct df_handle *owner);

#endif
