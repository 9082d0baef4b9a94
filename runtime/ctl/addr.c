/*
 * Addresses: which interface other nodes reach us by, texts and socket addresses, and the hash that
 * says whether two processes are on one node. Stateless; any thread.
 */
#include "runtime/ctl/ctl_int.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"

int df_addr_raise_files(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= l.rlim_max)
		return 0;
	l.rlim_cur = l.rlim_max;
	return !setrlimit(RLIMIT_NOFILE, &l);
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

socklen_t df_addr_len(const union df_sockaddr *addr)
{
	return addr->sa.sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

int df_addr_port(const union df_sockaddr *addr)
{
	if (addr->sa.sa_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)&addr->storage)->sin6_port);
	return ntohs(((const struct sockaddr_in *)&addr->storage)->sin_port);
}

void df_addr_format(const union df_sockaddr *addr, char *text, size_t size)
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (addr->sa.sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&addr->storage;

		inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof(ip));
		if (in6->sin6_scope_id)
			snprintf(text, size, "[%s%%%u]:%d", ip, in6->sin6_scope_id,
				 df_addr_port(addr));
		else
			snprintf(text, size, "[%s]:%d", ip, df_addr_port(addr));
	} else {
		const struct sockaddr_in *in = (const struct sockaddr_in *)&addr->storage;

		inet_ntop(AF_INET, &in->sin_addr, ip, sizeof(ip));
		snprintf(text, size, "%s:%d", ip, df_addr_port(addr));
	}
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

socklen_t df_addr_unix(const char *name, union df_sockaddr *out)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&out->storage;
	size_t len = strnlen(name, sizeof(un->sun_path) - 1);

	memset(out, 0, sizeof(*out));
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path + 1, name, len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
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
	/* Abstract sockets belong to a network namespace; other users are refused by us. */
	if (!stat("/proc/self/ns/net", &st))
		h = df_hash_u64(h, (uint64_t)st.st_ino);
	return df_hash_u64(h, (uint64_t)geteuid());
}

/* The list of NCCL_SOCKET_IFNAME: prefixes, "^" excludes, "=" wants the exact name. */
static int if_wanted(const char *list, const char *name)
{
	int exclude = 0, exact = 0, found = 0;
	const char *p = list;
	size_t len;

	if (*p == '^') {
		exclude = 1;
		p++;
	}
	if (*p == '=') {
		exact = 1;
		p++;
	}
	while (*p) {
		len = strcspn(p, ",");
		if (len && !strncmp(name, p, len) && (!exact || name[len] == '\0'))
			found = 1;
		p += len;
		p += *p == ',';
	}
	return found != exclude;
}

/* Higher is better; the order in which NCCL looks: ib, anything, docker and virtual bridges, lo. */
static int if_score(const struct ifaddrs *i)
{
	int score = i->ifa_addr->sa_family == AF_INET ? 1 : 0;

	if (i->ifa_flags & IFF_LOOPBACK)
		return score;
	if (!strncmp(i->ifa_name, "docker", 6) || !strncmp(i->ifa_name, "virbr", 5))
		return score + 2;
	return score + (strncmp(i->ifa_name, "ib", 2) ? 4 : 6);
}

int df_addr_local(union df_sockaddr *out)
{
	const char *want = df_env()->nccl_socket_ifname;
	const struct ifaddrs *i, *best = NULL;
	struct ifaddrs *list;
	size_t len;

	if (getifaddrs(&list))
		return -EIO;
	for (i = list; i; i = i->ifa_next) {
		if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
			continue;
		if (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)
			continue;
		if (want && *want && !if_wanted(want, i->ifa_name))
			continue;
		if (!best || if_score(i) > if_score(best))
			best = i;
	}
	if (!best && want && *want)
		df_warn("NCCL_SOCKET_IFNAME=%s: no interface with such a name is up and has an "
			"address: other nodes cannot reach this process",
			want);
	if (best) {
		memset(out, 0, sizeof(*out));
		len = best->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
							   : sizeof(struct sockaddr_in6);
		memcpy(&out->storage, best->ifa_addr, len);
	}
	freeifaddrs(list);
	return best ? 0 : -EIO;
}
