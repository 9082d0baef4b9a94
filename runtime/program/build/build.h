/*
 * The built-in builders: each emits one rank's instructions for one algorithm. Shared by build.c
 * (requests, choice) and build_*.c (algorithms). They run in O(nranks) and touch one df_prank.
 *
 * All of them keep these rules, which the property tests check with the verifier:
 *
 *   - Only IN is read before it was written. IN is never written. IN[c] is read for the last time
 *     before the output chunk that may alias it is written, so one program serves in-place and
 *     out-of-place calls.
 *   - Scratch belongs to one block, so instances that run back to back do not conflict in it.
 *   - Every element is reduced in one order, whichever rank does it: results are bitwise equal on
 *     all ranks.
 */
#ifndef DF_RUNTIME_PROGRAM_BUILD_BUILD_H
#define DF_RUNTIME_PROGRAM_BUILD_BUILD_H

#include "runtime/program/layout.h"
#include "runtime/program/plan.h"

/* The choice for a request. It does not depend on the request's rank. */
struct df_choice {
	const char *name;
	enum df_algo algo;
	int direct;	    /* df_sends_all() */
	uint32_t nb;	    /* copies of the program, each on its own channel */
	uint32_t chunks;    /* per count */
	uint32_t min_slots; /* fewest slots that cannot deadlock */
	/* Most chunks of an instruction of any rank; 0: this rank's program shows it. */
	uint32_t max_cnt;
};

/*
 * Whether all of a small AllReduce is sent at once: with ALLPAIRS by each rank to each other, with
 * HIER between the nodes' leaders.
 */
int df_sends_all(const struct df_prog_req *q, enum df_algo algo);

struct df_emit {
	struct df_prank *r;
	const struct df_layout *layout; /* NULL: one node, or unknown */
	int n, rank, root;
	uint32_t nb;	/* chunks of one part */
	uint32_t block; /* block of the next instruction */
	uint32_t chan;
	uint32_t cnt; /* chunks that the next instruction moves */
	int reduces;  /* IN is a contribution: premultiply when it is read */
};

/* A location. */
struct df_at {
	uint8_t buf;
	uint32_t chunk;
};
#define DF_AT_IN(c)	 ((struct df_at){DF_BUF_IN, (c)})
#define DF_AT_OUT(c)	 ((struct df_at){DF_BUF_OUT, (c)})
#define DF_AT_SCRATCH(c) ((struct df_at){DF_BUF_SCRATCH, (c)})

/* Append an instruction. flags: DF_INST_FINAL or 0; reading IN sets the RAW flags. */
void df_emit_send(struct df_emit *e, int to, struct df_at src);
void df_emit_recv(struct df_emit *e, int from, struct df_at dst);
void df_emit_copy(struct df_emit *e, struct df_at src, struct df_at dst, int flags);
void df_emit_reduce(struct df_emit *e, struct df_at src, struct df_at dst, int flags);
void df_emit_rrc(struct df_emit *e, int from, struct df_at src, struct df_at dst, int flags);
void df_emit_rcs(struct df_emit *e, int from, struct df_at dst, int to);
void df_emit_rrs(struct df_emit *e, int from, struct df_at src, int to, int flags);
void df_emit_rrcs(struct df_emit *e, int from, struct df_at src, struct df_at dst, int to,
		  int flags);

/* AllReduce. `part` is one of nb. */
void df_build_ar_ring(struct df_emit *e, uint32_t part);
void df_build_ar_onestep(struct df_emit *e, uint32_t part);
/* Between the first ranks of the nodes. */
void df_build_ar_leaders(struct df_emit *e, uint32_t part);
void df_build_ar_allpairs(struct df_emit *e, uint32_t part);
/*
 * Tree number `tree` (0, or 1: mirrored) over chunk `part`. split: up and down in separate blocks.
 */
void df_build_ar_tree(struct df_emit *e, uint32_t part, int tree, int split);

void df_build_bcast_chain(struct df_emit *e, uint32_t part);
void df_build_bcast_tree(struct df_emit *e, uint32_t part);
void df_build_bcast_direct(struct df_emit *e, uint32_t part);
void df_build_reduce_chain(struct df_emit *e, uint32_t part);
void df_build_reduce_tree(struct df_emit *e, uint32_t part);
void df_build_reduce_direct(struct df_emit *e, uint32_t part);

void df_build_ag_ring(struct df_emit *e, uint32_t part);
void df_build_ag_allpairs(struct df_emit *e, uint32_t part);
void df_build_rs_ring(struct df_emit *e, uint32_t part);
void df_build_rs_allpairs(struct df_emit *e, uint32_t part);
void df_build_alltoall(struct df_emit *e, uint32_t part);
/* Over nodes; see build_hier.c. AlltoAll: one part only. */
void df_build_ar_hier(struct df_emit *e, uint32_t part);
void df_build_ag_hier(struct df_emit *e, uint32_t part);
void df_build_rs_hier(struct df_emit *e, uint32_t part);
void df_build_bcast_hier(struct df_emit *e, uint32_t part);
void df_build_reduce_hier(struct df_emit *e, uint32_t part);
void df_build_alltoall_hier(struct df_emit *e, uint32_t part);
void df_build_gather(struct df_emit *e, uint32_t part);
void df_build_scatter(struct df_emit *e, uint32_t part);

#endif
