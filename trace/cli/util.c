/* What subcommands say to the user: wrong usage, unreadable input, progress. One thread. */
#include "trace/cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/time.h"

int df_cli_usage_error(const char *sub, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "dfshim %s: ", sub);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nTry 'dfshim %s --help'.\n", sub);
	return 2;
}

int df_cli_input_error(const char *sub, const char *path, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "dfshim %s: %s: ", sub, path);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return 1;
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
		return;
	}
	now = df_now_ns();
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
