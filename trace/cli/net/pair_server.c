/*
 * Runs the listener of `dfshim net`: a thread for each connection, each bounded in time
 * (pair.h).
 */
#define _GNU_SOURCE
#include "trace/cli/net/pair.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "runtime/base/time.h"
#include "trace/cli/common/cli.h"

struct visitor {
	int fd;
	char who[DF_ADDR_TEXT];
};

static int nr_visitors; /* atomic; each connection's thread decrements it at its end */

static int give(int fd, const void *data, size_t bytes)
{
	const char *p = data;
	ssize_t n;

	while (bytes) {
		n = send(fd, p, bytes, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		p += n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int take(int fd, void *data, size_t bytes)
{
	ssize_t n = recv(fd, data, bytes, MSG_WAITALL);

	return n == (ssize_t)bytes ? 0 : -1;
}

static void answer_ask(int fd)
{
	struct df_iface v[PAIR_IFACES_MAX];
	int found = df_ifaces_chosen(v, PAIR_IFACES_MAX);
	uint32_t nr = found > 0 ? (uint32_t)found : 0, be = htobe32(nr), i;
	struct pair_iface out;
	char *scope;

	if (give(fd, &be, sizeof(be)))
		return;
	for (i = 0; i < nr; i++) {
		memset(&out, 0, sizeof(out));
		memcpy(out.name, v[i].name, sizeof(out.name));
		df_addr_format_ip(&v[i].addr, out.ip, sizeof(out.ip));
		/* A scope is valid only on its own machine. */
		scope = strchr(out.ip, '%');
		if (scope)
			*scope = '\0';
		out.mtu = htobe32(v[i].mtu);
		out.mbps = htobe32((uint32_t)v[i].mbps);
		if (give(fd, &out, sizeof(out)))
			return;
	}
}

static void echo(int fd, uint64_t end)
{
	char message[PAIR_MESSAGE];

	while (df_now_ns() < end && !take(fd, message, sizeof(message)))
		if (give(fd, message, sizeof(message)))
			return;
}

static void sink(int fd, uint64_t end)
{
	char *buffer = malloc(PAIR_BUFFER_BYTES);
	uint64_t total = 0;
	ssize_t n = 1;

	while (buffer && df_now_ns() < end) {
		n = recv(fd, buffer, PAIR_BUFFER_BYTES, 0);
		if (n <= 0)
			break;
		total += (uint64_t)n;
	}
	free(buffer);
	total = htobe64(total);
	if (!n)
		give(fd, &total, sizeof(total));
}

static void source(int fd, uint32_t ms)
{
	uint64_t end = df_now_ns() + (ms < PAIR_MS_MAX ? ms : PAIR_MS_MAX) * DF_NS_PER_MS;
	char *buffer = calloc(1, PAIR_BUFFER_BYTES);

	while (buffer && df_now_ns() < end && !give(fd, buffer, PAIR_BUFFER_BYTES))
		;
	free(buffer);
}

static void serve(const struct visitor *v)
{
	uint64_t end = df_now_ns() + PAIR_BOUND_S * DF_NS_PER_S;
	struct pair_greeting g;

	if (take(v->fd, &g, sizeof(g)) || memcmp(g.magic, PAIR_MAGIC, sizeof(g.magic))) {
		fprintf(stderr, "%s: dropped, it is not `dfshim net`\n", v->who);
		return;
	}
	switch (be32toh(g.kind)) {
	case PAIR_ASK:
		fprintf(stderr, "%s tests\n", v->who);
		answer_ask(v->fd);
		break;
	case PAIR_ECHO:
		echo(v->fd, end);
		break;
	case PAIR_SINK:
		sink(v->fd, end);
		break;
	case PAIR_SOURCE:
		source(v->fd, be32toh(g.ms));
		break;
	default:
		fprintf(stderr, "%s: dropped, it is another version of `dfshim net`\n", v->who);
	}
}

static void *visitor_main(void *arg)
{
	struct visitor *v = arg;

	serve(v);
	close(v->fd);
	free(v);
	__atomic_sub_fetch(&nr_visitors, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void welcome(int fd, const union df_sockaddr *from)
{
	struct timeval silent = {.tv_sec = PAIR_SILENT_S};
	struct visitor *v = calloc(1, sizeof(*v));
	pthread_t thread;

	if (!v || __atomic_load_n(&nr_visitors, __ATOMIC_RELAXED) >= PAIR_CONNECTIONS) {
		close(fd);
		free(v);
		return;
	}
	v->fd = fd;
	df_addr_format(from, v->who, sizeof(v->who));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silent, sizeof(silent));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &silent, sizeof(silent));
	setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &(int){1}, sizeof(int));
	__atomic_add_fetch(&nr_visitors, 1, __ATOMIC_RELAXED);
	if (pthread_create(&thread, NULL, visitor_main, v)) {
		__atomic_sub_fetch(&nr_visitors, 1, __ATOMIC_RELAXED);
		close(fd);
		free(v);
	} else {
		pthread_detach(thread);
	}
}

/* Listens on all addresses, with IPv6 also on those of IPv4. */
static int open_listener(int port)
{
	union df_sockaddr any = {.in6 = {.sin6_family = AF_INET6}};
	int fd;

	df_addr_set_port(&any, port);
	fd = df_addr_listen(&any, PAIR_CONNECTIONS);
	if (fd != -EAFNOSUPPORT && fd != -EADDRNOTAVAIL)
		return fd;
	memset(&any, 0, sizeof(any));
	any.in.sin_family = AF_INET;
	df_addr_set_port(&any, port);
	return df_addr_listen(&any, PAIR_CONNECTIONS);
}

int pair_listen(int port, double idle_s)
{
	uint64_t idle_since = df_now_ns(), idle_ns = (uint64_t)(idle_s * 1e9);
	int fd = open_listener(port), nr, i, conn;
	struct df_iface v[PAIR_IFACES_MAX];
	union df_sockaddr from;
	struct pollfd p;
	socklen_t len;

	if (fd < 0) {
		fprintf(stderr, "dfshim net: cannot listen on port %d: %s%s\n", port, strerror(-fd),
			fd == -EADDRINUSE ? "; another port can be named: dfshim net --listen PORT"
					  : "");
		return 1;
	}
	nr = df_ifaces_chosen(v, PAIR_IFACES_MAX);
	for (i = 0; i < nr; i++) {
		char text[DF_ADDR_TEXT];

		df_addr_set_port(&v[i].addr, port);
		df_addr_format(&v[i].addr, text, sizeof(text));
		printf("listens on %s %s\n", v[i].name, text);
	}
	if (!nr)
		printf("listens on port %d\n", port);
	fflush(stdout);
	p = (struct pollfd){.fd = fd, .events = POLLIN};
	for (;;) {
		if (__atomic_load_n(&nr_visitors, __ATOMIC_RELAXED))
			idle_since = df_now_ns();
		if (idle_ns && df_now_ns() - idle_since > idle_ns)
			break;
		if (poll(&p, 1, idle_ns ? 50 : -1) <= 0)
			continue;
		len = sizeof(from);
		memset(&from, 0, sizeof(from));
		conn = accept4(fd, &from.sa, &len, SOCK_CLOEXEC);
		if (conn >= 0)
			welcome(conn, &from);
		else if (errno == EMFILE || errno == ENFILE)
			poll(NULL, 0, 50);
	}
	close(fd);
	return 0;
}
