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
 * Whether the peer's blocks see stores of our blocks at once, without a network between. Both sides
 * get the same answer.
 */
int df_conn_direct(const struct df_comm *comm, int rank);
int df_coll_reconnect(struct df_coll *coll);   /* connects parked ends; dev->lock */
void df_connector_connect(struct df_dev *dev); /* tries again to connect missing ends; dev->lock */
void df_coll_disconnect(struct df_coll *coll);
/*
 * Call after instances have been retired: notes the positions that they reached on connectors whose
 * counters the host cannot read.
 */
void df_coll_note(struct df_coll *coll);
void df_conn_reap(void); /* closes connectors that a peer still used when we left */
/*
 * Before the process ends: waits, for a bounded time, until sends have been received. living:
 * includes sends of communicators that were not destroyed.
 */
void df_conn_linger(int living);

#endif
