/* See thread.h. */
#define _GNU_SOURCE
#include <pthread.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "runtime/base/thread.h"

struct start {
	const char *name;
	void *(*run)(void *arg);
	void *arg;
};

/* Named before it does anything, so that it is never taken for a thread of the application. */
static void *run_named(void *arg)
{
	struct start s = *(struct start *)arg;

	free(arg);
	if (s.name)
		pthread_setname_np(pthread_self(), s.name);
	return s.run(s.arg);
}

int df_thread_start(const char *name, size_t stack_bytes, void *(*run)(void *arg), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	struct start *s = malloc(sizeof(*s));
	pthread_t t;
	int ret;

	if (!s)
		return -ENOMEM;
	*s = (struct start){name, run, arg};
	pthread_attr_init(&attr);
	if (stack_bytes)
		pthread_attr_setstacksize(&attr, stack_bytes);
	/* The thread inherits the mask. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = -pthread_create(&t, &attr, run_named, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (ret)
		free(s);
	else
		pthread_detach(t);
	return ret;
}
