/* Slots in the memory of an endpoint's GPU; see gpu.c. */
#ifndef DF_TRANSPORT_NET_GPU_H
#define DF_TRANSPORT_NET_GPU_H

#include <stdint.h>

#include "runtime/transport/net/conn.h"

/* A chunk of GPU memory (backend.h) as the medium has registered it. */
struct df_net_chunk {
	uint32_t state; /* enum df_net_chunk_state; atomic */
	struct df_net_mem mem;
};

struct df_net_gpu {
	uint32_t asked; /* whether registration of a chunk is requested; atomic */
	uint32_t told;	/* whether the place of slots has been logged; atomic */
	struct df_net_chunk chunk[DF_FAR_CHUNKS_MAX];
};

/*
 * Allocates GPU memory for the slots. Returns 0 with c->gpu set if it did (c->far), or with c->gpu
 * clear if the caller has to use host memory. Returns -EAGAIN while the memory is being prepared;
 * the caller tries again. Any thread, under any lock.
 */
int df_net_gpu_slots(struct df_net_conn *c, uint64_t bytes);
/* On the thread: prepares requested chunks and posts readbacks. Returns 1 if it made progress. */
int df_net_gpu_pass(struct df_net_ep *ep, uint64_t now, int arm);
/* Returns when df_net_gpu_pass() has to be called without an event; UINT64_MAX: never. */
uint64_t df_net_gpu_due(const struct df_net_ep *ep);
/* Whether no write into its slots is outstanding, so that another connector may use them. */
int df_net_gpu_quiet(struct df_net_conn *c);

#endif
