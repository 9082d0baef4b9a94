/*
 * The network interfaces of this process's network namespace, and the choice of those to use by
 * NCCL's rules, with a reason for each address. The control plane, the socket transport and `dfshim
 * net` share it.
 *
 * Usage:
 *   data       struct df_iface v[8]; int n = df_ifaces_chosen(v, 8);
 *              n interfaces, the best first, one address each (v[i].addr, port 0). Listen on them
 *              with df_addr_listen(). bind() a socket to v[i].addr before connect(), or the route
 *              decides which interface it uses. mtu and mbps are weights.
 *   control    the first of them: df_ifaces_chosen(&v, 1).
 *   all        df_ifaces_find(): also the unused ones, with reasons.
 *
 * Rules, as in NCCL: NCCL_SOCKET_FAMILY limits the family. NCCL_SOCKET_IFNAME names interfaces:
 * "eth,ib0" by prefix, "=eth0" exactly, "^docker" all but these; no others are then considered.
 * Without it the first of these groups that exists is used: ib*; the subnet of NCCL_COMM_ID; any
 * but docker*, lo, virbr*; docker*; lo; virbr*. An interface must be up and have carrier. One
 * address of each is used: IPv4 before IPv6, global before link-local. Unlike NCCL, an interface
 * that has only a link-local address is the last of its group.
 *
 * Nothing is cached, because interfaces change. Threads: any. df_ifaces_find() and
 * df_ifaces_chosen() read the settings and query the kernel. They can block only if NCCL_COMM_ID
 * has a host name, which they resolve. They return counts, or -errno.
 */
#ifndef DF_BASE_NET_IFACES_H
#define DF_BASE_NET_IFACES_H

#include <net/if.h>

#include "runtime/base/net/sockaddr.h"

/* One address of an interface. An interface without an address has one row, of family AF_UNSPEC. */
struct df_iface {
	char name[IF_NAMESIZE];
	unsigned index;
	unsigned flags;		/* IFF_* */
	unsigned mtu;		/* 0 unknown */
	int mbps;		/* reported by the driver; 0 unknown */
	unsigned prefix;	/* length of the subnet's prefix, in bits */
	union df_sockaddr addr; /* port 0; a link-local IPv6 address has its scope */
	int order;		/* position in the order of use, from 1; 0: not used */
	char reason[96];	/* why it is used, or not */
};

struct df_iface_rules {
	const char *names;	       /* NCCL_SOCKET_IFNAME; NULL or "" none */
	int family;		       /* AF_INET, AF_INET6, or AF_UNSPEC for both */
	const union df_sockaddr *hint; /* the address of NCCL_COMM_ID, or NULL */
};

/*
 * Lists every address in the kernel's order, with order and reason. The caller frees *out. Returns
 * the count, or -errno.
 */
int df_ifaces_find(struct df_iface **out);

/*
 * Stores the addresses to use, best first, at most max. Returns the count, or -errno; warns of 0
 * once per process.
 */
int df_ifaces_chosen(struct df_iface *out, int max);

/*
 * Returns "up", "up without carrier", "down", "not there any more", or "in an unknown state". Does
 * not block.
 */
const char *df_ifaces_state(const char *name);

/*
 * Logs one line at level info, once per process: the used interfaces, and why others are not used.
 */
void df_ifaces_log(void);

/*
 * Applies the rules to a list, for df_ifaces_find() and tests. Fills order and reason; returns the
 * number used.
 */
int df_ifaces_choose(struct df_iface *v, int nr, const struct df_iface_rules *rules);

#endif
