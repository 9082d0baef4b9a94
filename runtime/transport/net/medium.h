/*
 * What net.c and slots.c (net.h) need of a medium, and a medium of a session: one table for plugins, verbs and sockets, and the
 * functions of socket/socket.c by which two sides find each other.
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
#define DF_NET_NONE                                                                                \
	(DF_NET_BIT_PLUGIN | DF_NET_BIT_VERBS | DF_NET_BIT_TCP) /* avoided: all of them */

/* What the endpoint's thread waits for besides its bell: a descriptor that a medium has given to df_session_watch(). */
struct df_net_source {
	void (*ready)(struct df_net_ep *ep, struct df_net_source *s, uint32_t events);
};

/*
 * A medium: all by who makes a pass over the endpoint; no table has a gap. It says that something has come (df_net_arrived() and so on)
 * from poll(), push(), setup() and its sources alone.
 */
struct df_net_ops {
	const char *name;
	uint8_t helped; /* 1: none of its functions blocks or calls a library: threads that wait may make passes */
	uint8_t gathers; /* 1: push() puts all that send() has taken on the wire at once */
	/* Can it serve this endpoint? Called once, bounded. 0; -errno after it has said why, where somebody has to know. */
	int (*start)(struct df_net_ep *ep);
	/* Lets others read and write so much memory, if it can; and no longer. */
	void (*allow)(struct df_net_ep *ep, void *at, size_t bytes, struct df_net_mem *out);
	void (*forbid)(struct df_net_ep *ep, struct df_net_mem *mem);
	/* A session has begun: df_net_up() when frames can travel. -errno: they never will. */
	int (*begin)(struct df_net_link *l);
	/* The session is over: of what was taken nothing moves any more, and nobody writes into our memory. */
	void (*end)(struct df_net_link *l);
	/* What the other side's begin() or setup() has sent, maybe before our begin(). 1: the session is over; -EPROTO. */
	int (*setup)(struct df_net_link *l, const struct df_net_frame *f);
	/*
	 * Takes a frame, whose `ack` it sets when it is sent; the payload, of a connector that is counted in its refs, stays
	 * valid until df_net_sent(). -EAGAIN: no room now, poll() makes some.
	 */
	int (*send)(struct df_net_link *l, const struct df_net_frame *f, const void *payload,
		    struct df_net_conn *from);
	/* Puts frames on the wire that have been taken; 1 if it moved. */
	int (*push)(struct df_net_link *l);
	/* Looks for what has come and gone; 1 if it moved. arm: what comes from now on wakes the thread. */
	int (*poll)(struct df_net_link *l, uint64_t now, int arm);
};

extern const struct df_net_ops df_net_tcp, df_net_verbs, df_net_plugin;
/* By the places of their bits. */
extern const struct df_net_ops *const df_net_media[DF_NET_MEDIA];

/* The path from the GPU to the nearest of its ports; DF_PCI_UNKNOWN also where it has none. */
enum df_pci_path df_verbs_nearest(const struct df_net_ep *ep);

/* Memory of a GPU for the ports of verbs, for as long as the process lives. -errno, with the reason. By who makes a pass. */
int df_verbs_allow_gpu(struct df_net_ep *ep, const struct df_far_rdma *at, struct df_net_mem *out,
		       char *why, size_t size);

/*
 * All that ports of verbs have written into the GPU's memory until now is read back, and so seen: what done() is to be asked with.
 * look() posts such reads and takes those that are back, 1 if it moved: slices arrive there, sessions may end. due: when it
 * has to be called by itself; UINT64_MAX: not.
 */
uint64_t df_verbs_readback_ask(struct df_net_ep *ep);
int df_verbs_readback_done(const struct df_net_ep *ep, uint64_t asked);
int df_verbs_readback_look(struct df_net_ep *ep, uint64_t now, int arm);
uint64_t df_verbs_readback_due(const struct df_net_ep *ep);

/* Sessions, socket/socket.c. Where others reach the device, into ep->address. Any thread, once. */
int df_session_listen(struct df_net_ep *ep);
/* Before the endpoint's thread starts, and after listen(): ep->bell wakes it from then on. */
int df_session_start(struct df_net_ep *ep);
/* The link is wanted: keep a session with it, from now on and whatever happens, until it is closed. */
void df_session_open(struct df_net_link *l);
void df_session_close(struct df_net_link *l);
/* 1: this side makes the connections. */
int df_session_connects(const struct df_net_link *l);
/* The link's medium has failed: the session ends, the next one begins soon. */
void df_session_fail(struct df_net_link *l, int why);
/* Sends a frame over the session's streams; as df_net_ops.send. */
int df_session_send(struct df_net_link *l, const struct df_net_frame *f, const void *payload,
		    struct df_net_conn *from);
int df_session_push(struct df_net_link *l);
/* Where slices are that have been taken and not sent, and where those go that have come in part, is asked again. */
void df_session_withdrawn(struct df_net_link *l);
/* What has come, without waiting; 1 if it moved. Called after a pass: the time of that is the present. */
int df_session_poll(struct df_net_ep *ep);
/* Until something comes, the bell rings or the time is over (ns; -1 never). By the thread, which need not own the endpoint. */
void df_session_sleep(struct df_net_ep *ep, int64_t timeout_ns);
/* 1: frames that were taken have not gone. */
int df_session_unsent(const struct df_net_link *l);
/* When it has to look again by itself; UINT64_MAX never. */
uint64_t df_session_timer(struct df_net_ep *ep, uint64_t now);
int df_session_watch(struct df_net_ep *ep, int fd, struct df_net_source *s);
/* A key that the two ends of the link's present session have, and nobody else. From the medium's begin() or setup() to its end(). */
struct df_key df_session_key(const struct df_net_link *l);
/* The interface that the endpoint's sessions go over, and its state: "eth0, up". */
void df_session_port(const struct df_net_ep *ep, char *text, size_t bytes);
/* In a fork's child: the parent's descriptors are closed. */
void df_session_forked(struct df_net_ep *ep);

#endif
