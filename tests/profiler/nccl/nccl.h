/*
 * Stands for NCCL towards a profiler plugin: it finds the plugin by NCCL's rules and reports the
 * events of a launch, its kernels and its proxies in NCCL's order and from NCCL's kinds of threads.
 * It moves no data, so a rank goes on without its peers; the caller names what must not end.
 */
#ifndef TESTS_PROFILER_NCCL_H
#define TESTS_PROFILER_NCCL_H

#include <stdint.h>
#include "interpose/profiler/nccl_profiler.h"

#define CHANNELS 2
#define STEPS	 4

enum stall {
	NO_STALL,
	STALL_KERNEL,	  /* kernels run and do not end; no proxies */
	STALL_SEND_NET,	  /* the last proxy to the next rank: its third step is with the network */
	STALL_RECV_NET,	  /* the third step from the previous rank does not arrive */
	STALL_RECV_AGAIN, /* the same; NCCL begins that step again and again, as without room */
	STALL_SEND_GPU,	  /* no proxy gets data of its kernel */
	STALL_CONNECT,	  /* the call does not return from the set-up of connections */
	NO_KERNEL,	  /* nothing of it is reported but the call, as of copy engines */
	STALL_LATE /* another thread launches it after the call, as without blocking; as STALL_KERNEL */
};

struct fake_comm;

/* Loads the plugin and takes this version of it. Returns 0 if it has none. */
int fake_load(const char *name, int version);
struct fake_comm *fake_comm(uint64_t hash, const char *name, int nranks, int rank);
void fake_destroy(struct fake_comm *c);
/* Reports no end of what has not ended. */
void fake_abort(struct fake_comm *c);
/* A collective. captured: into a graph; then fake_replay() runs it. proxies: over the network. */
void fake_coll(struct fake_comm *c, const char *func, size_t count, int root, int proxies,
	       enum stall stall, int captured);
void fake_replay(struct fake_comm *c, const char *func, size_t count);
/* One group of two collectives of two communicators. */
void fake_two(struct fake_comm *a, struct fake_comm *b);
/* One group: a message to this rank, and one from that. captured: as in fake_coll(). */
void fake_exchange(struct fake_comm *c, int to, int from, size_t count, int captured);
void fake_replay_exchange(struct fake_comm *c, int to, int from, size_t count);
/* ncclAlltoAll without a group: a message to each rank, and one from each. */
void fake_alltoall(struct fake_comm *c, size_t count);
/* Waits until all that can end has ended. */
void fake_sync(struct fake_comm *c);
/* The context and the tables, for wrong calls. */
void *fake_context(struct fake_comm *c);
const struct df_profiler_v5 *fake_v5(void);

#endif
