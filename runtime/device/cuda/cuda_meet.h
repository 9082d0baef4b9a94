/* Which ranks can access each other's GPU memory. */
#ifndef DF_RUNTIME_DEVICE_CUDA_CUDA_MEET_H
#define DF_RUNTIME_DEVICE_CUDA_CUDA_MEET_H

#include <stdint.h>

struct df_ctl_comm;
struct df_member;

/*
 * Finds out which ranks can access each other's memory. Blocks. Returns 0 or -errno of the control
 * plane.
 */
int df_cuda_meet(struct df_ctl_comm *ctl, int nranks, int rank, const uint32_t *stop);
/* Whether both ranks can access each other's memory. */
int df_cuda_agreed(const struct df_member *self, const struct df_member *peer);

#endif
