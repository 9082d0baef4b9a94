#define _GNU_SOURCE
#include "runtime/base/exit_status.h"

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ends_with, failed, failed_pid;
/* number of errors not yet acknowledged, and the status of the latest */
static int nr_unheard, unheard;

void df_exit_status_is(int status)
{
	/*
	 * RELAXED: readers are on the same thread, or are ordered after this store by other means.
	 * The child of vfork() writes to the parent's memory; the parent overwrites the value when
	 * it exits.
	 */
	__atomic_store_n(&ends_with, status & 0xff, __ATOMIC_RELAXED);
}

/* As exit() does: fflush(NULL) would wait for a thread that reads from a file. */
static void flush_all(void)
{
	fcloseall();
}

/*
 * The program fails while it has communicators that ended without its doing. Threads of libraries
 * that used them, for example PyTorch's watchdog, still run, and would use what exit handlers and
 * destructors free. So the process ends before these.
 */
static void leave(int status, void *arg)
{
	(void)arg;
	if (!status || !df_exit_status_instead(0))
		return;
	flush_all();
	_exit(status);
}

/* Registers leave() so late that it is called before the handlers of all libraries. */
static void leave_early(void)
{
	static int registered;

	if (!__atomic_exchange_n(&registered, 1, __ATOMIC_RELAXED))
		(void)on_exit(leave, NULL);
}

void df_exit_status_failed(int status)
{
	int none = 0;

	leave_early();
	__atomic_store_n(&failed_pid, getpid(), __ATOMIC_RELAXED);
	__atomic_compare_exchange_n(&failed, &none, status, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void df_exit_status_unheard(int status)
{
	leave_early();
	__atomic_store_n(&failed_pid, getpid(), __ATOMIC_RELAXED);
	__atomic_store_n(&unheard, status, __ATOMIC_RELAXED);
	__atomic_add_fetch(&nr_unheard, 1, __ATOMIC_RELAXED);
}

void df_exit_status_heard(void)
{
	__atomic_sub_fetch(&nr_unheard, 1, __ATOMIC_RELAXED);
}

int df_exit_status_instead(int status)
{
	status &= 0xff;
	/* A forked child inherits these variables, but the failures are its parent's. */
	if (status || __atomic_load_n(&failed_pid, __ATOMIC_RELAXED) != getpid())
		return status;
	if (__atomic_load_n(&nr_unheard, __ATOMIC_RELAXED) > 0)
		status = __atomic_load_n(&unheard, __ATOMIC_RELAXED);
	return __atomic_load_n(&failed, __ATOMIC_RELAXED) ?: status;
}

static void seen(int status, void *arg)
{
	(void)arg;
	df_exit_status_is(status);
}

void df_exit_status_watch(void)
{
	static int watched;

	if (!__atomic_exchange_n(&watched, 1, __ATOMIC_RELAXED))
		(void)on_exit(seen, NULL);
}

int df_exit_status(void)
{
	return df_exit_status_instead(__atomic_load_n(&ends_with, __ATOMIC_RELAXED));
}

void df_exit_status_enforce(void)
{
	int said = __atomic_load_n(&ends_with, __ATOMIC_RELAXED), status = df_exit_status();

	if (status == said)
		return;
	flush_all();
	df_exit_now(status);
}

static void flush(FILE *f)
{
	struct pollfd p = {.fd = fileno(f), .events = POLLOUT};

	if (ftrylockfile(f))
		return;
	if (poll(&p, 1, 0) == 1 && p.revents == POLLOUT)
		fflush(f);
	funlockfile(f);
}

void df_exit_now(int status)
{
	flush(stdout);
	flush(stderr);
	for (;;)
		syscall(SYS_exit_group, status);
}
