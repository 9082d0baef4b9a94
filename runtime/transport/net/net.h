/*
 * The network: connectors whose two ends are on different nodes. This folder holds what
 * all media share: numbered slots, credits, announcements, resending after a fault. A medium
 * (struct df_net_ops: plugins, verbs, sockets) only carries frames between two endpoints, and
 * delivers the bytes of a slice into its slot before the frame arrives.
 *
 * An *endpoint* is a device of this process, with one thread and one listener. A *link* connects an
 * endpoint with another, of this process or another one; communicators that use different networks
 * have different links. A link has a *session*: TCP streams by which the two sides find each other,
 * agree on a medium and see that the other side lives (socket/socket.c). All connectors of a link
 * share its paths (these streams, or a queue pair), so the number of paths grows with peers, not
 * with collectives. Each end of a connector has slots and counters of its own in the arena of its
 * process; for a block it looks like any other connector. The sender's thread sees the tail move
 * and sends the slice; the receiver's thread writes it into the slot of its number and moves its
 * own tail; the receiver's head returns as a credit.
 *
 * A slice has a number and stays in its slot until the receiver has consumed it. After a path
 * breaks, the sender sends the open slices again, and the receiver drops those it has.
 * Announcements are numbered too, and kept until acknowledged. Credits are states; the last one
 * counts. A fault is an event in the log. A link is lost when the other side has sent nothing for
 * DFSHIM_NET_TIMEOUT_MS, when no medium connects the two, or when the other side has given it up
 * (df_net_on_event()).
 *
 * No connector waits for a resource of another: its credits are its own slots, and unsent data stay
 * in its slots, not in a queue. Only the bytes on the wire are in sequence, and the receiver reads
 * them whatever they are.
 *
 * The other side's medium may write into our slots at any time. So the memory of a connector is
 * freed only when the other side has acknowledged that it is closed: its earlier writes have then
 * arrived, and it makes no more.
 *
 * Slots may be in the memory of the endpoint's GPU, which only RDMA devices reach (gpu.c). This
 * requires that no other medium may connect the two; counters stay in host memory.
 *
 * Threads: the thread that makes a pass over an endpoint (progress.h) owns all of it except what
 * `lock` guards: the lists through which the application's threads pass connectors, and tables of
 * keys. No lock is held across a call that can block.
 */
#ifndef DF_TRANSPORT_NET_H
#define DF_TRANSPORT_NET_H

#include <stdint.h>
#include <uthash.h>

#include "runtime/base/once.h"
#include "kernels/bell.h"
#include "runtime/transport/net/conn.h"
#include "runtime/transport/net/gpu.h"
#include "runtime/transport/net/help.h"
#include "runtime/transport/net/inside.h"
#include "runtime/transport/net/net_link.h"
#include "runtime/transport/net/medium.h"
#include "runtime/transport/transport.h"

struct df_net_link {
	struct df_net_ep *ep;
	struct df_net_link *next; /* of the endpoint; never changes */
	uint64_t proc;
	int device;		 /* of the other side */
	uint32_t without;	 /* media that its communicators avoid */
	uint8_t verbs_only;	 /* by the settings; never changes */
	struct df_member member; /* the other side; see df_net_member() */
	/* Under the lock: */
	struct df_net_conn *owned;   /* connectors that we own, by key */
	struct df_net_offer *offers; /* connectors that the other side owns, by key */
	uint32_t wanted;	     /* peer_get() was called, so its address is known; atomic */
	uint32_t dead;		     /* the process died or the link is lost; atomic */
	/* The thread owns these: */
	struct df_list conns, notes;
	struct df_net_conn **by_id;
	uint32_t nr_ids;
	uint64_t made; /* connectors ever made */
	/* numbered frames: made, given to the medium, received in order */
	uint64_t seq, sent, heard;
	uint64_t acked;	  /* `ack` of the last frame that we sent */
	uint64_t settled; /* our frames that the other side has acknowledged */
	uint8_t opened;	  /* 0: no session was requested yet, 1: one is kept, 2: closed for good */
	uint8_t up;	  /* frames can travel */
	uint8_t bye;	  /* DF_NET_BYE has arrived */
	uint8_t broken;	  /* a session that was up has ended, and none has been up since */
	uint8_t said;	  /* this break has been reported */
	uint8_t told, heard_told; /* DF_NET_TOLD of this session: sent, received */
	uint64_t since;		  /* time of the break, or of the first request; 0: neither */
	uint64_t alive;		  /* when the other side last sent anything */
	/* since when sessions begin but no slice arrives; 0: slices arrive */
	uint64_t stuck;
	uint64_t look_at;  /* when its medium needs the next poll; 0: never */
	uint64_t attempts; /* to restore the path since it broke */
	int why;	   /* -errno of the last break */
	char what[192];	   /* a better text for the break, from the medium; or "" */
	void *session;	   /* of socket.c */
	/*
	 * The medium of this session, its state for the link, and the media not to try again
	 * (bits).
	 */
	const struct df_net_ops *ops, *over; /* over: medium of the last session that was up */
	void *path;
	uint32_t avoid;
};

struct df_net_ep {
	struct df_bell bell
		__attribute__((aligned(64))); /* blocks ring it; its descriptor wakes the thread */
	struct df_mutex lock;
	struct df_net_help help;
	struct df_net_inside inside;
	int device;
	uint32_t started;
	struct df_net_link *links; /* the newest; atomic; links are never removed */
	struct df_list inbox;
	char address[64];      /* "" if none */
	struct df_key key;     /* the secret of this process */
	uint64_t proc, passed; /* passed: time of the last pass */
	uint64_t tell_at;      /* when to send delayed credits; 0: never */
	/*
	 * Number of the last request to flush, and of the last one served: all sent data were
	 * received and all arrivals acknowledged. Atomic.
	 */
	uint32_t flush, flushed;
	struct df_net_counts n; /* relaxed atomics: statistics */
	struct df_net_gpu gpu;
	void *sessions; /* of socket.c */
	/* Formats the interface of the sessions and its state: "eth0, up". Set by socket.c. */
	void (*port)(const struct df_net_ep *ep, char *text, size_t bytes);
	void *medium[DF_NET_MEDIA]; /* state of each medium for the endpoint */
	/* All media, by position of their bit; those that the settings allow (bits). */
	const struct df_net_ops *const *ops;
	uint32_t wants;
	uint32_t media; /* usable media (bits), once `found` is done */
	/* the search for media, by the thread or by an earlier caller */
	struct df_once found;
};

static inline struct df_net_link *df_net_links(const struct df_net_ep *ep)
{
	/* ACQUIRE pairs with the RELEASE in df_net_link_of(): the link is complete. */
	return __atomic_load_n(&ep->links, __ATOMIC_ACQUIRE);
}

/* Whether peer_get() has been called. */
static inline int df_net_wanted(const struct df_net_link *l)
{
	/* ACQUIRE pairs with the RELEASE in net_peer_get(): the address is complete. */
	return __atomic_load_n(&l->wanted, __ATOMIC_ACQUIRE) != 0;
}

static inline int df_net_dead(const struct df_net_link *l)
{
	/* ACQUIRE pairs with the RELEASE in df_net_mark_dead(): the reason is complete. */
	return __atomic_load_n(&l->dead, __ATOMIC_ACQUIRE) != 0;
}

static inline void df_net_mark_dead(struct df_net_link *l)
{
	/*
	 * RELEASE pairs with the ACQUIRE in df_net_dead(): the reason is visible before the flag.
	 */
	__atomic_store_n(&l->dead, 1, __ATOMIC_RELEASE);
	df_bell_ring(&l->ep->bell);
}

/*
 * Whether both ends know each other and neither is closed. Relaxed: another thread sets `closed`,
 * and a frame for a closed end is dropped.
 */
static inline int df_net_joined(const struct df_net_conn *c)
{
	return c->peer_id && !c->left && !__atomic_load_n(&c->closed, __ATOMIC_RELAXED);
}

static inline uint64_t df_net_tail(const struct df_net_conn *c)
{
	/*
	 * ACQUIRE pairs with the RELEASE of tail in dfk_commit() (kernels/task.inl): the slot is
	 * complete before we send it.
	 */
	return __atomic_load_n(&c->conn.hdr->tail, __ATOMIC_ACQUIRE);
}

static inline uint64_t df_net_head(const struct df_net_conn *c)
{
	/*
	 * ACQUIRE pairs with the RELEASE of head in dfk_commit(): the block has read the slot
	 * before we let the next slice into it.
	 */
	return __atomic_load_n(&c->conn.hdr->head, __ATOMIC_ACQUIRE);
}

/*
 * slots.c, on the thread. df_net_begin() starts a new connector. df_net_again() prepares slices for
 * resending in a new session and returns how many.
 */
void df_net_begin(struct df_net_conn *c);
uint64_t df_net_again(struct df_net_link *l);
/* Sends what is ready. tell: also credits that are not worth a frame of their own. */
enum df_net_looked {
	DF_NET_MOVED = 1,
	DF_NET_SLICES = 2,  /* and slices were sent */
	DF_NET_CREDITS = 4, /* it has credits that are worth sending along with slices */
} df_net_look(struct df_net_conn *c, uint64_t now, int tell);
/* Whether df_net_look() would send something now if the link is up. */
int df_net_due(const struct df_net_conn *c);
int df_net_send_notes(struct df_net_link *l);
/* Sends DF_NET_TOLD once all credits are sent; returns 1 if it did. */
int df_net_tell(struct df_net_link *l);
void df_net_acknowledged(struct df_net_link *l, uint64_t ack);

/* For a medium that carries a byte stream: reads frames from it, wherever the stream is cut. */
struct df_net_reader {
	size_t have, left; /* bytes read of the frame; bytes left of the payload */
	uint8_t *to;	   /* address of the payload; NULL: dropped */
	struct df_net_frame f;
};

/* Functions that a medium calls. */
/* Returns the registered GPU memory that holds the frame's slot, or NULL if it is host memory. */
const struct df_net_mem *df_net_place_gpu(struct df_net_link *l, const struct df_net_frame *f);
/* Returns the address for the payload of a DATA frame, or NULL if it is not wanted. */
void *df_net_place(struct df_net_link *l, const struct df_net_frame *f);
/*
 * Handles a frame whose payload, if any, has arrived. Returns -EPROTO if the other side breaks the
 * protocol.
 */
int df_net_arrived(struct df_net_link *l, const struct df_net_frame *f);
/* The payload of this frame will not arrive: the path broke in the middle of it. */
void df_net_dropped(struct df_net_link *l, const struct df_net_frame *f);
/* Consumes all n bytes of the stream. Returns 1 if the session is over, or -EPROTO. */
int df_net_read(struct df_net_link *l, struct df_net_reader *r, const uint8_t *at, size_t n);
/*
 * df_net_read_on(): n bytes of the payload are in place. df_net_read_end(): the path broke, perhaps
 * within a frame.
 */
int df_net_read_on(struct df_net_link *l, struct df_net_reader *r, size_t n);
void df_net_read_end(struct df_net_link *l, struct df_net_reader *r);
/* Directs the rest of a slice to its slot if the receiver has withdrawn its other address. */
void df_net_read_withdrawn(struct df_net_link *l, struct df_net_reader *r);
/* Releases a frame that send() accepted: it was sent, or never will be. */
void df_net_sent(struct df_net_conn *from);
/*
 * Returns the address of a sender's slice: its slot, or the user buffer that it refers to. Once the
 * reference is withdrawn (runtime/coll/byref.c), the slot is used and its bytes have no meaning.
 */
const void *df_net_payload(const struct df_net_conn *c, uint64_t pos);
static inline void df_net_count(uint64_t *n, uint64_t by)
{
	__atomic_store_n(n, *n + by, __ATOMIC_RELAXED);
}

#endif
