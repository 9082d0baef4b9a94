/* Shared by the files of `dfshim algo`: the parsed command line, and the sources of programs. */
#ifndef DF_TRACE_CLI_ALGO_ALGO_H
#define DF_TRACE_CLI_ALGO_ALGO_H

#include "runtime/program/file/algofile.h"
#include "runtime/program/layout.h"
#include "runtime/program/lang/library/library.h"

struct df_algo_args {
	char **file;
	int nr_files;
	const char *layout_text, *out, *kind, *sizes, *tuner, *worker;
	struct df_shape shape;
	struct df_layout *layout; /* --layout: nodes of unequal size, for built-in programs */
	uint64_t bytes, count, tile, rounds, seed;
	uint32_t max_blocks, slots, redop;
	int format, is_float, json, turns, policy;
};

/*
 * Loads and proves a file, a program of the library, or a built-in one. Fails with -EPROTO and *err
 * if it is refused.
 */
int df_algo_load(const struct df_algo_args *a, const char *name, struct df_algo_file **out,
		 struct df_perr *err);

/* Prints that `name` cannot be used and why. Returns the exit status. */
int df_algo_refused(const char *name, const struct df_perr *err, int rc);
/* `dfshim algo verify`, `dfshim algo bench`. Return the exit status. */
int df_algo_verify(const struct df_algo_args *a);
int df_algo_bench(const struct df_algo_args *a);

#endif
