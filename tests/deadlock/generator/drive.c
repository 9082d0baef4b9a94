/*
 * Starts the client on scripts (drive.h). Sets the variables in this process, which loads nothing
 * of dfshim.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "drive.h"
#include "label.h"
#include "runtime/base/time.h"

char build[400], scratch[400];

void drive_init(void)
{
	const char *b = getenv("B"), *t = getenv("T");

	snprintf(build, sizeof(build), "%s", b ? b : "build");
	snprintf(scratch, sizeof(scratch), "%s", t ? t : "/tmp");
}

double now(void)
{
	return 1e-9 * (double)df_now_ns();
}

static void set(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void set(const char *name, const char *fmt, ...)
{
	char text[1000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	setenv(name, text, 1);
}

static void set_or_not(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

pid_t drive_start(const struct drive *d)
{
	char client[500], timeout[16], still[16];
	char *argv[] = {client, "--timeout", timeout, "--still", still, (char *)d->script, NULL};
	posix_spawn_file_actions_t files;
	pid_t pid;
	int err;

	snprintf(client, sizeof(client), "%s/tests/deadlock/interpreter/script", build);
	snprintf(timeout, sizeof(timeout), "%.2f", d->timeout);
	snprintf(still, sizeof(still), "%.2f", d->still);
	set("DFSHIM_MODE", d->by_nccl ? "trace" : "prevent");
	set("LD_PRELOAD",
	    d->by_nccl ? "%s/libdfshim.so %s/libdfhost.so %s/libdfnccl.so"
		       : "%s/libdfshim.so %s/libdfhost.so",
	    build, build, build);
	set("DFSHIM_BACKEND", "host");
	set("DFSHIM_HOST_DEVICES", "%d", d->devices);
	set("DFSHIM_HOST_SLOTS", "%d", d->slots);
	set("DFSHIM_HOST_QUEUES", "%d", d->queues);
	set("DFSHIM_TIMEOUT_MS", "%ld", d->timeout_ms);
	set("DFSHIM_TIMEOUT_ACTION", d->goes_on ? "report" : "abort");
	/* Short programs run for as short a time as a large trace takes to allocate. */
	set("DFSHIM_TRACE_MB", "%d", d->trace_mb);
	set("DFSHIM_SLOT_KB", "%d", SLOT_KB);
	set_or_not("DFSHIM_RELEASE", d->release);
	set_or_not("DFSHIM_TRACE", d->trace);
	set("CLIENT", "%s", client);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 1, d->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	posix_spawn_file_actions_adddup2(&files, 1, 2);
	err = posix_spawn(&pid, client, &files, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	if (!err)
		return pid;
	fprintf(stderr, "%s: %s\n", client, strerror(err));
	exit(2);
}
