/*
 * A proxy of NCCL that did not move at a standstill of its process (PROXY records): the input of
 * trace/judge/stalled_proxy.c. Plain data.
 */
#ifndef DF_TRACE_READ_STALLED_PROXY_H
#define DF_TRACE_READ_STALLED_PROXY_H

#include <stdint.h>

struct df_stalled_proxy {
	uint64_t op;	   /* serial of the operation that it works for */
	uint64_t moved_ns; /* when it last moved, by its trace's clock */
	uint64_t rec;
	uint32_t comm;	      /* local number, from 1 */
	int32_t peer;	      /* peer's rank in the communicator */
	uint32_t step, steps; /* number of steps that have ended, and of all */
	uint16_t channel;
	uint8_t at; /* enum df_proxy_at */
	uint8_t is_send;
};

#endif
