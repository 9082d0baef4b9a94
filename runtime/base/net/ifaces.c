/*
 * Lists the network interfaces and chooses those to use; the header has the rules. Stateless,
 * except for messages that are printed once per process.
 */
#define _GNU_SOURCE
#include "runtime/base/net/ifaces.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"

/* Groups in the order of preference. The first group with a usable address is used. */
enum group { NAMED, INFINIBAND, SUBNET, ANY, DOCKER, LOOPBACK, VIRTUAL, NR_GROUPS };

static const char *const group_why[NR_GROUPS] = {
	[NAMED] = "named by NCCL_SOCKET_IFNAME",
	[INFINIBAND] = "InfiniBand goes first",
	[SUBNET] = "in the subnet of NCCL_COMM_ID",
	[ANY] = "up, with an address",
	[DOCKER] = "a bridge of docker, but nothing else is up",
	[LOOPBACK] = "loopback: nothing else is up, other machines cannot be reached",
	[VIRTUAL] = "a bridge of virtual machines, but nothing else is up",
};

/* The reason why an interface of a group is not used when an earlier group is. */
static const char *const group_why_not[NR_GROUPS] = {
	[INFINIBAND] = "InfiniBand",
	[SUBNET] = "in the subnet of NCCL_COMM_ID",
	[ANY] = "not asked for",
	[DOCKER] = "a bridge of docker: used only if nothing else is up",
	[LOOPBACK] = "loopback: used only if nothing else is up",
	[VIRTUAL] = "a bridge of virtual machines: used only if nothing else is up",
};

/* Returns the list behind its modifiers "^" and "=", which it stores in *exclude and *exact. */
static const char *list_begin(const char *list, int *exclude, int *exact)
{
	*exclude = *list == '^';
	list += *exclude;
	*exact = *list == '=';
	return list + *exact;
}

/*
 * Whether a list in the form of NCCL_SOCKET_IFNAME, or of NCCL_IB_HCA without ports, matches this
 * name; "^" inverts it.
 */
static int matches_list(const char *list, const char *name)
{
	int exclude, exact, found = 0;
	const char *p = list_begin(list, &exclude, &exact);
	size_t len;

	while (*p) {
		/* NCCL allows "name:port" in its list of adapters. */
		len = strcspn(p, ",:");
		if (len && !strncmp(name, p, len) && (!exact || name[len] == '\0'))
			found = 1;
		p += strcspn(p, ",");
		p += *p == ',';
	}
	return found != exclude;
}

static int has_names(const char *list)
{
	int exclude, exact;

	if (!list)
		return 0;
	list = list_begin(list, &exclude, &exact);
	return list[strspn(list, ",:")] != '\0';
}

static int begins(const char *name, const char *with)
{
	return !strncmp(name, with, strlen(with));
}

static enum group group_of(const struct df_iface *i, const struct df_iface_rules *rules)
{
	if (has_names(rules->names))
		return NAMED;
	if (begins(i->name, "ib"))
		return INFINIBAND;
	if (rules->hint && df_addr_same_subnet(&i->addr, rules->hint, i->prefix))
		return SUBNET;
	if (begins(i->name, "docker"))
		return DOCKER;
	if (begins(i->name, "lo") || i->flags & IFF_LOOPBACK)
		return LOOPBACK;
	if (begins(i->name, "virbr"))
		return VIRTUAL;
	return ANY;
}

#define SAY(i, ...) snprintf((i)->reason, sizeof((i)->reason), __VA_ARGS__)

/* Whether the settings and the state of the interface allow its use. If not, stores the reason. */
static int usable(struct df_iface *i, const struct df_iface_rules *rules)
{
	int family = i->addr.sa.sa_family;

	if (has_names(rules->names) && !matches_list(rules->names, i->name)) {
		SAY(i, "%s by NCCL_SOCKET_IFNAME=%.40s",
		    *rules->names == '^' ? "excluded" : "not named", rules->names);
		return 0;
	}
	if (!(i->flags & IFF_UP)) {
		SAY(i, "down");
		return 0;
	}
	if (!(i->flags & IFF_RUNNING)) {
		SAY(i, "up, but without carrier");
		return 0;
	}
	if (family != AF_INET && family != AF_INET6) {
		SAY(i, "no IPv4 or IPv6 address");
		return 0;
	}
	if (rules->family != AF_UNSPEC && family != rules->family) {
		SAY(i, "%s, but NCCL_SOCKET_FAMILY=%s", family == AF_INET ? "IPv4" : "IPv6",
		    rules->family == AF_INET ? "AF_INET" : "AF_INET6");
		return 0;
	}
	return 1;
}

/* Ranks the addresses of one interface: lower is better. */
static int address_rank(const struct df_iface *i)
{
	return 2 * df_addr_is_link_local(&i->addr) + (i->addr.sa.sa_family == AF_INET6);
}

/* Whether v[at] is the best usable address of its interface. */
static int is_best(struct df_iface *v, int nr, int at, const uint8_t *group)
{
	int i;

	for (i = 0; i < nr; i++) {
		if (i == at || group[i] != group[at] || strcmp(v[i].name, v[at].name))
			continue;
		if (address_rank(&v[i]) < address_rank(&v[at]) ||
		    (address_rank(&v[i]) == address_rank(&v[at]) && i < at)) {
			SAY(&v[at], "a second address of %s", v[at].name);
			return 0;
		}
	}
	return 1;
}

/*
 * Returns the first group that has an address; sets *global if an address of that group is not
 * link-local.
 */
static enum group best_group(const struct df_iface *v, int nr, const uint8_t *group, int *global)
{
	enum group best = NR_GROUPS;
	int i;

	for (i = 0; i < nr; i++)
		best = DF_MIN(best, group[i]);
	*global = 0;
	for (i = 0; i < nr; i++)
		*global |= group[i] == best && !df_addr_is_link_local(&v[i].addr);
	return best;
}

int df_ifaces_choose(struct df_iface *v, int nr, const struct df_iface_rules *rules)
{
	uint8_t *group = malloc((size_t)nr + 1);
	int i, global, nr_chosen = 0;
	enum group best;

	if (!group)
		return 0;
	for (i = 0; i < nr; i++) {
		v[i].order = 0;
		group[i] = usable(&v[i], rules) ? group_of(&v[i], rules) : NR_GROUPS;
	}
	best = best_group(v, nr, group, &global);
	for (i = 0; i < nr; i++) {
		if (group[i] == NR_GROUPS)
			continue;
		if (group[i] != best) {
			if (group[i] == ANY || group[i] == SUBNET)
				SAY(&v[i], "%s",
				    best == INFINIBAND ? "InfiniBand goes first"
						       : "not in the subnet of NCCL_COMM_ID");
			else
				SAY(&v[i], "%s", group_why_not[group[i]]);
		} else if (is_best(v, nr, i, group)) {
			if (global && df_addr_is_link_local(&v[i].addr)) {
				SAY(&v[i], "link-local: used only if nothing else is up");
				continue;
			}
			SAY(&v[i], "%s", group_why[best]);
			v[i].order = ++nr_chosen;
		}
	}
	free(group);
	return nr_chosen;
}

/* ---- interfaces of the kernel ---------------------------------------------------------------- */

/* Uses ioctl() because sysfs may belong to another network namespace. */
static void ask_link(int fd, struct df_iface *i)
{
	struct ethtool_cmd link = {.cmd = ETHTOOL_GSET};
	struct ifreq r;
	uint32_t mbps;

	memset(&r, 0, sizeof(r));
	memcpy(r.ifr_name, i->name, sizeof(r.ifr_name));
	if (!ioctl(fd, SIOCGIFMTU, &r))
		i->mtu = (unsigned)r.ifr_mtu;
	r.ifr_data = (void *)&link;
	if (!ioctl(fd, SIOCETHTOOL, &r)) {
		/* Not ethtool_cmd_speed(): it overflows on an unknown speed (all bits set). */
		mbps = (uint32_t)link.speed_hi << 16 | link.speed;
		i->mbps = mbps == (uint32_t)SPEED_UNKNOWN || mbps > INT32_MAX ? 0 : (int)mbps;
	}
}

static unsigned prefix_of(const struct sockaddr *mask, int family)
{
	const uint8_t *p;
	unsigned bits = 0, i, bytes = family == AF_INET6 ? 16 : 4;

	if (!mask)
		return bytes * 8;
	p = family == AF_INET6 ? (const uint8_t *)&((const struct sockaddr_in6 *)mask)->sin6_addr
			       : (const uint8_t *)&((const struct sockaddr_in *)mask)->sin_addr;
	for (i = 0; i < bytes; i++)
		bits += (unsigned)__builtin_popcount(p[i]);
	return bits;
}

static int is_inet(const struct ifaddrs *a)
{
	return a->ifa_addr &&
	       (a->ifa_addr->sa_family == AF_INET || a->ifa_addr->sa_family == AF_INET6);
}

static int has_inet(const struct ifaddrs *list, const char *name)
{
	for (; list; list = list->ifa_next)
		if (is_inet(list) && !strcmp(list->ifa_name, name))
			return 1;
	return 0;
}

static int read_all(struct df_iface **out)
{
	struct ifaddrs *list, *a;
	struct df_iface *v, *i;
	int nr = 0, fd;

	if (getifaddrs(&list))
		return -errno;
	for (a = list; a; a = a->ifa_next)
		nr++;
	v = calloc((size_t)nr + 1, sizeof(*v));
	if (!v) {
		freeifaddrs(list);
		return -ENOMEM;
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	nr = 0;
	for (a = list; a; a = a->ifa_next) {
		/* Every interface has a link-layer row; use it only if there is no address. */
		if (!is_inet(a) && has_inet(list, a->ifa_name))
			continue;
		i = &v[nr++];
		snprintf(i->name, sizeof(i->name), "%s", a->ifa_name);
		i->index = if_nametoindex(i->name);
		i->flags = a->ifa_flags;
		if (is_inet(a)) {
			union df_sockaddr addr = {.sa.sa_family = a->ifa_addr->sa_family};

			memcpy(&addr, a->ifa_addr, df_addr_len(&addr));
			i->addr = addr;
			i->prefix = prefix_of(a->ifa_netmask, addr.sa.sa_family);
		}
		if (fd >= 0)
			ask_link(fd, i);
	}
	if (fd >= 0)
		close(fd);
	freeifaddrs(list);
	*out = v;
	return nr;
}

int df_ifaces_find(struct df_iface **out)
{
	static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
	const struct df_env *env = df_env();
	struct df_iface_rules rules = {.names = env->nccl_socket_ifname,
				       .family = families[env->nccl_socket_family]};
	union df_sockaddr hint;
	struct df_iface *v = NULL;
	int nr = read_all(&v);

	if (nr < 0)
		return nr;
	if (env->nccl_comm_id && !df_addr_parse(env->nccl_comm_id, &hint, 0))
		rules.hint = &hint;
	df_ifaces_choose(v, nr, &rules);
	*out = v;
	return nr;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void warn_none(const struct df_iface *v, int nr)
{
	const char *names = df_env()->nccl_socket_ifname;
	char list[400] = "";
	size_t at = 0;
	int i;

	for (i = 0; i < nr; i++)
		if ((!i || strcmp(v[i].name, v[i - 1].name)) && at + IF_NAMESIZE + 2 < sizeof(list))
			at += (size_t)snprintf(list + at, sizeof(list) - at, " %s", v[i].name);
	if (has_names(names))
		df_warn_once("NCCL_SOCKET_IFNAME=%s%s: no interface with such a name is up and has "
			     "an address: other nodes cannot reach this process. There is:%s",
			     names, df_env()->nccl_socket_family ? " with NCCL_SOCKET_FAMILY" : "",
			     list);
	else
		df_warn_once("no network interface is up and has an address%s: other nodes cannot "
			     "reach this process. There is:%s",
			     df_env()->nccl_socket_family ? " of NCCL_SOCKET_FAMILY" : "",
			     *list ? list : " none");
}

const char *df_ifaces_state(const char *name)
{
	struct ifreq r = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), ret;

	if (fd < 0)
		return "in an unknown state";
	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	ret = ioctl(fd, SIOCGIFFLAGS, &r) ? errno : 0;
	close(fd);
	if (ret)
		return ret == ENODEV ? "not there any more" : "in an unknown state";
	if (!(r.ifr_flags & IFF_UP))
		return "down";
	return r.ifr_flags & IFF_RUNNING ? "up" : "up without carrier";
}

int df_ifaces_chosen(struct df_iface *out, int max)
{
	struct df_iface *v = NULL;
	int nr = df_ifaces_find(&v), i, nr_chosen = 0;

	if (nr < 0)
		return nr;
	for (i = 0; i < nr; i++) {
		if (!v[i].order)
			continue;
		if (v[i].order <= max)
			out[v[i].order - 1] = v[i];
		nr_chosen++;
	}
	if (!nr_chosen)
		warn_none(v, nr);
	free(v);
	return DF_MIN(nr_chosen, max);
}

/*
 * Whether the message already gives the state of this interface: because it is used, or by an
 * earlier row.
 */
static int is_said(const struct df_iface *v, int nr, int at)
{
	int i;

	for (i = 0; i < nr; i++)
		if ((v[i].order || i < at) && !strcmp(v[i].name, v[at].name))
			return 1;
	return 0;
}

void df_ifaces_log(void)
{
	char text[800], ip[DF_ADDR_TEXT];
	static int said;
	struct df_iface *v = NULL;
	int nr, i, used;
	size_t at = 0;

	if (__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
		return;
	nr = df_ifaces_find(&v);
	if (nr < 0)
		return;
	for (used = 1; used >= 0; used--) {
		for (i = 0; i < nr && at < sizeof(text); i++) {
			/*
			 * Interfaces without an address are numerous, and no user expects them to
			 * be used.
			 */
			if (v[i].addr.sa.sa_family == AF_UNSPEC)
				continue;
			if (used ? !v[i].order : is_said(v, nr, i))
				continue;
			df_addr_format_ip(&v[i].addr, ip, sizeof(ip));
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s%s %s (%s)",
					       at ? "; " : "", used ? "uses " : "not ", v[i].name,
					       ip, v[i].reason);
		}
	}
	df_info("network interfaces: %s%s", at ? text : "none", at >= sizeof(text) ? " ..." : "");
	free(v);
}
