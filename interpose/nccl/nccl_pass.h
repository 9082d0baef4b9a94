/* Declares the lookup in the table of all functions that dfshim exports. */
#ifndef DF_INTERPOSE_NCCL_NCCL_PASS_H
#define DF_INTERPOSE_NCCL_NCCL_PASS_H

/*
 * Returns our function for "ncclX" or "pncclX", or NULL if the table has no such name. Any context.
 */
void *df_nccl_find(const char *name);

#endif
