/*
 * The library: well-known algorithms written in the language (runtime/program/lang/library/), by
 * name. library.def declares each in a row, and nothing else does.
 */
#ifndef DF_RUNTIME_PROGRAM_LANG_LIBRARY_LIBRARY_H
#define DF_RUNTIME_PROGRAM_LANG_LIBRARY_LIBRARY_H

#include "runtime/program/lang/lang.h"

/* The machine and how it is used: ranks = nodes * gpus, rank = node * gpus + gpu. */
struct df_shape {
	int nranks, nodes, gpus, root;
	int channels;	    /* of rings; at least 1 */
	uint32_t instances; /* 0: 1 */
	enum df_block_policy blocks;
	int no_fuse;
};

struct df_lib {
	const char *name, *help;
	enum df_coll_kind kind;
	int in_place;
	uint32_t (*chunks)(const struct df_shape *s);
	void (*text)(struct df_lang *l, const struct df_shape *s);
};

extern const struct df_lib df_library[];
extern const unsigned df_library_size;

const struct df_lib *df_library_find(const char *name);

/*
 * Traces and compiles a program of the library, as df_lang_compile(). Fails with -EINVAL if the
 * shape is impossible.
 */
int df_library_compile(const struct df_lib *lib, const struct df_shape *s, struct df_plan **plan,
		       struct df_expects *expect, struct df_perr *err);

#define DF_LIB(id, name, kind, in_place, chunks, help)                                             \
	void df_lib_##id(struct df_lang *l, const struct df_shape *s);
#include "runtime/program/lang/library/library.def"
#undef DF_LIB

#endif
