/*
 * The streams of sessions, shared by socket.c (sessions), greeting.c (authentication) and frames.c
 * (frames). The endpoint's thread owns them.
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

#define STREAMS_MAX 16
#define OUT_MAX	    64 /* frames queued on a stream, at most; a power of two */
#define GATHER_MAX  48 /* iovec entries of one sendmsg(), in frames */
#define IN_BYTES    (64u << 10)
#define TURNS	    16	 /* reads of one stream before the next stream is served */
#define BULK_BYTES  4096 /* smaller payloads go over the first stream, with all other frames */
/* Slices of at least this size are read alone: the next may have another destination. */
#define LARGE_BYTES  65536
#define GUESS_AFTER  4	  /* consecutive events of one stream before it is read without polling */
#define GUESSES	     16	  /* one poll in 16 is of all streams, by epoll_wait() */
#define NEAR_US	     1000 /* longest round-trip time of a near peer */
#define STRANGERS    256  /* unproved connections of an endpoint, at most */
#define AGAIN_MIN    (5 * DF_NS_PER_MS) /* pause between attempts to connect */
#define AGAIN_MAX    DF_NS_PER_S
#define WIRE_VERSION ((uint32_t)DF_CTL_VERSION << 16 | DF_ABI_VERSION)
#define MAGIC	     0x356b6f7374656e64ull /* "dnetsok5" */

enum word {
	HELLO,	 /* of a hello: opens a stream */
	WELCOME, /* of an outcome */
	KNOCK,	 /* of a hello: only probes whether the process lives */
	OVER,	 /* of an outcome: this side has given the link up */
};

/* The messages of a greeting (greeting.c), in order. The third is a proof alone. */
struct hello {
	uint64_t magic;
	uint32_t version;
	uint16_t index, nr;
	uint64_t from_proc, to_proc;
	int32_t from_device, to_device;
	uint64_t session;
	uint32_t word;	  /* enum word */
	uint32_t without; /* networks that the link avoids */
	uint64_t carries; /* media of the connecting end */
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
	KNOCKING,   /* connects, only to probe whether the process lives */
	CONNECTING, /* connects for a session */
	STRANGER,   /* accepted; waits for a hello */
	CHALLENGED, /* accepted; waits for a proof */
	GREETING,   /* connected; waits for the answer to our hello */
	PROVED,	    /* connected; waits for the outcome */
	OPEN,	    /* in a session; frames travel */
	SHUT	    /* closed; freed soon */
};

struct out {
	struct df_net_frame f;
	const void *payload;
	struct df_net_conn *from;
};

struct stream {
	struct df_net_source source; /* must be the first member */
	enum state state;
	int fd;
	uint32_t index;
	uint32_t events;
	struct df_net_link *link; /* NULL: accepted and not proved */
	/* in the list of unproved streams, oldest first, or of streams to free */
	struct df_list node;
	char who[64];
	struct hello hello;	 /* from the connecting end */
	struct df_key challenge; /* from the accepting end */
	/* Sending: frames `head` to `tail`; `off` bytes of the first are sent. */
	uint32_t head, tail;
	size_t off;
	struct out out[OUT_MAX];
	/* Receiving: bytes of a greeting message, later frames. */
	size_t have;
	struct df_net_reader reader;
	uint8_t in[IN_BYTES];
};

/* The session of a link. */
struct session {
	struct stream *v[STREAMS_MAX];
	uint32_t nr, nr_open;	/* number of its streams; of those that are open */
	uint32_t turn;		/* counts slices: the streams take turns */
	uint64_t session;	/* its number, which increases with each attempt */
	uint64_t carries;	/* media that both sides have */
	struct df_key key;	/* of the first stream's greeting; see df_session_key() */
	struct stream *knock;	/* a probe of the other side; NULL: none */
	uint64_t try_at, pause; /* time of the next attempt, and the pause before it; 0: none */
};

/* The sessions of an endpoint. */
struct sessions {
	int epoll_fd, event_fd, listen_fd;
	struct df_list strangers, shut;
	uint32_t nr_strangers;	    /* change it with df_strangers_add() */
	struct stream *last;	    /* the last stream that had data; NULL: none, or closed */
	uint32_t in_a_row, guesses; /* successive events of `last`; calls of guess() */
	uint64_t accept_at;	    /* when to accept again after a pause; 0: not paused */
	union df_sockaddr local;
	char iface[IF_NAMESIZE]; /* the interface with this address */
	/* the system's congestion control, if near peers should not use it; else "" */
	char congestion[16];
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

/*
 * Takes over a connected or connecting descriptor. Returns NULL without memory; the caller then
 * keeps the descriptor.
 */
struct stream *df_tcp_new(struct df_net_ep *ep, struct df_net_link *l, int fd, enum state state);
/*
 * Chooses the congestion control before the descriptor connects or listens: Reno if the system's is
 * BBR. BBR paces by its own measurements, which are too low where both sides wait for each other
 * after each slice, and a connection that once used it stays paced.
 */
void df_tcp_congestion(struct sessions *m, int fd);
/*
 * The connection is established. If the peer is far away, sets the system's congestion control
 * again.
 */
void df_tcp_opened(const struct sessions *m, struct stream *s);
/* Adds to the number of unproved connections of the endpoint, and of the process. */
void df_strangers_add(struct df_net_ep *ep, int by);
/* Sets the events to wait for: EPOLLIN, EPOLLOUT. */
void df_tcp_events(const struct df_net_ep *ep, struct stream *s, uint32_t events);
/* Closes it now; frees it when no pending event refers to it. */
void df_tcp_close(struct df_net_ep *ep, struct stream *s);
/* Sends or receives frames. Returns 1 if bytes moved. If the stream breaks, its session ends. */
int df_tcp_flush(struct df_net_link *l, struct stream *s);
int df_tcp_receive(struct df_net_link *l, struct stream *s);
/*
 * greeting.c: the stream is connected; a message of the greeting has arrived in a state before
 * OPEN.
 */
void df_greeting_connected(struct df_net_ep *ep, struct stream *s);
void df_greeting_look(struct df_net_ep *ep, struct stream *s);
/*
 * The log message about refused connections: when it is due (UINT64_MAX: never), and writing it if
 * it is due. Any thread.
 */
uint64_t df_greeting_report_at(void);
void df_greeting_report(uint64_t now);
/* socket.c: returns the link's session, which it makes if needed, or NULL without memory. */
struct session *df_session_new(struct df_net_link *l);
/* socket.c: handles events of a stream; handles its failure with -errno. */
void df_tcp_ready(struct df_net_ep *ep, struct df_net_source *source, uint32_t events);
void df_tcp_fail(struct df_net_ep *ep, struct stream *s, int why);

#endif
