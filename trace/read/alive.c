/*
 * Which processes of a set of traces are alive, and which of them reports first. Asks the operating
 * system. The judge does not, so it gets df_check_alive() as a parameter (df_check_opts.alive).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "trace/read/set.h"
#include "trace/record/writer.h"

int df_check_alive(const struct df_trace_header *h)
{
	static uint64_t boot;
	char path[64], exe[128];
	struct stat ns;
	ssize_t n;

	if (!boot)
		boot = df_trace_boot_hash();
	if (!boot || h->boot_hash != boot)
		return -1;
	/* Another container: the pid names another process here, or none. */
	if (h->pid_ns && !stat("/proc/self/ns/pid", &ns) && h->pid_ns != (uint64_t)ns.st_ino)
		return -1;
	if (kill((pid_t)h->pid, 0) && errno == ESRCH)
		return 0;
	/* The pid may have been reused: then the program's name differs. */
	snprintf(path, sizeof(path), "/proc/%u/exe", h->pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	if (n <= 0)
		return -1;
	exe[n] = 0;
	return !strncmp(exe, h->exe, sizeof(h->exe) - 1) ? 1 : 0;
}

static int comes_before(const struct df_trace_header *a, const struct df_trace_header *b)
{
	if (a->rank != b->rank)
		return a->rank < b->rank;
	if (a->host_hash != b->host_hash)
		return a->host_hash < b->host_hash;
	return a->pid < b->pid;
}

unsigned df_check_before(const struct df_check_set *set, const struct df_trace_header *me,
			 uint64_t *told_ns)
{
	unsigned nr = 0;

	*told_ns = 0;
	for (size_t i = 0; i < set->nr_traces; i++) {
		const struct df_trace_header *h = &set->traces[i].h;

		nr += !h->closed && comes_before(h, me) && df_check_alive(h);
		if (h->told && h->told_ns > *told_ns)
			*told_ns = h->told_ns;
	}
	return nr;
}

size_t df_check_gone(const struct df_check_set *set, uint64_t since_ns, uint64_t *hosts,
		     uint32_t *pids, size_t max)
{
	size_t nr = 0;

	for (size_t i = 0; i < set->nr_traces && nr < max; i++) {
		const struct df_trc *t = &set->traces[i];

		if (t->h.closed || t->last_ns < since_ns || df_check_alive(&t->h))
			continue;
		hosts[nr] = t->h.host_hash;
		pids[nr++] = t->h.pid;
	}
	return nr;
}
