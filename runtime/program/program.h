/*
 * Programs: what a collective does, per rank and per block, as instructions over chunks (struct
 * df_program in kernels/abi.h is the one representation; it is what the daemon executes). This header is what
 * the runtime uses: it asks for the program of one rank and gets a finished, position-independent blob.
 *
 * Builders, compiler, verifier, file import and tuner live behind it in this folder. Nothing here knows
 * CUDA, NCCL or the daemon; all functions are thread-safe and never block.
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

/* What is asked for. Equal on all ranks but for `rank` and, for SEND/RECV, `peer`. */
struct df_prog_req {
	enum df_coll_kind kind;
	enum df_algo algo;
	int nranks, rank;
	int nodes;			/* 0 and 1: not known, or one */
	const struct df_layout *layout; /* of them; NULL: equal in size, their ranks in a row */
	int root;			/* BROADCAST, REDUCE, GATHER, SCATTER */
	int peer;			/* SEND, RECV */
	uint64_t count;			/* elements of the call */
	uint32_t elem_bytes;
	uint32_t max_blocks; /* blocks of the daemon; equal on all ranks */
	int in_place;
};

/*
 * Builds the program of one rank. The result is malloc'ed, finalised (ordinals, RAW/FINAL flags, hash,
 * min_slots), depends only on *req, and fits with that of every other rank for the same request.
 * -EINVAL: the request contradicts itself; -ENOMEM.
 */
int df_program_build(const struct df_prog_req *req, struct df_program **out);
void df_program_free(struct df_program *prog);

/* Bytes of the larger buffer of a call: what thresholds mean. */
uint64_t df_coll_bytes(const struct df_prog_req *req);

/* 1 if there is a built-in program of this algorithm for the request (not of AUTO). */
int df_algo_has(const struct df_prog_req *req, enum df_algo algo);
/* "auto", "ring", ...; and back, in any case (-1 unknown). */
const char *df_algo_name(enum df_algo algo);
int df_algo_find_name(const char *name, size_t len);

/* "AllReduce", "Send", ...; and back (-1 unknown). */
const char *df_coll_kind_name(enum df_coll_kind kind);
int df_coll_kind_parse(const char *name);

/* Bytes of an element of enum df_type. */
uint32_t df_type_bytes(uint32_t type);

#endif
