/*
 * Preloaded before libdfshim.so, for t_driven.sh. pthread_create() fails for threads whose function
 * is at the offset REFUSED_THREAD of its library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	const char *refused = getenv("REFUSED_THREAD");
	Dl_info info;

	*(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
	if (refused && dladdr(*(void **)&fn, &info) &&
	    (char *)*(void **)&fn - (char *)info.dli_fbase == strtol(refused, NULL, 16))
		return EAGAIN;
	return real(t, attr, fn, arg);
}
