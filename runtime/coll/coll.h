/*
 * Registered collectives: a signature of a communicator, with its program, connectors and instances. Owned by the
 * communicator; everything under the lock of its device (df_dev.lock).
 */
#ifndef DF_RUNTIME_COLL_COLL_H
#define DF_RUNTIME_COLL_COLL_H

#include <stdint.h>
#include <uthash.h>
#include "kernels/abi.h"
#include "runtime/base/list.h"
#include "runtime/program/file/algofile.h"
#include "runtime/program/build/cost.h"

struct df_comm;
struct df_conn;
struct df_dev;
struct df_layout;
struct df_peer;
struct df_program;
struct df_tl_ops;

/* What makes two calls the same collective; hashed as bytes, so no padding. */
struct df_sig {
	uint64_t count;
	uint32_t kind, type, redop;
	int32_t root; /* root or peer; -1 none */
	uint32_t id;  /* of the native API */
	uint32_t zero;
};

/* The collectives of a communicator; under the lock of its device. */
struct df_coll_registry {
	struct df_coll *all;  /* uthash by sig */
	struct df_coll *last; /* the one looked up last */
};

/* What all ranks of a communicator choose its programs by. Set for good when it is open. */
struct df_coll_choice {
	struct df_cost cost;
	int nodes;
	struct df_layout
		*layout; /* of the ranks over them; NULL: one node, or equal ones in rows */
};

/* One end of a connector of a collective. */
struct df_cend {
	struct df_kconn *k;
	struct df_kctx *ctx; /* whose it is */
	struct df_conn *conn;
	struct df_peer *peer; /* owned by the communicator */
	const struct df_tl_ops *tl;
	uint64_t key;
	uint64_t base; /* owner: the position at which the connector begins when it is made again */
	uint32_t nr_slots, slot_bytes;
	uint8_t owner, sends;
};

#define DF_PROBES 8
struct df_coll {
	struct df_kcoll k;
	struct df_sig sig;
	UT_hash_handle hh;
	struct df_comm *comm;
	struct df_dev *dev;
	struct df_list node; /* dev->colls */
	struct df_list
		holding; /* dev->holding: it has connectors of its own that could be recycled */
	struct df_list using; /* dev->using: it uses connectors that peers own and could recycle */
	struct df_list waiting; /* dev->connecting */
	struct df_list flying;	/* dev->flying: instances of it are in flight */
	struct df_program *prog;
	uint64_t key;	  /* hash of communicator and signature: what connectors are named by */
	uint64_t base;	  /* of the completion word when the collective was registered */
	uint64_t issued;  /* instances */
	uint64_t retired; /* instances whose completion the host has taken note of */
	struct df_kinst *oldest, *newest, *unretired;
	struct df_cend *ends;
	uint32_t nr_ends, nr_open;
	uint32_t parked;   /* ends that were recycled or let go: connect before the next instance */
	uint32_t entering; /* operations that are about to be issued on it: its connectors stay */
	uint32_t asked;	   /* a peer would like connectors back: when nothing is in flight */
	uint64_t in_bytes, out_bytes;
	/* Scratch that the machine does not have yet: no instance starts before the word has gone up. */
	uint64_t scratch_bytes;
	uint64_t *scratch_word, scratch_from;
	int no_scratch;
	struct {
		uint64_t count; /* the first so many instances are as urgent as a peer's (lend.c) */
		int32_t priority;
	} lent;
	uint32_t name;		  /* its program's, in the trace: a string's number; 0 none */
	struct df_algo_pick pick; /* algorithm, and what it was expected to take */
	struct {
		uint64_t seq, since;	/* instance being timed; since 0: none */
		uint64_t ns[DF_PROBES]; /* the last ones, in order of size */
		uint32_t nr;
	} probe;
};

int df_coll_get(struct df_comm *comm, const struct df_sig *sig, int in_place, struct df_coll **out);
/* What the done word is when all its instances so far are finished. */
static inline uint64_t df_coll_last(const struct df_coll *coll)
{
	return coll->base + coll->issued;
}

struct df_kinst *df_coll_instance(struct df_coll *coll, uint32_t nr_waits);
void df_coll_append(struct df_coll *coll, struct df_kinst *inst);
void df_coll_retire(struct df_coll *coll);
/* The instances up to the one whose completion is `value` are at least so urgent, and what they wait for (lend.c). */
void df_coll_lend(struct df_coll *coll, uint64_t value, int32_t priority);
/* What an instance waits for is at least as urgent as the instance. */
void df_coll_lend_waits(struct df_coll *coll, const struct df_kinst *inst);
/* The collective of the device whose completion is waited for, if it is one, is at least so urgent. */
void df_lend(struct df_dev *dev, const struct df_kwait *w, int32_t priority);
/* An instance that a peer has lent to before it was there. */
void df_coll_lend_new(struct df_coll *coll, struct df_kinst *inst);
/* Tells other devices and other processes what has been lent; without a lock of the runtime. */
void df_lend_tell(void);
/* On the control thread: what another process has told. */
void df_lend_heard(const void *data, size_t bytes);
void df_coll_abort(struct df_coll *coll); /* marks it; see df_engine_purge() */
void df_coll_destroy(struct df_coll *coll);
/* Asks the machine for a program's scratch; -EAGAIN: not now. */
int df_coll_scratch(struct df_coll *coll);

#endif
