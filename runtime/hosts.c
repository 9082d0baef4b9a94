/*
 * Where the application's host threads are while nothing moves: in a lock, in a socket, asleep, running. A thread
 * that is in no call of ours would otherwise look free; the checker needs to know that it waits for somebody.
 * Read from /proc/self/task, so no thread is stopped or asked, and it costs nothing until a hang is looked into.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "runtime/rt.h"
#include "trace/writer.h"

#define THREADS_MAX 256
#define SAMPLES	    9 /* one alone could catch a waiting thread just when it looks up */
#define SAMPLE_NS   (6 * DF_NS_PER_MS)

static const struct {
	long nr;
	enum df_host_at at;
} calls[] = {
	{SYS_nanosleep, DF_AT_SLEEPS}, {SYS_clock_nanosleep, DF_AT_SLEEPS},
	{SYS_read, DF_AT_IO},	       {SYS_readv, DF_AT_IO},
	{SYS_write, DF_AT_IO},	       {SYS_recvfrom, DF_AT_IO},
	{SYS_recvmsg, DF_AT_IO},       {SYS_sendto, DF_AT_IO},
	{SYS_sendmsg, DF_AT_IO},       {SYS_accept, DF_AT_IO},
	{SYS_accept4, DF_AT_IO},       {SYS_connect, DF_AT_IO},
	{SYS_ppoll, DF_AT_IO},	       {SYS_pselect6, DF_AT_IO},
	{SYS_epoll_pwait, DF_AT_IO},
#ifdef SYS_poll
	{SYS_poll, DF_AT_IO},	       {SYS_select, DF_AT_IO},
	{SYS_epoll_wait, DF_AT_IO},
#endif
	{SYS_wait4, DF_AT_CHILD},      {SYS_waitid, DF_AT_CHILD},
};

/* "running", or the number of the system call and its arguments in hexadecimal. */
static enum df_host_at where(uint32_t tid, long *nr)
{
	char path[64], text[256];
	unsigned long arg[2];
	ssize_t n;
	unsigned i;
	int fd;

	*nr = -1;
	snprintf(path, sizeof(path), "/proc/self/task/%u/syscall", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return access("/proc/self/task", R_OK) ? DF_AT_UNKNOWN : DF_AT_GONE;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return DF_AT_UNKNOWN;
	text[n] = 0;
	if (!strncmp(text, "running", 7))
		return DF_AT_RUNS;
	if (sscanf(text, "%ld 0x%lx 0x%lx", nr, &arg[0], &arg[1]) != 3)
		return DF_AT_OTHER;
	if (*nr == SYS_futex)
		return arg[1] & FUTEX_PRIVATE_FLAG ? DF_AT_LOCK : DF_AT_SHARED;
	for (i = 0; i < DF_ARRAY_LEN(calls); i++)
		if (calls[i].nr == *nr)
			return calls[i].at;
	return DF_AT_OTHER;
}

/* A thread that sleeps between its questions is not asked for longer than this. */
#define POLL_MAX_NS (2 * DF_NS_PER_S)

static int note_polls(uint32_t tid)
{
	uint64_t window = (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS / 4, now = df_now_ns();
	uint32_t kinds[DF_POLLS_MAX];
	uint64_t objects[DF_POLLS_MAX];
	size_t nr = df_polls_of(tid, now - DF_MIN(window, POLL_MAX_NS), kinds, objects), i;

	for (i = 0; i < nr; i++)
		df_trace(DF_REC_HOST_AT, -1, 0, -1, i, tid,
			 (uint64_t)DF_AT_POLLS | (uint64_t)kinds[i] << 8, objects[i], 0);
	return nr > 0;
}

void df_hosts_note(void)
{
	uint8_t seen[THREADS_MAX][DF_AT_NR] = {{0}};
	uint32_t tids[THREADS_MAX];
	size_t nr = df_trace_threads(tids, THREADS_MAX), i;
	long call, last[THREADS_MAX];
	int k, at;

	for (k = 0; k < SAMPLES; k++) {
		for (i = 0; i < nr; i++) {
			at = where(tids[i], &call);
			seen[i][at]++;
			if (call >= 0 || !k)
				last[i] = call >= 0 ? call : 0;
		}
		if (k + 1 < SAMPLES && nr)
			df_sleep_ns(SAMPLE_NS);
	}
	for (i = 0; i < nr; i++) {
		if (!seen[i][DF_AT_GONE] && note_polls(tids[i]))
			continue;
		/* What it mostly was. Running counts less: whoever waits and looks up now and then, runs then. */
		for (at = DF_AT_RUNS, k = DF_AT_SLEEPS; k < DF_AT_NR; k++)
			if (seen[i][k] * 3 >= SAMPLES &&
			    (at == DF_AT_RUNS || seen[i][k] > seen[i][at]))
				at = k;
		if (at == DF_AT_RUNS && !seen[i][at])
			at = DF_AT_UNKNOWN;
		df_trace(DF_REC_HOST_AT, -1, 0, -1, 0, tids[i], (uint64_t)at, (uint64_t)last[i], 0);
		if (at == DF_AT_GONE) {
			df_trace_thread_gone(tids[i]);
			df_polls_gone(tids[i]);
		}
	}
}
