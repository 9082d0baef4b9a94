/* See connections.h. */
#include <stdlib.h>
#include <string.h>
#include "runtime/base/connections.h"
#include "runtime/base/env.h"
#include "runtime/base/lock.h"

#define VARIABLE "CUDA_DEVICE_MAX_CONNECTIONS"

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_LEAF, "connections");
static int nr_inside; /* calls that have begun and not ended */
static char *own;     /* the application's value, while it is replaced */

static int prevents(void)
{
	const char *mode = df_env_text(DF_ENV_ROW_mode);

	/* An invalid setting counts as unset. */
	return !mode || df_env_enum_index("prevent|trace|off", mode) <= 0;
}

void df_connections_default(void)
{
	if (prevents())
		setenv(VARIABLE, "32", 0);
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
	if (!--nr_inside && own) {
		setenv(VARIABLE, own, 1);
		free(own);
		own = NULL;
	}
	df_mutex_unlock(&lock);
}
