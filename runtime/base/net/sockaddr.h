/*
 * Socket addresses: IPv4 and IPv6 in one type, their texts, and listeners on ports that users can choose.
 * Stateless; any thread. Results: 0 or -errno.
 *
 * A text is "host:port" or "[v6]:port"; a link-local IPv6 address has its interface behind a '%'.
 */
#ifndef DF_BASE_NET_SOCKADDR_H
#define DF_BASE_NET_SOCKADDR_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

union df_sockaddr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage storage;
};

/* Room for any text of the functions below. */
#define DF_ADDR_TEXT 72

/*
 * With port, which must be 1 to 65535. Unless numeric_only, names are resolved: that may block. -EINVAL: not of this
 * form, or the name has no address.
 */
int df_addr_parse(const char *text, union df_sockaddr *out, int numeric_only);
/* With port; and the address alone. size: DF_ADDR_TEXT is enough. */
void df_addr_format(const union df_sockaddr *addr, char *text, size_t size);
void df_addr_format_ip(const union df_sockaddr *addr, char *text, size_t size);
socklen_t df_addr_len(const union df_sockaddr *addr);
int df_addr_port(const union df_sockaddr *addr);
void df_addr_set_port(union df_sockaddr *addr, int port);

/* 1: fe80::/10 or 169.254.0.0/16, which mean something on one link only. */
int df_addr_is_link_local(const union df_sockaddr *addr);
/* 1: of one family, and the first `bits` bits are equal; and, where link-local IPv6, of one interface if both say. */
int df_addr_same_subnet(const union df_sockaddr *a, const union df_sockaddr *b, unsigned bits);

/*
 * A listener on addr, non-blocking and close-on-exec; *addr then has its port. Port 0: a free one, of DFSHIM_PORTS
 * if that is set; -EADDRINUSE if none of those is free (one warning a process names them). The descriptor or -errno.
 * Every socket that others connect to comes from here, so that a firewall needs one rule.
 */
int df_addr_listen(union df_sockaddr *addr, int backlog);
/* "first-last" or "port"; -EINVAL. */
int df_ports_parse(const char *text, int *first, int *last);

/* This node: equal where boot, network namespace and user are, so that abstract sockets reach. */
uint64_t df_addr_host_hash(void);

#endif
