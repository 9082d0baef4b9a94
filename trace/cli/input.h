/*
 * How the trace subcommands read their input: folders and files named on the command line.
 */
#ifndef DF_CLI_INPUT_H
#define DF_CLI_INPUT_H

#include <sys/stat.h>

#include "trace/check.h"

/* All of them in one set; on failure says which and why, and returns NULL. */
struct df_check_set *df_cli_load(const char *sub, int nr, char **paths);

/* The verdict over all of them. On failure says which and why, and returns NULL. */
struct df_check_result *df_cli_judge(const char *sub, int nr, char **paths,
				     const struct df_check_opts *opts);

/* Prints it, gives it back, and returns the verdict's exit status; 1 where r is NULL. */
int df_cli_verdict(struct df_check_result *r, int json);

/* Paths of all traces in the folders and files. NULL after an error was said. */
char **df_cli_trace_paths(const char *sub, int nr, char **paths, size_t *nr_out);
/* Calls file() with each regular file in the folder, or the file; stops at what is not 0, and returns it. */
int df_cli_walk(const char *path, int (*file)(void *arg, const char *path, const struct stat *st),
		void *arg);
/* By its name. */
int df_cli_is_trace(const char *path);
void df_cli_paths_free(char **paths, size_t nr);

#endif
