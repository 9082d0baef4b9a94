/*
 * A library with all names of NCCL 2.28.9, from the table. Each function appends its name to the
 * file $FAKE_NCCL_LOG and returns success. Communicators begin with NCCL's magic number.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "interpose/nccl/nccl_types.h"
#include "runtime/base/err.h"

static char zeros[64];

__attribute__((visibility("hidden"))) void fake_nccl_called(const char *name)
{
	const char *path = getenv("FAKE_NCCL_LOG");
	char line[96];
	int fd, n;

	if (!path)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	n = snprintf(line, sizeof(line), "%s\n", name);
	if (fd < 0 || write(fd, line, (size_t)n) != n)
		abort();
	close(fd);
}

#define EXPORT __attribute__((visibility("default"), weak))
#define NCCL_FN(since, kind, result, name, params, args)                                           \
	DF_DEFINED_OR(NEW_##since, FN)(result, name, params, args)
#define FN(result, name, params, args)                                                             \
	EXPORT result p##name params                                                               \
	{                                                                                          \
		fake_nccl_called(#name);                                                           \
		return *(result *)zeros;                                                           \
	}                                                                                          \
	EXPORT result name params                                                                  \
	{                                                                                          \
		return p##name args;                                                               \
	}
#define NONE(...)
#define NEW_22902 , NONE
#define NEW_22907 , NONE
#define NEW_23004 , NONE
#define NEW_23102 , NONE
#define NEW_23203 , NONE
#include "interpose/nccl/nccl_api.def"
