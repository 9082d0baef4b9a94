/*
 * Names and properties of collectives and opcodes, and the place and reason of a refusal.
 */
#ifndef DF_RUNTIME_PROGRAM_PROGRAM_NAMES_H
#define DF_RUNTIME_PROGRAM_PROGRAM_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/program/program.h"

/* Where and why a program was refused; -1 for a place that does not apply. */
struct df_perr {
	int line, rank, block, step;
	char file[128];
	char text[256];
};

void df_perr_clear(struct df_perr *e);
/* Fills *e, unless it is NULL or holds an earlier error. Returns -EPROTO. */
int df_perr_set(struct df_perr *e, int line, int rank, int block, int step, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));
/* Writes "file:line: rank r block b step s: text" into buf. Returns buf. */
const char *df_perr_str(const struct df_perr *e, char *buf, size_t size);
/* The number of chunks of the input (which = 0) or output (1) of `rank`, by NCCL's definition. */
uint32_t df_coll_chunks(enum df_coll_kind kind, int nranks, int root, int rank, uint32_t chunks,
			int which);
/* Whether the collective reduces; whether one rank is its root. */
int df_coll_reduces(enum df_coll_kind kind);
int df_coll_rooted(enum df_coll_kind kind);
/* The number of counts in the larger buffer: nranks, or 1. */
uint32_t df_coll_counts(enum df_coll_kind kind, int nranks);

/*
 * The input chunk that is the same memory as output chunk `out` of `rank` when the call is in place
 * as NCCL defines it; -1 if none is.
 */
int64_t df_coll_alias(enum df_coll_kind kind, int root, int rank, uint32_t chunks, uint32_t out);

/* Properties of the opcodes, from kernels/opcodes.def. */
struct df_op_info {
	const char *text, *xml;
	uint8_t recvs, sends, reads, writes, reduces;
};
extern const struct df_op_info df_op_info[DF_OP_NR];

#endif
