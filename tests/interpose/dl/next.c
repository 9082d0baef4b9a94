/* The source of two libraries. One wraps df_test_which() of the other by dlsym(RTLD_NEXT). */
#define _GNU_SOURCE
#include <dlfcn.h>

#ifndef LAST
int df_test_which(void)
{
	int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "df_test_which");

	return next ? 10 * next() + 1 : -1;
}

/*
 * RTLD_NEXT starts at the library that contains the return address. So this must be no tail call:
 * the libraries are built without optimisation.
 */
void *df_test_next_allreduce(void)
{
	return dlsym(RTLD_NEXT, "ncclAllReduce");
}
#else
int df_test_which(void)
{
	return 7;
}
#endif
