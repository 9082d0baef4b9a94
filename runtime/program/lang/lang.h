/*
 * The language: a collective is written as operations on chunks (GC3's model). A program text is a
 * C function that takes references to chunks and copies or reduces them to other places. From these
 * operations, in their order, the compiler makes instructions, fuses them, distributes them over
 * blocks and channels, orders them and adds the dependencies. Equal texts give equal programs.
 *
 *	struct df_ref c = CHUNK(l, r, DF_IN, r, 1);         one chunk of rank r's input
 *	c = COPY(c, next, DF_OUT, r);                       to another place, also on another rank
 *	c = REDUCE(CHUNK(l, next, DF_IN, r, 1), c);         into another chunk: first (+)= second
 *
 * A reference is valid until its place is written through another one. To use it later, or to name
 * a place that holds nothing, is an error at that line. After the first error all operations do
 * nothing. One thread per df_lang; no locks.
 */
#ifndef DF_RUNTIME_PROGRAM_LANG_LANG_H
#define DF_RUNTIME_PROGRAM_LANG_LANG_H

#include "runtime/program/verify/verify.h"

/* Buffers: these, and what df_lang_buffer() returns. */
enum { DF_IN = DF_BUF_IN, DF_OUT = DF_BUF_OUT };

/* The most chunks of all ranks together. */
#define DF_LANG_CHUNKS (1u << 24)

struct df_lang;

/* cnt chunks from index on, in one buffer of one rank. */
struct df_ref {
	struct df_lang *l;
	int rank, buf;
	uint32_t index, cnt;
	uint64_t stamp; /* versions of the places when the reference was made */
};

enum df_block_policy {
	DF_BLOCKS_CHANNEL, /* one block per channel on a rank; it may talk to several peers */
	DF_BLOCKS_PEER,	   /* one peer per direction and block, as MSCCL requires */
};

struct df_lang_opts {
	const char *name;
	enum df_coll_kind kind;
	int nranks, root;
	uint32_t chunks; /* per count */
	/*
	 * Input and output are one buffer, as NCCL defines in place; the result is right for two as
	 * well.
	 */
	int in_place;
	/* Copies of the program over parts of each chunk, with channels of their own; 0: 1. */
	uint32_t instances;
	enum df_proto proto;
	enum df_block_policy blocks;
	int no_fuse;
};

/* NULL: no memory, or invalid options. */
struct df_lang *df_lang_create(const struct df_lang_opts *opts);
void df_lang_destroy(struct df_lang *l);

/* Makes a scratch buffer of that name. On each rank it is as long as it is used there. */
int df_lang_buffer(struct df_lang *l, const char *name);
/*
 * The following operations use this channel. Operations of a rank on different channels are in
 * different blocks and run in parallel.
 */
void df_lang_channel(struct df_lang *l, int channel);
/*
 * Adds a contribution to the required result of a custom collective: the output chunk of the rank
 * is the sum of all its contributions.
 */
void df_lang_expect(struct df_lang *l, int rank, uint32_t chunk, int from, uint32_t from_chunk);
/* Reports that the program text cannot be written for these parameters: an error at its line. */
void df_lang_refuse(struct df_lang *l, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

struct df_ref df_lang_chunk(struct df_lang *l, int rank, int buf, uint32_t index, uint32_t cnt,
			    const char *file, int line);
struct df_ref df_lang_copy(struct df_ref src, int rank, int buf, uint32_t index, const char *file,
			   int line);
struct df_ref df_lang_reduce(struct df_ref dst, struct df_ref src, const char *file, int line);
/* Returns `cnt` of the chunks of a reference. */
struct df_ref df_lang_part(struct df_ref c, uint32_t first, uint32_t cnt, const char *file,
			   int line);

#define CHUNK(l, rank, buf, index, cnt) df_lang_chunk(l, rank, buf, index, cnt, __FILE__, __LINE__)
#define COPY(src, rank, buf, index)	df_lang_copy(src, rank, buf, index, __FILE__, __LINE__)
#define REDUCE(dst, src)		df_lang_reduce(dst, src, __FILE__, __LINE__)
#define PART(c, first, cnt)		df_lang_part(c, first, cnt, __FILE__, __LINE__)
#define REFUSE(l, ...)			df_lang_refuse(l, __FILE__, __LINE__, __VA_ARGS__)

/*
 * Compiles the trace into a plan (unverified, but canonical; prove it with df_plan_prove) and
 * expectations (empty unless custom). Fails with -EPROTO and *err. Afterwards the object can only
 * be destroyed.
 */
int df_lang_compile(struct df_lang *l, struct df_plan **plan, struct df_expects *expect,
		    struct df_perr *err);

#endif
