/* Faults that tests ask for (DFSHIM_HOST_FAULT): from the setting to what does it. Private to the library. */
#ifndef DF_HOSTCUDA_FAULT_H
#define DF_HOSTCUDA_FAULT_H

#include <stdint.h>

typedef void df_hfault_fn(int rank, uint64_t nr);

/* What is to be told of each operation that a rank submits (struct df_backend); NULL: no fault is asked for. Once. */
df_hfault_fn *df_hfault(void);

#endif
