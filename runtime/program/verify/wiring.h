/*
 * All ranks' programs as one network: threads (rank, block) and connections with both their ends.
 * Used by the verifier and by the slot count; private to this folder.
 */
#ifndef DF_RUNTIME_PROGRAM_VERIFY_WIRING_H
#define DF_RUNTIME_PROGRAM_VERIFY_WIRING_H

#include "runtime/program/verify/verify.h"

struct df_gconn {
	int32_t src, dst; /* ranks */
	uint32_t channel;
	uint32_t send_thread;
	uint32_t per_loop;
	uint32_t first_slice; /* index of its first slice among all slices of a loop */
};

struct df_gthread {
	int32_t rank;
	uint32_t block, nr_inst;
	const struct df_inst *inst;
	const uint32_t *send, *recv; /* by the block's own index: index in df_pgraph.conn */
};

struct df_pgraph {
	struct df_program *const *progs;
	int nranks;
	uint32_t nr_threads, nr_conns, nr_slices;
	uint32_t *first_thread; /* by rank; has nranks + 1 entries */
	struct df_gthread *thread;
	struct df_gconn *conn;
	uint32_t *ends; /* storage of thread->send, ->recv */
};

/*
 * Checks tables and pairs the connections. Fails with -EPROTO and *err. plan (may be NULL) gives
 * the lines.
 */
int df_pgraph_init(struct df_pgraph *g, struct df_program *const *progs, int nranks,
		   const struct df_plan *plan, struct df_perr *err);
void df_pgraph_fini(struct df_pgraph *g);

/* Return the line of a rank or a step in its source file, or -1. */
int df_rank_line(const struct df_plan *plan, int rank);
int df_plan_line(const struct df_plan *plan, int rank, uint32_t block, uint32_t step);

#endif
