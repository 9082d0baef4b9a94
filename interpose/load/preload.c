/*
 * Loading and unloading the library. Nothing here can fail or take time: the runtime starts at the
 * first NCCL call that needs it (real/front.c), and most processes of a job (shells, data loaders)
 * never make one. The child of a fork starts anew if the parent had not started the runtime.
 * Otherwise calls are refused in the child.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_group.h"
#include "runtime/base/connections.h"
#include "runtime/base/dlsym.h"
#include "runtime/base/exit_status.h"
#include "runtime/dfshim.h"

static void (*next_exit)(int status);

static void child(void)
{
	df_group_forked();
	df_front_forked();
}

__attribute__((constructor)) static void loaded(void)
{
	pthread_atfork(NULL, NULL, child);
	next_exit = df_dlsym(RTLD_NEXT, "_exit");
	df_connections_default();
}

__attribute__((destructor)) static void unloaded(void)
{
	if (df_front_unload())
		df_exit_status_enforce();
}

/*
 * Ends the process without destructors, as Python's multiprocessing ends its children. The exit is
 * a normal one, and is announced to the other ranks. A signal handler may call this function,
 * because it waits for no lock.
 */
__attribute__((visibility("default"), noreturn)) void _exit(int status)
{
	df_exit_status_is(status);
	df_front_unload();
	df_stop_at_exit();
	status = df_exit_status_instead(status);
	if (next_exit)
		next_exit(status);
	for (;;)
		syscall(SYS_exit_group, status);
}

__attribute__((visibility("default"), noreturn)) void _Exit(int status)
{
	_exit(status);
}
