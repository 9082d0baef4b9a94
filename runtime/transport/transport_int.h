/*
 * The common part of the node-local transports ("self", "shm", and "p2p" on top of them):
 * connectors in the arena of their owner.
 */
#ifndef DF_TRANSPORT_TRANSPORT_INT_H
#define DF_TRANSPORT_TRANSPORT_INT_H

#include "runtime/transport/arena/arena.h"
#include "runtime/blocks.h"
#include "runtime/transport/transport.h"

struct df_net_ops;

struct df_peer {
	struct df_peer *next;
	uint32_t refs;
	uint32_t dead;	     /* the process died, or is unreachable */
	uint32_t fetching;   /* a request for its segments is pending */
	uint64_t not_before; /* no request before this time; atomic */
	uint64_t
		/*
		 * since when file descriptors are exhausted; 0: they are not; owned by the holder
		 * of `fetching`
		 */
		no_file_since;
	struct df_member member;
	struct df_view view;
	void *room; /* shm: address range reserved for the first segment */
	/* p2p: the peer in the transport below, our device, and whether it is this process. */
	struct df_peer *via;
	int device, local;
};

struct df_node_conn {
	struct df_conn conn; /* must be the first member */
	struct df_arena_entry *entry;
	uint64_t gen;
	uint32_t nr_slots, slot_bytes;
	struct df_block block; /* owner only */
	uint64_t base;	       /* owner only */
	uint32_t far;	       /* slots and counters are in GPU memory, at addr */
	uint64_t addr;
	struct df_far_block far_block; /* owner only */
	struct df_bell *bell;
};

int df_node_create(const struct df_tl_ops *tl, struct df_peer *peer, uint64_t key,
		   uint32_t nr_slots, uint32_t slot_bytes, int how, uint64_t base,
		   struct df_bell *bell, const struct df_far_block *far, struct df_conn **out);
int df_node_found(const struct df_tl_ops *tl, struct df_peer *peer, uint64_t key,
		  const struct df_found *found, struct df_bell *bell, struct df_conn **out);
int df_node_use(struct df_conn *conn);
void df_node_unuse(struct df_conn *conn);
int df_node_close(struct df_conn *conn);
int df_node_recycle(struct df_conn *conn, uint64_t *base);
void df_node_forget(struct df_conn *conn);
void df_node_end(const struct df_conn *conn, struct df_kconn *out);
/* Members of struct df_tl_ops that are the same in all transports within a machine. */
#define DF_NODE_OPS                                                                                \
	.use = df_node_use, .unuse = df_node_unuse, .close = df_node_close,                        \
	.recycle = df_node_recycle, .forget = df_node_forget, .end = df_node_end
/* Moves a connector that the transport below found to transport tl and its peer. */
void df_node_adopt(struct df_conn *conn, const struct df_tl_ops *tl, struct df_peer *peer);
int df_peer_dead(const struct df_peer *p);
/* shm.c: returns the bell of the other process, which need not be mapped yet. */
struct df_bell *df_shm_bell(struct df_peer *p);
/*
 * shm.c: whether the other process's first segment is mapped here and known to the GPUs. Returns 0,
 * -EAGAIN while that is in progress, or -ENOENT if it failed or has not begun; `begin` begins it.
 * p: from df_tl_shm_ops.peer_get().
 */
int df_shm_settled(struct df_peer *p, int begin);

static inline struct df_conn_far *df_node_far(const struct df_node_conn *c)
{
	return (struct df_conn_far *)(void *)((char *)c->conn.hdr + DF_CONN_SLOTS);
}

/* The media of the network, by position of their bit (net/medium.h). */
extern const struct df_net_ops *const df_net_media[];
extern const struct df_tl_ops df_tl_net_ops;
extern const struct df_tl_ops df_tl_p2p_ops;
extern const struct df_tl_ops df_tl_self_ops;
extern const struct df_tl_ops df_tl_shm_ops;

#endif
