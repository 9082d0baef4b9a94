/*
 * A communicator's local rank, and how it ends. Until `open` is set, its fields belong to its
 * owner's thread; later they are guarded as stated beside them.
 */
#ifndef DF_RUNTIME_COMM_COMM_H
#define DF_RUNTIME_COMM_COMM_H

#include <stdint.h>
#include "kernels/abi.h"
#include "runtime/base/list.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/connector.h"
#include "runtime/dfshim.h"
#include "runtime/order/order.h"
#include "runtime/watch/watchdog.h"

struct df_ctl_comm;
struct df_dev;
struct df_lane;
struct df_member;

/* A communicator that another thread than its owner ends is not destroyed meanwhile. */
enum df_comm_ending { DF_ENDING_NO, DF_ENDING_MARKED, DF_ENDING_NOW };

struct df_comm {
	struct df_list node; /* rt.comms */
	struct df_dev *dev;
	struct df_comm_config config;
	struct df_ctl_comm *ctl;
	const struct df_member *members;
	int nranks, rank;
	struct df_coll_choice choice; /* calibrate.c, comm.c */
	uint64_t hash;
	uint32_t open; /* all fields above are constant: for threads other than the owner's */
	struct {
		uint64_t id, since; /* hash of the id; time at which this rank began to join */
		int nranks, rank;
	} join;	       /* while it joins by an id; guarded by df_rt.lock */
	uint32_t stop; /* ends blocking calls */
	/*
	 * It was ended with operations unfinished, and the program has not shown that it knows.
	 * Atomic.
	 */
	int unheard;
	uint32_t ending; /* futex word: enum df_comm_ending; guarded by df_rt.lock */
	uint32_t state;	 /* enum df_comm_state */
	int error;
	uint32_t trace; /* number in the trace's table */
	uint32_t blocks;
	uint32_t splits; /* number of children made of it */
	/* of config.share: communicators with the same number end together; 0: none */
	uint64_t family;
	uint64_t issued, retired; /* numbers of operations; written under dev->lock, read without */
	uint64_t index;		  /* issue index of the next operation */
	/* its owner, and operations in graphs, which may outlive it: they keep the memory */
	uint32_t refs;
	/* Each module's own data. */
	struct df_coll_registry registry;
	struct df_conn_comm conn;
	struct df_lane *lane; /* dev->lock; NULL: the daemon executes it */
	struct df_order_comm order;
	struct df_watch_comm watch;
};

/* Aborts it, with a reason; it is the caller's, or cannot be destroyed. No lock is held. */
void df_comm_end(struct df_comm *comm, int error, int why);
/*
 * The program may not notice that its operations have ended without a result: unless it aborts,
 * revokes or shrinks the communicator, the process exits with this status instead of 0.
 */
void df_comm_unheard(struct df_comm *comm, int status);
/*
 * Ends those for which `wanted` returns 1; returns their number. It is called with df_rt.lock held,
 * this function with no lock. All of them are marked first: ending one may let operations of
 * another finish, and a thread that waited for these must not take their results for valid.
 */
int df_comm_end_all(int (*wanted)(struct df_comm *comm, void *arg), void *arg, int error, int why);
/*
 * Makes a verdict's first line the text of the error. Call it before the end, because the program
 * may ask for the text as soon as its waits return. Later calls have no effect. The watchdog's
 * thread only.
 */
void df_comm_ends_for(const char *line);
void df_comm_get(struct df_comm *comm);
void df_comm_put(struct df_comm *comm); /* the last one frees its memory */
/* Whether its members and transports may be read, from any thread. */
int df_comm_is_open(const struct df_comm *comm);

/*
 * Traces the death of a process of which no communicator is a member yet: it is found by host and
 * pid.
 */
void df_comm_lost(const struct df_member *who);
/* A device can no longer be used: soon ends its communicators. */
void df_comm_device_lost(int device);
/* Returns the lowest rank of a process in an open communicator, or -1. df_rt.lock held. */
int df_comm_rank_of(const struct df_comm *comm, uint64_t proc);
/* Sets what is called before a communicator waits for its ranks. Once, before the first one. */
void df_comm_on_join(void (*fn)(void));

#endif
