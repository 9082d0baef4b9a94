/*
 * Two machines measure the paths between them. One runs `dfshim net --listen`, the other names it.
 * All connections go to one port of the listener, so a firewall needs one rule. A connection begins
 * with a greeting that states its purpose; a client that sends anything else is dropped. Numbers on
 * the wire are big-endian.
 *
 * ASK the listener sends its interfaces: a count, then that many struct pair_iface
 *   ECHO it returns each message of PAIR_MESSAGE bytes
 *   SINK it reads bytes until the other side has no more, then sends their number
 *   SOURCE it sends bytes for the requested milliseconds (at most PAIR_MS_MAX), then closes
 *
 * The listener does nothing else: it opens no connections, and closes those that last longer than
 * PAIR_BOUND_S or are silent for PAIR_SILENT_S.
 */
#ifndef DF_CLI_NET_PAIR_H
#define DF_CLI_NET_PAIR_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/base/net/ifaces.h"

#define PAIR_PORT	  28029
#define PAIR_MAGIC	  "dfnet 1\n"
#define PAIR_MESSAGE	  8
#define PAIR_MS_MAX	  5000
#define PAIR_BOUND_S	  60
#define PAIR_SILENT_S	  10
#define PAIR_CONNECTIONS  64
#define PAIR_STREAMS_MAX  16
#define PAIR_IFACES_MAX	  16
#define PAIR_BUFFER_BYTES (256 << 10)

enum pair_kind { PAIR_ASK = 1, PAIR_ECHO, PAIR_SINK, PAIR_SOURCE };

struct pair_greeting {
	char magic[8];
	uint32_t kind, ms;
};

/* An interface that the listener uses; the best is first. */
struct pair_iface {
	char name[16];
	char ip[DF_ADDR_TEXT]; /* without scope */
	uint32_t mtu, mbps;
};

struct pair_config {
	double timeout_s; /* a step without progress for this time has failed */
	double seconds;	  /* duration of the flow in each direction */
	int streams;
};

struct pair_result {
	struct df_iface from;
	struct pair_iface to;
	char error[400];		   /* "" if the pair was measured */
	double latency_us, latency_p99_us; /* latency is half of the round trip */
	double gbps_out, gbps_in;	   /* in 10^9 bytes a second */
	unsigned mtu;			   /* MTU of the path, as the kernel knows it */
};

struct pair_peer {
	char text[300];	 /* the peer as the user named it */
	char error[400]; /* why the peer could not be asked, or "" */
	int nr;
	struct pair_result *v;
};

/* Parses "host", "host:port", "[v6]:port" or "v6". Resolves nothing. Fails with -EINVAL. */
int pair_parse(const char *text, char *host, size_t host_size, char *port, size_t port_size);

/*
 * Measures every pair of interfaces with the peer, one after the other; shows progress on standard
 * error. The caller frees out->v.
 */
void pair_test(const char *peer, const struct pair_config *config, struct pair_peer *out);

/*
 * Serves until a signal, or until no client has connected for idle_s (0: for ever). Returns the
 * exit status.
 */
int pair_listen(int port, double idle_s);

#endif
