/* Data passed from the tracer (lang.c) to the compiler (lower.c). Private to this folder. */
#ifndef DF_RUNTIME_PROGRAM_LANG_LANG_INT_H
#define DF_RUNTIME_PROGRAM_LANG_LANG_INT_H

#include "runtime/program/lang/lang.h"

#define DF_LANG_BUFS 258 /* input, output, named ones */

struct df_lang_op {
	int reduce;
	int src_rank, dst_rank, src_buf, dst_buf;
	uint32_t src, dst, cnt;
	int channel;
	const char *file;
	int line;
};

/* The places of one buffer on one rank: the number of writes to each; 0: it holds nothing. */
struct df_lang_places {
	uint64_t *version;
	uint32_t nr, cap;
};

struct df_lang {
	struct df_lang_opts o;
	char name[64];
	char buf_name[DF_LANG_BUFS][32];
	int nr_bufs;
	int channel;
	struct df_lang_places *places; /* by rank * DF_LANG_BUFS + buffer */
	struct df_lang_op *op;
	uint32_t nr_ops, cap_ops;
	struct df_expects expect;
	struct df_perr err;
	int rc;
};

/* Translates (buf, index) to its buffer and place: in place, input and output are one. */
void df_lang_place(const struct df_lang *l, int rank, int *buf, uint32_t *index);

/* Copies every block over parts of the chunks. Changes the plan's chunks, and *expect with them. */
int df_plan_replicate(struct df_plan *plan, uint32_t instances, struct df_expects *expect);

#endif
