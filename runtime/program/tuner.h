/*
 * Which built-in algorithm for which call. A cost model (alpha: an instruction, beta: a byte moved, hop: a
 * peer that must be scheduled before we go on) with constants that are measured (`dfshim algo bench`), or a
 * table of measured thresholds from a file. Both are pure functions of what is equal on all ranks, so that
 * all choose alike as long as they have the same tuner (df_tuner.hash goes into the agreement).
 *
 * Immutable after loading; any thread.
 */
#ifndef DF_PROGRAM_TUNER_H
#define DF_PROGRAM_TUNER_H

#include <stdio.h>
#include "runtime/program/plan.h"

struct df_cost {
	double inst_ns;	     /* one instruction, without its bytes */
	double byte_ns;	     /* one byte read and written once, by one block */
	double hop_ns;	     /* until a peer sees what was sent and goes on */
	double block_ns;     /* one more block that takes part */
	double cores;	     /* ranks and blocks that make progress at a time; 0: all of them */
	uint64_t tile_bytes; /* of one slice */
};

/* A measured row: from these bytes (of the call's larger buffer) on, use this. */
struct df_tune_row {
	int kind, nranks;
	uint64_t from_bytes;
	int algo;
	uint32_t blocks;
};

#define DF_TUNER_VERSION 1

struct df_tuner {
	struct df_cost cost;
	struct df_tune_row *row;
	uint32_t nr_rows;
	uint32_t algo_mask;  /* bits of enum df_algo that NCCL_ALGO allows; 0 all */
	uint32_t proto_mask; /* bits of enum df_proto that NCCL_PROTO allows; 0 all */
	uint64_t hash;
};

/* Constants for CPU threads on shared memory, and for a GPU. */
extern const struct df_cost df_cost_host, df_cost_gpu;

int df_tuner_create(const struct df_cost *cost, struct df_tuner **out);
void df_tuner_free(struct df_tuner *t);

/*
 * NCCL_ALGO and NCCL_PROTO (values may be NULL): "Ring,Tree", "^Tree", "allreduce:tree;broadcast:ring" as in
 * NCCL; names that we have no program for are ignored. Never fails; *ignored tells what was (may be NULL).
 */
void df_tuner_env(struct df_tuner *t, const char *nccl_algo, const char *nccl_proto, char *ignored,
		  size_t size);

/* Nanoseconds that the model expects of an algorithm; algo is not AUTO. */
double df_tuner_cost(const struct df_cost *c, const struct df_prog_req *req, enum df_algo algo,
		     uint32_t blocks);

/* The algorithm for a call; *blocks (in: the most, out: chosen). DF_ALGO_AUTO: no opinion. */
enum df_algo df_tuner_choose(const struct df_tuner *t, const struct df_prog_req *req,
			     uint32_t *blocks);

/* The file of `dfshim algo bench`: text, versioned. -EPROTO with *err. */
int df_tuner_write(const struct df_tuner *t, FILE *f);
int df_tuner_parse(const char *text, size_t size, struct df_tuner **out, struct df_perr *err);
int df_tuner_add(struct df_tuner *t, struct df_tune_row row);

#endif
