/*
 * Socket addresses: text forms, comparison, listeners; the limit of open files; names. Stateless,
 * except for one warning per process.
 */
#define _GNU_SOURCE
#include "runtime/base/net/sockaddr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"

#define UNPROVED_MIN 8 /* not fewer, because the job's own connections begin unproved, too */

socklen_t df_addr_len(const union df_sockaddr *addr)
{
	return addr->sa.sa_family == AF_INET6 ? sizeof(addr->in6) : sizeof(addr->in);
}

int df_addr_port(const union df_sockaddr *addr)
{
	return ntohs(addr->sa.sa_family == AF_INET6 ? addr->in6.sin6_port : addr->in.sin_port);
}

void df_addr_set_port(union df_sockaddr *addr, int port)
{
	if (addr->sa.sa_family == AF_INET6)
		addr->in6.sin6_port = htons((uint16_t)port);
	else
		addr->in.sin_port = htons((uint16_t)port);
}

void df_addr_format_ip(const union df_sockaddr *addr, char *text, size_t size)
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (addr->sa.sa_family != AF_INET6) {
		inet_ntop(AF_INET, &addr->in.sin_addr, ip, sizeof(ip));
		snprintf(text, size, "%s", ip);
		return;
	}
	inet_ntop(AF_INET6, &addr->in6.sin6_addr, ip, sizeof(ip));
	if (addr->in6.sin6_scope_id)
		snprintf(text, size, "%s%%%u", ip, addr->in6.sin6_scope_id);
	else
		snprintf(text, size, "%s", ip);
}

void df_addr_format(const union df_sockaddr *addr, char *text, size_t size)
{
	char ip[DF_ADDR_TEXT];

	df_addr_format_ip(addr, ip, sizeof(ip));
	snprintf(text, size, addr->sa.sa_family == AF_INET6 ? "[%s]:%d" : "%s:%d", ip,
		 df_addr_port(addr));
}

int df_addr_parse(const char *text, union df_sockaddr *out, int numeric_only)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
	const char *colon = strrchr(text, ':'), *from = text;
	char host[256], *end;
	size_t len;
	long port;

	if (!colon || colon == text)
		return -EINVAL;
	port = strtol(colon + 1, &end, 10);
	if (end == colon + 1 || *end || port < 1 || port > 65535)
		return -EINVAL;
	len = (size_t)(colon - text);
	if (*from == '[') {
		if (len < 3 || from[len - 1] != ']')
			return -EINVAL;
		from++;
		len -= 2;
	}
	if (!len || len >= sizeof(host))
		return -EINVAL;
	memcpy(host, from, len);
	host[len] = '\0';
	hints.ai_flags = AI_NUMERICSERV | (numeric_only ? AI_NUMERICHOST : 0);
	if (getaddrinfo(host, colon + 1, &hints, &list) || !list)
		return -EINVAL;
	memset(out, 0, sizeof(*out));
	memcpy(&out->storage, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	return out->sa.sa_family == AF_INET || out->sa.sa_family == AF_INET6 ? 0 : -EINVAL;
}

int df_addr_is_link_local(const union df_sockaddr *addr)
{
	if (addr->sa.sa_family == AF_INET6)
		return IN6_IS_ADDR_LINKLOCAL(&addr->in6.sin6_addr);
	return addr->sa.sa_family == AF_INET &&
	       ntohl(addr->in.sin_addr.s_addr) >> 16 == (169u << 8 | 254u);
}

int df_addr_same_subnet(const union df_sockaddr *a, const union df_sockaddr *b, unsigned bits)
{
	const uint8_t *x, *y;
	unsigned rest = bits % 8;

	if (a->sa.sa_family != b->sa.sa_family)
		return 0;
	if (a->sa.sa_family == AF_INET6) {
		uint32_t p = a->in6.sin6_scope_id, q = b->in6.sin6_scope_id;

		if (p && q && p != q)
			return 0;
		x = a->in6.sin6_addr.s6_addr;
		y = b->in6.sin6_addr.s6_addr;
		bits = bits > 128 ? 128 : bits;
	} else {
		x = (const uint8_t *)&a->in.sin_addr;
		y = (const uint8_t *)&b->in.sin_addr;
		bits = bits > 32 ? 32 : bits;
	}
	if (memcmp(x, y, bits / 8))
		return 0;
	return bits % 8 == 0 || (x[bits / 8] ^ y[bits / 8]) >> (8 - rest) == 0;
}

socklen_t df_addr_unix(uint64_t sock, union df_sockaddr *out)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&out->storage;
	int len;

	memset(out, 0, sizeof(*out));
	un->sun_family = AF_UNIX;
	len = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "dfshim-%016llx",
		       (unsigned long long)sock);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

/* ---- listeners ------------------------------------------------------------------------------- */

int df_ports_parse(const char *text, int *first, int *last)
{
	char *end;
	long a, b;

	a = b = strtol(text, &end, 10);
	if (end == text || text[0] < '0' || text[0] > '9')
		return -EINVAL;
	if (*end == '-') {
		text = end + 1;
		b = strtol(text, &end, 10);
		if (end == text || text[0] < '0' || text[0] > '9')
			return -EINVAL;
	}
	if (*end || a < 1 || b < a || b > 65535)
		return -EINVAL;
	*first = (int)a;
	*last = (int)b;
	return 0;
}

/*
 * Returns -EADDRINUSE also if listen() finds the port in use: two sockets can bind a port before
 * either listens.
 */
static int listen_at(const union df_sockaddr *addr, int backlog)
{
	int fd, one = 1, ret;

	fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/*
	 * Only for a chosen port: the kernel could give a free port to two sockets that both bind
	 * it before either listens.
	 */
	if (df_addr_port(addr))
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, &addr->sa, df_addr_len(addr)) || listen(fd, backlog)) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd;
}

static int listen_in_range(union df_sockaddr *addr, int backlog, int first, int last)
{
	int nr = last - first + 1, i, fd = -EADDRINUSE;
	struct timespec now;
	unsigned at;

	/* Processes of one node begin at different ports. */
	clock_gettime(CLOCK_MONOTONIC, &now);
	at = (unsigned)getpid() * 2654435761u ^ (unsigned)now.tv_nsec;
	for (i = 0; i < nr && fd == -EADDRINUSE; i++) {
		df_addr_set_port(addr, first + (int)((at + (unsigned)i) % (unsigned)nr));
		fd = listen_at(addr, backlog);
	}
	if (fd == -EADDRINUSE)
		df_warn_once("DFSHIM_PORTS=%d-%d: no port of these is free: widen the range; "
			     "every process needs one or two",
			     first, last);
	return fd;
}

uint32_t df_addr_unproved_max(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l))
		return UNPROVED_MIN;
	return (uint32_t)DF_MIN(DF_MAX(l.rlim_cur / 8, (rlim_t)UNPROVED_MIN), (rlim_t)UINT32_MAX);
}

int df_addr_raise_files(rlim_t below)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= l.rlim_max || l.rlim_cur >= below)
		return 0;
	l.rlim_cur = l.rlim_max;
	return !setrlimit(RLIMIT_NOFILE, &l);
}

void df_addr_no_file(char *text, size_t size)
{
	struct rlimit l = {0};

	getrlimit(RLIMIT_NOFILE, &l);
	snprintf(text, size, "no file descriptor left (%llu are allowed, see `ulimit -n`)",
		 (unsigned long long)l.rlim_cur);
}

int df_addr_listen(union df_sockaddr *addr, int backlog)
{
	const char *range = df_env()->ports;
	union df_sockaddr a = *addr;
	socklen_t len = sizeof(a);
	int fd, ret, first, last;

	if (range && *range && !df_addr_port(&a) && !df_ports_parse(range, &first, &last))
		fd = listen_in_range(&a, backlog, first, last);
	else
		fd = listen_at(&a, backlog);
	if (fd < 0)
		return fd;
	if (getsockname(fd, &a.sa, &len)) {
		ret = -errno;
		close(fd);
		return ret;
	}
	*addr = a;
	return fd;
}

uint64_t df_addr_host_hash(void)
{
	char boot[64] = "", name[256] = "";
	struct stat st = {0};
	uint64_t h;
	ssize_t n;
	int fd;

	fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, boot, sizeof(boot) - 1);
		boot[n > 0 ? n : 0] = '\0';
		close(fd);
	}
	gethostname(name, sizeof(name) - 1);
	h = df_hash_bytes(boot, strlen(boot), 1);
	if (!boot[0])
		h = df_hash_bytes(name, strlen(name), h);
	/* Abstract sockets belong to a network namespace; we refuse connections of other users. */
	if (!stat("/proc/self/ns/net", &st))
		h = df_hash_u64(h, (uint64_t)st.st_ino);
	return df_hash_u64(h, (uint64_t)geteuid());
}

uint64_t df_addr_random(void)
{
	static uint64_t count;
	uint64_t x = 0;

	if (getrandom(&x, sizeof(x), GRND_NONBLOCK) != (ssize_t)sizeof(x)) {
		x = df_hash_u64(df_now_ns(), (uint64_t)getpid() << 32 ^ df_wall_ns());
		x = df_hash_u64(x, __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED));
	}
	return x ? x : 1;
}
