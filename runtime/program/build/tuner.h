/*
 * Which built-in algorithm for which call: a table of measured thresholds from a file, else the cost model
 * (runtime/program/build/cost.h), both within what NCCL's variables leave. All pure functions of what is equal on
 * all ranks, so that all choose alike as long as they have the same tuner (df_tuner.hash goes into the
 * agreement) and the same costs (made of the member table).
 *
 * Immutable after loading; any thread.
 */
#ifndef DF_RUNTIME_PROGRAM_BUILD_TUNER_H
#define DF_RUNTIME_PROGRAM_BUILD_TUNER_H

#include <stdio.h>
#include "runtime/program/build/cost.h"
#include "runtime/program/plan.h"

/* A measured row: from these bytes (of the call's larger buffer) on, use this; AUTO: what the model says. */
struct df_tune_row {
	int kind, nranks, nodes;
	uint64_t from_bytes;
	int algo;
	uint32_t blocks;
};

#define DF_TUNER_VERSION 2

struct df_tuner {
	struct df_cost cost;
	int has_cost; /* the file says what things cost: nothing is measured then */
	struct df_tune_row *row;
	uint32_t nr_rows;
	uint32_t algo_mask
		[DF_COLL_NR]; /* by collective: bits of enum df_algo that NCCL_ALGO allows; 0 all */
	uint32_t proto_mask[DF_COLL_NR]; /* bits of enum df_proto that NCCL_PROTO allows; 0 all */
	uint64_t hash;
};

int df_tuner_create(const struct df_cost *cost, struct df_tuner **out);
void df_tuner_free(struct df_tuner *t);

/*
 * One of NCCL's variables, in NCCL's grammar: lists separated by ';', each for one function ("allreduce:") or
 * for all, "^" for all but these. Names that NCCL has and we have no program for are left out, and told in
 * *ignored. -EINVAL: *bad is the first thing that is neither; nothing of it is used then.
 */
enum df_nccl_var { DF_NCCL_ALGO, DF_NCCL_PROTO };
int df_tuner_env(struct df_tuner *t, enum df_nccl_var var, const char *value, char *bad,
		 char *ignored, size_t size);
/* What is allowed in it, for messages. */
const char *df_tuner_env_allowed(enum df_nccl_var var);

/*
 * The algorithm for a call; cost NULL: the tuner's own. *blocks in: the most, out: chosen. *ns (may be NULL):
 * what the model expects of it. DF_ALGO_AUTO: no opinion.
 */
enum df_algo df_tuner_choose(const struct df_tuner *t, const struct df_cost *cost,
			     const struct df_prog_req *req, uint32_t *blocks, double *ns);

/* The file of `dfshim algo bench`: text, versioned. -EPROTO with *err. */
int df_tuner_write(const struct df_tuner *t, FILE *f);
int df_tuner_parse(const char *text, size_t size, struct df_tuner **out, struct df_perr *err);
int df_tuner_add(struct df_tuner *t, struct df_tune_row row);

#endif
