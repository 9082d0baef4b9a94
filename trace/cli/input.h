/*
 * How the trace subcommands read their input: folders and files named on the command line.
 */
#ifndef DF_CLI_INPUT_H
#define DF_CLI_INPUT_H

#include "trace/check.h"

/* All of them in one set; on failure says which and why, and returns NULL. */
struct df_check_set *df_cli_load(const char *sub, int nr, char **paths);

/* Paths of all traces in the folders and files. NULL after an error was said. */
char **df_cli_trace_paths(const char *sub, int nr, char **paths, size_t *nr_out);
void df_cli_paths_free(char **paths, size_t nr);

#endif
