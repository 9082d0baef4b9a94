/*
 * Programs: instructions over chunks that make up a collective, per rank and per block. Their only
 * representation is struct df_program in kernels/abi.h, which the daemon executes. This header is
 * the interface for the runtime: it requests the program of one rank and gets a finished,
 * position-independent blob.
 *
 * Builders, compiler, verifier, file import and tuner are behind it in this folder. Nothing here
 * depends on CUDA, NCCL or the daemon. All functions are thread-safe and never block.
 */
#ifndef DF_PROGRAM_H
#define DF_PROGRAM_H

#include <stdint.h>
#include <stddef.h>
#include "kernels/abi.h"

enum df_coll_kind {
	DF_COLL_ALLREDUCE,     /* in: count, out: count */
	DF_COLL_BROADCAST,     /* in (root): count, out: count */
	DF_COLL_REDUCE,	       /* in: count, out (root): count */
	DF_COLL_ALLGATHER,     /* in: count, out: count * nranks */
	DF_COLL_REDUCESCATTER, /* in: count * nranks, out: count */
	DF_COLL_ALLTOALL,      /* in, out: count * nranks */
	DF_COLL_GATHER,	       /* in: count, out (root): count * nranks */
	DF_COLL_SCATTER,       /* in (root): count * nranks, out: count */
	DF_COLL_SEND,	       /* in: count, to peer */
	DF_COLL_RECV,	       /* out: count, from peer */
	DF_COLL_SENDRECV_SELF, /* in -> out on one rank */
	DF_COLL_CUSTOM,
	DF_COLL_NR
};

enum df_algo {
	DF_ALGO_AUTO,
	DF_ALGO_RING,
	DF_ALGO_TREE,
	DF_ALGO_ALLPAIRS,
	DF_ALGO_HIER, /* over nodes */
	DF_ALGO_NR
};

struct df_layout;

/* A request for a program. The same on all ranks, except `rank` and, for SEND and RECV, `peer`. */
struct df_prog_req {
	enum df_coll_kind kind;
	enum df_algo algo;
	int nranks, rank;
	int nodes;			/* 0 or 1: unknown, or one node */
	const struct df_layout *layout; /* of the nodes; NULL: equal sizes, consecutive ranks */
	int root;			/* BROADCAST, REDUCE, GATHER, SCATTER */
	int peer;			/* SEND, RECV */
	uint64_t count;			/* elements of the call */
	uint32_t elem_bytes;
	uint32_t max_blocks; /* blocks of the daemon; the same on all ranks */
	int in_place;
};

/*
 * Builds the program of one rank: from malloc(), with ordinals, RAW and FINAL flags, hash and
 * min_slots. It depends only on *req and fits the programs of the other ranks for the same request.
 * Returns -EINVAL if the request contradicts itself, or -ENOMEM.
 */
int df_program_build(const struct df_prog_req *req, struct df_program **out);
void df_program_free(struct df_program *prog);

/* Bytes of the larger buffer of a call. Thresholds refer to this size. */
uint64_t df_coll_bytes(const struct df_prog_req *req);

/* Whether there is a built-in program of this algorithm (not AUTO) for the request. */
int df_algo_has(const struct df_prog_req *req, enum df_algo algo);
/* "auto", "ring", ... The reverse ignores case and returns -1 for unknown names. */
const char *df_algo_name(enum df_algo algo);
int df_algo_find_name(const char *name, size_t len);

/* "AllReduce", "Send", ... The reverse returns -1 for unknown names. */
const char *df_coll_kind_name(enum df_coll_kind kind);
int df_coll_kind_parse(const char *name);

/* Bytes of an element of enum df_type. */
uint32_t df_type_bytes(uint32_t type);

struct df_phead;
/*
 * Marks the instructions whose data stays in place until it has been received (DF_INST_STAYS),
 * whether or not the call is in place. Reads kind, rank, root and chunks of head. May return
 * -ENOMEM.
 */
int df_program_stays(struct df_program *p, const struct df_phead *head);

#endif
