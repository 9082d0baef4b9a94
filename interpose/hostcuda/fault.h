/* Faults that tests request (DFSHIM_HOST_FAULT). Private to the library. */
#ifndef DF_HOSTCUDA_FAULT_H
#define DF_HOSTCUDA_FAULT_H

#include <stdint.h>

typedef void df_hfault_fn(int rank, uint64_t nr);

/*
 * Returns the function to call for each operation that a rank submits (struct
 * df_backend.submitting), or NULL if no fault is requested. Call once.
 */
df_hfault_fn *df_hfault(void);
/* Returns the error with which the launch of a graph fails, or 0. */
int df_hfault_graphs(void);

#endif
