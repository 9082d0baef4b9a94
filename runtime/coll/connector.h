/*
 * Connectors of a collective: making and finding them, recycling them under a budget, giving them
 * back. All under df_dev.lock, unless said otherwise.
 */
#ifndef DF_RUNTIME_COLL_CONNECTOR_H
#define DF_RUNTIME_COLL_CONNECTOR_H

#include <stdint.h>

struct df_cend;
struct df_coll;
struct df_comm;
struct df_dev;
struct df_peer;
struct df_tl_ops;

/* The transports to the other ranks of a communicator, by rank. */
struct df_conn_comm {
	struct df_peer **peers; /* NULL until needed */
	const struct df_tl_ops **tls;
	int far; /* whether a rank of this process is on another GPU */
};

int df_coll_connect(struct df_coll *coll); /* at registration; dev->lock */
int df_conn_rank(const struct df_coll *coll,
		 const struct df_cend *end); /* the rank at the other end */
/*
 * Whether the peer sees what a block of ours stores as soon as it is stored. Both sides get the
 * same answer.
 */
int df_conn_direct(const struct df_comm *comm, int rank);
int df_coll_reconnect(struct df_coll *coll);   /* connects parked ends; dev->lock */
void df_connector_connect(struct df_dev *dev); /* tries again to connect missing ends; dev->lock */
void df_coll_disconnect(struct df_coll *coll);
/*
 * After instances have been retired: notes how far they got on connectors whose counters the host
 * cannot read.
 */
void df_coll_note(struct df_coll *coll);
void df_conn_reap(void); /* closes connectors that a peer still used when we left */
/*
 * Before the process ends: waits, for a bounded time, until sends have been received. living:
 * includes sends of communicators that were not destroyed.
 */
void df_conn_linger(int living);

/*
 * byref.c: slices that the receiver reads from the sender's buffer. All under dev->lock, unless
 * said otherwise.
 */
/* whether the end may use such slices */
int df_refs_reach(const struct df_coll *coll, const struct df_cend *end);
/*
 * Whether a slice that the end receives from another node may be stored in the receive buffer
 * itself, without a copy.
 */
int df_refs_land(const struct df_cend *end);
uint32_t df_refs_state(const struct df_cend *end); /* enum df_kconn_state of a connected end */
int df_refs_far(const struct df_comm *comm);	   /* for df_conn_comm.far; no lock */
/*
 * For df_kinst.shown: the buffers of an operation, as bits by enum df_buf, that receivers in this
 * process may read. May ask the driver: no lock is held.
 */
uint32_t df_refs_shown(const struct df_comm *comm, const void *in, const void *out, uint64_t bytes);
/*
 * Withdraws the slices that unfinished operations of the communicator have named. Returns the
 * number of connectors concerned.
 */
uint32_t df_refs_withdraw(struct df_comm *comm);
/*
 * Marks the ends of this device that are concerned: its blocks see that from their next turn on.
 * Returns their number.
 */
uint32_t df_refs_withdrawn(struct df_dev *dev);

/* recycle.c: connectors of idle collectives, under a budget. All under dev->lock. */
/* whether it has a connector that can be recycled */
int df_conn_movable(const struct df_cend *end);
/* before it makes a connector */
void df_conn_make_room(const struct df_coll *coll, uint64_t bytes);
void df_recycle_look(struct df_dev *dev);  /* lets go of connectors that peers have asked for */
void df_coll_let_go(struct df_coll *coll); /* lets go of its wanted connectors if it is idle */

#endif
