/*
 * What the job's launcher says of this process: torchrun, Kubernetes' training operators (RANK, WORLD_SIZE), Open MPI,
 * MPICH and its kin, Slurm. Only for names in logs and traces: the ranks of a communicator are what NCCL's calls say.
 */
#ifndef DF_BASE_LAUNCHER_H
#define DF_BASE_LAUNCHER_H

/* The rank, or -1; *world: how many there are, or 0. Reads the environment each time. */
int df_launcher_rank(int *world);

#endif
