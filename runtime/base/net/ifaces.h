/*
 * The network interfaces of this process's network namespace, and which of them are used: by NCCL's rules, with a
 * reason for each address, in one place for the control plane, the socket transport and `dfshim net`.
 *
 * How to use it:
 *   data       struct df_iface v[8]; int n = df_ifaces_chosen(v, 8);
 *              n interfaces, the best first, one address each (v[i].addr, port 0). Listen on them with
 *              df_addr_listen(); bind() the socket to v[i].addr before connect(), or the route decides which
 *              interface is used. mtu and mbps weigh them.
 *   control    the first of them: df_ifaces_chosen(&v, 1).
 *   all        df_ifaces_find(): also those that are not used, with reasons.
 *
 * The rules, as NCCL's. NCCL_SOCKET_FAMILY limits the family. NCCL_SOCKET_IFNAME names interfaces: "eth,ib0"
 * beginnings, "=eth0" exact names, "^docker" all but these; then nothing else is looked at. Without it the first
 * of these that is there: ib*; the subnet of NCCL_COMM_ID; any but docker*, lo, virbr*; docker*; lo; virbr*. An
 * interface has to be up and have carrier. One address of each is used: IPv4 before IPv6, global before link-local.
 * Unlike NCCL, an interface that has a link-local address only is left to last within its group.
 *
 * Nothing is kept between calls: interfaces come and go. Any thread; df_ifaces_find() and df_ifaces_chosen() read
 * the settings and ask the kernel, they block on nothing else, unless NCCL_COMM_ID has a host name: then the
 * resolver is asked. Results: counts, or -errno.
 */
#ifndef DF_BASE_NET_IFACES_H
#define DF_BASE_NET_IFACES_H

#include <net/if.h>

#include "runtime/base/net/sockaddr.h"

/* One address of an interface; one without any has one row too, of family AF_UNSPEC. */
struct df_iface {
	char name[IF_NAMESIZE];
	unsigned index;
	unsigned flags;		/* IFF_* */
	unsigned mtu;		/* 0 unknown */
	int mbps;		/* as its driver says; 0 unknown */
	unsigned prefix;	/* length of the subnet's, in bits */
	union df_sockaddr addr; /* port 0; a link-local IPv6 address has its scope */
	int order;		/* 1 the first to be used, and so on; 0: not used */
	char reason[96];	/* why, or why not */
};

struct df_iface_rules {
	const char *names;	       /* NCCL_SOCKET_IFNAME; NULL or "" none */
	int family;		       /* AF_INET, AF_INET6, or AF_UNSPEC for both */
	const union df_sockaddr *hint; /* the address of NCCL_COMM_ID, or NULL */
};

/* Every address, in the kernel's order; order and reason are filled. free(*out). The count, or -errno. */
int df_ifaces_find(struct df_iface **out);

/* The ones to use, best first, at most max. 0: there is none; a warning has said so, once a process. */
int df_ifaces_chosen(struct df_iface *out, int max);

/* "up", "up without carrier", "down", "not there any more", or "in an unknown state". Does not block. */
const char *df_ifaces_state(const char *name);

/* One line for the log at info: what is used, and of the rest why not. Once a process. */
void df_ifaces_log(void);

/* The rules on a list, for df_ifaces_find() and tests: fills order and reason; how many are used. */
int df_ifaces_choose(struct df_iface *v, int nr, const struct df_iface_rules *rules);

/* 1: the list, as in NCCL_SOCKET_IFNAME and NCCL_IB_HCA without ports, has this name; "^" turns it round. */
int df_ifaces_match(const char *list, const char *name);

#endif
