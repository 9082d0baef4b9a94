/* The real library as the executor "nccl" uses it (runtime/lanes.h). */
#ifndef DF_INTERPOSE_REAL_REAL_LANES_H
#define DF_INTERPOSE_REAL_REAL_LANES_H

#include "runtime/lanes.h"

/* Returns the library's functions, or NULL if none can use this machine's memory. */
const struct df_lane_calls *df_real_lanes(void);

#endif
