/*
 * Data shared by the two halves of the compiler, lower.c and lower_schedule.c. Private to this
 * folder.
 */
#ifndef DF_RUNTIME_PROGRAM_LANG_LOWER_INT_H
#define DF_RUNTIME_PROGRAM_LANG_LOWER_INT_H

#include "runtime/program/lang/lang_int.h"

struct df_ledge {
	uint32_t node, next; /* next: 1 + index */
};

struct df_lnode {
	/* store: a later instruction needs the stored result of a receive-reduce */
	uint8_t op, dead, store;
	int rank, src_buf, dst_buf, channel;
	uint32_t src, dst, cnt, line;
	uint32_t preds;		 /* local: 1 + index of an edge */
	uint32_t send_x, recv_x; /* its transfers: numbers of operations; NONE: none */
	uint32_t depth, height, waits;
	uint32_t into; /* the node that this one is fused into */
	uint32_t block, at;
	uint8_t ready, done;
};

struct df_lplace {
	uint32_t writer, readers, nr_readers; /* since the last write */
};

/* One direction of a pair of ranks on a channel. */
struct df_lconn {
	int src, dst, channel;
	/* Transfers sent and not yet received: 1 + index, linked by xfer.next. */
	uint32_t head, tail;
	/*
	 * DF_BLOCKS_PEER: the connections that share its block, at the destination and at the
	 * source.
	 */
	uint32_t mate_in, mate_out;
	uint32_t block_src, block_dst;
};

struct df_lxfer {
	uint32_t from, to, conn, next;
};

struct df_lower {
	struct df_lang *l;
	struct df_plan *plan;
	struct df_lnode *node;
	uint32_t nr;
	struct df_ledge *edge;
	uint32_t nr_edges, cap_edges;
	struct df_lplace *place; /* of all buffers */
	uint32_t *place_base;	 /* by rank * DF_LANG_BUFS + buffer */
	struct df_lxfer *xfer;	 /* by operation */
	struct df_lconn *conn;
	uint32_t nr_conns, *conn_map, conn_mask;
	uint32_t *heap, nr_heap;
	/* by node: 1 + index of an edge, the first of the nodes that depend on it */
	uint32_t *succ;
	int next_channel;
	struct df_perr *err;
	int rc;
};

/* lower.c: the node that n was fused into; the connection of a transfer; any connection. */
uint32_t df_lower_rep(const struct df_lower *w, uint32_t n);
uint32_t df_lower_conn_of(struct df_lower *w, uint32_t x);
struct df_lconn *df_lower_find_conn(struct df_lower *w, int src, int dst, int channel);

/*
 * lower_schedule.c: an order of all nodes in which each follows its dependencies, and connections
 * deliver in the order of sending. Fails with -EPROTO and *w->err.
 */
int df_lower_schedule(struct df_lower *w, uint32_t *order, uint32_t *nr_order);
/* Distribute the nodes to blocks, by policy. pair_rest is called before the order is made. */
void df_lower_pair_rest(struct df_lower *w);
int df_lower_blocks_by_channel(struct df_lower *w, uint32_t *order, uint32_t nr);
int df_lower_blocks_by_peer(struct df_lower *w, uint32_t *order, uint32_t nr);

#endif
