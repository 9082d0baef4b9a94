/*
 * Connects NCCL's profiler plugin (interpose/profiler) with the trace of libdfshim.so, if both are
 * in a process. The plugin finds the function by its name.
 */
#ifndef DF_INTERPOSE_REAL_PROFILED_H
#define DF_INTERPOSE_REAL_PROFILED_H

#include <stdint.h>
#include "trace/record/format.h"

#define DF_PROFILED_RING    "dfshim_profiled_ring"
#define DF_PROFILED_VERSION 1

/* Call before this thread passes operation `op` to NCCL. Call with op 0 afterwards. */
void df_profiled_issue(uint32_t comm, int rank, uint64_t op);

struct df_profiled_ring {
	/* As df_trace(). */
	void (*put)(enum df_rec_type type, int device, uint32_t comm, int rank, uint64_t op,
		    uint64_t a, uint64_t b, uint64_t c, uint32_t site);
	/*
	 * Returns the operation that this thread is passing to NCCL, or 0. Sets *comm and *rank to
	 * the communicator's number in the trace and the rank there; without an operation, *comm is
	 * 0.
	 */
	uint64_t (*issuing)(uint32_t *comm, int *rank);
};

/*
 * Returns NULL if libdfshim.so records nothing, or has another version. Any thread, after the start
 * of the library.
 */
typedef const struct df_profiled_ring *df_profiled_ring_fn(int version);
df_profiled_ring_fn dfshim_profiled_ring;

#endif
