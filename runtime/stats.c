/*
 * DFSHIM_STATS: the counters of this process as one JSON line at exit, on stderr or appended to a file.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "runtime/rt.h"

/* Median cost of a submission and of taking note of a completion, sampled by submit.c and daemon.c. */
void df_stats_write(void)
{
	const char *to = df_env()->stats;
	struct df_kstats sum = { 0 };
	uint64_t released = 0, reordered = 0, quits = 0;
	uint32_t ranks = 0, b;
	char line[1024];
	int i, n, fd = 2, blocks = 0;

	if (!to || strcmp(to, "0") == 0 || !*to)
		return;
	for (i = 0; i < df_rt.nr_devs; i++) {
		struct df_dev *dev = &df_rt.devs[i];

		if (!dev->used)
			continue;
		ranks++;
		blocks = (int)dev->d.nr_blocks;
		released += dev->released;
		reordered += dev->reordered;
		quits += dev->quits;
		for (b = 0; b < dev->d.nr_blocks; b++) {
			const struct df_kstats *s = &dev->blocks[b].stats;

			sum.slices += s->slices;
			sum.operations += s->operations;
			sum.preemptions += s->preemptions;
			sum.context_loads += s->context_loads;
			sum.context_saves += s->context_saves;
			sum.polls += s->polls;
			sum.max_queue = DF_MAX(sum.max_queue, s->max_queue);
		}
	}
	n = snprintf(line, sizeof(line),
		     "{\"pid\": %d, \"ranks\": %u, \"blocks\": %d, \"operations\": %llu, "
		     "\"slices\": %llu, \"preemptions\": %llu, \"context_loads\": %llu, "
		     "\"context_saves\": %llu, \"quits\": %llu, \"launches\": %llu, "
		     "\"releases\": %llu, \"reordered\": %llu, \"sqe_ns\": %llu, \"cqe_ns\": %llu, "
		     "\"max_queue\": %llu}\n",
		     (int)getpid(), ranks, blocks, (unsigned long long)sum.operations,
		     (unsigned long long)sum.slices, (unsigned long long)sum.preemptions,
		     (unsigned long long)sum.context_loads, (unsigned long long)sum.context_saves,
		     (unsigned long long)quits, (unsigned long long)df_engine_launches(),
		     (unsigned long long)released, (unsigned long long)reordered,
		     (unsigned long long)df_rt.sqe_ns, (unsigned long long)df_rt.cqe_ns,
		     (unsigned long long)sum.max_queue);
	if (strcmp(to, "1") != 0) {
		fd = open(to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
		if (fd < 0) {
			df_warn("DFSHIM_STATS=%s: %m", to);
			return;
		}
	}
	if (write(fd, line, (size_t)n) != n)
		df_warn("DFSHIM_STATS=%s: not written: %m", to);
	if (fd != 2)
		close(fd);
}
