/*
 * Checks files and shared memory against the limit on file size (RLIMIT_FSIZE, `ulimit -f`). The
 * kernel kills a process that exceeds it (SIGXFSZ), so a library has to check before it grows a
 * file. Sizes in bytes; thread-safe; never blocks.
 */
#ifndef DF_BASE_FILE_SIZE_H
#define DF_BASE_FILE_SIZE_H

#include <errno.h>
#include <stdint.h>
#include <sys/resource.h>
#include "runtime/base/log.h"

/*
 * Returns 0, or -EFBIG if the file would exceed the limit. Warns once, with `what` as the purpose.
 */
static inline int df_file_fits(uint64_t bytes, const char *what)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_FSIZE, &l) || l.rlim_cur == RLIM_INFINITY || bytes <= l.rlim_cur)
		return 0;
	df_warn_once(
		"%s of %llu MiB is more than this process may write to a file (%llu KiB): raise "
		"the limit (ulimit -f)",
		what, (unsigned long long)(bytes >> 20), (unsigned long long)(l.rlim_cur >> 10));
	return -EFBIG;
}

#endif
