/*
 * The state of the reader of PTX, and its words, names and declarations (read.c) for its statements
 * (parse.c). After the first fault, which is reported, later text does not count any more.
 */
#ifndef DF_TESTS_PTX_READ_H
#define DF_TESTS_PTX_READ_H

#include "tests/cuda/ptx/int.h"

struct range {
	char name[40]; /* %r of %r<20>; or a whole name */
	uint32_t nr;   /* 0: one register */
	uint32_t first;
};

struct label {
	char *name;
	int64_t at; /* -1: not seen yet */
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
	/* of the kernel in work */
	struct ptx_kernel *k;
	struct variable *locals;
	struct range *ranges;
	uint32_t nr_ranges, open[64], depth;
	struct label *labels;
	struct constant *consts;
	char **goes; /* of each instruction: the label it goes to, or NULL */
};

/* A fault of the text, said with its line. */
void rd_wrong(struct reader *r, const char *fmt, ...);
/* Room for one more: by powers of two. */
void *rd_more(void *p, uint32_t nr, size_t size);
/* The next character behind blanks and comments; 0: none. take: goes on if it is that one. */
int rd_peek(struct reader *r);
int rd_take(struct reader *r, int c);
void rd_need(struct reader *r, int c);
/* The next word, "" if there is none. */
const char *rd_word(struct reader *r, char *buf, size_t room);
void rd_skip_to(struct reader *r, int c);
/* Floating point ones are their bits. */
uint64_t rd_number(const char *s, int *ok);
int64_t rd_integer(struct reader *r);

/* NOWHERE, NULL, -1: there is none of that name. */
slot rd_register(struct reader *r, const char *name);
const struct variable *rd_variable(struct reader *r, const char *name);
int rd_special(const char *name);
slot rd_constant(struct reader *r, uint64_t value);
/* Made if there is none. */
struct label *rd_label(struct reader *r, const char *name);
size_t rd_up(size_t n, size_t align);

/* Behind the words .shared, .local, .global, .const; .reg; a kernel's name. */
void rd_declare(struct reader *r, enum space space, int dynamic);
void rd_declare_regs(struct reader *r);
void rd_parameters(struct reader *r, struct ptx_kernel *k);

#endif
