/* Examines the command line that `dfshim run` starts. */
#include "trace/cli/run/run_program.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Finds the file that execvp() would start. Returns 0, or the error that execvp() would return. */
static int find(const char *name, char *file, size_t size)
{
	const char *path = strchr(name, '/') ? "" : getenv("PATH") ?: "", *end;
	int err = ENOENT;

	for (;; path = end + 1) {
		end = path + strcspn(path, ":");
		snprintf(file, size, "%.*s%s%s", (int)(end - path), path, end > path ? "/" : "",
			 name);
		if (!access(file, X_OK))
			return 0;
		if (errno == EACCES)
			err = EACCES;
		if (!*end)
			return err;
	}
}

/*
 * Whether the program that execvp() would start can be asked: machine code, or pyenv's script that
 * leads to it. Another script named python would run its job to answer.
 */
static int may_ask(const char *name)
{
	char file[PATH_MAX], head[1024];
	size_t n;
	FILE *f;

	if (find(name, file, sizeof(file)))
		return 0;
	f = fopen(file, "re");
	n = f ? fread(head, 1, sizeof(head) - 1, f) : 0;
	head[n] = '\0';
	if (f)
		fclose(f);
	return !strncmp(head, "\177ELF", 4) || strstr(head, "pyenv");
}

int df_run_is_python(char **app, struct df_run_python *py)
{
	const char *name = strrchr(app[0], '/') ? strrchr(app[0], '/') + 1 : app[0];
	const char *p;
	int i;

	if (strncmp(name, "python", 6) || name[6 + strspn(name + 6, "0123456789.")] ||
	    !may_ask(app[0]))
		return 0;
	for (i = 1; app[i]; i++) {
		py->nr_options = i;
		if (app[i][0] != '-') {
			py->kind = 'f';
			py->program = app[i];
			return 1;
		}
		if (!app[i][1] || app[i][1] == '-')
			return 0;
		for (p = app[i] + 1; *p; p++) {
			if (*p == 'c' || *p == 'm') {
				py->kind = *p;
				py->program = p[1] ? p + 1 : app[i + 1];
				return py->program != NULL;
			}
			if (strchr("WX", *p)) {
				i += !p[1];
				break;
			}
			if (!strchr("bBdOPqRsu", *p))
				return 0;
		}
		if (!app[i])
			return 0;
	}
	return 0;
}

int df_run_missing(char **app)
{
	struct df_run_python py;
	char file[PATH_MAX];
	int err = find(app[0], file, sizeof(file));

	if (err) {
		fprintf(stderr, "dfshim run: %s: %s\n", app[0], strerror(err));
		return err == ENOENT ? 127 : 126;
	}
	if (df_run_is_python(app, &py) && py.kind == 'f' && access(py.program, F_OK)) {
		fprintf(stderr, "dfshim run: %s: %s\n", py.program, strerror(errno));
		return 2;
	}
	return 0;
}
