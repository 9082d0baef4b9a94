/*
 * Registered collectives: a signature of a communicator, with its program, connectors and
 * instances. Owned by the communicator; guarded by the lock of its device (df_dev.lock).
 */
#ifndef DF_RUNTIME_COLL_COLL_H
#define DF_RUNTIME_COLL_COLL_H

#include <stdint.h>
#include <uthash.h>
#include "kernels/abi.h"
#include "runtime/base/list.h"
#include "runtime/executor.h"
#include "runtime/program/file/algofile.h"
#include "runtime/program/build/cost.h"

struct df_comm;
struct df_conn;
struct df_dev;
struct df_layout;
struct df_peer;
struct df_program;
struct df_tl_ops;

/* The collectives of a communicator. Guarded by the lock of its device. */
struct df_coll_registry {
	struct df_coll *all;  /* uthash by sig */
	struct df_coll *last; /* the result of the last lookup */
};

/*
 * The data by which all ranks of a communicator choose its programs. Constant once the communicator
 * is open.
 */
struct df_coll_choice {
	struct df_cost cost;
	int nodes;
	/*
	 * Which rank is on which node. NULL: one node, or nodes of equal size with consecutive
	 * ranks.
	 */
	struct df_layout *layout;
};

/* One end of a connector of a collective. */
struct df_cend {
	struct df_kconn *k;
	struct df_kctx *ctx; /* the context that uses it */
	struct df_conn *conn;
	struct df_peer *peer; /* reference owned by the communicator */
	const struct df_tl_ops *tl;
	uint64_t key;
	uint64_t base; /* owner: position at which the next connector of this key starts */
	uint32_t nr_slots, slot_bytes;
	uint8_t owner, sends;
};

#define DF_PROBES 8 /* timed instances that make one measurement */
struct df_coll {
	struct df_kcoll k;
	struct df_sig sig;
	UT_hash_handle hh;
	struct df_comm *comm;
	struct df_dev *dev;
	struct df_list node;	/* dev->colls */
	struct df_list holding; /* dev->holding: it owns connectors that could be recycled */
	struct df_list using; /* dev->using: it uses connectors that peers own and could recycle */
	struct df_list waiting; /* dev->connecting: some ends or its scratch memory are missing */
	struct df_list flying;	/* dev->flying: it has instances in flight */
	struct df_program *prog;
	uint32_t first_block; /* of the daemon, for block 0 of the program; see df_dev_block() */
	uint64_t key;	      /* hash of communicator and signature: names its connectors */
	uint64_t base;	      /* value of the completion word when the collective was registered */
	uint64_t issued;      /* number of instances */
	uint64_t retired;     /* number of instances whose completion the host has noted */
	struct df_kinst *oldest, *newest, *unretired;
	struct df_cend *ends;
	uint32_t nr_ends, nr_open; /* nr_open: ends to be connected, plus missing scratch */
	uint32_t parked; /* ends were recycled or let go: connect them before the next instance */
	/* Number of operations that are about to be issued on it. Unless 0, it is not idle. */
	uint32_t entering;
	/* A peer asks for its connectors: let go of them when nothing is in flight. */
	uint32_t asked;
	/*
	 * Scratch memory; NULL word: it needs none. The word exceeds scratch_from once the memory
	 * is allocated, and every instance waits for that.
	 */
	uint64_t scratch_bytes;
	uint64_t *scratch_word, scratch_from;
	int no_scratch; /* the memory is not allocated yet */
	struct {
		uint64_t count; /* the first `count` instances inherit a peer's priority (lend.c) */
		int32_t priority;
	} lent;
	uint32_t name; /* number of its program's name among the trace's strings; 0: none */
	struct df_algo_pick pick; /* algorithm, and its expected time */
	struct {
		uint64_t seq, since;	/* instance being timed; since 0: none */
		uint64_t ns[DF_PROBES]; /* the last times, sorted */
		uint32_t nr;
	} probe;
};

int df_coll_get(struct df_comm *comm, const struct df_sig *sig, int in_place, struct df_coll **out);
/* Returns the value of the completion word when all its present instances have finished. */
static inline uint64_t df_coll_last(const struct df_coll *coll)
{
	return coll->base + coll->issued;
}

/*
 * Returns the size of the largest slot of the communicator's collectives, equal on all ranks. Valid
 * once df_coll_choice.nodes is; any thread.
 */
uint32_t df_coll_slot_bytes(const struct df_comm *comm);
struct df_kinst *df_coll_instance(struct df_coll *coll, uint32_t nr_waits);
void df_coll_append(struct df_coll *coll, struct df_kinst *inst);
void df_coll_retire(struct df_coll *coll);
/*
 * Raises the instances up to the one whose completion is `value` to at least this priority, and all
 * that they wait for (lend.c).
 */
void df_coll_lend(struct df_coll *coll, uint64_t value, int32_t priority);
/* Raises all that an instance waits for to at least its priority. */
void df_coll_lend_waits(struct df_coll *coll, const struct df_kinst *inst);
/*
 * If w waits for the completion of a collective of this device, raises that collective to at least
 * this priority.
 */
void df_lend(struct df_dev *dev, const struct df_kwait *w, int32_t priority);
/* Gives a new instance the priority that a peer raised it to before it existed. */
void df_coll_lend_new(struct df_coll *coll, struct df_kinst *inst);
/* Sends raised priorities to other devices and processes. Call without a lock of the runtime. */
void df_lend_tell(void);
/* On the control thread: another process has sent raised priorities. */
void df_lend_heard(const void *data, size_t bytes);
void df_coll_abort(struct df_coll *coll); /* only marks it; see df_engine_purge() */
void df_coll_destroy(struct df_coll *coll);
/* Asks the backend for the program's scratch memory. Returns -EAGAIN to try later. */
int df_coll_scratch(struct df_coll *coll);

#endif
