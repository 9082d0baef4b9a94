/* Slots in the memory of an endpoint's GPU: gpu.c, which has the whole. */
#ifndef DF_TRANSPORT_NET_GPU_H
#define DF_TRANSPORT_NET_GPU_H

#include <stdint.h>

#include "runtime/transport/net/conn.h"

/* A chunk of the GPU's memory (backend.h), as the medium knows it. */
struct df_net_chunk {
	uint32_t state; /* enum df_net_chunk_state; atomic */
	struct df_net_mem mem;
};

struct df_net_gpu {
	uint32_t asked; /* some chunk is; atomic */
	uint32_t told;	/* where slots lie; atomic */
	struct df_net_chunk chunk[DF_FAR_CHUNKS_MAX];
};

/*
 * Looks for GPU memory for so many bytes of slots. 0: c->gpu says whether there is some (c->far), else host memory is to be taken.
 * -EAGAIN: it is being prepared; the caller asks again. Any thread, under any lock.
 */
int df_net_gpu_slots(struct df_net_conn *c, uint64_t bytes);
/* The thread: what was asked for is prepared, what has come is read back; 1 if it moved. */
int df_net_gpu_pass(struct df_net_ep *ep, uint64_t now, int arm);
/* When it has to be called by itself; UINT64_MAX: not. */
uint64_t df_net_gpu_due(const struct df_net_ep *ep);
/* Nothing that was written into its slots is still to be seen there: they may be another connector's. */
int df_net_gpu_quiet(struct df_net_conn *c);

#endif
