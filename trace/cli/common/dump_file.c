/* See dump_file.h. */
#define _GNU_SOURCE
#include "trace/cli/common/dump_file.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "trace/cli/common/input.h"

int df_cli_dump_rank(const char *path)
{
	const char *end = path + strlen(path), *dot = strrchr(path, '.'), *p;

	if (dot && dot[1 + strspn(dot + 1, "abcdefghijklmnopqrstuvwxyz")] == 0)
		end = dot;
	for (p = end; p > path && isdigit((unsigned char)p[-1]); p--)
		;
	return p < end ? atoi(p) : -1;
}

/* Each dump has this key, and both forms have it as text. */
static const char key[] = "pg_config";

int df_cli_is_dump(const char *path, size_t bytes)
{
	const char *base = strrchr(path, '/'), *name = base ? base + 1 : path;
	int found = strstr(name, "trace_rank_") != NULL, fd;
	const unsigned char *p;

	if (df_cli_dump_rank(name) < 0)
		return 0;
	if (found || !bytes)
		return found;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	p = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return 0;
	if ((bytes > 2 && p[0] == 0x80 && p[1] <= 5) || memchr(p, '{', bytes < 16 ? bytes : 16))
		found = memmem(p, bytes, key, sizeof(key) - 1) != NULL;
	munmap((void *)p, bytes);
	return found;
}

static int is_one(void *arg, const char *path, const struct stat *st)
{
	(void)arg;
	return !df_cli_is_trace(path) && df_cli_is_dump(path, (size_t)st->st_size);
}

int df_cli_has_dumps(const char *path)
{
	return df_cli_walk(path, is_one, NULL) > 0;
}
