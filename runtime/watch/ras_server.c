/*
 * The thread that listens on NCCL_RAS_ADDR (default: loopback) and serves clients of NCCL's RAS
 * protocol: lines of text; commands in upper or lower case; STATUS ends the connection. See
 * ras_server.h.
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
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include "runtime/base/env.h"
#include "runtime/base/futex.h"
#include "runtime/base/log.h"
#include "runtime/base/rng.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/ctl/ctl_int.h"
#include "runtime/watch/ras_server.h"
#include "runtime/watch/snapshot.h"

#define DEFAULT_ADDR "localhost:28028"
#define PROTOCOL     2
#define NR_CLIENTS   16
#define FULL_MS	     100  /* until the next check which client gives way */
#define RETRY_MS     3000 /* until the next attempt to get the port */
#define TOGETHER_MS  50	  /* the same, at most, after processes have refused each other */
#define PATIENCE_NS  (30 * DF_NS_PER_S) /* a client that is silent for this long is disconnected */
#define YOUNG_NS     DF_NS_PER_S /* a client that is silent for longer gives way to a new one */
#define ANSWER_NS    (10 * DF_NS_PER_S)

enum { IDLE, ASKED, DONE };

static struct {
	uint32_t turn;
	int json;
	char *text;
	int started;
} ras;

struct client {
	int fd, json, asked; /* asked: it has sent a command */
	size_t nr;
	uint64_t since;
	char line[256];
};

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

	/* ACQUIRE pairs with the RELEASE in df_ras_answer(). */
	turn = __atomic_load_n(&ras.turn, __ATOMIC_ACQUIRE);
	if (turn == DONE) {
		/* The answer to an earlier question whose client has given up. */
		free(ras.text);
		turn = IDLE;
	}
	if (turn == IDLE) {
		ras.json = json;
		/* RELEASE pairs with the ACQUIRE in df_ras_asked(). */
		__atomic_store_n(&ras.turn, ASKED, __ATOMIC_RELEASE);
	}
	df_snapshot_wake();
	/* ACQUIRE pairs with the RELEASE in df_ras_answer(): the text is there. */
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
	size_t at = 0, nr = strlen(text);

	while (at < nr) {
		ssize_t n = send(c->fd, text + at, nr - at, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		at += (size_t)n;
	}
	return 0;
}

/* Executes one command. Returns -1 if the connection ends. */
static int command(struct client *c, const char *line)
{
	char text[sizeof(c->line) + 64], *end;

	if (!strncasecmp(line, "client protocol ", 16)) {
		snprintf(text, sizeof(text), "SERVER PROTOCOL %d\n", PROTOCOL);
	} else if (!strncasecmp(line, "timeout ", 8)) {
		/* Accepted but ignored: the wait for other processes is bounded anyway. */
		snprintf(text, sizeof(text),
			 strtol(line + 8, &end, 10) < 0 || *end || end == line + 8
				 ? "ERROR: Invalid timeout value %s\n"
				 : "OK\n",
			 line + 8);
	} else if (!strcasecmp(line, "set format text") || !strcasecmp(line, "set format json")) {
		c->json = !strcasecmp(line + 11, "json");
		snprintf(text, sizeof(text), "OK\n");
	} else if (!strncasecmp(line, "set format ", 11)) {
		snprintf(text, sizeof(text), "ERROR: Invalid format %s\n", line + 11);
	} else if (!strcasecmp(line, "status") || !strcasecmp(line, "verbose status")) {
		char *answer = ask(c->json);

		say(c, answer ? answer : "ERROR: the job did not answer in time\n");
		free(answer);
		return -1;
	} else if (!strncasecmp(line, "monitor", 7)) {
		snprintf(text, sizeof(text), "ERROR: dfshim has no monitor mode\n");
	} else {
		snprintf(text, sizeof(text), "ERROR: Unknown command %s\n", line);
	}
	return say(c, text);
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
	c->since = df_now_ns();
	c->nr += (size_t)n;
	while ((end = memchr(at, '\n', c->nr - (size_t)(at - c->line)))) {
		*end = 0;
		if (end > at && end[-1] == '\r')
			end[-1] = 0;
		c->asked = 1;
		if (command(c, at))
			return -1;
		at = end + 1;
	}
	c->nr -= (size_t)(at - c->line);
	memmove(c->line, at, c->nr);
	return c->nr == sizeof(c->line) - 1 ? -1 : 0; /* no command is this long */
}

/* ---- listening ------------------------------------------------------------------------------ */

/*
 * Returns a descriptor, or -errno; -EAGAIN if another process has begun to listen at the same
 * moment. The kernel may refuse both, so that neither has the port.
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
 * Returns the client that gives way to a new one when there is no room: the one that has been
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

static void let_go(struct client *clients, int *nr, int i)
{
	close(clients[i].fd);
	clients[i] = clients[--*nr];
}

static void take_client(int listener, struct client *clients, int *nr)
{
	struct timeval limit = {.tv_sec = 5};
	int full = *nr == NR_CLIENTS, out = full ? gives_way(clients, *nr) : -1, fd;

	if (full && out < 0)
		return;
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return;
	if (full)
		let_go(clients, nr, out);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	clients[*nr] = (struct client){.fd = fd, .since = df_now_ns()};
	++*nr;
}

static void serve(int listener)
{
	struct client clients[NR_CLIENTS];
	struct pollfd fds[NR_CLIENTS + 1];
	int nr = 0, full, i;

	for (;;) {
		full = nr == NR_CLIENTS && gives_way(clients, nr) < 0;
		fds[0] = (struct pollfd){.fd = full ? -1 : listener, .events = POLLIN};
		for (i = 0; i < nr; i++)
			fds[i + 1] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
		/* Without clients, sleep until one connects. */
		if (poll(fds, (nfds_t)nr + 1,
			 full ? FULL_MS
			 : nr ? 1000
			      : -1) < 0 &&
		    errno != EINTR)
			return;
		for (i = nr - 1; i >= 0; i--) {
			int gone = df_now_ns() - clients[i].since > PATIENCE_NS;

			if (fds[i + 1].revents)
				gone |= hear(&clients[i]) != 0;
			if (gone)
				let_go(clients, &nr, i);
		}
		if (fds[0].revents & POLLIN)
			take_client(listener, clients, &nr);
		else if (fds[0].revents)
			return;
	}
}

static void *run(void *arg)
{
	const char *text = df_env()->nccl_ras_addr;
	union df_sockaddr addr;
	struct df_rng rng;
	int said = 0, fd;

	(void)arg;
	df_rng_init(&rng, df_now_ns() ^ (uint64_t)getpid() << 32);
	if (df_addr_parse(text && *text ? text : DEFAULT_ADDR, &addr, 0)) {
		if (text && *text)
			df_warn("NCCL_RAS_ADDR=%s is not of the form host:port: dfshim does not "
				"answer ncclras",
				text);
		else
			df_info("cannot resolve %s: dfshim does not answer ncclras", DEFAULT_ADDR);
		return NULL;
	}
	for (;;) {
		fd = listen_at(&addr);
		if (fd >= 0) {
			df_info("answering ncclras at %s", text && *text ? text : DEFAULT_ADDR);
			serve(fd);
			close(fd);
		} else if (fd != -EADDRINUSE && fd != -EAGAIN && !said++) {
			df_info("cannot answer ncclras at %s: %s",
				text && *text ? text : DEFAULT_ADDR, strerror(-fd));
		}
		/*
		 * Another process has the port: one of this job, which answers for all, or one of
		 * another job.
		 */
		poll(NULL, 0, fd == -EAGAIN ? (int)df_rng_range(&rng, 1, TOGETHER_MS) : RETRY_MS);
	}
}

void df_ras_start(void)
{
	if (!df_env()->nccl_ras_enable || __atomic_exchange_n(&ras.started, 1, __ATOMIC_RELAXED))
		return;
	if (df_thread_start("dfshim-ras", 0, run, NULL))
		df_warn("cannot start a thread for RAS: dfshim does not answer ncclras");
}
