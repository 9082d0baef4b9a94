/*
 * Connectors of a collective: made, found again, recycled under a budget, given back. All under df_dev.lock, unless said.
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

/* The ways to the other ranks of a communicator, by rank. */
struct df_conn_comm {
	struct df_peer **peers; /* NULL until needed */
	const struct df_tl_ops **tls;
	int far; /* a rank of this process is on another GPU */
};

int df_coll_connect(struct df_coll *coll); /* at registration; dev->lock */
int df_conn_rank(const struct df_coll *coll,
		 const struct df_cend *end); /* which rank it leads to */
/* 1: the peer sees what our block stores as it is stored; both sides come to the same. */
int df_conn_direct(const struct df_comm *comm, int rank);
int df_coll_reconnect(struct df_coll *coll);   /* what has been parked; dev->lock */
void df_connector_connect(struct df_dev *dev); /* tries again what is missing; dev->lock */
void df_coll_disconnect(struct df_coll *coll);
/* Instances have been retired: how far they got on connectors whose counters the host can't see. */
void df_coll_note(struct df_coll *coll);
void df_conn_reap(void); /* closes what a peer still used when we left */
/* At the end: until sends have been received, living: of communicators that were not destroyed too; bounded. */
void df_conn_linger(int living);

/* byref.c: slices that the receiver reads where the sender has them. All under dev->lock, unless said. */
int df_refs_reach(const struct df_coll *coll, const struct df_cend *end); /* 1: an end's may be */
/* 1: what an end receives from another node may be read to where it goes. */
int df_refs_land(const struct df_cend *end);
uint32_t
df_refs_state(const struct df_cend *end);    /* enum df_kconn_state of an end that is connected */
int df_refs_far(const struct df_comm *comm); /* for df_conn_comm.far; no lock */
/* For df_kinst.shown: bits by enum df_buf of an operation's buffers that receivers here may read. May ask the driver: no lock held. */
uint32_t df_refs_shown(const struct df_comm *comm, const void *in, const void *out, uint64_t bytes);
/* What a communicator's operations have named that have not ended is not to be read any more: connectors that are concerned. */
uint32_t df_refs_withdraw(struct df_comm *comm);
/* Ends of this device that are concerned: its blocks know it from their next turn on. */
uint32_t df_refs_withdrawn(struct df_dev *dev);

/* recycle.c: connectors of idle collectives, under a budget. All under dev->lock. */
int df_conn_movable(const struct df_cend *end); /* it has a connector that could be given back */
void df_conn_make_room(const struct df_coll *coll, uint64_t bytes); /* before it makes one */
void df_recycle_look(struct df_dev *dev); /* gives what peers would like back, if they have asked */
void df_coll_let_go(struct df_coll *coll); /* gives what is wanted, if it is idle */

#endif
