/* Examines the command line that `dfshim run` starts. */
#include "trace/cli/run/run_program.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "trace/cli/common/cli.h"

/* Finds the file that execvp() would start. Returns 0, or the error that execvp() would return. */
static int find(const char *name, char *file, size_t size)
{
	const char *path = strchr(name, '/') ? "" : getenv("PATH") ?: "", *end;
	struct stat st;
	int err = ENOENT;

	for (;; path = end + 1) {
		end = path + strcspn(path, ":");
		snprintf(file, size, "%.*s%s%s", (int)(end - path), path, end > path ? "/" : "",
			 name);
		/* A folder in PATH may contain a folder of this name. */
		if (!access(file, X_OK) && !stat(file, &st)) {
			if (!S_ISDIR(st.st_mode))
				return 0;
			errno = EACCES;
		}
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

char **df_run_torchrun(char **app)
{
	const char *name = strrchr(app[0], '/');

	if (!strcmp(name ? name + 1 : app[0], "torchrun"))
		return app + 1;
	return app[1] && app[2] && !strcmp(app[1], "-m") && !strcmp(app[2], "torch.distributed.run")
		       ? app + 3
		       : NULL;
}

static int is_one_of(const char *word, const char *const *words)
{
	while (*words && strcmp(word, *words))
		words++;
	return *words != NULL;
}

static int is_python_file(const char *word)
{
	size_t n = strlen(word);

	return n > 3 && !strcmp(word + n - 3, ".py");
}

/* Returns the file that torchrun's ranks run, or NULL if that is not certain. */
static const char *torchrun_file(char **args)
{
	static const char *const no_file[] = {"-m", "--module", "--no-python", "--no_python", NULL};
	static const char *const flags[] = {"--standalone", "--run-path", "--run_path", NULL};

	for (; *args && **args == '-'; args++) {
		if (is_one_of(*args, no_file))
			return NULL;
		if (strchr(*args, '=') || is_one_of(*args, flags))
			continue;
		/* The next word is a value, or the file behind a flag that is not known here. */
		if (!args[1] || is_python_file(args[1]))
			return NULL;
		args++;
	}
	return *args && is_python_file(*args) ? *args : NULL;
}

int df_run_missing(char **app)
{
	struct df_run_python py;
	char **args = df_run_torchrun(app);
	const char *program = args ? torchrun_file(args) : NULL;
	char file[PATH_MAX];
	int err = find(app[0], file, sizeof(file));

	if (err) {
		if (is_python_file(app[0]) && !access(app[0], F_OK))
			df_cli_input_error("run", app[0],
					   "is no program: start it with `python %s`", app[0]);
		else
			df_cli_input_error("run", app[0], "%s", strerror(err));
		return err == ENOENT ? 127 : 126;
	}
	if (!program && df_run_is_python(app, &py) && py.kind == 'f')
		program = py.program;
	if (program && access(program, F_OK)) {
		df_cli_input_error("run", program, "%s", strerror(errno));
		return 2;
	}
	return 0;
}
