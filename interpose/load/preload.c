/*
 * Loading and unloading the library. Nothing here can fail or take time: the runtime starts at the
 * first NCCL call that needs it (real/front.c), and most processes of a job (shells, data loaders)
 * never make one. The child of a fork starts anew if the parent had not started the runtime.
 * Otherwise calls are refused in the child.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_group.h"
#include "runtime/base/connections.h"
#include "runtime/base/dlsym.h"
#include "runtime/base/env.h"
#include "runtime/base/exit_status.h"
#include "runtime/dfshim.h"

static void (*next_exit)(int status);

/*
 * Appends a line to the file by which `dfshim ci` explains a job without a trace. A program's line
 * is written when it is loaded, because a killed process writes none at its end.
 */
static void note(const char *path)
{
	const char *file = getenv(df_env_name(DF_ENV_ROW_loaded_file));
	char line[PATH_MAX + 1];
	int n, fd = file && *file ? open(file, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	n = snprintf(line, sizeof(line), "%s\n", path);
	/* If this fails, the explanation knows less. */
	if (n < (int)sizeof(line))
		(void)!write(fd, line, (size_t)n);
	close(fd);
}

static void note_program(void)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n <= 0)
		return;
	path[n] = '\0';
	note(path);
}

static int note_torch(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *base = strrchr(info->dlpi_name, '/');

	(void)size;
	(void)arg;
	if (base && (!strcmp(base, "/libtorch_cuda.so") || !strcmp(base, "/libtorch_cpu.so")))
		note(info->dlpi_name);
	return 0;
}

static void note_libraries(void)
{
	if (getenv(df_env_name(DF_ENV_ROW_loaded_file)))
		dl_iterate_phdr(note_torch, NULL);
}

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
	note_program();
}

__attribute__((destructor)) static void unloaded(void)
{
	note_libraries();
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
