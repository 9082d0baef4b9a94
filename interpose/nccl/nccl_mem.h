/* Windows of our communicators. */
#ifndef DF_INTERPOSE_NCCL_NCCL_MEM_H
#define DF_INTERPOSE_NCCL_NCCL_MEM_H

struct df_handle;

/* Whether the pointer is a live window of ours. Does not read through the pointer. */
int df_window_is_ours(const void *window);

/* Whether the communicator has a window of ours. */
int df_window_any(const struct df_handle *owner);

/* Forgets all windows of a communicator. Called when it ends. */
void df_windows_drop(const struct df_handle *owner);

#endif
