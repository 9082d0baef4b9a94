/*
 * Loading and unloading the library. Nothing here can fail or take time: the runtime starts at the
 * first NCCL call that needs it (front.c), and most processes of a job (shells, data loaders) never
 * make one. The child of a fork starts afresh, or calls are refused there if the parent had
 * started.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "interpose/load/front.h"
#include "interpose/nccl/nccl_group.h"
#include "runtime/base/dlsym.h"
#include "runtime/base/env.h"
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
	const char *mode = df_env_text(DF_ENV_ROW_mode),
		   *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");

	pthread_atfork(NULL, NULL, child);
	next_exit = df_dlsym(RTLD_NEXT, "_exit");
	/*
	 * The driver reads this once, at its first call. A stream that waits for a collective
	 * occupies a hardware queue; when none is left, nothing can be launched, not even the
	 * daemon. A job that sets fewer wants its kernels in the order of their launches;
	 * collectives without kernels do not affect that.
	 */
	if ((!mode || !strcmp(mode, "prevent")) && (!connections || atoi(connections) < 32))
		setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
}

__attribute__((destructor)) static void unloaded(void)
{
	if (df_front_unload())
		df_exit_status_enforce();
}

/*
 * Ends a process without destructors, as Python's multiprocessing ends its children. It is still a
 * normal exit, and is announced to the other ranks. Async-signal-safe.
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
