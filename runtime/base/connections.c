/* See connections.h. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/connections.h"
#include "runtime/base/env.h"
#include "runtime/base/lock.h"

#define VARIABLE "CUDA_DEVICE_MAX_CONNECTIONS"

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_LEAF, "connections");
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int nr_inside; /* calls that have begun and not ended */
static char *own;     /* the application's value, while it is replaced */

static int prevents(void)
{
	const char *mode = df_env_text(DF_ENV_ROW_mode);

	/* An invalid setting counts as unset. */
	return !mode || df_env_enum_index("prevent|trace|off", mode) <= 0;
}

/* The application's value is back. */
static void restore(void)
{
	if (own)
		setenv(VARIABLE, own, 1);
	free(own);
	own = NULL;
}

/* Not while a thread has the lock, or changes the environment, whose lock libc does not reset. */
static void before_fork(void)
{
	df_mutex_lock(&lock);
}

static void after_fork_parent(void)
{
	df_mutex_unlock(&lock);
}

/* The threads that were in such calls do not exist in the child. */
static void after_fork_child(void)
{
	nr_inside = 0;
	restore();
	df_mutex_unlock(&lock);
}

static void install_fork(void)
{
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

void df_connections_default(void)
{
	if (prevents())
		setenv(VARIABLE, "32", 0);
	pthread_once(&fork_once, install_fork);
}

int df_connections(void)
{
	const char *now;
	int nr;

	if (prevents())
		return DF_CONNECTIONS;
	df_mutex_lock(&lock);
	now = getenv(VARIABLE);
	nr = now ? atoi(now) : 0;
	df_mutex_unlock(&lock);
	return nr > 0 ? nr : 0;
}

void df_connections_begin(void)
{
	const char *now;

	if (!prevents())
		return;
	df_mutex_lock(&lock);
	now = getenv(VARIABLE);
	if (!nr_inside++ && (!now || atoi(now) < DF_CONNECTIONS)) {
		/* Without memory the application loses its value, which is better than a hang. */
		own = now ? strdup(now) : NULL;
		setenv(VARIABLE, "32", 1);
	}
	df_mutex_unlock(&lock);
}

void df_connections_end(void)
{
	if (!prevents())
		return;
	df_mutex_lock(&lock);
	/* A call during which the process was forked ends in the child too. */
	if (nr_inside && !--nr_inside)
		restore();
	df_mutex_unlock(&lock);
}
