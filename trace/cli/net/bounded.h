/*
 * Runs code that may hang or crash, such as other vendors' drivers and plugins, in a child process,
 * which is killed after `seconds`. fill() writes into out (size bytes, without pointers); the child
 * starts with the caller's contents. Fails with -ETIMEDOUT, or with -EFAULT and *signal if it died.
 */
#ifndef DF_CLI_NET_BOUNDED_H
#define DF_CLI_NET_BOUNDED_H

#include <stddef.h>

int df_bounded(void (*fill)(void *out), void *out, size_t size, double seconds, int *signal);

#endif
