/*
 * Symbolic values: hash-consed expressions over input chunks. Equal ids mean equal expressions.
 * Operands of a reduction are unordered, because all of NCCL's operations commute bit for bit
 * (kernels/reduce.h), but they are not associative: (a+b)+c and a+(b+c) differ. Each expression
 * knows the multiset of its chunks.
 */
#ifndef DF_RUNTIME_PROGRAM_VERIFY_SYM_H
#define DF_RUNTIME_PROGRAM_VERIFY_SYM_H

#include <stddef.h>
#include <stdint.h>

struct df_contrib;

struct df_sym_expr {
	uint32_t a, b; /* operands; of a leaf: 0, 0 */
	uint32_t set;
};

struct df_sym_set {
	uint64_t hash;
	uint32_t first, nr; /* of entries, sorted; an entry is rank << 32 | chunk */
	uint32_t low;	    /* smallest chunk % chunks: that chunk is the longest of the set */
	uint8_t dup;	    /* holds an entry twice */
	uint8_t complete;   /* one chunk index, with every rank once */
};

struct df_sym {
	uint32_t nranks, chunks;
	struct df_sym_expr *expr;
	struct df_sym_set *set;
	uint64_t *entry;
	uint32_t nr_expr, cap_expr, nr_set, cap_set, nr_entry, cap_entry;
	uint32_t *expr_map, *set_map;
	uint32_t expr_mask, set_mask;
	int err; /* -ENOMEM, sticky */
};

/* Id 0 is "nothing". */
int df_sym_init(struct df_sym *s, uint32_t nranks, uint32_t chunks);
void df_sym_fini(struct df_sym *s);
uint32_t df_sym_leaf(struct df_sym *s, uint32_t rank, uint32_t chunk);
uint32_t df_sym_join(struct df_sym *s, uint32_t a, uint32_t b);
/* Returns the set of these entries (sorts them), for postconditions. */
uint32_t df_sym_want(struct df_sym *s, uint64_t *entries, uint32_t nr);
/* "rank:chunk + rank:chunk ..." of a set, shortened to fit. */
const char *df_sym_str(const struct df_sym *s, uint32_t set, char *buf, size_t size);

#endif
