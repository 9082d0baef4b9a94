/*
 * The verifier: proves that the programs of all ranks compute what the collective promises, or says
 * which instruction does not. It executes one loop symbolically (a value is an expression over
 * input chunks) and checks, on the same structures that the daemon executes:
 *
 *   - tables are in range, operands inside their buffers, connections paired, slices equal on both
 *     sides;
 *   - every wait ends, with unbounded connections; then the fewest slots that suffice;
 *   - conflicting accesses of two blocks are ordered (vector clocks);
 *   - no chunk is read that holds nothing; the caller's input is not written;
 *   - the postcondition holds, out of place and in place, and so do the RAW and FINAL flags (each
 *     contribution is premultiplied once, each result finished once);
 *   - instances that run back to back do not conflict in scratch.
 *
 * One loop suffices: loops touch disjoint elements, and whether a Kahn network deadlocks does not
 * depend on the schedule. Pure functions; thread-safe; no locks.
 */
#ifndef DF_RUNTIME_PROGRAM_VERIFY_VERIFY_H
#define DF_RUNTIME_PROGRAM_VERIFY_VERIFY_H

#include "runtime/program/plan.h"

/* One required output chunk of a custom collective. */
struct df_expect {
	int32_t rank;
	uint32_t chunk;
	uint32_t first, nr; /* into the list of contributions */
};

struct df_contrib {
	int32_t rank;
	uint32_t chunk;
};

struct df_expects {
	struct df_expect *e;
	struct df_contrib *c;
	uint32_t nr, cap, nr_c, cap_c;
};

int df_expects_add(struct df_expects *x, int rank, uint32_t chunk, int from, uint32_t from_chunk);
void df_expects_fini(struct df_expects *x);

struct df_verify_in {
	enum df_coll_kind kind;
	int nranks, root;
	struct df_program *const *progs; /* of all ranks */
	const struct df_plan *plan;	 /* for source lines; may be NULL; same blocks and steps */
	const struct df_expects *expect; /* CUSTOM: the required outputs; NULL: any */
	int set_flags; /* write RAW and FINAL flags and min_slots instead of checking them */
	int own_input; /* the input is a copy: it may be written */
};

struct df_verify_out {
	uint32_t min_slots;  /* by our rules: a step is one slice */
	int out_of_place;    /* correct with separate buffers */
	int in_place;	     /* correct when the output aliases the input as NCCL defines it */
	int same_order;	     /* every rank's result has the same expression: bitwise equal */
	int whole_chunks;    /* only correct when count is a multiple of the chunks */
	int back_to_back;    /* instances never conflict in scratch */
	int has_post;	     /* a postcondition was known and checked */
	struct df_perr err;  /* why it was refused */
	struct df_perr note; /* why it is not right in place, or not back to back */
};

/* Fails with -EPROTO and out->err, or with -ENOMEM. */
int df_verify(const struct df_verify_in *in, struct df_verify_out *out);

/*
 * Whether this number of steps, in this number of blocks of all ranks, is more than the verifier
 * can check in some seconds. A step needs 600 bytes, 1.5 bytes for each rank, and some operations
 * for each block. df_verify() refuses such programs, and those whose clocks need more than some
 * hundred MB. Callers that make programs ask first, with as many blocks as they know of.
 */
static inline int df_verify_too_large(uint64_t steps, int nranks, uint64_t blocks)
{
	return steps * ((uint64_t)nranks + blocks / 8 + 400) > 1ull << 28;
}

#define DF_MAX_SLOTS 1024
/*
 * Returns the fewest slots that cannot deadlock under MSCCL's transfer rule: a step of cnt chunks
 * is ceil(cnt / per_transfer) transfers, each in its own slot; per_transfer 0: always one transfer.
 * Returns 0 if no number up to DF_MAX_SLOTS suffices; on failure -errno.
 */
int64_t df_flow_min_slots(struct df_program *const *progs, int nranks, uint32_t per_transfer);

/*
 * Returns the largest message (bytes of the whole buffer, `total_chunks` chunks) that MSCCL itself
 * could execute without deadlock, with the slots of `proto`. 0: any; UINT64_MAX: it can execute
 * none, or the programs do not fit together.
 */
uint64_t df_flow_msccl_max_bytes(struct df_program *const *progs, int nranks, uint32_t total_chunks,
				 enum df_proto proto);

struct df_pgraph;
/*
 * Finds a legal order of all steps with unbounded connections: order[i] is the thread that executes
 * its next step (room for all steps). Returns 1 if it is complete, 0 if the programs deadlock after
 * *nr_order steps, or -errno.
 */
int df_pgraph_order(const struct df_pgraph *g, uint32_t *order, uint32_t *nr_order);

#endif
