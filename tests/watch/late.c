/*
 * A library for t_grown.sh, preloaded after dfshim's. In mode trace, the threads on which ranks
 * join the other processes (record_peers.c) start a second late. They alone have stacks of 256 KiB.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct start {
	void *(*run)(void *arg);
	void *arg;
};

static void *late(void *arg)
{
	struct start s = *(struct start *)arg;

	free(arg);
	sleep(1);
	return s.run(s.arg);
}

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *arg), void *arg)
{
	static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	struct start *s;
	size_t bytes = 0;

	if (!next)
		next = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
				void *))dlsym(RTLD_NEXT, "pthread_create");
	if (attr)
		pthread_attr_getstacksize(attr, &bytes);
	s = bytes == 1 << 18 ? malloc(sizeof(*s)) : NULL;
	if (!s)
		return next(t, attr, run, arg);
	*s = (struct start){run, arg};
	return next(t, attr, late, s);
}
