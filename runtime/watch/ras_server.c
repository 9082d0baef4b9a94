/*
 * Runs the thread that listens on NCCL_RAS_ADDR (default: loopback) and serves clients of NCCL's
 * RAS protocol: lines of text; commands in upper or lower case; STATUS ends the connection. See
 * ras_server.h. It also serves DFSHIM_METRICS (metrics.h). There a client sends an HTTP request, of
 * which only the first line and the empty line at its end are used.
 *
 * Question and answer pass through one word, `turn`. This thread changes it from IDLE to ASKED, the
 * watchdog from ASKED to DONE, and this thread from DONE to IDLE, taking the text. There is one
 * question at a time, and each wait is bounded: if the watchdog does not answer within ANSWER_NS
 * because it is judging a hang, the client gets no answer. The next question then waits for the
 * word.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include "runtime/base/ascii.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/futex.h"
#include "runtime/base/log.h"
#include "runtime/base/rng.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/ctl/ctl_int.h"
#include "runtime/watch/metrics.h"
#include "runtime/watch/ras_server.h"
#include "runtime/watch/snapshot.h"

/* A number: a resolver reads the environment, which the program may be changing. */
#define DEFAULT_ADDR "127.0.0.1:28028"
#define PROTOCOL     2
#define NR_CLIENTS   16
#define FULL_MS	     100  /* interval of checks whether a client gives way */
#define RETRY_MS     3000 /* time until the next attempt to get the port */
/* maximum time until the next attempt if two processes attempted it at once */
#define TOGETHER_MS 50
#define PATIENCE_NS (30 * DF_NS_PER_S) /* a client that is silent for this long is disconnected */
#define YOUNG_NS    DF_NS_PER_S /* a client that is silent for longer gives way to a new one */
#define ANSWER_NS   (10 * DF_NS_PER_S)

enum { IDLE, ASKED, DONE };

static struct {
	uint32_t turn;
	int json;
	char *text;
	int started;
} ras;

struct client {
	int fd, json, asked; /* `asked`: the client has sent a command */
	int http;	     /* whether the client requests metrics: HTTP_* */
	int cut;	     /* whether the line was too long, and its beginning was dropped */
	size_t nr;
	uint64_t since;
	char line[256];
};

enum { NO_HTTP, HTTP_ASKS, HTTP_GET, HTTP_OTHER };

static struct {
	int ras, metrics, bell; /* descriptors, or -1 */
	union df_sockaddr addr; /* for clients of RAS */
	struct client clients[NR_CLIENTS];
	int nr;
} server = {.ras = -1, .metrics = -1, .bell = -1};

int df_ras_asked(int *json)
{
	/* ACQUIRE pairs with the RELEASE in ask(): without it, this could read an older `json`. */
	if (__atomic_load_n(&ras.turn, __ATOMIC_ACQUIRE) != ASKED)
		return 0;
	*json = ras.json;
	return 1;
}

void df_ras_answer(char *text)
{
	ras.text = text;
	/*
	 * RELEASE pairs with the ACQUIRE in ask(): without it, ask() could take the text before it
	 * is there.
	 */
	__atomic_store_n(&ras.turn, DONE, __ATOMIC_RELEASE);
	df_futex_wake(&ras.turn, 1, 0);
}

/* Returns the watchdog's text, from malloc(), or NULL. */
static char *ask(int json)
{
	uint64_t until = df_now_ns() + ANSWER_NS;
	uint32_t turn;
	char *text;

	/* ACQUIRE pairs with the RELEASE in df_ras_answer(), which says why. */
	turn = __atomic_load_n(&ras.turn, __ATOMIC_ACQUIRE);
	if (turn == DONE) {
		/* This is the answer to an earlier question whose client has given up. */
		free(ras.text);
		turn = IDLE;
	}
	if (turn == IDLE) {
		ras.json = json;
		/* RELEASE pairs with the ACQUIRE in df_ras_asked(), which says why. */
		__atomic_store_n(&ras.turn, ASKED, __ATOMIC_RELEASE);
	}
	df_snapshot_wake();
	/* ACQUIRE pairs with the RELEASE in df_ras_answer(), which says why. */
	while ((turn = __atomic_load_n(&ras.turn, __ATOMIC_ACQUIRE)) != DONE && df_now_ns() < until)
		df_futex_wait(&ras.turn, turn, (int64_t)(until - df_now_ns()), 0);
	if (turn != DONE)
		return NULL;
	text = ras.text;
	ras.text = NULL;
	/* Only this thread reads the word while it is IDLE. */
	__atomic_store_n(&ras.turn, IDLE, __ATOMIC_RELAXED);
	return text;
}

/* ---- a client ------------------------------------------------------------------------------- */

/* Returns -1 if the client has disconnected. The socket has a time limit for sending. */
static int say(struct client *c, const char *text)
{
	uint64_t until = df_now_ns() + ANSWER_NS;
	size_t at = 0, nr = strlen(text);

	while (at < nr) {
		ssize_t n = send(c->fd, text + at, nr - at, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		/* A client that reads slowly must not keep this thread. */
		if (n <= 0 || df_now_ns() > until)
			return -1;
		at += (size_t)n;
	}
	return 0;
}

/* Executes one command. Returns -1 if the connection ends. */
static int command(struct client *c, const char *line)
{
	char text[sizeof(c->line) + 64], *end;

	if (!df_strncasecmp(line, "client protocol ", 16)) {
		snprintf(text, sizeof(text), "SERVER PROTOCOL %d\n", PROTOCOL);
	} else if (!df_strncasecmp(line, "timeout ", 8)) {
		/* Accepted but ignored: the wait for other processes is bounded anyway. */
		snprintf(text, sizeof(text),
			 strtol(line + 8, &end, 10) < 0 || *end || end == line + 8
				 ? "ERROR: Invalid timeout value %s\n"
				 : "OK\n",
			 line + 8);
	} else if (!df_strcasecmp(line, "set format text") ||
		   !df_strcasecmp(line, "set format json")) {
		c->json = !df_strcasecmp(line + 11, "json");
		snprintf(text, sizeof(text), "OK\n");
	} else if (!df_strncasecmp(line, "set format ", 11)) {
		snprintf(text, sizeof(text), "ERROR: Invalid format %s\n", line + 11);
	} else if (!df_strcasecmp(line, "status") || !df_strcasecmp(line, "verbose status")) {
		char *answer = ask(c->json);

		say(c, answer ? answer : "ERROR: the job did not answer in time\n");
		free(answer);
		return -1;
	} else if (!df_strncasecmp(line, "monitor", 7)) {
		snprintf(text, sizeof(text), "ERROR: dfshim has no monitor mode\n");
	} else {
		snprintf(text, sizeof(text), "ERROR: Unknown command %s\n", line);
	}
	return say(c, text);
}

/* Handles a line of an HTTP request. Returns -1 if it was the last one and the answer was sent. */
static int request(struct client *c, const char *line)
{
	const char *path = strncmp(line, "GET ", 4) ? "" : line + 4;
	size_t len = strcspn(path, " ?");
	char head[160], *text;

	if (c->http == HTTP_ASKS) {
		c->http = (len == 1 && *path == '/') || (len == 8 && !strncmp(path, "/metrics", 8))
				  ? HTTP_GET
				  : HTTP_OTHER;
		return 0;
	}
	if (*line || c->cut)
		return 0;
	text = c->http == HTTP_GET ? df_metrics_text() : NULL;
	snprintf(head, sizeof(head),
		 "HTTP/1.1 %s\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %zu\r\n"
		 "Connection: close\r\n\r\n",
		 text		       ? "200 OK"
		 : c->http == HTTP_GET ? "503 Service Unavailable"
				       : "404 Not Found",
		 text ? "application/openmetrics-text; version=1.0.0" : "text/plain",
		 text ? strlen(text) : 0);
	if (!say(c, head) && text)
		say(c, text);
	free(text);
	return -1;
}

/* Reads and executes the commands that have arrived. Returns -1 if the connection ends. */
static int hear(struct client *c)
{
	ssize_t n = recv(c->fd, c->line + c->nr, sizeof(c->line) - 1 - c->nr, MSG_DONTWAIT);
	char *end, *at = c->line;

	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return 0;
	if (n <= 0)
		return -1;
	if (!c->http) /* the time limit of an HTTP request counts from its first byte */
		c->since = df_now_ns();
	c->nr += (size_t)n;
	while ((end = memchr(at, '\n', c->nr - (size_t)(at - c->line)))) {
		*end = 0;
		if (end > at && end[-1] == '\r')
			end[-1] = 0;
		c->asked = 1;
		if (c->http ? request(c, at) : command(c, at))
			return -1;
		c->cut = 0;
		at = end + 1;
	}
	c->nr -= (size_t)(at - c->line);
	memmove(c->line, at, c->nr);
	if (c->nr < sizeof(c->line) - 1)
		return 0;
	/* No command is this long, and no line of a request that is used. */
	if (!c->http || c->http == HTTP_ASKS)
		return -1;
	c->cut = 1;
	c->nr = 0;
	return 0;
}

/* ---- listening ------------------------------------------------------------------------------ */

/*
 * Returns a listening descriptor, or -errno; -EAGAIN if another process has begun to listen at the
 * same moment. The kernel may refuse both, so that neither has the port.
 */
static int listen_at(const union df_sockaddr *addr)
{
	int fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1,
	    err = 0;

	if (fd < 0)
		return -errno;
	/* This allows a port in TIME_WAIT, but not one on which another process listens. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, &addr->sa, df_addr_len(addr)))
		err = -errno;
	else if (listen(fd, NR_CLIENTS))
		err = errno == EADDRINUSE ? -EAGAIN : -errno;
	if (!err)
		return fd;
	close(fd);
	return err;
}

/*
 * Returns the client that gives way to a new one when the table is full: the client that has been
 * silent longest, preferably one that has sent no command. Returns -1 if each client was active
 * within YOUNG_NS; new clients then stay in the kernel's queue.
 */
static int gives_way(const struct client *clients, int nr)
{
	uint64_t now = df_now_ns();
	int found = -1;

	for (int i = 0; i < nr; i++) {
		const struct client *c = &clients[i], *best = found < 0 ? NULL : &clients[found];

		if (now - c->since < YOUNG_NS)
			continue;
		if (!best || c->asked < best->asked ||
		    (c->asked == best->asked && c->since < best->since))
			found = i;
	}
	return found;
}

static void let_go(int i)
{
	close(server.clients[i].fd);
	server.clients[i] = server.clients[--server.nr];
}

static void take_client(int listener)
{
	struct timeval limit = {.tv_sec = 5};
	int full = server.nr == NR_CLIENTS, out = full ? gives_way(server.clients, server.nr) : -1,
	    fd;

	if (full && out < 0)
		return;
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return;
	if (full)
		let_go(out);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	server.clients[server.nr++] = (struct client){
		.fd = fd,
		.http = listener == server.metrics ? HTTP_ASKS : NO_HTTP,
		.since = df_now_ns(),
	};
}

/* Returns the shorter of two times in milliseconds. A negative time means for ever. */
static int shorter(int a, int b)
{
	return a < 0 ? b : b < 0 ? a : DF_MIN(a, b);
}

/* Serves clients for at most this time. */
static void serve(int ms)
{
	enum { RAS, METRICS, BELL, CLIENTS };
	struct pollfd fds[CLIENTS + NR_CLIENTS];
	uint64_t until = df_now_ns() + (uint64_t)DF_MAX(ms, 0) * DF_NS_PER_MS, now;
	int full, wait, i;

	for (now = df_now_ns(); ms < 0 || now < until; now = df_now_ns()) {
		full = server.nr == NR_CLIENTS && gives_way(server.clients, server.nr) < 0;
		fds[RAS] = (struct pollfd){.fd = full ? -1 : server.ras, .events = POLLIN};
		fds[METRICS] = (struct pollfd){.fd = full ? -1 : server.metrics, .events = POLLIN};
		fds[BELL] = (struct pollfd){.fd = server.bell, .events = POLLIN};
		for (i = 0; i < server.nr; i++)
			fds[CLIENTS + i] =
				(struct pollfd){.fd = server.clients[i].fd, .events = POLLIN};
		/* Without clients, sleep until one connects. */
		wait = full ? FULL_MS : server.nr ? 1000 : -1;
		wait = shorter(wait, df_metrics_turn());
		if (ms >= 0)
			wait = shorter(wait, (int)((until - now) / DF_NS_PER_MS) + 1);
		if (poll(fds, (nfds_t)(CLIENTS + server.nr), wait) < 0 && errno != EINTR)
			return;
		for (i = server.nr - 1; i >= 0; i--) {
			int gone = df_now_ns() - server.clients[i].since > PATIENCE_NS;

			if (fds[CLIENTS + i].revents)
				gone |= hear(&server.clients[i]) != 0;
			if (gone)
				let_go(i);
		}
		for (i = RAS; i <= METRICS; i++)
			if (fds[i].revents & POLLIN)
				take_client(fds[i].fd);
			else if (fds[i].revents)
				return;
	}
}

/*
 * Finds the address for clients of RAS. Returns 0 if there is none. Called on the thread that makes
 * the first communicator: a resolver reads the environment, which other threads must not do.
 */
static int ras_address(union df_sockaddr *addr)
{
	const char *text = df_env()->nccl_ras_addr;

	if (!df_addr_parse(text && *text ? text : DEFAULT_ADDR, addr, 0))
		return 1;
	if (text && *text)
		df_warn("NCCL_RAS_ADDR=%s is not of the form host:port: dfshim does not answer "
			"ncclras",
			text);
	else
		df_info("cannot resolve %s: dfshim does not answer ncclras", DEFAULT_ADDR);
	return 0;
}

static void *run(void *arg)
{
	const char *text = df_env()->nccl_ras_addr;
	struct df_rng rng;
	int said = 0, answers = arg != NULL;

	df_rng_init(&rng, df_now_ns() ^ (uint64_t)getpid() << 32);
	while (!answers) {
		serve(-1);
		poll(NULL, 0, RETRY_MS);
	}
	for (;;) {
		int fd = listen_at(&server.addr);

		if (fd >= 0) {
			df_info("answering ncclras at %s", text && *text ? text : DEFAULT_ADDR);
			server.ras = fd;
			serve(-1);
			server.ras = -1;
			close(fd);
		} else if (fd != -EAGAIN && !said++) {
			df_info("%s ncclras at %s: %s",
				fd == -EADDRINUSE ? "another process answers" : "cannot answer",
				text && *text ? text : DEFAULT_ADDR, strerror(-fd));
		}
		/*
		 * Another process has the port: a process of this job, which answers for all of it,
		 * or of another job.
		 */
		serve(fd == -EAGAIN ? (int)df_rng_range(&rng, 1, TOGETHER_MS) : RETRY_MS);
	}
	return NULL;
}

void df_ras_start(int answers)
{
	answers = answers && df_env()->nccl_ras_enable;
	if (__atomic_exchange_n(&ras.started, 1, __ATOMIC_RELAXED))
		return;
	answers = answers && ras_address(&server.addr);
	if (!df_metrics_start(&server.metrics, &server.bell) && !answers)
		return;
	if (df_thread_start("dfshim-ras", 0, run, answers ? &ras : NULL))
		df_warn("cannot start a thread for RAS and metrics: this process has none");
}
