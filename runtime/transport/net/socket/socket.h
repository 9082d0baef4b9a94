/*
 * The streams of sessions, for socket.c, which has the whole, greeting.c, which finds out who is at the other end of one, and
 * frames.c, which moves frames over it. An endpoint's thread owns them.
 */
#ifndef DF_TRANSPORT_NET_SOCKET_H
#define DF_TRANSPORT_NET_SOCKET_H

#include <net/if.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/list.h"
#include "runtime/base/net/sockaddr.h"
#include "runtime/base/time.h"
#include "runtime/transport/net/net.h"

#define STREAMS_MAX  16
#define OUT_MAX	     64 /* frames that a stream has in hand; a power of two */
#define GATHER_MAX   48 /* of one sendmsg() */
#define IN_BYTES     (64u << 10)
#define TURNS	     16 /* receives before another stream has its turn */
#define BULK_BYTES   4096
#define LARGE_BYTES  65536 /* slices that are read alone: the next one may be wanted elsewhere */
#define GUESS_AFTER  4	   /* times in a row that one stream alone had something */
#define GUESSES	     16	   /* of so many looks one is at all streams, the others at that one */
#define NEAR_US	     1000  /* where a packet there and back takes no longer */
#define STRANGERS    256   /* accepted connections that have proved nothing yet */
#define AGAIN_MIN    (5 * DF_NS_PER_MS) /* between attempts to connect */
#define AGAIN_MAX    DF_NS_PER_S
#define WIRE_VERSION ((uint32_t)DF_CTL_VERSION << 16 | DF_ABI_VERSION)
#define MAGIC	     0x356b6f7374656e64ull /* "dnetsok5" */

/* HELLO, KNOCK: in a hello. WELCOME: in an outcome; OVER: likewise, of a side that has given the link up. */
enum word { HELLO, WELCOME, KNOCK, OVER };

/* The messages of a greeting (greeting.c), in their order; the third is a proof alone. */
struct hello {
	uint64_t magic;
	uint32_t version;
	uint16_t index, nr;
	uint64_t from_proc, to_proc;
	int32_t from_device, to_device;
	uint64_t session;
	uint32_t word;	  /* enum word */
	uint32_t without; /* of the link */
	uint64_t carries; /* media of the end that connects */
	struct df_key challenge;
};

struct answer {
	struct df_key challenge, proof;
};

struct outcome {
	uint64_t carries; /* media that both ends have */
	uint32_t word;	  /* enum word */
	uint32_t zero;
};

enum state {
	KNOCKING,   /* connects, to learn whether the other side is there */
	CONNECTING, /* connects, for a session */
	STRANGER,   /* accepted; its hello is due */
	CHALLENGED, /* accepted; its proof is due */
	GREETING,   /* connected; an answer to our hello is due */
	PROVED,	    /* connected; the outcome is due */
	OPEN,	    /* of a session; frames travel */
	SHUT	    /* closed; freed soon */
};

struct out {
	struct df_net_frame f;
	const void *payload;
	struct df_net_conn *from;
};

struct stream {
	struct df_net_source source; /* first */
	enum state state;
	int fd;
	uint32_t index;
	uint32_t events;
	struct df_net_link *link; /* NULL: it was accepted, and has proved nothing yet */
	struct df_list node; /* the endpoint's strangers, the oldest first, or those to be freed */
	char who[64];
	struct hello hello;	 /* of the end that connects */
	struct df_key challenge; /* of the end that accepts */
	/* Out: frames from `head` to `tail`, of the first of which `off` bytes have gone. */
	uint32_t head, tail;
	size_t off;
	struct out out[OUT_MAX];
	/* In: of a message of the greeting; then of frames. */
	size_t have;
	struct df_net_reader reader;
	uint8_t in[IN_BYTES];
};

/* Of a link: its session. */
struct session {
	struct stream *v[STREAMS_MAX];
	uint32_t nr, nr_open, turn;
	uint64_t session, carries;
	struct df_key key; /* df_session_key(); of the first stream's greeting */
	struct stream *knock;
	uint64_t try_at, pause; /* 0: not now */
};

/* Of an endpoint. */
struct sessions {
	int epoll_fd, event_fd, listen_fd;
	struct df_list strangers, shut;
	uint32_t nr_strangers;
	struct stream *last; /* that something came over; NULL: none, or closed */
	uint32_t in_a_row, guesses;
	uint64_t accept_at; /* when who waits in the listener's queue is asked for; 0: nobody */
	union df_sockaddr local;
	char iface[IF_NAMESIZE]; /* that has this address */
	char congestion[16];	 /* the system's, if near nodes are not to have it; "" */
	struct df_net_source listener;
};

static inline struct sessions *df_sessions(const struct df_net_ep *ep)
{
	return ep->sessions;
}

static inline struct session *df_session(const struct df_net_link *l)
{
	return l->session;
}

/* Takes over a connected or connecting descriptor. NULL: no memory; it stays the caller's. */
struct stream *df_tcp_new(struct df_net_ep *ep, struct df_net_link *l, int fd, enum state state);
/*
 * What the descriptor is to have for congestion control, before it connects or listens: Reno where the system's is BBR. That paces what
 * it sends by what it has measured, and measures too little where both sides wait for each other after each slice; and
 * a connection that had it once is paced for good.
 */
void df_tcp_congestion(struct sessions *m, int fd);
/* The other side has answered. Where it is far away, the stream gets the system's congestion control after all. */
void df_tcp_opened(const struct sessions *m, struct stream *s);
/* What the thread wants to hear of it: EPOLLIN, EPOLLOUT. */
void df_tcp_events(const struct df_net_ep *ep, struct stream *s, uint32_t events);
/* Closed now, freed when no event can name it any more. */
void df_tcp_close(struct df_net_ep *ep, struct stream *s);
/* Puts frames on the wire, takes them off it: 1 if some bytes went or came. Where the stream breaks, its session ends. */
int df_tcp_flush(struct df_net_link *l, struct stream *s);
int df_tcp_receive(struct df_net_link *l, struct stream *s);
/* greeting.c: a stream is connected; something of a greeting has arrived: state is STRANGER, CHALLENGED, GREETING or PROVED. */
void df_greeting_connected(struct df_net_ep *ep, struct stream *s);
void df_greeting_look(struct df_net_ep *ep, struct stream *s);
/* The line in the log about connections that were refused: when it is due (UINT64_MAX: not), and written if it is. Any thread. */
uint64_t df_greeting_report_at(void);
void df_greeting_report(uint64_t now);
/* socket.c: the link's session, made if there is none; NULL: no memory. */
struct session *df_session_new(struct df_net_link *l);
/* socket.c: something has come; it has failed, with -errno. */
void df_tcp_ready(struct df_net_ep *ep, struct df_net_source *source, uint32_t events);
void df_tcp_fail(struct df_net_ep *ep, struct stream *s, int why);

#endif
