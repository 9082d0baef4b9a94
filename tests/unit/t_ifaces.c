/* Description: network interfaces are chosen by NCCL's rules, with reasons; addresses; ports. */
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/net/ifaces.h"

#define LIVE (IFF_UP | IFF_RUNNING)

static struct df_iface iface(const char *name, unsigned flags, const char *ip, unsigned prefix)
{
	struct df_iface i = {.flags = flags, .prefix = prefix};

	snprintf(i.name, sizeof(i.name), "%s", name);
	if (ip && strchr(ip, ':')) {
		i.addr.in6.sin6_family = AF_INET6;
		ck_assert_int_eq(inet_pton(AF_INET6, ip, &i.addr.in6.sin6_addr), 1);
	} else if (ip) {
		i.addr.in.sin_family = AF_INET;
		ck_assert_int_eq(inet_pton(AF_INET, ip, &i.addr.in.sin_addr), 1);
	}
	return i;
}

/*
 * A node with all kinds of interfaces. Rows of one interface are not adjacent, as in the kernel's
 * list.
 */
#define NR_ALL 11
static void all(struct df_iface *v)
{
	v[0] = iface("lo", LIVE | IFF_LOOPBACK, "127.0.0.1", 8);
	v[1] = iface("docker0", LIVE, "172.17.0.1", 16);
	v[2] = iface("eth0", LIVE, "10.1.0.7", 16);
	v[3] = iface("eth1", LIVE, "10.2.0.7", 16);
	v[4] = iface("eth2", IFF_UP, "10.3.0.7", 16);
	v[5] = iface("eth3", 0, NULL, 0);
	v[6] = iface("virbr0", LIVE, "192.168.122.1", 24);
	v[7] = iface("lo", LIVE | IFF_LOOPBACK, "::1", 128);
	v[8] = iface("eth0", LIVE, "fe80::1", 64);
	v[9] = iface("eth1", LIVE, "2001:db8::7", 64);
	v[10] = iface("usb0", LIVE, "fe80::9", 64);
}

/* Returns names and addresses in the order of use. */
static const char *used(struct df_iface *v, int nr, const struct df_iface_rules *rules)
{
	static char text[512];
	char ip[DF_ADDR_TEXT];
	int nr_chosen = df_ifaces_choose(v, nr, rules), o, i;
	size_t at = 0;

	text[0] = '\0';
	for (o = 1; o <= nr_chosen; o++)
		for (i = 0; i < nr; i++)
			if (v[i].order == o) {
				df_addr_format_ip(&v[i].addr, ip, sizeof(ip));
				at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s=%s",
						       at ? " " : "", v[i].name, ip);
			}
	for (i = 0; i < nr; i++)
		ck_assert_msg(v[i].reason[0], "%s has no reason", v[i].name);
	return text;
}

START_TEST(t_default)
{
	struct df_iface v[NR_ALL + 2];
	struct df_iface_rules none = {0}, v6 = {.family = AF_INET6};

	all(v);
	ck_assert_str_eq(used(v, NR_ALL, &none), "eth0=10.1.0.7 eth1=10.2.0.7");
	ck_assert_str_eq(v[0].reason, "loopback: used only if nothing else is up");
	ck_assert_str_eq(v[1].reason, "a bridge of docker: used only if nothing else is up");
	ck_assert_str_eq(v[4].reason, "up, but without carrier");
	ck_assert_str_eq(v[5].reason, "down");
	ck_assert_str_eq(v[8].reason, "a second address of eth0");
	ck_assert_str_eq(v[10].reason, "link-local: used only if nothing else is up");

	ck_assert_str_eq(used(v, NR_ALL, &v6), "eth1=2001:db8::7");
	ck_assert_str_eq(v[2].reason, "IPv4, but NCCL_SOCKET_FAMILY=AF_INET6");

	/* InfiniBand first. Interfaces of different kinds are never mixed. */
	v[NR_ALL] = iface("ib0", LIVE, "10.9.0.7", 16);
	ck_assert_str_eq(used(v, NR_ALL + 1, &none), "ib0=10.9.0.7");
	ck_assert_str_eq(v[2].reason, "InfiniBand goes first");
	/* An interface without carrier does not count. */
	v[NR_ALL].flags = IFF_UP;
	ck_assert_str_eq(used(v, NR_ALL + 1, &none), "eth0=10.1.0.7 eth1=10.2.0.7");
}
END_TEST

START_TEST(t_last)
{
	struct df_iface v[3];
	struct df_iface_rules none = {0};

	v[0] = iface("lo", LIVE | IFF_LOOPBACK, "127.0.0.1", 8);
	v[1] = iface("docker0", LIVE, "172.17.0.1", 16);
	v[2] = iface("virbr0", LIVE, "192.168.122.1", 24);
	ck_assert_str_eq(used(v, 3, &none), "docker0=172.17.0.1");
	v[1].flags = 0;
	ck_assert_str_eq(used(v, 3, &none), "lo=127.0.0.1");
	v[0].flags = IFF_LOOPBACK;
	ck_assert_str_eq(used(v, 3, &none), "virbr0=192.168.122.1");
	v[2] = iface("usb0", LIVE, "fe80::9", 64);
	ck_assert_str_eq(used(v, 3, &none), "usb0=fe80::9");
	v[2].flags = 0;
	ck_assert_str_eq(used(v, 3, &none), "");
	ck_assert_str_eq(used(v, 0, &none), "");
}
END_TEST

START_TEST(t_named)
{
	static const struct {
		const char *names, *used;
	} rows[] = {
		{"eth", "eth0=10.1.0.7 eth1=10.2.0.7"},
		{"eth1", "eth1=10.2.0.7"},
		{"=eth", ""},
		{"=eth1,usb0", "eth1=10.2.0.7"}, /* a link-local address is last within its group */
		{"=usb0", "usb0=fe80::9"},
		{"^eth0", "lo=127.0.0.1 docker0=172.17.0.1 eth1=10.2.0.7 virbr0=192.168.122.1"},
		{"^lo,docker,virbr,usb", "eth0=10.1.0.7 eth1=10.2.0.7"},
		{"^=eth0,=eth1",
		 "lo=127.0.0.1 docker0=172.17.0.1 eth1=10.2.0.7 virbr0=192.168.122.1"},
		{"lo", "lo=127.0.0.1"},
		{"eth2", ""},
		{"nosuch", ""},
		{"nosuch,,eth1:1,", "eth1=10.2.0.7"},
		/* A setting that names no interface counts as unset. */
		{"", "eth0=10.1.0.7 eth1=10.2.0.7"},
		{"^", "eth0=10.1.0.7 eth1=10.2.0.7"},
		{"=,,", "eth0=10.1.0.7 eth1=10.2.0.7"},
	};
	struct df_iface v[NR_ALL];
	struct df_iface_rules rules = {0};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		all(v);
		rules.names = rows[i].names;
		ck_assert_msg(!strcmp(used(v, NR_ALL, &rules), rows[i].used), "%s: %s, not %s",
			      rows[i].names, used(v, NR_ALL, &rules), rows[i].used);
	}
	all(v);
	rules.names = "^eth0";
	used(v, NR_ALL, &rules);
	ck_assert_str_eq(v[2].reason, "excluded by NCCL_SOCKET_IFNAME=^eth0");
	rules.names = "=eth1";
	used(v, NR_ALL, &rules);
	ck_assert_str_eq(v[2].reason, "not named by NCCL_SOCKET_IFNAME==eth1");
	ck_assert_str_eq(v[9].reason, "a second address of eth1");
}
END_TEST

START_TEST(t_hint)
{
	struct df_iface v[NR_ALL + 1];
	union df_sockaddr hint;
	struct df_iface_rules rules = {.hint = &hint};

	all(v);
	ck_assert_int_eq(df_addr_parse("10.2.33.44:1", &hint, 1), 0);
	ck_assert_str_eq(used(v, NR_ALL, &rules), "eth1=10.2.0.7");
	ck_assert_str_eq(v[2].reason, "not in the subnet of NCCL_COMM_ID");
	ck_assert_int_eq(df_addr_parse("[2001:db8::9]:1", &hint, 1), 0);
	ck_assert_str_eq(used(v, NR_ALL, &rules), "eth1=2001:db8::7");
	/* On one machine all ranks have the address 127.0.0.1. */
	ck_assert_int_eq(df_addr_parse("127.0.0.1:1", &hint, 1), 0);
	ck_assert_str_eq(used(v, NR_ALL, &rules), "lo=127.0.0.1");
	/* The address is in no subnet of this node. */
	ck_assert_int_eq(df_addr_parse("8.8.8.8:1", &hint, 1), 0);
	ck_assert_str_eq(used(v, NR_ALL, &rules), "eth0=10.1.0.7 eth1=10.2.0.7");
	/* NCCL_SOCKET_IFNAME takes precedence over the address. */
	ck_assert_int_eq(df_addr_parse("10.2.33.44:1", &hint, 1), 0);
	rules.names = "eth0";
	ck_assert_str_eq(used(v, NR_ALL, &rules), "eth0=10.1.0.7");
}
END_TEST

START_TEST(t_addresses)
{
	static const char *const good[] = {"127.0.0.1:1", "[::1]:65535", "[fe80::1%1]:80"};
	static const char *const bad[] = {"",	      "127.0.0.1",   ":80",    "127.0.0.1:0",
					  "[::1]",    "[]:1",	     "[::1:1", "127.0.0.1:65536",
					  "1.2.3:x",  "256.0.0.1:1", "::1",    "127.0.0.1:1 ",
					  "[1.2.3]:", "example.:700"};
	char text[DF_ADDR_TEXT], lengthy[600];
	union df_sockaddr a, b;
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(*good); i++) {
		ck_assert_msg(!df_addr_parse(good[i], &a, 1), "%s", good[i]);
		df_addr_format(&a, text, sizeof(text));
		ck_assert_str_eq(text, good[i]);
	}
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_msg(df_addr_parse(bad[i], &a, 1) == -EINVAL, "%s", bad[i]);
	memset(lengthy, '1', sizeof(lengthy));
	strcpy(lengthy + sizeof(lengthy) - 4, ":80");
	ck_assert_int_eq(df_addr_parse(lengthy, &a, 1), -EINVAL);

	df_addr_parse("10.1.2.3:1", &a, 1);
	df_addr_parse("10.1.3.3:1", &b, 1);
	ck_assert(df_addr_same_subnet(&a, &b, 0) && df_addr_same_subnet(&a, &b, 23));
	ck_assert(!df_addr_same_subnet(&a, &b, 24) && !df_addr_same_subnet(&a, &b, 32));
	df_addr_parse("[fe80::1%1]:1", &a, 1);
	df_addr_parse("[fe80::2%2]:1", &b, 1);
	ck_assert(!df_addr_same_subnet(&a, &b, 64) && df_addr_is_link_local(&a));
}
END_TEST

/* Returns a listener on 127.0.0.1, or -1. */
static int busy(int port)
{
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (bind(fd, (struct sockaddr *)&in, sizeof(in)) || listen(fd, 1)) {
		close(fd);
		return -1;
	}
	return fd;
}

START_TEST(t_ports)
{
	static const char *const bad[] = {"",	"0",  "x",     "5-4",	"1-65536",
					  "-5", "1-", "1-2-3", "1 - 2", "+1"};
	int first, last, fd[3], got[2], i, nr;
	union df_sockaddr a;
	char range[32];

	for (i = 0; i < (int)(sizeof(bad) / sizeof(*bad)); i++)
		ck_assert_msg(df_ports_parse(bad[i], &first, &last) == -EINVAL, "%s", bad[i]);
	ck_assert_int_eq(df_ports_parse("7", &first, &last), 0);
	ck_assert(first == 7 && last == 7);
	ck_assert_int_eq(df_ports_parse("1-65535", &first, &last), 0);
	ck_assert(first == 1 && last == 65535);

	/* Three free ports, below those that the kernel assigns. */
	first = 20000 + getpid() % 10000;
	for (;; first += 3) {
		for (i = 0; i < 3; i++)
			fd[i] = busy(first + i);
		nr = (fd[0] >= 0) + (fd[1] >= 0) + (fd[2] >= 0);
		/* The middle one remains occupied. */
		for (i = 0; i < 3; i++)
			if (fd[i] >= 0 && (i != 1 || nr < 3))
				close(fd[i]);
		if (nr == 3)
			break;
	}
	snprintf(range, sizeof(range), "%d-%d", first, first + 2);
	setenv("DFSHIM_PORTS", range, 1);
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(df_addr_parse("127.0.0.1:1", &a, 1), 0);
		df_addr_set_port(&a, 0);
		ck_assert_int_ge(df_addr_listen(&a, 1), 0);
		got[i] = df_addr_port(&a);
	}
	ck_assert_msg(got[0] + got[1] == 2 * first + 2 && got[0] != got[1] && got[0] != first + 1,
		      "%d and %d of %s", got[0], got[1], range);
	df_addr_set_port(&a, 0);
	ck_assert_int_eq(df_addr_listen(&a, 1), -EADDRINUSE);
	/* The range applies only to ports that no setting chooses. */
	for (first += 3;
	     (nr = df_addr_listen((df_addr_set_port(&a, first), &a), 1)) == -EADDRINUSE;)
		first++;
	ck_assert(nr >= 0 && df_addr_port(&a) == first);
}
END_TEST

int main(void)
{
	return DF_TESTS("interfaces", {t_default}, {t_last}, {t_named}, {t_hint}, {t_addresses},
			{t_ports});
}
