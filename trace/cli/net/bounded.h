/*
 * Runs what may hang or crash, as drivers and plugins of others do, in a process of its own. seconds: then it is killed.
 * fill() writes into out (size bytes, without pointers), which the child starts with as the caller left it. 0;
 * -ETIMEDOUT; -EFAULT: it died; *signal says of what.
 */
#ifndef DF_CLI_NET_BOUNDED_H
#define DF_CLI_NET_BOUNDED_H

#include <stddef.h>

int df_bounded(void (*fill)(void *out), void *out, size_t size, double seconds, int *signal);

#endif
