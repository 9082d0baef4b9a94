/* Prints messages of subcommands: wrong usage, unreadable input, results, progress. One thread. */
#include "trace/cli/common/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clean_text.h"
#include "runtime/base/time.h"

int df_cli_usage_error(const char *sub, const char *fmt, ...)
{
	char text[PATH_MAX + 512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	df_text_clean(text, strlen(text));
	/* The wording is argp's. */
	fprintf(stderr,
		"dfshim%s%s: %s\n"
		"Try `dfshim%s%s --help' or `dfshim%s%s --usage' for more information.\n",
		*sub ? " " : "", sub, text, *sub ? " " : "", sub, *sub ? " " : "", sub);
	return 2;
}

int df_cli_input_error(const char *sub, const char *path, const char *fmt, ...)
{
	char name[PATH_MAX], text[PATH_MAX + 512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	df_text_clean(text, strlen(text));
	fprintf(stderr, "dfshim %s: %s: %s\n", sub, df_text_cleaned(path, name, sizeof(name)),
		text);
	return 1;
}

FILE *df_cli_create(const char *sub, const char *path)
{
	FILE *f = path ? fopen(path, "we") : stdout;

	if (!f)
		df_cli_input_error(sub, path, "%s", strerror(errno));
	return f;
}

int df_cli_close(const char *sub, const char *path, FILE *f, int rc)
{
	if (path ? fclose(f) : fflush(f))
		rc = rc ? rc : -errno;
	return rc ? df_cli_input_error(sub, path ?: "standard output", "%s", strerror(-rc)) : 0;
}

void df_cli_progress(const char *what, uint64_t done, uint64_t total)
{
	static uint64_t last_ns;
	static int drawn;
	char bar[31];
	uint64_t now;
	int i, n;

	if (!isatty(STDERR_FILENO))
		return;
	if (total && done >= total) {
		if (drawn)
			fputs("\r\033[K", stderr);
		drawn = 0;
		last_ns = 0;
		return;
	}
	now = df_now_ns();
	last_ns = last_ns ? last_ns : now; /* draws nothing for short work */
	if (now - last_ns < 100 * DF_NS_PER_MS)
		return;
	last_ns = now;
	drawn = 1;
	if (!total) {
		fprintf(stderr, "\r\033[K%s: %llu", what, (unsigned long long)done);
		return;
	}
	n = (int)((double)done / (double)total * 30);
	for (i = 0; i < 30; i++)
		bar[i] = i < n ? '#' : '.';
	bar[30] = '\0';
	fprintf(stderr, "\r\033[K%s [%s] %3d %%", what, bar,
		(int)(100.0 * (double)done / (double)total));
}
