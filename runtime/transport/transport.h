/*
 * Transports move slices into a peer's slots. A transport is one table of functions. Its
 * capabilities are data, no function blocks, and every transport passes the same conformance suite
 * (tests/transport).
 *
 * A connector has one owner, which allocates it in its arena and announces it under a 64-bit key in
 * its *directory*. The other side looks there until it finds the key: "not announced" means "not
 * ready". The receiver owns the connectors of collectives. The sender owns those of point-to-point
 * operations, so that a small send completes before its receive is posted.
 *
 * The gate of a connector keeps memory safe when it is recycled or its owner leaves:
 *
 *     OPEN ──use()──▶ USED ──unuse()──▶ OPEN        by the other side, around an instance
 *     OPEN ──close()─▶ CLOSED                       by the owner; fails with -EBUSY while USED
 *
 *     OPEN ──recycle()─▶ CLOSED                     by the owner; -EBUSY if USED or not empty
 *
 * A closed connector is removed from the directory; its memory is reused only after close()
 * succeeded.
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
	DF_TL_DIRECT = 8, /* the peer's slots are mapped here: the daemon moves data itself */
	DF_TL_BELL = 16,  /* df_kconn.bell wakes a sleeping peer */
	DF_TL_FAR = 32, /* slots and counters may be in GPU memory, which the CPU must not access */
};

/* A process that we reach over one transport. Reference-counted; communicators share it. */
struct df_peer;

/* Our side of a connector. */
struct df_conn {
	struct df_conn_hdr *hdr;
	struct df_peer *peer;
	const struct df_tl_ops *tl;
	uint64_t key;
	size_t bytes;  /* header and slots */
	uint8_t owner; /* whether we allocated it */
	uint8_t used;  /* whether we hold the gate */
	/* Whether the CPU cannot read the counters, and the header has those of df_conn_note(). */
	uint8_t noted;
	/* Over a network: the lengths of its slices, malloc()ed. NULL: full slots. */
	struct df_slices *slices;
};

/* Slice lengths: loops of per_loop slices of cnt[] tiles; the last loop may have short tiles. */
struct df_slices {
	uint64_t loops;
	uint32_t per_loop, tile_bytes, last_bytes;
	uint32_t cnt[];
};

/* Returns the bytes of a slice. The rest of its slot is not transferred. */
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

/* ZERO: slots are zeroed, and CPU threads also access them. SENDS: the owner sends. */
enum { DF_CONN_ZERO = 1, DF_CONN_SENDS = 2 };

struct df_tl_ops {
	const char *name;
	unsigned caps; /* enum df_tl_cap */
	/* Whether this transport reaches the member. Cheap. */
	int (*reachable)(const struct df_member *self, const struct df_member *peer);
	/* self: our rank, which names the device that uses it. */
	int (*peer_get)(const struct df_member *self, const struct df_member *peer,
			struct df_peer **out);
	void (*peer_put)(struct df_peer *peer);
	/*
	 * Owner: allocates a connector whose positions start at `base`, and announces it. how:
	 * DF_CONN_*. The owner's block zeroes the slots if the CPU cannot (df_kconn.proto). Returns
	 * -ENOMEM, -EEXIST if the key is announced already, or -EAGAIN while memory is being made.
	 */
	int (*create)(struct df_peer *peer, uint64_t key, uint32_t nr_slots, uint32_t slot_bytes,
		      int how, uint64_t base, struct df_conn **out);
	/* Other side: finds it. Returns -EAGAIN until it is announced, or -ECONNRESET. */
	int (*find)(struct df_peer *peer, uint64_t key, struct df_conn **out);
	/* Other side: takes and releases the gate. Returns -EAGAIN if closed; find it again. */
	int (*use)(struct df_conn *conn);
	void (*unuse)(struct df_conn *conn);
	/* Owner: frees it. Returns -EBUSY while used (never over a network). */
	int (*close)(struct df_conn *conn);
	/*
	 * Owner: closes it if it is unused and everything sent has been received, and sets *base to
	 * the position at which its successor begins. Else returns -EBUSY and changes nothing. If
	 * the CPU cannot read the counters, both sides must have noted their positions
	 * (df_conn_note()), the other side before it released the gate.
	 */
	int (*recycle)(struct df_conn *conn, uint64_t *base);
	/* Other side: frees its record of an unused connector. */
	void (*forget)(struct df_conn *conn);
	/* Fills in pointers, geometry and bell for a block. */
	void (*end)(const struct df_conn *conn, struct df_kconn *out);
};

/* Notes one side's position, where the CPU cannot read the counters. */
static inline void df_conn_note(struct df_conn *conn, uint64_t pos)
{
	/* Without the gate the header may belong to another connector. */
	if (conn->noted && (conn->owner || conn->used))
		/*
		 * Relaxed: only a difference matters, as in unconsumed()
		 * (runtime/coll/connector.c).
		 */
		__atomic_store_n(conn->owner ? &conn->hdr->tail : &conn->hdr->head, pos,
				 __ATOMIC_RELAXED);
}

/* In order of preference. */
extern const struct df_tl_ops *const df_tl_all[];
extern const unsigned df_tl_nr;

/* Returns the first transport that reaches the member, or NULL. */
const struct df_tl_ops *df_tl_select(const struct df_member *self, const struct df_member *peer);

/* Events of the connection from a device here to a device on another node. */
enum df_net_what {
	DF_NET_BROKEN,
	DF_NET_RESTORED,
	DF_NET_GONE,
	/*
	 * a function of the network's library does not return, so the device's networks stand still
	 */
	DF_NET_HELD,
	DF_NET_RETURNED, /* that function has returned */
	DF_NET_UNMAPPED, /* not of a network: memory of a process of this node cannot be mapped */
};
struct df_net_event {
	enum df_net_what what;
	int device, peer_device;
	uint64_t proc, host; /* the other process, and the hash of its machine */
	uint32_t pid;
	int error;   /* -errno of the break, or of the last attempt to restore it */
	uint64_t ns; /* since the break; GONE: since the last sign of life; HELD: since the call */
	uint64_t attempts;	      /* number of attempts to restore it */
	const char *from, *to, *over; /* addresses, and the network; valid until fn returns */
	const char *why;	      /* text of the error; HELD, UNMAPPED: the message */
	const char *port;	      /* our interface and its state: "eth0, up" */
};
/*
 * Sets the handler of events. It is called in a pass over the endpoint, must not wait, and must not
 * take a lock that a caller of df_tl_withdrawn() may hold. GONE is sent once, DFSHIM_NET_TIMEOUT_MS
 * after the last sign of life.
 */
void df_net_on_event(void (*fn)(const struct df_net_event *e));
/*
 * Sets the handler for a lack of file descriptors to map a process of this node. It must not wait;
 * it may be called under the control plane's lock.
 */
void df_shm_on_no_file(void (*fn)(uint64_t proc));
/* Reports network functions that do not return (HELD, RETURNED). Called every `pause`. */
void df_net_look_held(uint64_t now, uint64_t pause);
/*
 * Returns the networks (as in struct df_member) that a communicator avoids. comm: its commName, or
 * "". name: the network it asks for (NCCL's netName), or "". Returns all networks if the device has
 * none of that name. DFSHIM_NET and NCCL_NET take precedence, as in NCCL. The first call may take
 * seconds.
 */
uint32_t df_net_avoid(int device, const char *comm, const char *name);
/* Stores the device's network address, or "", and opens its listener. Returns -errno. */
int df_net_address(int device, char *text, size_t bytes);
/* Counters of this process since its start. */
struct df_net_counts {
	uint64_t frames_sent, frames_got, bytes_sent, bytes_got; /* bytes of slices */
	/* slices sent again after a fault; slices received twice */
	uint64_t resent, dropped;
	/* slices that were read directly to their destination, past their slots */
	uint64_t landed;
	uint64_t reads_back; /* RDMA reads of GPU memory after slices arrived there */
	/* connections made, broken and restored; peers given up */
	uint64_t links, faults, healed, lost;
};
void df_net_counts(struct df_net_counts *out);
/* Waits until all slices sent over networks were received, at most bound_ns. Called at exit. */
void df_tl_flush(uint64_t bound_ns);
/*
 * Called in exit(): no function of a network's library is called from now on, because the library's
 * own exit handlers run next. Operations over such a network stop.
 */
void df_tl_end(void);
/* Later disconnects are not faults and are not reported (df_net_on_event()). */
void df_net_goodbye(void);
/*
 * Sets the function that is called, on any thread, when a network's library was started. exit()
 * runs handlers that such a library registers before those that were registered earlier.
 */
void df_tl_on_library(void (*fn)(void));
/*
 * Makes a pass over the device's networks on a thread that waits for an operation, so no other
 * thread has to be woken for it. Never blocks; the caller holds no lock. Returns 1 if it made
 * progress.
 */
int df_tl_progress(int device);
/*
 * Call after connectors of the device were marked as withdrawn. When it returns, the networks no
 * longer read what the senders referred to, nor write where the receivers wanted slices. Waits for
 * a pass of another thread, never for a peer.
 */
void df_tl_withdrawn(int device);
/*
 * Flushes an operation that the caller has begun now (df_now_ns()), because the peer waits for it
 * and the caller may not wait soon. It does nothing if passes are frequent. It sends the first
 * operation of a burst; those within the next microseconds travel with later ones. A busy caller
 * need not flush: its next call will.
 */
void df_tl_begun(int device, uint64_t now);
/* The caller stops waiting: the networks' thread takes over, entirely if it sleeps. */
void df_tl_leave(int device, int sleeps);

/* Returns the bytes of connectors that this process owns now. */
uint64_t df_tl_bytes(void);
/* Returns the largest value of df_tl_bytes(). */
uint64_t df_tl_most(void);

/* Returns this process's bell, in memory that peers on the node map; see bell.h. */
struct df_bell *df_tl_bell(void);

#endif
