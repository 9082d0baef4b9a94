/*
 * The rank of this process as its launcher sets it in the environment: torchrun and Kubernetes'
 * training operators (RANK, WORLD_SIZE), Open MPI, MPICH and its derivatives, Slurm. Used only for
 * names in logs and traces; NCCL's calls decide the ranks of communicators.
 */
#ifndef DF_BASE_LAUNCHER_H
#define DF_BASE_LAUNCHER_H

/*
 * Returns the rank, or -1; sets *world to the number of ranks, or 0. Reads the environment at each
 * call.
 */
int df_launcher_rank(int *world);
/* Returns the rank among the processes of this node; 0 if it is unknown. */
int df_launcher_local_rank(void);

#endif
