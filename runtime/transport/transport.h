/*
 * Transports: how slices get into a peer's slots. A transport is one table of functions; capabilities are
 * data; nothing blocks; every transport passes the same conformance suite (tests/transport).
 *
 * A connector has one owner, which allocates it in its arena and announces it under a 64-bit key in its
 * *directory*; the other side looks there until it finds it ("not announced" is simply "not ready").
 * For collectives the receiver owns it; for point-to-point the sender does, so that a small send completes
 * before its receive is posted.
 *
 * The gate of a connector keeps memory safe when it is recycled or its owner leaves:
 *
 *     OPEN ──use()──▶ USED ──unuse()──▶ OPEN        by the other side, around an instance
 *     OPEN ──close()─▶ CLOSED                       by the owner; fails with -EBUSY while USED
 *
 *     OPEN ──recycle()─▶ CLOSED                     by the owner; -EBUSY while USED or while anything is in it
 *
 * A closed connector is removed from the directory; its memory is reused only after close() succeeded.
 */
#ifndef DF_TRANSPORT_H
#define DF_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>
#include "kernels/abi.h"
#include "runtime/ctl/ctl.h"

enum df_tl_cap {
	DF_TL_SAME_PROCESS = 1,
	DF_TL_SAME_NODE = 2,
	DF_TL_NETWORK = 4,
	DF_TL_DIRECT = 8, /* the peer's slots are plain memory here: the daemon moves data itself */
	DF_TL_BELL = 16,  /* a sleeping peer is woken by df_kconn.bell */
	DF_TL_FAR =
		32, /* the host may not touch the peer's slots and counters: they may be a GPU's */
};

/* A process that we talk to, by one transport. Reference-counted; shared between communicators. */
struct df_peer;

/* Our side of a connector. */
struct df_conn {
	struct df_conn_hdr *hdr;
	struct df_peer *peer;
	const struct df_tl_ops *tl;
	uint64_t key;
	size_t bytes;  /* header and slots */
	uint8_t owner; /* 1: we allocated it */
	uint8_t used;  /* 1: the gate is held by us */
	/* 1: the counters are where the host can't look; those of the header are what df_conn_note() was told. */
	uint8_t noted;
	/* Over a network: how long its slices are, malloc()ed, the transport's to free. NULL: as slots are. */
	struct df_slices *slices;
};

/* Slices of a connector by their number: loops of per_loop slices, cnt[] tiles each; all but the last loop's are whole. */
struct df_slices {
	uint64_t loops;
	uint32_t per_loop, tile_bytes, last_bytes;
	uint32_t cnt[];
};

/* Bytes of a slice: what lies beyond them in its slot need not travel. */
static inline uint32_t df_conn_slice(const struct df_conn *conn, uint32_t slot_bytes, uint64_t pos)
{
	const struct df_slices *s = conn->slices;
	uint64_t bytes;
	uint32_t cnt;

	if (!s)
		return slot_bytes;
	cnt = s->cnt[pos % s->per_loop];
	bytes = cnt ? (uint64_t)(cnt - 1) * s->tile_bytes : 0;
	if (cnt)
		bytes += pos / s->per_loop % s->loops == s->loops - 1 ? s->last_bytes
								      : s->tile_bytes;
	return bytes < slot_bytes ? (uint32_t)bytes : slot_bytes;
}

/* Of a new connector: its slots are zeroed, and threads read and write them as well; its owner sends. */
enum { DF_CONN_ZERO = 1, DF_CONN_SENDS = 2 };

struct df_tl_ops {
	const char *name;
	unsigned caps; /* enum df_tl_cap */
	/* 1 if this transport gets from here to the member. Cheap. */
	int (*reachable)(const struct df_member *self, const struct df_member *peer);
	/* self: our rank, which names the device that will use it. */
	int (*peer_get)(const struct df_member *self, const struct df_member *peer,
			struct df_peer **out);
	void (*peer_put)(struct df_peer *peer);
	/*
	 * Owner: allocates a connector with positions starting at `base` and announces it; how: DF_CONN_*. Slots
	 * are zeroed by the owner's block where the host can't (df_kconn.proto). -ENOMEM,
	 * -EEXIST: the key is announced already; -EAGAIN: there is no memory yet, but there will be.
	 */
	int (*create)(struct df_peer *peer, uint64_t key, uint32_t nr_slots, uint32_t slot_bytes,
		      int how, uint64_t base, struct df_conn **out);
	/* Other side: finds it. -EAGAIN: not announced yet; -ECONNRESET: the process is gone. */
	int (*find)(struct df_peer *peer, uint64_t key, struct df_conn **out);
	/* Other side: takes and gives the gate. use: -EAGAIN when closed (find it again). */
	int (*use)(struct df_conn *conn);
	void (*unuse)(struct df_conn *conn);
	/* Owner: -EBUSY while used (not over a network, where the other side has slots of its own). After 0 it is gone. */
	int (*close)(struct df_conn *conn);
	/*
	 * Owner: closes it if nobody uses it and everything sent has been received; *base is where its
	 * successor begins. Else -EBUSY, and nothing has changed. Where the host does not see the counters, both
	 * sides have to have noted how far they are (df_conn_note()), the other one before it gave the gate back.
	 */
	int (*recycle)(struct df_conn *conn, uint64_t *base);
	/* Other side: forgets it (not used). */
	void (*forget)(struct df_conn *conn);
	/* What a block needs to drive it: pointers, geometry, bell. */
	void (*end)(const struct df_conn *conn, struct df_kconn *out);
};

/* One side's progress on a connector, for which the host vouches; matters where the counters are out of reach. */
static inline void df_conn_note(struct df_conn *conn, uint64_t pos)
{
	/* Without the gate the header may be another connector's. */
	if (conn->noted && (conn->owner || conn->used))
		/* Relaxed: only a difference counts, as in unconsumed() (runtime/coll/connector.c). */
		__atomic_store_n(conn->owner ? &conn->hdr->tail : &conn->hdr->head, pos,
				 __ATOMIC_RELAXED);
}

/* In order of preference; no table has a gap. */
extern const struct df_tl_ops *const df_tl_all[];
extern const unsigned df_tl_nr;

/* The first transport that reaches the member; NULL none. */
const struct df_tl_ops *df_tl_select(const struct df_member *self, const struct df_member *peer);

/* What happened to the way from a device here to one on another node. */
enum df_net_what {
	DF_NET_BROKEN,
	DF_NET_RESTORED,
	DF_NET_GONE,
	DF_NET_HELD, /* a function of the network's library does not return; nothing of the device moves on networks */
	DF_NET_RETURNED, /* it has */
	DF_NET_UNMAPPED, /* not of a network: the memory of a process of this node cannot be mapped */
};
struct df_net_event {
	enum df_net_what what;
	int device, peer_device;
	uint64_t proc, host; /* the other process, the hash of its host */
	uint32_t pid;
	int error; /* -errno that broke it, or of the last attempt to restore it */
	uint64_t
		ns; /* since it broke; GONE: since there was a sign of life; HELD: since the call */
	uint64_t attempts;	      /* to restore it */
	const char *from, *to, *over; /* addresses, and the network; until fn returns */
	const char *
		why; /* error, or what the network says of it; HELD, UNMAPPED: what is to be said */
	const char *port; /* our interface and its state: "eth0, up" */
};
/*
 * fn: on a thread that must not wait, in a pass over the endpoint: it takes no lock that a caller of df_tl_withdrawn() may hold. GONE comes
 * once, DFSHIM_NET_TIMEOUT_MS after the last sign of life.
 */
void df_net_on_event(void (*fn)(const struct df_net_event *e));
/* fn: descriptors lack to map the memory of a process of this node. On a thread that must not wait; may be under the control plane's lock. */
void df_shm_on_no_file(void (*fn)(uint64_t proc));
/*
 * Looks for functions of networks' libraries that do not return, and tells of them (HELD, RETURNED). One thread, every `pause`: if
 * there is much more between two looks, the process was stopped.
 */
void df_net_look_held(uint64_t now, uint64_t pause);
/*
 * Networks that a communicator (by its commName, "" none) does not take which asks for one by name (NCCL's netName; "" any), as struct
 * df_member has them: all, where the device has none of that name. DFSHIM_NET and NCCL_NET come first, as in NCCL. May take seconds the
 * first time.
 */
uint32_t df_net_avoid(int device, const char *comm, const char *name);
/* Where the device is reached over a network, "" not at all; opens it. -errno: it can't be. */
int df_net_address(int device, char *text, size_t bytes);
/* Of this process, since its start. */
struct df_net_counts {
	uint64_t frames_sent, frames_got, bytes_sent, bytes_got; /* bytes of slices */
	uint64_t resent, dropped; /* slices: sent again after a fault; got twice, or by nobody */
	uint64_t landed;	  /* slices that were read to where they go, past their slots */
	uint64_t reads_back;	  /* of GPUs' memory, behind slices that have come there */
	uint64_t faults, healed, lost; /* connections broken, restored; peers given up */
};
void df_net_counts(struct df_net_counts *out);
/* What this process has sent over networks has been received, or so much time has passed. For its end. */
void df_tl_flush(uint64_t bound_ns);
/*
 * exit() has been called: no function of a library that was loaded for a network is called any more, because its own end comes now.
 * What uses such a network from now on stands still.
 */
void df_tl_end(void);
/*
 * The process is at its end, and the others are about to hear so: what they cut off from now on is no fault, and nobody is told of it
 * (df_net_on_event()).
 */
void df_net_goodbye(void);
/* fn: such a library has been started, and what it does at exit() comes before what was registered earlier. Any thread. */
void df_tl_on_library(void (*fn)(void));
/*
 * A thread that waits for an operation of the device moves what its networks have to do, in place of their own thread: no other
 * one has to be woken for it. Blocks nowhere; the caller holds no lock. 1 if something moved.
 */
int df_tl_progress(int device);
/*
 * Connectors of the device have been marked as withdrawn: when this returns, nothing more is read of what their senders have named, nor
 * written where their receivers wanted it. Waits for a pass of another thread, for no peer.
 */
void df_tl_withdrawn(int device);
/*
 * What the caller has begun, now (df_now_ns()), goes on its way, unless passes are made all the time: the caller may not wait for it, and
 * the other side does. The first of a burst is sent; what follows within some microseconds goes along with what is sent next. An
 * application that has called all the time is late by accident: then its next call or wait is soon enough, and costs no message more.
 */
void df_tl_begun(int device, uint64_t now);
/*
 * It has nothing more to wait for, and what it could not send is the networks' thread's again; or (sleeps) it is about to sleep, and
 * all is.
 */
void df_tl_leave(int device, int sleeps);

/* Bytes of connectors owned by this process now. */
uint64_t df_tl_bytes(void);
/* The most that they have been. */
uint64_t df_tl_most(void);

/* This process's bell, in memory that peers on the node map (bell.h uses it to sleep). */
struct df_bell *df_tl_bell(void);

#endif
