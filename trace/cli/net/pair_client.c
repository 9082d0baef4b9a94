/*
 * The testing side of `dfshim net`: asks a peer for its interfaces and measures each pair. Every
 * step fails after the same time without progress. Errors name both addresses and the port.
 */
#define _GNU_SOURCE
#include "trace/cli/net/pair.h"

#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clean_text.h"
#include "runtime/base/err.h"
#include "runtime/base/time.h"
#include "trace/cli/common/cli.h"

#define ROUNDS_WARM 50
#define ROUNDS	    2000
#define ECHO_NS	    (300 * DF_NS_PER_MS)

int pair_parse(const char *text, char *host, size_t host_size, char *port, size_t port_size)
{
	const char *first = strchr(text, ':'), *last = strrchr(text, ':'), *from = text, *colon;
	size_t len;
	long n;
	char *end;

	if (*text == '[') {
		const char *close = strchr(text, ']');

		if (!close || (close[1] && close[1] != ':'))
			return -EINVAL;
		from = text + 1;
		len = (size_t)(close - from);
		colon = close[1] ? close + 1 : NULL;
	} else {
		/* Several colons without brackets: an IPv6 address alone. */
		colon = first && first == last ? first : NULL;
		len = colon ? (size_t)(colon - text) : strlen(text);
	}
	n = PAIR_PORT;
	if (colon) {
		n = strtol(colon + 1, &end, 10);
		if (colon[1] < '0' || colon[1] > '9' || *end || n < 1 || n > 65535)
			return -EINVAL;
	}
	if (!len || len >= host_size)
		return -EINVAL;
	memcpy(host, from, len);
	host[len] = '\0';
	snprintf(port, port_size, "%ld", n);
	return 0;
}

/* ---- connections ------------------------------------------------------------------------- */

/* Waits for an event, POLLIN or POLLOUT. Returns 0, -ETIMEDOUT or another -errno. */
static int wait_for(int fd, short wants, const struct pair_config *c)
{
	struct pollfd p = {.fd = fd, .events = wants};
	int n;

	do {
		n = poll(&p, 1, (int)(c->timeout_s * 1000) + 1);
	} while (n < 0 && errno == EINTR);
	return n > 0 ? 0 : -ETIMEDOUT;
}

static int give(int fd, const void *data, size_t bytes, const struct pair_config *c)
{
	const char *p = data;
	ssize_t n;

	while (bytes) {
		n = send(fd, p, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0) {
			p += n;
			bytes -= (size_t)n;
		} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
			return -errno;
		} else if (wait_for(fd, POLLOUT, c)) {
			return -ETIMEDOUT;
		}
	}
	return 0;
}

static int take(int fd, void *data, size_t bytes, const struct pair_config *c)
{
	char *p = data;
	ssize_t n;

	while (bytes) {
		n = recv(fd, p, bytes, MSG_DONTWAIT);
		if (!n)
			return -ECONNRESET;
		if (n > 0) {
			p += n;
			bytes -= (size_t)n;
		} else if (errno != EAGAIN && errno != EINTR) {
			return -errno;
		} else if (wait_for(fd, POLLIN, c)) {
			return -ETIMEDOUT;
		}
	}
	return 0;
}

/*
 * Connects and sends the greeting. `from` is the source address, or NULL to let the route decide.
 * Returns the descriptor, or -errno.
 */
static int dial(const union df_sockaddr *from, const union df_sockaddr *to, enum pair_kind kind,
		unsigned ms, const struct pair_config *c)
{
	struct pair_greeting g = {.kind = htobe32(kind), .ms = htobe32(ms)};
	int fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), ret,
	    error = 0;
	socklen_t len = sizeof(error);

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	ret = from && bind(fd, &from->sa, df_addr_len(from)) ? -errno : 0;
	if (!ret && connect(fd, &to->sa, df_addr_len(to)))
		ret = -errno;
	if (ret == -EINPROGRESS) {
		ret = wait_for(fd, POLLOUT, c);
		if (!ret && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len))
			ret = -error;
	}
	if (!ret) {
		memcpy(g.magic, PAIR_MAGIC, sizeof(g.magic));
		ret = give(fd, &g, sizeof(g), c);
	}
	if (ret) {
		close(fd);
		return ret;
	}
	return fd;
}

static const char *why(int error)
{
	switch (error) {
	case -ETIMEDOUT:
		return "nothing returns: a firewall may drop it, or the address is wrong";
	case -ECONNREFUSED:
		return "refused: no process listens there; run `dfshim net --listen` on that "
		       "machine, or a firewall rejects it";
	case -ECONNRESET:
		return "it closed the connection: no `dfshim net --listen` listens there";
	default:
		return strerror(-error);
	}
}

/* ---- measurements ------------------------------------------------------------------------ */

static int cmp_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int measure_latency(int fd, const struct pair_config *c, struct pair_result *out)
{
	static uint64_t ns[ROUNDS];
	uint64_t begin = df_now_ns(), t;
	char message[PAIR_MESSAGE] = {0};
	int i, n = 0, ret = 0;

	for (i = 0; i < ROUNDS_WARM + ROUNDS && !ret; i++) {
		t = df_now_ns();
		ret = give(fd, message, sizeof(message), c);
		if (!ret)
			ret = take(fd, message, sizeof(message), c);
		if (!ret && i >= ROUNDS_WARM)
			ns[n++] = df_now_ns() - t;
		if (n && df_now_ns() - begin > ECHO_NS)
			break;
	}
	if (ret)
		return ret;
	qsort(ns, (size_t)n, sizeof(*ns), cmp_u64);
	out->latency_us = (double)ns[n / 2] / 2e3;
	out->latency_p99_us = (double)ns[n - 1 - n / 100] / 2e3;
	return 0;
}

struct streams {
	int fd[PAIR_STREAMS_MAX], nr;
};

static void streams_close(struct streams *s)
{
	while (s->nr)
		close(s->fd[--s->nr]);
}

static int streams_open(struct streams *s, const struct pair_result *r, const union df_sockaddr *to,
			enum pair_kind kind, const struct pair_config *c)
{
	int fd;

	s->nr = 0;
	while (s->nr < c->streams) {
		fd = dial(&r->from.addr, to, kind, (unsigned)(c->seconds * 1000), c);
		if (fd < 0) {
			streams_close(s);
			return fd;
		}
		s->fd[s->nr++] = fd;
	}
	return 0;
}

/*
 * Moves bytes on all streams until `end`: out, or in. When reading, stops when the other side
 * closes.
 */
static int pump(struct streams *s, int out, uint64_t end, const struct pair_config *c,
		uint64_t *total)
{
	static char buffer[PAIR_BUFFER_BYTES];
	struct pollfd p[PAIR_STREAMS_MAX];
	int i, n, left = s->nr;
	ssize_t got;

	for (i = 0; i < s->nr; i++)
		p[i] = (struct pollfd){.fd = s->fd[i], .events = out ? POLLOUT : POLLIN};
	while (left && (!out || df_now_ns() < end)) {
		n = poll(p, (nfds_t)s->nr, (int)(c->timeout_s * 1000) + 1);
		if (!n)
			return -ETIMEDOUT;
		for (i = 0; i < s->nr; i++) {
			if (p[i].fd < 0 || !p[i].revents)
				continue;
			got = out ? send(p[i].fd, buffer, sizeof(buffer),
					 MSG_DONTWAIT | MSG_NOSIGNAL)
				  : recv(p[i].fd, buffer, sizeof(buffer), MSG_DONTWAIT);
			if (got < 0 && errno != EAGAIN && errno != EINTR)
				return -errno;
			if (got > 0)
				*total += (uint64_t)got;
			if (!got) {
				p[i].fd = -1;
				left--;
			}
		}
	}
	return 0;
}

static int measure_out(const struct pair_result *r, const union df_sockaddr *to,
		       const struct pair_config *c, double *gbps)
{
	struct streams s;
	uint64_t begin, total = 0, arrived = 0, be;
	int ret = streams_open(&s, r, to, PAIR_SINK, c), i;

	if (ret)
		return ret;
	begin = df_now_ns();
	ret = pump(&s, 1, begin + (uint64_t)(c->seconds * 1e9), c, &total);
	/* Only bytes that have arrived count: the listener reports their number. */
	for (i = 0; i < s.nr && !ret; i++)
		shutdown(s.fd[i], SHUT_WR);
	for (i = 0; i < s.nr && !ret; i++) {
		ret = take(s.fd[i], &be, sizeof(be), c);
		arrived += be64toh(be);
	}
	if (!ret)
		*gbps = (double)arrived / (double)(df_now_ns() - begin);
	streams_close(&s);
	return ret;
}

static int measure_in(const struct pair_result *r, const union df_sockaddr *to,
		      const struct pair_config *c, double *gbps)
{
	struct streams s;
	uint64_t begin, total = 0;
	int ret = streams_open(&s, r, to, PAIR_SOURCE, c);

	if (ret)
		return ret;
	begin = df_now_ns();
	ret = pump(&s, 0, 0, c, &total);
	if (!ret)
		*gbps = (double)total / (double)(df_now_ns() - begin);
	streams_close(&s);
	return ret;
}

static unsigned path_mtu(int fd, int family)
{
	int mtu = 0;
	socklen_t len = sizeof(mtu);

	if (getsockopt(fd, family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP,
		       family == AF_INET6 ? IPV6_MTU : IP_MTU, &mtu, &len))
		return 0;
	return (unsigned)mtu;
}

static void test_one(struct pair_result *r, int port, const struct pair_config *c)
{
	char from[DF_ADDR_TEXT], at[3 * DF_ADDR_TEXT], text[DF_ADDR_TEXT + 16];
	union df_sockaddr to;
	int fd, ret;

	snprintf(text, sizeof(text), strchr(r->to.ip, ':') ? "[%s]:%d" : "%s:%d", r->to.ip, port);
	if (df_addr_parse(text, &to, 1)) {
		snprintf(r->error, sizeof(r->error), "the peer says that it has the address %s",
			 r->to.ip);
		return;
	}
	if (to.sa.sa_family == AF_INET6 && df_addr_is_link_local(&to))
		to.in6.sin6_scope_id = r->from.index;
	df_addr_format_ip(&r->from.addr, from, sizeof(from));
	snprintf(at, sizeof(at), "%s to %s", from, text);
	if (to.sa.sa_family != r->from.addr.sa.sa_family) {
		snprintf(r->error, sizeof(r->error),
			 "%s: one is IPv4, one IPv6: set NCCL_SOCKET_FAMILY on both sides", at);
		return;
	}
	fd = dial(&r->from.addr, &to, PAIR_ECHO, 0, c);
	ret = fd < 0 ? fd : measure_latency(fd, c, r);
	if (ret) {
		snprintf(r->error, sizeof(r->error), "%s: %s", at, why(ret));
		goto out;
	}
	ret = measure_out(r, &to, c, &r->gbps_out);
	if (!ret)
		ret = measure_in(r, &to, c, &r->gbps_in);
	r->mtu = path_mtu(fd, to.sa.sa_family);
	if (ret == -ETIMEDOUT)
		snprintf(r->error, sizeof(r->error),
			 "%s: small packets arrive, large ones do not: set the MTU (%u here, %u "
			 "there) to what every switch between them passes",
			 at, r->from.mtu, r->to.mtu);
	else if (ret)
		snprintf(r->error, sizeof(r->error), "%s: %s", at, why(ret));
out:
	if (fd >= 0)
		close(fd);
}

/* ---- a peer ------------------------------------------------------------------------------ */

static int ask(const union df_sockaddr *to, const struct pair_config *c, struct pair_iface *v,
	       uint32_t *nr)
{
	int fd = dial(NULL, to, PAIR_ASK, 0, c), ret;
	uint32_t i;

	if (fd < 0)
		return fd;
	ret = take(fd, nr, sizeof(*nr), c);
	*nr = be32toh(*nr);
	if (!ret && *nr > PAIR_IFACES_MAX)
		ret = -ECONNRESET;
	for (i = 0; !ret && i < *nr; i++) {
		ret = take(fd, &v[i], sizeof(v[i]), c);
		v[i].name[sizeof(v[i].name) - 1] = v[i].ip[sizeof(v[i].ip) - 1] = '\0';
		df_text_clean(v[i].name, strlen(v[i].name));
		df_text_clean(v[i].ip, strlen(v[i].ip));
		v[i].mtu = be32toh(v[i].mtu);
		v[i].mbps = be32toh(v[i].mbps);
	}
	close(fd);
	return ret;
}

/* Tries the name's addresses one after the other. Returns the port, or -1 with out->error. */
static int ask_any(struct pair_peer *out, const struct pair_config *c, struct pair_iface *v,
		   uint32_t *nr)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *i;
	char host[256], port[8], at[DF_ADDR_TEXT];
	union df_sockaddr to;
	size_t used = 0;
	int ret;

	if (pair_parse(out->text, host, sizeof(host), port, sizeof(port))) {
		snprintf(out->error, sizeof(out->error),
			 "not of the form HOST, HOST:PORT or [IPV6]:PORT");
		return -1;
	}
	ret = getaddrinfo(host, port, &hints, &list);
	if (ret) {
		snprintf(out->error, sizeof(out->error), "no address: %s", gai_strerror(ret));
		return -1;
	}
	ret = -EADDRNOTAVAIL;
	for (i = list; i && ret; i = i->ai_next) {
		if (i->ai_family != AF_INET && i->ai_family != AF_INET6)
			continue;
		memset(&to, 0, sizeof(to));
		memcpy(&to, i->ai_addr, i->ai_addrlen);
		ret = ask(&to, c, v, nr);
		df_addr_format(&to, at, sizeof(at));
		if (ret && used < sizeof(out->error))
			used += (size_t)snprintf(out->error + used, sizeof(out->error) - used,
						 "%s%s: %s", used ? "; " : "", at, why(ret));
	}
	freeaddrinfo(list);
	if (ret)
		return -1;
	out->error[0] = '\0';
	return df_addr_port(&to);
}

void pair_test(const char *peer, const struct pair_config *c, struct pair_peer *out)
{
	struct pair_iface there[PAIR_IFACES_MAX];
	struct df_iface here[PAIR_IFACES_MAX];
	int nr_here = df_ifaces_chosen(here, PAIR_IFACES_MAX), port, i, j;
	uint32_t nr_there = 0;

	memset(out, 0, sizeof(*out));
	snprintf(out->text, sizeof(out->text), "%s", peer);
	port = ask_any(out, c, there, &nr_there);
	if (port < 0)
		return;
	if (nr_here < 1 || !nr_there) {
		snprintf(out->error, sizeof(out->error),
			 "%s has no network interface that is used: see NCCL_SOCKET_IFNAME there",
			 nr_here > 0 ? "the peer" : "this machine");
		return;
	}
	out->v = calloc((size_t)nr_here * nr_there, sizeof(*out->v));
	if (!out->v) {
		snprintf(out->error, sizeof(out->error), "out of memory");
		return;
	}
	for (i = 0; i < nr_here; i++) {
		for (j = 0; j < (int)nr_there; j++) {
			struct pair_result *r = &out->v[out->nr++];

			r->from = here[i];
			r->to = there[j];
			test_one(r, port, c);
			df_cli_progress(peer, (uint64_t)out->nr, (uint64_t)nr_here * nr_there);
		}
	}
}
