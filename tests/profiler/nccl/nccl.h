/*
 * Replaces NCCL for a profiler plugin. Finds the plugin by NCCL's rules, and reports the events of
 * launches, kernels and proxies in NCCL's order and from the same kinds of threads. Moves no data,
 * so a rank does not wait for its peers. The caller names the operations that must not end.
 */
#ifndef TESTS_PROFILER_NCCL_H
#define TESTS_PROFILER_NCCL_H

#include <stdint.h>
#include "interpose/profiler/nccl_profiler.h"

#define CHANNELS 2
#define STEPS	 4

enum stall {
	NO_STALL,
	STALL_KERNEL,	/* kernels run and do not end; no proxies */
	STALL_SEND_NET, /* the third step of the last proxy to the next rank is in the network */
	STALL_RECV_NET, /* the third step from the previous rank does not arrive */
	/* as STALL_RECV_NET; NCCL starts that step again and again, as without room */
	STALL_RECV_AGAIN,
	STALL_SEND_GPU, /* no proxy gets data from its kernel */
	STALL_CONNECT,	/* the call does not return from the set-up of connections */
	NO_KERNEL,	/* only the call is reported, as with copy engines */
	/*
	 * as STALL_KERNEL, but another thread launches the operation after the call (non-blocking)
	 */
	STALL_LATE
};

struct fake_comm;

/* Loads the plugin with this version of the interface. Returns 0 if the plugin does not have it. */
int fake_load(const char *name, int version);
struct fake_comm *fake_comm(uint64_t hash, const char *name, int nranks, int rank);
void fake_destroy(struct fake_comm *c);
/* Reports no end for operations that have not ended. */
void fake_abort(struct fake_comm *c);
/*
 * Calls a collective. With `captured` a graph captures it, and fake_replay() runs it. With
 * `proxies` it uses the network.
 */
void fake_coll(struct fake_comm *c, const char *func, size_t count, int root, int proxies,
	       enum stall stall, int captured);
void fake_replay(struct fake_comm *c, const char *func, size_t count);
/* Calls two collectives of two communicators in one group. */
void fake_two(struct fake_comm *a, struct fake_comm *b);
/* Sends to rank `to` and receives from rank `from` in one group. `captured` as for fake_coll(). */
void fake_exchange(struct fake_comm *c, int to, int from, size_t count, int captured);
void fake_replay_exchange(struct fake_comm *c, int to, int from, size_t count);
/* ncclAlltoAll without a group: a message to each rank, and one from each. */
void fake_alltoall(struct fake_comm *c, size_t count);
/* Waits until all operations that can end have ended. */
void fake_sync(struct fake_comm *c);
/* The context and the functions of the plugin, for wrong calls. */
void *fake_context(struct fake_comm *c);
const struct df_profiler_v5 *fake_v5(void);

#endif
