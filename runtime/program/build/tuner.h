/*
 * Chooses the built-in algorithm for a call: from a table of measured thresholds in a file, else by
 * the cost model (runtime/program/build/cost.h); NCCL's variables may exclude some. Pure functions
 * of data that are equal on all ranks, so that all choose the same if they have the same tuner (the
 * agreement compares df_tuner.hash) and the same costs (from the member table).
 *
 * Immutable after loading; any thread.
 */
#ifndef DF_RUNTIME_PROGRAM_BUILD_TUNER_H
#define DF_RUNTIME_PROGRAM_BUILD_TUNER_H

#include <stdio.h>
#include "runtime/program/build/cost.h"
#include "runtime/program/plan.h"

/*
 * A measured row: calls whose larger buffer has at least from_bytes use `algo` and `blocks`; AUTO:
 * the cost model chooses.
 */
struct df_tune_row {
	int kind, nranks, nodes;
	uint64_t from_bytes;
	int algo;
	uint32_t blocks;
};

#define DF_TUNER_VERSION 2

struct df_tuner {
	struct df_cost cost;
	int has_cost; /* the file has costs: nothing is measured then */
	struct df_tune_row *row;
	uint32_t nr_rows;
	/* By collective: bits of enum df_algo that NCCL_ALGO allows; 0: all. */
	uint32_t algo_mask[DF_COLL_NR];
	uint32_t proto_mask[DF_COLL_NR]; /* bits of enum df_proto that NCCL_PROTO allows; 0: all */
	uint64_t hash;
};

int df_tuner_create(const struct df_cost *cost, struct df_tuner **out);
void df_tuner_free(struct df_tuner *t);

/*
 * Parses one of NCCL's variables, in NCCL's grammar: lists separated by ';', each for one function
 * ("allreduce:") or for all; "^" means all but these. Names of NCCL that we have no program for are
 * skipped and listed in *ignored. Fails with -EINVAL, uses nothing, and sets *bad to the first name
 * that is unknown.
 */
enum df_nccl_var { DF_NCCL_ALGO, DF_NCCL_PROTO };
int df_tuner_env(struct df_tuner *t, enum df_nccl_var var, const char *value, char *bad,
		 char *ignored, size_t size);
/* The allowed values, for messages. */
const char *df_tuner_env_allowed(enum df_nccl_var var);

/*
 * Chooses the algorithm for a call. cost NULL: the tuner's own. *blocks: the most; set to the
 * number chosen. *ns (may be NULL): the expected time. DF_ALGO_AUTO: no preference.
 */
enum df_algo df_tuner_choose(const struct df_tuner *t, const struct df_cost *cost,
			     const struct df_prog_req *req, uint32_t *blocks, double *ns);

/* The file of `dfshim algo bench`: text, with a version. Fails with -EPROTO and *err. */
int df_tuner_write(const struct df_tuner *t, FILE *f);
int df_tuner_parse(const char *text, size_t size, struct df_tuner **out, struct df_perr *err);
int df_tuner_add(struct df_tuner *t, struct df_tune_row row);

#endif
