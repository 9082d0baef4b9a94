/* See thread.h. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>

#include "runtime/base/thread.h"

int df_thread_start(const char *name, size_t stack_bytes, void *(*run)(void *arg), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t t;
	int ret;

	pthread_attr_init(&attr);
	if (stack_bytes)
		pthread_attr_setstacksize(&attr, stack_bytes);
	/* Block the signals here, because the new thread inherits the mask. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = -pthread_create(&t, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (ret)
		return ret;
	/* Detached last: the end of a detached thread invalidates `t`. */
	if (name)
		pthread_setname_np(t, name);
	pthread_detach(t);
	return 0;
}
