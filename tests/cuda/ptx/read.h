/*
 * The state of the reader of PTX, and its functions for words, names and declarations (read.c),
 * which the reader of statements uses (parse.c). The first fault is reported; the text after it is
 * ignored.
 */
#ifndef DF_TESTS_PTX_READ_H
#define DF_TESTS_PTX_READ_H

#include "tests/cuda/ptx/int.h"

struct range {
	char name[40]; /* "%r" for %r<20>, or a whole name */
	uint32_t nr;   /* number of registers; 0: one register with this name */
	uint32_t first;
};

struct label {
	char *name;
	int64_t at; /* index of the instruction; -1: not seen yet */
	struct {
		char **names;
		uint32_t nr;
	} list; /* .branchtargets */
	UT_hash_handle hh;
};

struct constant {
	uint64_t value;
	slot s;
	UT_hash_handle hh;
};

struct reader {
	struct ptx_module *m;
	const char *p, *end;
	uint32_t line;
	uint32_t file, src_line;
	int bad;
	/* the kernel that is being read */
	struct ptx_kernel *k;
	struct variable *locals;
	struct range *ranges;
	uint32_t nr_ranges, open[64], depth;
	struct label *labels;
	struct constant *consts;
	char **goes; /* for each instruction: the label that it branches to, or NULL */
};

/* Reports a fault of the text with its line. */
void rd_wrong(struct reader *r, const char *fmt, ...);
/* Returns the array, reallocated if it has no room for one more element after `nr`. */
void *rd_more(void *p, uint32_t nr, size_t size);
/*
 * rd_peek() returns the next character after blanks and comments, or 0 at the end. rd_take() skips
 * the next character if it is `c`, and returns whether it was. rd_need() reports a fault if it is
 * not `c`.
 */
int rd_peek(struct reader *r);
int rd_take(struct reader *r, int c);
void rd_need(struct reader *r, int c);
/* Reads the next word into `buf` and returns it; "" if there is none. */
const char *rd_word(struct reader *r, char *buf, size_t room);
void rd_skip_to(struct reader *r, int c);
/*
 * rd_number() returns the value of a number; a floating point number as its bits. rd_integer()
 * reads a number with its sign.
 */
uint64_t rd_number(const char *s, int *ok);
int64_t rd_integer(struct reader *r);

/*
 * These return NOWHERE, NULL or -1 if there is nothing of that name. rd_constant() adds a constant
 * if needed.
 */
slot rd_register(struct reader *r, const char *name);
const struct variable *rd_variable(struct reader *r, const char *name);
int rd_special(const char *name);
slot rd_constant(struct reader *r, uint64_t value);
/* Returns the label; creates it if it does not exist. */
struct label *rd_label(struct reader *r, const char *name);
size_t rd_up(size_t n, size_t align);

/* These read what follows .shared, .local, .global or .const; .reg; the name of a kernel. */
void rd_declare(struct reader *r, enum space space, int dynamic);
void rd_declare_regs(struct reader *r);
void rd_parameters(struct reader *r, struct ptx_kernel *k);

#endif
