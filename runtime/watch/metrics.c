/*
 * Makes the text of the metrics. It has only counters, gauges, and one summary, so that parsers of
 * Prometheus' older text format (node_exporter's) read it too. Counts are those of the trace's
 * table of communicators and of DFSHIM_STATS. Durations are read from the ring
 * (trace/read/live/follow.h).
 *
 * The set of labels is bounded: the names of communicators by MAX_NAMES, all other labels by
 * tables.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "runtime/base/clean_text.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/futex.h"
#include "runtime/base/launcher.h"
#include "runtime/base/log.h"
#include "runtime/base/net/sockaddr.h"
#include "runtime/base/number.h"
#include "runtime/base/time.h"
#include "runtime/base/version.h"
#include "runtime/comm/stats.h"
#include "runtime/watch/metrics.h"
#include "trace/check.h"
#include "trace/read/live/follow.h"
#include "trace/record/names.h"
#include "trace/record/writer.h"

#define PERIOD_NS (5 * DF_NS_PER_S)
#define STOP_NS	  (5 * DF_NS_PER_S)
/* maximum number of names; further communicators are counted together as "other" */
#define MAX_NAMES 64

enum { RUNS, ENDS, ENDED };

static struct {
	int pid, bell;	     /* `bell` is a descriptor; it is set last, atomically */
	char path[PATH_MAX]; /* path of the file */
	uint64_t due;
	int said;	/* whether a failure to write was reported */
	uint32_t state; /* RUNS, ENDS, ENDED; a futex */
	struct df_follow follow;
} metrics = {.bell = -1};

/* ---- the text ------------------------------------------------------------------------------- */

/* All communicators of one name. */
struct row {
	char label[2 * DF_COMM_LABEL];
	uint64_t issued[DF_KIND_NR], bytes[DF_KIND_NR], took[DF_KIND_NR], ended[DF_KIND_NR];
	uint64_t done, oldest;
};

struct page {
	FILE *out;
	char rank[32];
	struct row rows[MAX_NAMES + 1];
	size_t nr;
};

/* Writes the name as the value of a label: cleaned, and escaped as the format asks for. */
static void label_of(const char *name, char *label, size_t size)
{
	char text[DF_COMM_LABEL];
	size_t n = 0;

	df_comm_label(name, text, sizeof(text));
	df_text_clean(text, strlen(text));
	for (const char *s = *text ? text : "unnamed"; *s && n + 3 <= size; s++) {
		if (*s == '\\' || *s == '"')
			label[n++] = '\\';
		label[n++] = *s;
	}
	label[n] = 0;
}

static struct row *row_of(struct page *p, const char *name)
{
	char label[sizeof(p->rows[0].label)];
	size_t i = 0;

	label_of(name, label, sizeof(label));
	while (i < p->nr && strcmp(p->rows[i].label, label))
		i++;
	if (i == p->nr && i < MAX_NAMES + 1) {
		p->nr++;
		strcpy(p->rows[i].label, i < MAX_NAMES ? label : "other");
	}
	return &p->rows[DF_MIN(i, MAX_NAMES)];
}

static uint64_t value(const struct df_map *m, uint64_t a, uint64_t b)
{
	const uint64_t *v = df_map_find(m, a, b);

	return v ? *v : 0;
}

static void collect(struct page *p)
{
	struct df_trace_count count;

	for (uint32_t comm = 1; df_trace_comm_count(comm, 0, &count); comm++) {
		struct row *row = row_of(p, count.name);
		uint64_t oldest = value(&metrics.follow.oldest, comm, 0);

		row->done += count.done;
		if (oldest && (!row->oldest || oldest < row->oldest))
			row->oldest = oldest;
		for (uint32_t k = 0; k < DF_KIND_NR; k++) {
			df_trace_comm_count(comm, k, &count);
			row->issued[k] += count.issued;
			row->bytes[k] += count.bytes;
			row->took[k] += value(&metrics.follow.took, comm, k);
			row->ended[k] += value(&metrics.follow.ended, comm, k);
		}
	}
}

static void family(struct page *p, const char *name, const char *type, const char *help)
{
	fprintf(p->out, "# TYPE dfshim_%s %s\n# HELP dfshim_%s %s\n", name, type, name, help);
}

static void counter(struct page *p, const char *name, const char *help, uint64_t v)
{
	family(p, name, "counter", help);
	fprintf(p->out, "dfshim_%s_total{rank=\"%s\"} %llu\n", name, p->rank,
		(unsigned long long)v);
}

static void sample(struct page *p, const char *name, const struct row *row, uint32_t kind)
{
	fprintf(p->out, "dfshim_%s{rank=\"%s\",communicator=\"%s\"", name, p->rank, row->label);
	if (kind < DF_KIND_NR)
		fprintf(p->out, ",kind=\"%s\"", df_kind_name(kind));
	fputs("} ", p->out);
}

static double seconds(uint64_t ns)
{
	return (double)ns / (double)DF_NS_PER_S;
}

static void say_operations(struct page *p)
{
	uint64_t now = df_trace_time();
	const struct row *end = p->rows + p->nr, *r;
	uint32_t k;

	family(p, "operations", "counter", "Operations that this rank has issued.");
	for (r = p->rows; r < end; r++)
		for (k = 0; k < DF_KIND_NR; k++)
			if (r->issued[k]) {
				sample(p, "operations_total", r, k);
				fprintf(p->out, "%llu\n", (unsigned long long)r->issued[k]);
			}
	family(p, "bytes", "counter",
	       "Bytes of these operations: the count of the call times the size of its type.");
	for (r = p->rows; r < end; r++)
		for (k = 0; k < DF_KIND_NR; k++)
			if (r->issued[k]) {
				sample(p, "bytes_total", r, k);
				fprintf(p->out, "%llu\n", (unsigned long long)r->bytes[k]);
			}
	family(p, "operations_finished", "counter", "Operations that have ended on this rank.");
	for (r = p->rows; r < end; r++) {
		sample(p, "operations_finished_total", r, DF_KIND_NR);
		fprintf(p->out, "%llu\n", (unsigned long long)r->done);
	}
	family(p, "operation_seconds", "summary",
	       "Time from the begin of an operation on this rank to its end. It is shortest on the "
	       "slowest rank, for which the others wait.");
	for (r = p->rows; r < end; r++)
		for (k = 0; k < DF_KIND_NR; k++)
			if (r->ended[k]) {
				sample(p, "operation_seconds_sum", r, k);
				fprintf(p->out, "%.9f\n", seconds(r->took[k]));
				sample(p, "operation_seconds_count", r, k);
				fprintf(p->out, "%llu\n", (unsigned long long)r->ended[k]);
			}
	family(p, "oldest_operation_seconds", "gauge",
	       "Time since the oldest unfinished operation was issued; 0: none is unfinished.");
	for (r = p->rows; r < end; r++) {
		sample(p, "oldest_operation_seconds", r, DF_KIND_NR);
		fprintf(p->out, "%.9f\n",
			seconds(r->oldest && now > r->oldest ? now - r->oldest : 0));
	}
}

static void say_verdict(struct page *p, const struct df_trace_header *ring)
{
	static const enum df_verdict all[] = {
		DF_V_OK,	DF_V_SLOW,	DF_V_ORDER,	    DF_V_RESOURCE, DF_V_SYNC,
		DF_V_DATA,	DF_V_MISSING,	DF_V_MISMATCH,	    DF_V_INIT,	   DF_V_CRASH,
		DF_V_GPU_STUCK, DF_V_NET_STALL, DF_V_NCCL_INTERNAL, DF_V_HOST,	   DF_V_UNKNOWN};
	uint32_t told = __atomic_load_n(&ring->told, __ATOMIC_RELAXED);

	family(p, "verdict", "gauge",
	       "1: the word of the last verdict on a hang that this process has reported.");
	for (size_t i = 0; i < DF_ARRAY_LEN(all); i++)
		fprintf(p->out, "dfshim_verdict{rank=\"%s\",word=\"%s\"} %d\n", p->rank,
			df_verdict_word(all[i]), told == (uint32_t)all[i] + 1);
	family(p, "verdict_timestamp_seconds", "gauge", "When that was; 0: never.");
	fprintf(p->out, "dfshim_verdict_timestamp_seconds{rank=\"%s\"} %.3f\n", p->rank,
		seconds(told ? __atomic_load_n(&ring->told_ns, __ATOMIC_RELAXED) : 0));
}

static void say(struct page *p, const struct df_trace_header *ring)
{
	DF_DECIMAL_POINT;
	struct df_stats_live live;

	if (ring->rank >= 0)
		snprintf(p->rank, sizeof(p->rank), "%d", ring->rank);
	else
		snprintf(p->rank, sizeof(p->rank), "pid %d", (int)getpid());
	df_stats_live(&live);
	family(p, "running", "gauge", "1 while the process runs, 0 after its normal exit.");
	fprintf(p->out, "dfshim_running{rank=\"%s\",mode=\"%s\",version=\"%s\"} %d\n", p->rank,
		ring->mode == DF_MODE_TRACE ? "trace" : "prevent", DF_VERSION,
		__atomic_load_n(&metrics.state, __ATOMIC_RELAXED) == RUNS);
	say_operations(p);
	counter(p, "preemptions", "How often the daemon left an operation for another one.",
		live.preemptions);
	counter(p, "releases", "Waits of the application that were released from a deadlock.",
		live.released);
	counter(p, "links", "Connections to other nodes that were made for the first time.",
		live.net.links);
	counter(p, "link_faults", "Connections to other nodes that broke.", live.net.faults);
	counter(p, "link_reconnections", "Broken connections that were restored.", live.net.healed);
	counter(p, "links_lost", "Peers on other nodes that were given up.", live.net.lost);
	counter(p, "network_sent_bytes", "Bytes of slices that were sent to other nodes.",
		live.net.bytes_sent);
	counter(p, "network_received_bytes", "Bytes of slices that arrived from other nodes.",
		live.net.bytes_got);
	say_verdict(p, ring);
	fputs("# EOF\n", p->out);
}

char *df_metrics_text(void)
{
	const struct df_trace_header *ring = df_trace_ring();
	struct page *p = ring ? calloc(1, sizeof(*p)) : NULL;
	char *text = NULL;
	size_t len = 0;

	if (!p)
		return NULL;
	/* If this fails, some durations are missing. */
	df_follow_step(&metrics.follow, ring);
	collect(p);
	p->out = open_memstream(&text, &len);
	if (p->out) {
		say(p, ring);
		fclose(p->out);
	}
	free(p);
	return text;
}

/* ---- the file ------------------------------------------------------------------------------- */

/* Replaces the file atomically, so that no reader sees a part of it. Returns 0 or -errno. */
static int replace(const char *text)
{
	size_t nr = strlen(text), at = 0;
	char fresh[PATH_MAX + 16];
	int fd, err = 0;

	snprintf(fresh, sizeof(fresh), "%s.%d", metrics.path, (int)getpid());
	unlink(fresh);
	fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	while (!err && at < nr) {
		ssize_t n = write(fd, text + at, nr - at);

		if (n >= 0)
			at += (size_t)n;
		else if (errno != EINTR)
			err = -errno;
	}
	if (close(fd) && !err)
		err = -errno;
	if (!err && rename(fresh, metrics.path))
		err = -errno;
	if (err)
		unlink(fresh);
	return err;
}

int df_metrics_turn(void)
{
	uint64_t now = df_now_ns(), rung = 0;
	uint32_t state;
	char *text;
	int err;

	if (metrics.bell < 0)
		return -1;
	if (read(metrics.bell, &rung, sizeof(rung)) < 0)
		rung = 0;
	/*
	 * The state is read after the bell, because df_metrics_stop() sets the state before it
	 * rings. ACQUIRE pairs with the RELEASE there: without it the text could lack something
	 * from before the stop.
	 */
	state = __atomic_load_n(&metrics.state, __ATOMIC_ACQUIRE);
	if (state == ENDED)
		return -1;
	if (now < metrics.due && !rung && state != ENDS)
		return (int)((metrics.due - now) / DF_NS_PER_MS) + 1;
	text = df_metrics_text();
	err = text ? replace(text) : -ENOMEM;
	free(text);
	if (err && !metrics.said++)
		df_warn("DFSHIM_METRICS=%s: cannot write %s: %s", df_env()->metrics, metrics.path,
			strerror(-err));
	metrics.due = now + PERIOD_NS;
	if (state == ENDS) {
		/*
		 * RELEASE pairs with the ACQUIRE in df_metrics_stop(): without it the process could
		 * end with an incomplete file.
		 */
		__atomic_store_n(&metrics.state, ENDED, __ATOMIC_RELEASE);
		df_futex_wake(&metrics.state, INT_MAX, 0);
	}
	return (int)(PERIOD_NS / DF_NS_PER_MS);
}

/* Returns the bell of this process, or -1. After fork() the child has no thread that reads it. */
static int own_bell(void)
{
	/*
	 * ACQUIRE pairs with the RELEASE in df_metrics_start(): without it the other fields might
	 * not be set.
	 */
	int bell = __atomic_load_n(&metrics.bell, __ATOMIC_ACQUIRE);

	return bell >= 0 && metrics.pid == getpid() ? bell : -1;
}

void df_metrics_soon(void)
{
	uint64_t one = 1;
	int saved = errno, bell = own_bell();

	/* Fails only if the bell's counter is full. Then the thread wakes anyway. */
	if (bell >= 0 && write(bell, &one, sizeof(one)) < 0)
		errno = saved;
	errno = saved;
}

void df_metrics_stop(void)
{
	uint64_t until = df_now_ns() + STOP_NS;
	uint32_t runs = RUNS;

	if (own_bell() < 0)
		return;
	/* RELEASE pairs with the ACQUIRE in df_metrics_turn(), which says why. */
	__atomic_compare_exchange_n(&metrics.state, &runs, ENDS, 0, __ATOMIC_RELEASE,
				    __ATOMIC_RELAXED);
	df_metrics_soon();
	/* ACQUIRE pairs with the RELEASE in df_metrics_turn(), which says why. */
	while (__atomic_load_n(&metrics.state, __ATOMIC_ACQUIRE) == ENDS && df_now_ns() < until)
		df_futex_wait(&metrics.state, ENDS, 100 * DF_NS_PER_MS, 0);
}

/* ---- start ---------------------------------------------------------------------------------- */

/* Returns a listening socket on loopback, or -1. */
static int listen_at(long port)
{
	union df_sockaddr addr;
	char text[32];
	int fd, one = 1;

	snprintf(text, sizeof(text), "127.0.0.1:%ld", port);
	fd = df_addr_parse(text, &addr, 0)
		     ? -1
		     : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (!bind(fd, &addr.sa, df_addr_len(&addr)) && !listen(fd, 16)) {
			df_info("metrics at http://%s/metrics", text);
			return fd;
		}
	}
	df_warn("DFSHIM_METRICS=%s: cannot listen at %s: %s; the job has no metrics",
		df_env()->metrics, text, strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}

/*
 * Inserts the rank before the suffix of the path, because several processes would otherwise write
 * to one file.
 */
static int with_rank(char *path, size_t size, int rank)
{
	char *name = strrchr(path, '/'), *dot = strrchr(name, '.'), end[NAME_MAX + 1];

	if (!dot)
		dot = name + strlen(name);
	if (strlen(dot) >= sizeof(end))
		return -ENAMETOOLONG;
	strcpy(end, dot);
	return snprintf(dot, size - (size_t)(dot - path), "-%d%s", rank, end) <
			       (int)(size - (size_t)(dot - path))
		       ? 0
		       : -ENAMETOOLONG;
}

/* Sets metrics.path. Returns 0 if the setting cannot be used. */
static int name_file(const char *to)
{
	int world, rank = df_launcher_rank(&world);

	if (*to != '/') {
		df_warn("DFSHIM_METRICS=%s is neither a port (1 to 65535) nor an absolute path: "
			"the job has no metrics",
			to);
		return 0;
	}
	if (df_env_expand(metrics.path, sizeof(metrics.path), to, rank) ||
	    (world > 1 && !strstr(to, "%p") && !strstr(to, "%r") &&
	     with_rank(metrics.path, sizeof(metrics.path), rank))) {
		metrics.path[0] = 0;
		df_warn("DFSHIM_METRICS=%.100s...: the name is too long; the job has no metrics",
			to);
		return 0;
	}
	return 1;
}

int df_metrics_start(int *listener, int *bell)
{
	const char *to = df_env()->metrics;
	char *end;
	long port;

	*listener = *bell = -1;
	if (!to || !*to)
		return 0;
	port = strtol(to, &end, 10);
	if (!*end && port > 0 && port <= 65535) {
		*listener = listen_at(port + df_launcher_local_rank());
		return *listener >= 0;
	}
	if (!name_file(to))
		return 0;
	metrics.pid = getpid();
	*bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	/*
	 * RELEASE pairs with the ACQUIRE in own_bell(): without it path and pid might not be set
	 * there.
	 */
	__atomic_store_n(&metrics.bell, *bell, __ATOMIC_RELEASE);
	if (*bell < 0)
		df_warn("DFSHIM_METRICS=%s: %m; the job has no metrics", to);
	return *bell >= 0;
}
