/* Threads of our own, in a process whose signals belong to the application. Any thread. */
#ifndef DF_BASE_THREAD_H
#define DF_BASE_THREAD_H

#include <stddef.h>

/*
 * Starts a detached thread that blocks all signals, so that the application's handlers run on the
 * application's threads. name: at most 15 characters, see DF_OUR_THREADS; NULL: that of the
 * process. stack_bytes 0: the C library's choice. Returns 0 or -errno.
 */
int df_thread_start(const char *name, size_t stack_bytes, void *(*run)(void *arg), void *arg);

#endif
