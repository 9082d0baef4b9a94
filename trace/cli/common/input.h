/* Reads the input of the trace subcommands: folders and files named on the command line. */
#ifndef DF_CLI_INPUT_H
#define DF_CLI_INPUT_H

#include <sys/stat.h>

#include "trace/check.h"

/* Loads all traces of these paths into one set. Returns NULL after a message. */
struct df_check_set *df_cli_load(const char *sub, int nr, char **paths);

/* Makes the verdict over all traces of these paths. Returns NULL after a message. */
struct df_check_result *df_cli_judge(const char *sub, int nr, char **paths,
				     const struct df_check_opts *opts);

/* Prints the verdict, frees it, and returns its exit status; 1 if r is NULL. */
int df_cli_verdict(struct df_check_result *r, int json);

/*
 * Returns the paths of all traces in the folders and files, or NULL after a message. The caller
 * releases them with df_cli_paths_free().
 */
char **df_cli_trace_paths(const char *sub, int nr, char **paths, size_t *nr_out);
/*
 * Calls file() with each regular file in the folder, or with the file. Stops at the first result
 * that is not 0, and returns it.
 */
int df_cli_walk(const char *path, int (*file)(void *arg, const char *path, const struct stat *st),
		void *arg);
/* Whether the name is that of a trace. */
int df_cli_is_trace(const char *path);
/* Whether the folder, or one below it, has a trace. */
int df_cli_has_traces(const char *path);
void df_cli_paths_free(char **paths, size_t nr);

#endif
