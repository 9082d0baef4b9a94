/* The call sites of `dfshim replay`: those of the program whose calls it repeats. */
#include <pthread.h>
#include <stdint.h>
#include "trace/record/site.h"

/*
 * From now on the calling thread's calls are recorded with this stack ("a <- b <- c", innermost
 * first); NULL: with their own. `dfshim replay` finds the function by its name. Any thread.
 */
__attribute__((visibility("default"))) void dfshim_repeats_call(const char *stack);

void dfshim_repeats_call(const char *stack)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	uint32_t site = 0;

	if (stack && *stack) {
		pthread_mutex_lock(&lock);
		site = df_trace_site_stack(stack);
		pthread_mutex_unlock(&lock);
	}
	df_trace_site_pretend(site);
}
