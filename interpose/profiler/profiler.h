/*
 * NCCL's profiler plugin (libnccl-profiler-dfshim.so): records the events that NCCL reports.
 * versions.c translates each version of the interface into the functions here. events.c keeps and
 * records the operations in progress. proxies.c follows the proxies. watch.c notices that nothing
 * moves. ring.c writes to the trace. Private to the plugin.
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

/* An event, in the same form for all versions. Fields that a version lacks are 0. */
struct df_profiler_event {
	uint32_t type; /* enum df_profiler_type */
	uint64_t parent;
	int rank;
	const char *name; /* name of the communicator, up to v3 */
	uint64_t hash;
	int kind, datatype, redop; /* numbers of kinds.def */
	int peer;		   /* root or peer; -1 if there is none */
	uint64_t count, stream, group;
	const void *send, *recv;
	int captured;	   /* whether it was captured into a CUDA graph */
	int depth;	   /* depth of the group; 1 if the application opened none */
	unsigned channels; /* channels of a collective; 0 if not known */
	unsigned channel;
	int pid, is_send, step, steps;
};

/* The communicator as init() describes it, from v4 on. */
struct df_profiler_about {
	int version;
	uint64_t hash;
	const char *name;
	int nranks, rank;
};

/*
 * events.c: any thread may call these. A handle or context of 0 means that the event is not
 * followed.
 */
uint64_t df_profiler_open(const struct df_profiler_about *about, int *mask);
uint64_t df_profiler_begin(uint64_t context, const struct df_profiler_event *e);
void df_profiler_state(uint64_t handle, int state);
void df_profiler_end(uint64_t handle);
void df_profiler_close(uint64_t context);

/* A communicator. */
struct df_profiler_comm {
	uint32_t trace; /* its number in the trace; 0 if not known yet */
	int version, nranks, rank, device;
	int connected;	     /* whether a collective of it has been launched */
	struct df_list open; /* its operations that have not ended, in the order of launch */
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
	uint32_t expected; /* channels on which the kernel works on it; 0 if unknown */
	uint32_t started, ended;
	uint32_t nr_proxies, nr_proxies_live;
	uint32_t rested;  /* whether the watching thread has seen that it rests */
	uint32_t counted; /* whether the trace counts it as done */
};

/*
 * The only lock of the plugin. It guards everything except the steps of proxies. Nothing blocks
 * while it is held.
 */
extern struct df_mutex df_profiler_lock;

/* The work that is left, for the watching thread. The lock is held. */
struct df_profiler_left {
	unsigned ops, calls; /* numbers of unfinished operations and calls */
	uint64_t moves;	     /* changes whenever anything has moved */
};
void df_profiler_look(struct df_profiler_left *left);

/* proxies.c: the caller holds the lock, except for the functions of states and steps. */
uint64_t df_profiler_proxy_begin(uint64_t op, uint32_t comm, int rank, uint64_t serial,
				 const struct df_profiler_event *e);
/* Returns the handle of the proxy's operation. */
uint64_t df_profiler_proxy_end(uint64_t handle);
uint64_t df_profiler_step_begin(uint64_t proxy, int step);
void df_profiler_step_state(uint64_t step, int state);
void df_profiler_step_end(uint64_t step);
/* Ends the communicator's proxies when it ends, because NCCL need not report their end. */
void df_profiler_proxy_close(uint32_t comm);
/*
 * Returns the sum of the proxies' work, and the number of this process's proxies that are not
 * done.
 */
uint64_t df_profiler_proxy_moves(unsigned *live);
/*
 * Records the position of each proxy that has not moved since `since_ns`, and returns the number of
 * these. The records of an earlier batch become void. If `batch` is 0, only returns the number.
 */
unsigned df_profiler_proxy_note(uint64_t since_ns, uint32_t batch);

/*
 * watch.c: df_profiler_watch_start() starts the watching thread once and returns 0 or -errno.
 * df_profiler_watch_stalled() returns whether the thread has recorded a standstill that lasts; the
 * caller holds the lock.
 */
int df_profiler_watch_start(void);
int df_profiler_watch_stalled(void);

/*
 * ring.c: finds the trace of libdfshim.so in this process or opens one, once. Returns whether there
 * is one.
 */
int df_profiler_ring_open(void);
/* Whether the trace is libdfshim.so's, which records calls and operations itself. */
int df_profiler_ring_shared(void);
void df_profiler_put(enum df_rec_type type, uint32_t comm, int rank, uint64_t op, uint64_t a,
		     uint64_t b, uint64_t c, uint32_t site);
/* Returns the operation that this thread is issuing now, as libdfshim.so has recorded it. */
uint64_t df_profiler_issuing(uint32_t *comm, int *rank);

#endif
