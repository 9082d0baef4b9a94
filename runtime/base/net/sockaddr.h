/*
 * Socket addresses: IPv4 and IPv6 in one type, their text forms, and listeners on ports that users
 * can choose. Stateless; any thread. Functions return 0 or -errno.
 *
 * A text is "host:port" or "[v6]:port". A link-local IPv6 address names its interface after a '%'.
 */
#ifndef DF_BASE_NET_SOCKADDR_H
#define DF_BASE_NET_SOCKADDR_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>

union df_sockaddr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage storage;
};

/* Enough for any text of the functions below. */
#define DF_ADDR_TEXT 72

/*
 * Parses an address with a port, 1 to 65535. Resolves names unless numeric_only; that may block.
 * Returns -EINVAL if the text has another form or the name has no address.
 */
int df_addr_parse(const char *text, union df_sockaddr *out, int numeric_only);
/* Formats address and port, or the address alone. size: DF_ADDR_TEXT is enough. */
void df_addr_format(const union df_sockaddr *addr, char *text, size_t size);
void df_addr_format_ip(const union df_sockaddr *addr, char *text, size_t size);
socklen_t df_addr_len(const union df_sockaddr *addr);
int df_addr_port(const union df_sockaddr *addr);
void df_addr_set_port(union df_sockaddr *addr, int port);

/* Whether the address is in fe80::/10 or 169.254.0.0/16, which are valid on one link only. */
int df_addr_is_link_local(const union df_sockaddr *addr);
/*
 * Whether both have one family and the same first `bits` bits and, for link-local IPv6, the same
 * interface if both name one.
 */
int df_addr_same_subnet(const union df_sockaddr *a, const union df_sockaddr *b, unsigned bits);

/*
 * An abstract unix socket. Its name is a separate random number, because every user of the machine
 * can read it.
 */
socklen_t df_addr_unix(uint64_t sock, union df_sockaddr *out);

/*
 * Opens a listener on addr, non-blocking and close-on-exec, and stores its port in *addr. Port 0
 * asks for a free port, within DFSHIM_PORTS if that is set; returns -EADDRINUSE if none of those is
 * free, and warns once per process. Returns the descriptor or -errno. All sockets that others
 * connect to are opened here, so a firewall needs one rule.
 */
int df_addr_listen(union df_sockaddr *addr, int backlog);
/*
 * Returns how many file descriptors this process may spend on connections that have proved nothing:
 * an eighth of those it may have. The job needs the others.
 */
uint32_t df_addr_unproved_max(void);
/*
 * Raises the soft limit of open files to the hard limit, as NCCL's bootstrap root does, if it is
 * less than `below`. Returns 1 if it was lower.
 */
int df_addr_raise_files(rlim_t below);
/* Formats a reason for EMFILE that names the limit. size: DF_NO_FILE_TEXT is enough. */
#define DF_NO_FILE_TEXT 96
void df_addr_no_file(char *text, size_t size);
/* Parses "first-last" or "port". Returns -EINVAL for anything else. */
int df_ports_parse(const char *text, int *first, int *last);

/*
 * Identifies this node: equal for processes with the same boot, network namespace and user, which
 * can reach one another by abstract sockets.
 */
uint64_t df_addr_host_hash(void);
/* A random number that names a process, a socket or an id; never 0. Not a secret. */
uint64_t df_addr_random(void);

#endif
