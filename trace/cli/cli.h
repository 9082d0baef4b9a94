/*
 * What the subcommands of `dfshim` share: one function each, in a file of its own, and a few words
 * to the user that should look the same everywhere.
 *
 * A subcommand gets argv[0] = its own name and returns the exit status: 2 for wrong usage, 1 for input
 * that can't be read, otherwise what the manual says. Results go to standard output, everything else
 * to standard error.
 */
#ifndef DF_CLI_H
#define DF_CLI_H

#include <stdint.h>

/* Weak: a subcommand exists if a file that defines it is linked. */
#define DF_CMD(id, name, args, summary)                                                            \
	int df_cmd_##id(int argc, char **argv) __attribute__((weak));
#include "trace/cli/subcommands.def"
#undef DF_CMD

/* "dfshim SUB: text", then where to find help. Returns 2. */
int df_cli_usage_error(const char *sub, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "dfshim SUB: path: text". Returns 1. */
int df_cli_input_error(const char *sub, const char *path, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * A progress bar on standard error where that is a terminal, nothing elsewhere. Call it as often as
 * convenient; it draws at most ten times a second. done == total erases it. total 0: unknown.
 */
void df_cli_progress(const char *what, uint64_t done, uint64_t total);

#endif
