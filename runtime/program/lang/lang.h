/*
 * The language: collectives written as what happens to chunks (GC3's model). A program text is a C function
 * that takes references to chunks and copies or reduces them to other places; from what it did, in the order
 * in which it did it, the compiler makes instructions, fuses them, distributes them over blocks and channels,
 * orders them and adds the dependencies. Equal texts give equal programs.
 *
 *	struct df_ref c = CHUNK(l, r, DF_IN, r, 1);         one chunk of rank r's input
 *	c = COPY(c, next, DF_OUT, r);                       to another place, maybe on another rank
 *	c = REDUCE(CHUNK(l, next, DF_IN, r, 1), c);         into another chunk: first = first (+) second
 *
 * A reference is good until its place is written by somebody else; using it later, or naming a place that
 * holds nothing, is an error at the line that did it. After the first error all operations do nothing.
 * One thread per df_lang; no locks.
 */
#ifndef DF_RUNTIME_PROGRAM_LANG_LANG_H
#define DF_RUNTIME_PROGRAM_LANG_LANG_H

#include "runtime/program/verify/verify.h"

/* Buffers: these, and what df_lang_buffer() returns. */
enum { DF_IN = DF_BUF_IN, DF_OUT = DF_BUF_OUT };

#define DF_CHANNEL_AUTO (-1)

/* Chunks of all ranks together, at most. */
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
	DF_BLOCKS_PEER,	   /* one peer per direction and block, as MSCCL wants it */
};

struct df_lang_opts {
	const char *name;
	enum df_coll_kind kind;
	int nranks, root;
	uint32_t chunks; /* per count */
	/* 1: input and output are one buffer, as NCCL defines in place; the result is right for two as well. */
	int in_place;
	uint32_t
		instances; /* copies of the program over parts of each chunk, each with its own channels; 0: 1 */
	enum df_proto proto;
	enum df_block_policy blocks;
	int no_fuse;
	uint64_t min_bytes, max_bytes;
};

/* NULL: no memory, or nonsense. */
struct df_lang *df_lang_create(const struct df_lang_opts *opts);
void df_lang_destroy(struct df_lang *l);

/* A scratch buffer of that name, on every rank as long as it is used there. */
int df_lang_buffer(struct df_lang *l, const char *name);
/* The following operations use this channel; DF_CHANNEL_AUTO: 0. Operations on different channels of a rank
 * are in different blocks and run side by side. */
void df_lang_channel(struct df_lang *l, int channel);
/* What a custom collective must deliver: output chunk of rank = sum of these; call once per contribution. */
void df_lang_expect(struct df_lang *l, int rank, uint32_t chunk, int from, uint32_t from_chunk);
/* The program text can't be written for these parameters: an error at its line. */
void df_lang_refuse(struct df_lang *l, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

struct df_ref df_lang_chunk(struct df_lang *l, int rank, int buf, uint32_t index, uint32_t cnt,
			    const char *file, int line);
struct df_ref df_lang_copy(struct df_ref src, int rank, int buf, uint32_t index, const char *file,
			   int line);
struct df_ref df_lang_reduce(struct df_ref dst, struct df_ref src, const char *file, int line);
/* `cnt` of the chunks of a reference. */
struct df_ref df_lang_part(struct df_ref c, uint32_t first, uint32_t cnt, const char *file,
			   int line);

#define CHUNK(l, rank, buf, index, cnt) df_lang_chunk(l, rank, buf, index, cnt, __FILE__, __LINE__)
#define COPY(src, rank, buf, index)	df_lang_copy(src, rank, buf, index, __FILE__, __LINE__)
#define REDUCE(dst, src)		df_lang_reduce(dst, src, __FILE__, __LINE__)
#define PART(c, first, cnt)		df_lang_part(c, first, cnt, __FILE__, __LINE__)
#define REFUSE(l, ...)			df_lang_refuse(l, __FILE__, __LINE__, __VA_ARGS__)

/*
 * Compiles what was traced: plan (unverified, but canonical; prove it with df_plan_prove) and expectations
 * (empty unless custom). -EPROTO with *err; the lang object can only be destroyed afterwards.
 */
int df_lang_compile(struct df_lang *l, struct df_plan **plan, struct df_expects *expect,
		    struct df_perr *err);

#endif
