/*
 * The interface between the network (net.h) and the media: one table each for plugins, verbs
 * and sockets, and the functions of socket/socket.c that keep the sessions in which two sides agree
 * on a medium.
 */
#ifndef DF_TRANSPORT_NET_MEDIUM_H
#define DF_TRANSPORT_NET_MEDIUM_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/net/auth.h"
#include "runtime/base/net/pci.h"

struct df_far_rdma;
struct df_net_conn;
struct df_net_ep;
struct df_net_frame;
struct df_net_link;
struct df_net_mem;

/* Media, in order of preference. */
enum { DF_NET_BIT_PLUGIN = 1, DF_NET_BIT_VERBS = 2, DF_NET_BIT_TCP = 4, DF_NET_MEDIA = 3 };
#define DF_NET_RAILS 8 /* ports that a medium may use for one endpoint */
/* All media; as a set to avoid: no network. */
#define DF_NET_NONE (DF_NET_BIT_PLUGIN | DF_NET_BIT_VERBS | DF_NET_BIT_TCP)

/* A descriptor that the endpoint's thread waits on besides its bell; see df_session_watch(). */
struct df_net_source {
	void (*ready)(struct df_net_ep *ep, struct df_net_source *s, uint32_t events);
};

/* The further functions of a medium that reaches GPU memory, for the thread that makes a pass. */
struct df_net_gpu_ops {
	/* Returns the path from the GPU to the nearest of the medium's ports, or DF_PCI_UNKNOWN. */
	enum df_pci_path (*nearest)(const struct df_net_ep *ep);
	/*
	 * Registers GPU memory for the life of the process. Returns -errno with the reason in why.
	 */
	int (*allow)(struct df_net_ep *ep, const struct df_far_rdma *at, struct df_net_mem *out,
		     char *why, size_t size);
	/*
	 * A write into GPU memory is visible to the GPU once a later RDMA read of that memory has
	 * completed. ask() returns a number that covers all writes until now; done() returns
	 * whether reads have completed up to it. look() posts and completes such reads and returns
	 * 1 if it made progress; slices arrive there, and sessions may end. due() returns when
	 * look() has to be called without an event; UINT64_MAX: never.
	 */
	uint64_t (*ask)(struct df_net_ep *ep);
	int (*done)(const struct df_net_ep *ep, uint64_t asked);
	int (*look)(struct df_net_ep *ep, uint64_t now, int arm);
	uint64_t (*due)(const struct df_net_ep *ep);
};

/*
 * A medium. The thread that makes a pass over the endpoint calls these functions. Only poll(),
 * push(), setup() and its sources may report arrivals (df_net_arrived() and so on).
 */
struct df_net_ops {
	const char *name;
	/* 1 if no function blocks or calls a library: waiting threads may then make passes */
	uint8_t helped;
	uint8_t gathers; /* 1 if push() sends all that send() has accepted at once */
	/*
	 * Starts the medium for this endpoint. Called once; bounded. Returns 0, or -errno after a
	 * message if the user has to know.
	 */
	int (*start)(struct df_net_ep *ep);
	/* Registers memory for remote access; forbid() ends that. NULL: the medium has none. */
	void (*allow)(struct df_net_ep *ep, void *at, size_t bytes, struct df_net_mem *out);
	void (*forbid)(struct df_net_ep *ep, struct df_net_mem *mem);
	/*
	 * A session begins. The medium calls df_net_up() when frames can travel. -errno if they
	 * never will.
	 */
	int (*begin)(struct df_net_link *l);
	/*
	 * The session is over: no accepted frame moves any more, and the peer no longer writes into
	 * our memory.
	 */
	void (*end)(struct df_net_link *l);
	/*
	 * Handles a SETUP frame of the other side's begin() or setup(), perhaps before our begin().
	 * Returns 1 if the session is over, or -EPROTO.
	 */
	int (*setup)(struct df_net_link *l, const struct df_net_frame *f);
	/*
	 * Accepts a frame; sets its `ack` when it is sent. The payload stays valid until
	 * df_net_sent(), which releases the reference on `from`. Returns -EAGAIN if there is no
	 * room; poll() makes room.
	 */
	int (*send)(struct df_net_link *l, const struct df_net_frame *f, const void *payload,
		    struct df_net_conn *from);
	/* Sends accepted frames; returns 1 if it made progress. */
	int (*push)(struct df_net_link *l);
	/*
	 * Handles arrivals and completions; returns 1 if there were any. arm: later ones wake the
	 * thread.
	 */
	int (*poll)(struct df_net_link *l, uint64_t now, int arm);
	const struct df_net_gpu_ops *gpu; /* NULL: it does not reach GPU memory */
};

extern const struct df_net_ops df_net_tcp, df_net_verbs, df_net_plugin;

/*
 * Sessions, socket/socket.c. Opens the listener and stores its address in ep->address. Any thread,
 * once.
 */
int df_session_listen(struct df_net_ep *ep);
/*
 * Called before the endpoint's thread starts and after listen(). From then on ep->bell wakes the
 * thread.
 */
int df_session_start(struct df_net_ep *ep);
/* Keeps a session for the link until df_session_close(), whatever happens. */
void df_session_open(struct df_net_link *l);
void df_session_close(struct df_net_link *l);
/* Whether this side makes the connections. */
int df_session_connects(const struct df_net_link *l);
/* The link's medium has failed: ends the session; the next one begins soon. */
void df_session_fail(struct df_net_link *l, int why);
/* Sends a frame over the session's streams; as df_net_ops.send. */
int df_session_send(struct df_net_link *l, const struct df_net_frame *f, const void *payload,
		    struct df_net_conn *from);
int df_session_push(struct df_net_link *l);
/*
 * Recomputes the addresses of slices that are accepted but not sent, and of those that have arrived
 * in part.
 */
void df_session_withdrawn(struct df_net_link *l);
/*
 * Handles arrivals without waiting; returns 1 if there were any. Called after a pass, whose time is
 * taken as the present.
 */
int df_session_poll(struct df_net_ep *ep);
/*
 * Waits until something arrives, the bell rings or the time is over (ns; -1: never). Called by the
 * thread, which need not own the endpoint.
 */
void df_session_sleep(struct df_net_ep *ep, int64_t timeout_ns);
/* Whether accepted frames are unsent. */
int df_session_unsent(const struct df_net_link *l);
/* Returns when it needs a call without an event; UINT64_MAX: never. */
uint64_t df_session_timer(struct df_net_ep *ep);
/* Makes the endpoint's thread call s->ready() when the descriptor is readable. Returns -errno. */
int df_session_watch(struct df_net_ep *ep, int fd, struct df_net_source *s);
/*
 * Returns a key that only the two ends of the present session know. From the medium's begin() or
 * setup() to its end().
 */
struct df_key df_session_key(const struct df_net_link *l);
/* In the child of a fork: closes the parent's descriptors. */
void df_session_forked(struct df_net_ep *ep);

#endif
