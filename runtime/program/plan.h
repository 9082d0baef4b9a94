/*
 * Plans: the mutable form of programs while they are built, imported or compiled. A df_prank holds
 * the blocks and instructions of one rank; a df_plan holds those of all ranks and describes the
 * collective. df_prank_finish() turns a plan into one df_program per rank (kernels/abi.h) and
 * numbers connections and slices. A plan is never executed.
 *
 * A failed addition sets `err`, which stays set, so builders need not check every addition. There
 * are no locks: one thread builds an object.
 */
#ifndef DF_PROGRAM_PLAN_H
#define DF_PROGRAM_PLAN_H

#include "runtime/base/hash.h"
#include "runtime/program/program.h"
#include "runtime/program/program_names.h"
#include "runtime/program/proto.h"

struct df_pdep {
	uint32_t block, inst;
	uint32_t next; /* 1 + index of the next one of the same instruction; 0: none */
};

struct df_pinst {
	uint8_t op, src_buf, dst_buf, flags;
	uint16_t cnt;
	uint32_t src, dst;
	int32_t send_peer, recv_peer; /* -1: none */
	uint32_t send_chan, recv_chan;
	uint32_t deps; /* 1 + index of the first one; 0: none */
	uint32_t line; /* of its source file; 0: unknown */
};

struct df_pblock {
	struct df_pinst *inst;
	uint32_t nr, cap;
};

struct df_prank {
	struct df_pblock *block;
	uint32_t nr_blocks, cap_blocks;
	struct df_pdep *dep;
	uint32_t nr_deps, cap_deps;
	uint32_t in_chunks, out_chunks, scratch_chunks;
	uint32_t line; /* where the rank begins in its source file; 0: unknown */
	int err;       /* first failure of an allocation, or 0 */
};

struct df_plan {
	char name[64];
	enum df_coll_kind kind;
	int nranks, root;
	uint32_t chunks;       /* per count */
	int in_place;	       /* declared by the author; 0: no, 1: only in place, 2: both */
	enum df_proto proto;   /* a hint */
	uint64_t min_bytes;    /* of one count; inclusive */
	uint64_t max_bytes;    /* inclusive; 0: no limit */
	struct df_prank *rank; /* nranks of them */
};

void df_prank_init(struct df_prank *r);
void df_prank_fini(struct df_prank *r);
/* Makes sure that blocks 0..b exist. */
struct df_pblock *df_prank_block(struct df_prank *r, uint32_t b);
/*
 * Appends an instruction. The result is valid until the next append. Returns NULL if there is no
 * memory, and sets r->err.
 */
struct df_pinst *df_prank_add(struct df_prank *r, uint32_t b, const struct df_pinst *inst);
/* Makes instruction (b, i) wait for (dep_block, dep_inst). Adds no dependency twice. */
void df_prank_dep(struct df_prank *r, uint32_t b, uint32_t i, uint32_t dep_block,
		  uint32_t dep_inst);

/* The properties of a finished program besides its instructions. */
struct df_phead {
	const char *name;
	int nranks, rank;
	uint32_t chunks, min_slots, max_cnt; /* max_cnt: a lower bound; 0: from the instructions */
	uint64_t max_bytes, hash;
	enum df_coll_kind kind; /* decides which buffers may coincide: see df_coll_alias() */
	int root;
};
int df_prank_finish(const struct df_prank *r, const struct df_phead *head, struct df_program **out);

/*
 * Creates an empty plan with the chunk numbers of NCCL's definition. Returns NULL if there is no
 * memory.
 */
struct df_plan *df_plan_create(enum df_coll_kind kind, int nranks, int root, uint32_t chunks);
void df_plan_destroy(struct df_plan *plan);
/*
 * Makes the programs of all ranks: an array of nranks, freed by df_programs_free(). Their hash
 * covers all ranks.
 */
int df_plan_finish(const struct df_plan *plan, uint32_t min_slots, struct df_program ***out);
void df_programs_free(struct df_program **progs, int nranks);

#endif
