/* Finds folders and files of traces, for the subcommands. Errors are reported here, once. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/cli/common/cli.h"
#include "trace/cli/common/dump_file.h"
#include "trace/cli/common/input.h"
#include "trace/say/decided.h"
#include "runtime/base/vec.h"

static int push(char ***list, size_t *nr, size_t *cap, const char *path)
{
	char **slot = DF_VEC_ROOM(*list, *cap, *nr + 1) ? NULL : &(*list)[(*nr)];

	if (!slot || !(*slot = strdup(path)))
		return -ENOMEM;
	++*nr;
	return 0;
}

static int by_version(const void *a, const void *b)
{
	return strverscmp(*(char *const *)a, *(char *const *)b);
}

int df_cli_is_trace(const char *path)
{
	size_t n = strlen(path);

	return n > 4 && !strcmp(path + n - 4, ".dft");
}

static int walk(const char *dir, int depth,
		int (*file)(void *arg, const char *path, const struct stat *st), void *arg)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char path[PATH_MAX];
	struct stat st;
	int rc = 0;

	if (!d)
		return -errno;
	while (!rc && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (stat(path, &st))
			continue;
		if (S_ISDIR(st.st_mode) && depth)
			rc = walk(path, depth - 1, file, arg);
		else if (S_ISREG(st.st_mode))
			rc = file(arg, path, &st);
	}
	closedir(d);
	return rc;
}

int df_cli_walk(const char *path, int (*file)(void *arg, const char *path, const struct stat *st),
		void *arg)
{
	struct stat st;

	if (stat(path, &st))
		return -errno;
	return S_ISDIR(st.st_mode) ? walk(path, 3, file, arg) : file(arg, path, &st);
}

struct list {
	char **paths;
	size_t nr, cap;
	int all; /* whether to take files regardless of their names */
};

static int push_trace(void *arg, const char *path, const struct stat *st)
{
	struct list *l = arg;

	(void)st;
	return l->all || df_cli_is_trace(path) ? push(&l->paths, &l->nr, &l->cap, path) : 0;
}

static int is_trace(void *arg, const char *path, const struct stat *st)
{
	(void)arg;
	(void)st;
	return df_cli_is_trace(path);
}

int df_cli_has_traces(const char *path)
{
	return df_cli_walk(path, is_trace, NULL) > 0;
}

char **df_cli_trace_paths(const char *sub, int nr, char **paths, size_t *nr_out)
{
	struct list l = {0};
	struct stat st;

	for (int i = 0; i < nr; i++) {
		size_t before = l.nr;
		int rc, dumps = !df_cli_has_traces(paths[i]) && df_cli_has_dumps(paths[i]);

		l.all = !dumps && !stat(paths[i], &st) && !S_ISDIR(st.st_mode);
		rc = df_cli_walk(paths[i], push_trace, &l);
		if (!rc && dumps)
			df_cli_input_error(sub, paths[i],
					   "Flight Recorder dumps of PyTorch, no traces: use "
					   "`dfshim check`, or make traces of them first with "
					   "`dfshim import-fr`");
		else if (!rc && l.nr == before)
			df_cli_input_error(sub, paths[i], "no trace files (*.dft) in it");
		else if (rc)
			df_cli_input_error(sub, paths[i], "%s", strerror(-rc));
		if (rc || l.nr == before) {
			df_cli_paths_free(l.paths, l.nr);
			return NULL;
		}
	}
	qsort(l.paths, l.nr, sizeof(*l.paths), by_version);
	*nr_out = l.nr;
	return l.paths;
}

void df_cli_paths_free(char **paths, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		free(paths[i]);
	free(paths);
}

struct df_check_set *df_cli_load(const char *sub, int nr, char **paths)
{
	struct df_check_set *set;
	size_t n, failed = 0;
	char **list = df_cli_trace_paths(sub, nr, paths, &n);
	int rc;

	if (!list)
		return NULL;
	set = df_check_set_new();
	for (size_t i = 0; set && i < n; i++) {
		rc = df_check_add_file(set, list[i]);
		if (rc) {
			failed++;
			fprintf(stderr, "dfshim %s: %s\n", sub, df_check_error(set));
		}
		df_cli_progress("reading traces", i + 1, n);
	}
	df_cli_paths_free(list, n);
	/* An unreadable file counts as a rank without a trace, unless all files are unreadable. */
	if (set && failed == n) {
		df_check_set_free(set);
		return NULL;
	}
	return set;
}

struct df_check_result *df_cli_judge(const char *sub, int nr, char **paths,
				     const struct df_check_opts *opts)
{
	struct df_check_set *set = df_cli_load(sub, nr, paths);
	struct df_check_result *r = NULL;
	int rc;

	if (!set)
		return NULL;
	rc = df_check_run(set, opts, &r);
	df_check_set_free(set);
	if (!rc)
		df_decided_find(r);
	if (rc)
		df_cli_input_error(sub, paths[0], "%s", strerror(-rc));
	return rc ? NULL : r;
}

int df_cli_verdict(struct df_check_result *r, int json)
{
	int status = r ? df_verdict_exit(df_check_verdict(r)) : 1;

	if (r && json && df_check_print_json(r, stdout))
		status = df_cli_input_error("check", "standard output", "cannot be written");
	else if (r && !json)
		df_check_print(r, stdout);
	df_check_result_free(r);
	return status;
}
