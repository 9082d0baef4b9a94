/*
 * DFSHIM_STATS: writes the counters of this process as one JSON line at exit, to stderr or to a
 * file.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/abi.h"
#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/comm/process.h"
#include "runtime/comm/stats.h"
#include "runtime/ctl/ctl.h"
#include "runtime/devs.h"
#include "runtime/transport/transport.h"

#define NR_SAMPLES 1024

static struct {
	uint32_t next;
	uint32_t ns[NR_SAMPLES];
} samples[DF_SAMPLE_NR];

void df_stats_sample(enum df_sample what, uint64_t ns)
{
	uint32_t at = __atomic_fetch_add(&samples[what].next, 1, __ATOMIC_RELAXED) % NR_SAMPLES;

	__atomic_store_n(&samples[what].ns[at], (uint32_t)DF_MIN(ns, UINT32_MAX), __ATOMIC_RELAXED);
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static unsigned long long median(enum df_sample what)
{
	uint32_t nr = DF_MIN(__atomic_load_n(&samples[what].next, __ATOMIC_RELAXED), NR_SAMPLES);
	uint32_t v[NR_SAMPLES], i;

	for (i = 0; i < nr; i++)
		v[i] = __atomic_load_n(&samples[what].ns[i], __ATOMIC_RELAXED);
	qsort(v, nr, sizeof(v[0]), by_size);
	return nr ? v[nr / 2] : 0;
}

void df_stats_live(struct df_stats_live *out)
{
	int i;
	uint32_t b;

	memset(out, 0, sizeof(*out));
	for (i = 0; i < df_rt.nr_devs; i++) {
		const struct df_dev *dev = &df_rt.devs[i];

		/* The counters are only figures, so no order is needed. */
		out->released += __atomic_load_n(&dev->released, __ATOMIC_RELAXED);
		for (b = 0; df_dev_used(dev) && b < dev->exec.d.nr_blocks; b++)
			out->preemptions += __atomic_load_n(&dev->exec.blocks[b].stats.preemptions,
							    __ATOMIC_RELAXED);
	}
	df_net_counts(&out->net);
}

void df_stats_write(void)
{
	const char *to = df_env()->stats;
	struct df_kstats sum = {0};
	uint64_t reordered = 0, recycled = 0, quits = 0;
	uint64_t messages, frames;
	struct df_stats_live live;
	uint32_t ranks = 0, b;
	char line[2048];
	int i, n, fd = 2, blocks = 0;

	if (!to || strcmp(to, "0") == 0 || !*to)
		return;
	for (i = 0; i < df_rt.nr_devs; i++) {
		struct df_dev *dev = &df_rt.devs[i];

		if (!dev->exec.used)
			continue;
		ranks++;
		blocks = (int)dev->exec.d.nr_blocks;
		/*
		 * Threads may still run while the process ends. The counters are only figures, so
		 * no order is needed.
		 */
		reordered += __atomic_load_n(&dev->reordered, __ATOMIC_RELAXED);
		recycled += __atomic_load_n(&dev->recycled, __ATOMIC_RELAXED);
		quits += __atomic_load_n(&dev->exec.quits, __ATOMIC_RELAXED);
		for (b = 0; b < dev->exec.d.nr_blocks; b++) {
			const struct df_kstats *s = &dev->exec.blocks[b].stats;

			sum.slices += s->slices;
			sum.operations += s->operations;
			sum.context_loads += s->context_loads;
			sum.context_saves += s->context_saves;
			sum.polls += s->polls;
			sum.refs += s->refs;
			sum.max_queue = DF_MAX(sum.max_queue, s->max_queue);
		}
	}
	df_ctl_counts(&messages, &frames);
	df_stats_live(&live);
	n = snprintf(line, sizeof(line),
		     "{\"pid\": %d, \"ranks\": %u, \"blocks\": %d, \"operations\": %llu, "
		     "\"slices\": %llu, \"preemptions\": %llu, \"context_loads\": %llu, "
		     "\"context_saves\": %llu, \"quits\": %llu, \"launches\": %llu, "
		     "\"releases\": %llu, \"reordered\": %llu, \"sqe_ns\": %llu, \"cqe_ns\": %llu, "
		     "\"max_queue\": %llu, \"recycled\": %llu, \"by_reference\": %llu, "
		     "\"connector_bytes\": %llu, \"messages\": %llu, "
		     "\"message_frames\": %llu, \"net_bytes_sent\": %llu, "
		     "\"net_bytes_received\": %llu, \"net_resent\": %llu, \"net_dropped\": %llu, "
		     "\"net_faults\": %llu, \"net_healed\": %llu, \"net_lost\": %llu, "
		     "\"net_reads_back\": %llu, \"net_landed\": %llu}\n",
		     (int)getpid(), ranks, blocks, (unsigned long long)sum.operations,
		     (unsigned long long)sum.slices, (unsigned long long)live.preemptions,
		     (unsigned long long)sum.context_loads, (unsigned long long)sum.context_saves,
		     (unsigned long long)quits, (unsigned long long)df_blocks->launches(),
		     (unsigned long long)live.released, (unsigned long long)reordered,
		     median(DF_SAMPLE_SQE), median(DF_SAMPLE_CQE),
		     (unsigned long long)sum.max_queue, (unsigned long long)recycled,
		     (unsigned long long)sum.refs, (unsigned long long)df_tl_most(),
		     (unsigned long long)messages, (unsigned long long)frames,
		     (unsigned long long)live.net.bytes_sent,
		     (unsigned long long)live.net.bytes_got, (unsigned long long)live.net.resent,
		     (unsigned long long)live.net.dropped, (unsigned long long)live.net.faults,
		     (unsigned long long)live.net.healed, (unsigned long long)live.net.lost,
		     (unsigned long long)live.net.reads_back, (unsigned long long)live.net.landed);
	if (strcmp(to, "1") != 0) {
		fd = df_log_open(to, O_APPEND);
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
