#define _GNU_SOURCE
#include "runtime/watch/hardware.h"

#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clean_text.h"
#include "runtime/base/err.h"
#include "runtime/base/futex.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "trace/record/trace_hash.h"
#include "trace/record/writer.h"

#define LOOK_NS	    (2 * DF_NS_PER_S)
#define WAIT_NS	    (500 * DF_NS_PER_MS)
#define MAX_TEXT    200
#define NS_PER_USEC 1000

static const char *const counters[] = {
	"counters/symbol_error",
	"counters/link_error_recovery",
	"counters/link_downed",
	"counters/port_rcv_errors",
	"counters/port_rcv_remote_physical_errors",
	"counters/port_xmit_discards",
	"counters/local_link_integrity_errors",
	"counters/excessive_buffer_overrun_errors",
	"hw_counters/packet_seq_err",
	"hw_counters/local_ack_timeout_err",
	"hw_counters/rnr_nak_retry_err",
	"hw_counters/roce_adp_retrans",
};

_Static_assert(sizeof(counters) / sizeof(*counters) == DF_HARDWARE_COUNTERS, "see hardware.h");

/* Reads the beginning of a file as text. The text is empty if the file cannot be read. */
static void read_text(const char *folder, const char *file, char *buf, size_t size)
{
	char path[512];
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	f = fopen(path, "re");
	n = f ? fread(buf, 1, size - 1, f) : 0;
	buf[n] = '\0';
	if (f)
		fclose(f);
}

/* Returns the counter's value, or its previous value if it cannot be read. */
static uint64_t counter_of(const struct df_hardware_port *p, size_t i)
{
	char text[32];

	read_text(p->path, counters[i], text, sizeof(text));
	return *text ? strtoull(text, NULL, 10) : p->counters[i];
}

static int is_active(const struct df_hardware_port *p, char *state, size_t size)
{
	read_text(p->path, "state", state, size);
	state[strcspn(state, "\n")] = '\0';
	return strstr(state, "ACTIVE") != NULL;
}

static void add_port(struct df_hardware *h, const char *path)
{
	struct df_hardware_port *p = &h->ports[h->nr_ports];
	const char *device = path + strlen(h->root) + strlen("/sys/class/infiniband/");
	const char *end = strchr(device, '/');
	char state[32];

	if (h->nr_ports == DF_HARDWARE_PORTS || strlen(path) >= sizeof(p->path) || !end)
		return;
	strcpy(p->path, path);
	snprintf(p->name, sizeof(p->name), "%.*s port %.8s", (int)DF_MIN(end - device, 60), device,
		 strrchr(path, '/') + 1);
	p->is_active = is_active(p, state, sizeof(state));
	for (size_t i = 0; i < DF_HARDWARE_COUNTERS; i++)
		p->counters[i] = counter_of(p, i);
	h->nr_ports++;
}

void df_hardware_open(struct df_hardware *h, const char *root, uint64_t since_us)
{
	char pattern[400];
	glob_t found;

	memset(h, 0, sizeof(*h));
	h->root = root;
	h->log_us = since_us;
	snprintf(pattern, sizeof(pattern), "%s/sys/class/infiniband/*/ports/*", root);
	if (glob(pattern, 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		add_port(h, found.gl_pathv[i]);
	globfree(&found);
}

/* Handles a line of the log: "6,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, ...". */
static void look_at_line(struct df_hardware *h, char *line, void (*say)(void *, const char *),
			 void *arg)
{
	char *text = strchr(line, ';'), said[MAX_TEXT + 40];
	unsigned long long us;

	if (!text || sscanf(line, "%*u,%*u,%llu,", &us) != 1 || us <= h->log_us)
		return;
	h->log_us = us;
	/* NVLink switches report SXid, which contains Xid. */
	if (!strstr(text, "Xid"))
		return;
	text[MAX_TEXT] = '\0';
	df_text_clean(text, strlen(text));
	snprintf(said, sizeof(said), "the kernel's log: %s", text + 1);
	say(arg, said);
}

static void look_at_log(struct df_hardware *h, void (*say)(void *, const char *), void *arg)
{
	char path[300], buf[8192 + MAX_TEXT + 1], *line, *save;
	int fd, tries = 0;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/dev/kmsg", h->root);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	/* Each read returns one message. A read fails once if messages were lost. */
	while (fd >= 0 && tries < 2) {
		n = read(fd, buf, 8192);
		tries = n > 0 ? 0 : tries + 1;
		if (n <= 0)
			continue;
		memset(buf + n, 0, sizeof(buf) - (size_t)n);
		for (line = strtok_r(buf, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
			look_at_line(h, line, say, arg);
	}
	if (fd >= 0)
		close(fd);
}

static void look_at_port(struct df_hardware_port *p, void (*say)(void *, const char *), void *arg)
{
	char text[MAX_TEXT] = "", state[32];
	size_t at = 0;

	for (size_t i = 0; i < DF_HARDWARE_COUNTERS; i++) {
		uint64_t now = counter_of(p, i);

		if (now > p->counters[i] && at < sizeof(text))
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s +%" PRIu64,
					       at ? ", " : "", strchr(counters[i], '/') + 1,
					       now - p->counters[i]);
		p->counters[i] = now;
	}
	if (is_active(p, state, sizeof(state)) < p->is_active && at < sizeof(text))
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%sits state is %s",
				       at ? ", " : "", state);
	p->is_active = is_active(p, state, sizeof(state));
	if (at) {
		char said[MAX_TEXT + 100];

		snprintf(said, sizeof(said), "%s: %s", p->name, text);
		df_text_clean(said, strlen(said));
		say(arg, said);
	}
}

void df_hardware_look(struct df_hardware *h, void (*say)(void *arg, const char *text), void *arg)
{
	look_at_log(h, say, arg);
	for (size_t i = 0; i < h->nr_ports; i++)
		look_at_port(&h->ports[i], say, arg);
}

static struct {
	struct df_hardware seen;
	uint64_t looked_ns; /* 0 if it was not started */
	uint32_t busy;
} here;

static void note(void *arg, const char *text)
{
	(void)arg;
	df_trace_text(text);
	df_trace(DF_REC_HARDWARE, -1, 0, -1, 0, 0, 0, df_hash64(text, strlen(text)), 0);
}

static void rest(void)
{
	/*
	 * RELEASE pairs with the exchange in is_free(): without it the next thread could miss our
	 * writes to `here`.
	 */
	__atomic_store_n(&here.busy, 0, __ATOMIC_RELEASE);
	df_futex_wake(&here.busy, INT_MAX, 0);
}

static int is_free(void)
{
	/* ACQUIRE pairs with the RELEASE in rest(), which says why. */
	return !__atomic_exchange_n(&here.busy, 1, __ATOMIC_ACQUIRE);
}

static void *look(void *arg)
{
	uint64_t now = df_now_ns();

	(void)arg;
	if (here.looked_ns)
		df_hardware_look(&here.seen, note, NULL);
	else
		df_hardware_open(&here.seen, "", now / NS_PER_USEC);
	here.looked_ns = now;
	rest();
	return NULL;
}

/*
 * Looks in a new thread, because a failed port may take a minute to answer. Waits at most wait_ns
 * for that thread.
 */
static void look_apart(uint64_t wait_ns)
{
	uint64_t until = df_now_ns() + wait_ns;

	if (df_thread_start("dfshim-hardware", 0, look, NULL)) {
		rest();
		return;
	}
	/* RELAXED: the thread has written its result into the trace, and nothing here reads it. */
	while (__atomic_load_n(&here.busy, __ATOMIC_RELAXED) && df_now_ns() < until)
		df_futex_wait(&here.busy, 1, 100 * DF_NS_PER_MS, 0);
}

void df_hardware_start(void)
{
	if (!is_free())
		return;
	if (here.looked_ns)
		rest();
	else
		look_apart(0);
}

void df_hardware_note(void)
{
	if (!is_free())
		return;
	if (here.looked_ns && df_now_ns() - here.looked_ns >= LOOK_NS)
		look_apart(WAIT_NS);
	else
		rest();
}
