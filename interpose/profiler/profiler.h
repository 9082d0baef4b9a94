/*
 * NCCL's profiler plugin (libnccl-profiler-dfshim.so): records what NCCL reports of itself.
 * versions.c translates each version of the interface into the functions here; events.c keeps what
 * NCCL works on and records it; proxies.c follows the proxies; watch.c notices that nothing moves;
 * ring.c is the way to the trace. Private to the plugin.
 *
 * NCCL gets handles instead of pointers (handles.h), so a handle that it uses too late, or that
 * another process made (PXN), is recognised.
 */
#ifndef DF_INTERPOSE_PROFILER_PROFILER_H
#define DF_INTERPOSE_PROFILER_PROFILER_H

#include <stdint.h>
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "trace/record/format.h"

/* An event as all versions describe it; 0 in fields that a version lacks. */
struct df_profiler_event {
	uint32_t type; /* enum df_profiler_type */
	uint64_t parent;
	int rank;
	const char *name; /* of the communicator, up to v3 */
	uint64_t hash;
	int kind, datatype, redop; /* of kinds.def */
	int peer;		   /* root or peer; -1: none */
	uint64_t count, stream, group;
	const void *send, *recv;
	int captured;	   /* into a CUDA graph */
	int depth;	   /* of the group, 1 if the application opened none */
	unsigned channels; /* of a collective; 0: not known */
	unsigned channel;
	int pid, is_send, step, steps;
};

/* The communicator as init() describes it; up to v3 it does not. */
struct df_profiler_about {
	int version;
	uint64_t hash;
	const char *name;
	int nranks, rank;
};

/* events.c; any thread. A handle or context of 0 is none: the event is not followed. */
uint64_t df_profiler_open(const struct df_profiler_about *about, int *mask);
uint64_t df_profiler_begin(uint64_t context, const struct df_profiler_event *e);
void df_profiler_state(uint64_t handle, int state);
void df_profiler_end(uint64_t handle);
void df_profiler_close(uint64_t context);

/* A communicator. */
struct df_profiler_comm {
	uint32_t trace; /* its number in the trace; 0: not known yet */
	int version, nranks, rank, device;
	int connected;	     /* a collective of it has been launched */
	struct df_list open; /* its operations that have not ended, in order of launch */
	unsigned nr_open;
	/* Calls whose launch may still be reported, and calls of graphs; last used first. */
	struct df_list late, captured;
	unsigned nr_late, nr_captured;
};

/* An operation whose end may still be seen. */
struct df_profiler_op {
	struct df_list at;
	uint64_t self, comm, serial; /* self, comm: handles */
	uint32_t group;
	uint32_t expected; /* channels on which the kernel works on it; 0: unknown */
	uint32_t started, ended;
	uint32_t nr_proxies, nr_proxies_live;
	uint32_t rested;  /* the watching thread has seen that it rests */
	uint32_t counted; /* the trace counts it as done */
};

/*
 * The one lock of the plugin: over all that is here. Steps of proxies do not take it. Nothing
 * blocks below it.
 */
extern struct df_mutex df_profiler_lock;

/* For the watching thread, with the lock held. */
struct df_profiler_left {
	unsigned ops, calls; /* unfinished */
	uint64_t moves;	     /* changes when anything has moved */
};
void df_profiler_look(struct df_profiler_left *left);

/* proxies.c; with the lock held, but for the states. */
uint64_t df_profiler_proxy_begin(uint64_t op, uint32_t comm, int rank, uint64_t serial,
				 const struct df_profiler_event *e);
/* Returns its operation's handle. */
uint64_t df_profiler_proxy_end(uint64_t handle);
uint64_t df_profiler_step_begin(uint64_t proxy, int step);
void df_profiler_step_state(uint64_t step, int state);
void df_profiler_step_end(uint64_t step);
/* The communicator ends: NCCL need not report the end of its proxies. */
void df_profiler_proxy_close(uint32_t comm);
/* Sum of what proxies have done, and the number of this process's that are not done. */
uint64_t df_profiler_proxy_moves(unsigned *live);
/*
 * Records where each proxy stands that has not moved since that time, and returns their number.
 * The records of an earlier batch are void. batch 0: returns the number only.
 */
unsigned df_profiler_proxy_note(uint64_t since_ns, uint32_t batch);

/*
 * watch.c: starts the watching thread once. Returns 0 or -errno. Whether it has recorded a
 * standstill that lasts; with the lock held.
 */
int df_profiler_watch_start(void);
int df_profiler_watch_stalled(void);

/*
 * ring.c: finds the trace of libdfshim.so in this process, or opens one of its own, once. Returns
 * whether there is one.
 */
int df_profiler_ring_open(void);
/* Whether the trace is libdfshim.so's, which records calls and operations itself. */
int df_profiler_ring_shared(void);
void df_profiler_put(enum df_rec_type type, uint32_t comm, int rank, uint64_t op, uint64_t a,
		     uint64_t b, uint64_t c, uint32_t site);
/* The operation that this thread is just issuing, as libdfshim.so has recorded it. */
uint64_t df_profiler_issuing(uint32_t *comm, int *rank);

#endif
