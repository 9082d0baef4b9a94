/*
 * The network: connectors whose two ends lie on different nodes. What every medium shares is here and in net.c: numbered
 * slots, credits, announcements, what is resent after a fault. A medium (struct df_net_ops: plugins, verbs, sockets) only carries
 * frames between two endpoints, and sees to it that the bytes of a slice are in their slot before its frame arrives.
 *
 * An *endpoint* is a device of this process: one thread, one listener. A *link* leads from an endpoint to another one, of
 * another process or of this one; communicators that ask for different networks have links of their own. It has a *session*: TCP streams by which the two sides find each other, agree on a
 * medium and see that the other one is there (socket/socket.c). Its paths (these streams, a queue pair) are shared by all
 * connectors, so their number grows with peers, not with collectives. Each end of a connector has slots and counters of its own, in this process's arena;
 * to a block they look like any other connector's. The sender's thread sees its tail move and sends the slice; the
 * receiver's puts it into the slot of its number and moves the tail there; the receiver's head travels back as a credit.
 *
 * A slice stays in its slot until its receiver has consumed it, and has a number. So what was under way when a path broke
 * is sent again, and a receiver drops what it has already. Announcements carry numbers too, and are kept until they have
 * been acknowledged; credits are states, of which the last one counts. A fault is an event in the log; only when nothing
 * has been heard of the other side for DFSHIM_NET_TIMEOUT_MS, its link counts as lost (df_net_on_event()).
 *
 * Nothing waits for anything that another connector holds: a connector's credits are its own slots, and what it has not
 * sent lies there, not in a queue. Only the bytes on the wire come one after the other, and the receiver takes them off
 * it whatever they are.
 *
 * A medium may write into slots from the other side without asking. So the memory of a connector is given back when the
 * other side has acknowledged that it is closed: what it sent before has come by then, and it sends nothing more.
 *
 * Slots may lie in the memory of the endpoint's GPU, where RDMA devices alone get to (gpu.c): only where nothing else may join the
 * two, and counters are in host memory all the same.
 *
 * Threads: whoever makes a pass over an endpoint (progress.h) owns everything of it but what `lock` guards: lists through which the
 * application's threads hand over connectors, and tables of keys. No lock is held over a call that can block.
 */
#ifndef DF_TRANSPORT_NET_H
#define DF_TRANSPORT_NET_H

#include <stdint.h>
#include <uthash.h>

#include "runtime/base/once.h"
#include "runtime/transport/bell.h"
#include "runtime/transport/net/conn.h"
#include "runtime/transport/net/gpu.h"
#include "runtime/transport/net/inside.h"
#include "runtime/transport/net/medium.h"
#include "runtime/transport/net/progress.h"
#include "runtime/transport/transport.h"

struct df_net_link {
	struct df_net_ep *ep;
	struct df_net_link *next; /* of the endpoint; set for good */
	uint64_t proc;
	int device;		 /* the other side's */
	uint32_t without;	 /* networks that its communicators do not take */
	uint8_t verbs_only;	 /* by the settings; set for good */
	struct df_member member; /* the other side: df_net_member() */
	/* Under the lock. */
	struct df_net_conn *owned;   /* ours, by key */
	struct df_net_offer *offers; /* theirs, by key */
	uint32_t wanted;	     /* peer_get() has been called: its address is known; atomic */
	uint32_t dead;		     /* the process is gone, or the link is lost; atomic */
	/* The thread's. */
	struct df_list conns, notes;
	struct df_net_conn **by_id;
	uint32_t nr_ids;
	uint64_t made;		   /* connectors ever */
	uint64_t seq, sent, heard; /* numbered frames: made, given to the medium, got in order */
	uint64_t acked;		   /* what the last frame that we sent has acknowledged */
	uint64_t settled;	   /* of ours, what the other side has acknowledged */
	uint8_t opened, up, bye, broken, said;
	uint8_t told, heard_told; /* DF_NET_TOLD of this session: sent, got */
	uint64_t since;		  /* of the break, or of the first wish; 0: none */
	uint64_t alive;		  /* when the other side last gave a sign of life */
	uint64_t stuck;		  /* since when sessions come and no slice arrives; 0: one does */
	uint64_t look_at;	  /* when its medium wants to look at it again; 0 never */
	uint64_t attempts;	  /* to restore the path since it broke */
	int why;		  /* -errno of the last break */
	char what[192];		  /* the same in words, of a medium that has better ones; "" */
	void *session;		  /* socket.c's */
	/* The medium of this session, what it keeps of the link, and which ones are not tried any more (bits). */
	const struct df_net_ops *ops, *over; /* over: of the last one that was up */
	void *path;
	uint32_t avoid;
};

struct df_net_ep {
	struct df_bell bell
		__attribute__((aligned(64))); /* the blocks ring it; wakes through its descriptor */
	struct df_mutex lock;
	struct df_net_help help;
	struct df_net_inside inside;
	int device;
	uint32_t started;
	struct df_net_link *links; /* the newest; atomic, and none is ever taken away */
	struct df_list inbox;
	char address[64];      /* "" none */
	struct df_key key;     /* the secret of this process */
	uint64_t proc, passed; /* passed: when the last pass was made */
	uint64_t tell_at; /* when receivers tell what was not worth a frame of its own; 0 never */
	uint32_t flush,
		flushed; /* atomic: it is asked for; what was sent has been received, and what has come is told of */
	struct df_net_counts n; /* relaxed atomics: figures */
	struct df_net_gpu gpu;
	void *sessions;		    /* socket.c's */
	void *medium[DF_NET_MEDIA]; /* what they keep of the endpoint */
	uint32_t media;		    /* which ones can be used here (bits): once it has been found */
	struct df_once found;	    /* by the thread, or by who needs to know before */
};

static inline struct df_net_link *df_net_links(const struct df_net_ep *ep)
{
	/* ACQUIRE pairs with the RELEASE in df_net_link_of(): the link is complete. */
	return __atomic_load_n(&ep->links, __ATOMIC_ACQUIRE);
}

/* peer_get() has been called. */
static inline int df_net_wanted(const struct df_net_link *l)
{
	/* ACQUIRE pairs with the RELEASE in net_peer_get(). */
	return __atomic_load_n(&l->wanted, __ATOMIC_ACQUIRE) != 0;
}

static inline int df_net_dead(const struct df_net_link *l)
{
	/* ACQUIRE pairs with the RELEASE in df_net_mark_dead(). */
	return __atomic_load_n(&l->dead, __ATOMIC_ACQUIRE) != 0;
}

static inline void df_net_mark_dead(struct df_net_link *l)
{
	/* RELEASE pairs with the ACQUIRE in df_net_dead(): what we know of it comes first. */
	__atomic_store_n(&l->dead, 1, __ATOMIC_RELEASE);
	df_bell_ring(&l->ep->bell);
}

/* Both ends know each other, and neither has gone. The closed one is told of by another thread; relaxed: a frame more finds nobody. */
static inline int df_net_joined(const struct df_net_conn *c)
{
	return c->peer_id && !c->left && !__atomic_load_n(&c->closed, __ATOMIC_RELAXED);
}

static inline uint64_t df_net_tail(const struct df_net_conn *c)
{
	/*
	 * ACQUIRE pairs with the RELEASE of tail in dfk_commit() (kernels/task.inl): the slot is complete before we
	 * send it.
	 */
	return __atomic_load_n(&c->conn.hdr->tail, __ATOMIC_ACQUIRE);
}

static inline uint64_t df_net_head(const struct df_net_conn *c)
{
	/*
	 * ACQUIRE pairs with the RELEASE of head in dfk_commit(): the block has read the slot before we let its
	 * successor into it.
	 */
	return __atomic_load_n(&c->conn.hdr->head, __ATOMIC_ACQUIRE);
}

/* slots.c, on the thread: a connector is new; a session is: slices that are sent again; what is told in order. */
void df_net_begin(struct df_net_conn *c);
uint64_t df_net_again(struct df_net_link *l);
/* Sends what there is to send; tell: credits that are not worth a frame of their own, too. */
enum df_net_looked {
	DF_NET_MOVED = 1,
	DF_NET_SLICES = 2,  /* and slices were sent */
	DF_NET_CREDITS = 4, /* it has credits that are worth going along with slices */
} df_net_look(struct df_net_conn *c, uint64_t now, int tell);
/* It would send something now, if its link is up. */
int df_net_due(const struct df_net_conn *c);
int df_net_send_notes(struct df_net_link *l);
/* Says that all credits have been told, once they have; 1 if it has moved. */
int df_net_tell(struct df_net_link *l);
void df_net_acknowledged(struct df_net_link *l, uint64_t ack);

/* For a medium that carries bytes in order and not frames: takes frames out of them, wherever they are cut. */
struct df_net_reader {
	size_t have, left; /* of the frame; of the payload */
	uint8_t *to;	   /* where it goes; NULL: nobody wants it */
	struct df_net_frame f;
};

/* What a medium calls. */
struct df_net_link *df_net_link_of(struct df_net_ep *ep, uint64_t proc, int device,
				   uint32_t without);
void df_net_up(struct df_net_link *l);
void df_net_down(struct df_net_link *l, int why);
/* What is known of the other side: not yet who it is, where it has connected and peer_get() has not been called. */
const struct df_member *df_net_member(const struct df_net_link *l);
/* A sign of life, or a look whether there has been none for too long. */
void df_net_alive(struct df_net_link *l, uint64_t now);
/* The GPU's memory in which its place is, as it is registered; NULL: the host's. */
const struct df_net_mem *df_net_place_gpu(struct df_net_link *l, const struct df_net_frame *f);
/* Where the payload of a DATA frame goes, NULL: nobody wants it. */
void *df_net_place(struct df_net_link *l, const struct df_net_frame *f);
/* A frame has come, with its payload. -EPROTO: the other side is not what it seems. */
int df_net_arrived(struct df_net_link *l, const struct df_net_frame *f);
/* It will not come: the path broke in the middle of it. */
void df_net_dropped(struct df_net_link *l, const struct df_net_frame *f);
/* So many bytes have come, of which the reader takes all. 1: the session is over; -EPROTO. */
int df_net_read(struct df_net_link *l, struct df_net_reader *r, const uint8_t *at, size_t n);
/* The payload, or a part of it, has been put where it goes; the path has broken, maybe in the middle of it. */
int df_net_read_on(struct df_net_link *l, struct df_net_reader *r, size_t n);
void df_net_read_end(struct df_net_link *l, struct df_net_reader *r);
/* What is left of a slice goes to its slot, if its receiver does not want it elsewhere any more. */
void df_net_read_withdrawn(struct df_net_link *l, struct df_net_reader *r);
/* A frame that was taken is on its way, or will not be. */
void df_net_sent(struct df_net_link *l, struct df_net_conn *from);
/* Where a sender's slice is: in its slot; or where the block has left it, until that is withdrawn (runtime/coll/byref.c): its bytes mean nothing then. */
const void *df_net_payload(const struct df_net_conn *c, uint64_t pos);
/* Nothing will ever connect: as after the time-out, with the reason in l->why and l->what. */
void df_net_lost(struct df_net_link *l);
static inline void df_net_count(uint64_t *n, uint64_t by)
{
	__atomic_store_n(n, *n + by, __ATOMIC_RELAXED);
}

#endif
