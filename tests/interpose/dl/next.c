/* Two libraries are made of this; each wraps df_test_which() of the next by dlsym(RTLD_NEXT). */
#define _GNU_SOURCE
#include <dlfcn.h>

#ifndef LAST
int df_test_which(void)
{
	int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "df_test_which");

	return next ? 10 * next() + 1 : -1;
}

/* Not a tail call of dlsym: the address must be taken from this library all the same. */
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
