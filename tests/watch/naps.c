/*
 * A library for t_exit.sh, preloaded after dfshim's. It counts the naps of 5 ms in which a process
 * that exits waits for the answers of others (df_ctl_goodbye()), and prints the number at the end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

static unsigned long naps;

int nanosleep(const struct timespec *ts, struct timespec *left)
{
	static int (*next)(const struct timespec *, struct timespec *);

	if (!next)
		next = (int (*)(const struct timespec *, struct timespec *))dlsym(RTLD_NEXT,
										  "nanosleep");
	if (!ts->tv_sec && ts->tv_nsec == 5000000)
		__atomic_add_fetch(&naps, 1, __ATOMIC_RELAXED);
	return next(ts, left);
}

__attribute__((destructor)) static void print(void)
{
	fprintf(stderr, "naps: %lu\n", __atomic_load_n(&naps, __ATOMIC_RELAXED));
}
