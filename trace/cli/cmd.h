/*
 * The subcommands: one function each, in a file of its own. A subcommand gets its own name as
 * argv[0] and returns the exit status: 2 for wrong usage, 1 for unreadable input, otherwise as the
 * manual says. One thread.
 */
#ifndef DF_TRACE_CLI_CMD_H
#define DF_TRACE_CLI_CMD_H

/* Weak: a subcommand exists if the file that defines it is linked. */
#define DF_CMD(id, name, args, summary)                                                            \
	int df_cmd_##id(int argc, char **argv) __attribute__((weak));
#include "trace/cli/subcommands.def"
#undef DF_CMD

#endif
