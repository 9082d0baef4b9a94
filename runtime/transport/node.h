/* What the node-local transports ("self" and "shm") share: connectors in the arena of their owner. */
#ifndef DF_TRANSPORT_NODE_H
#define DF_TRANSPORT_NODE_H

#include "runtime/transport/arena.h"
#include "runtime/transport/transport.h"

struct df_peer {
	struct df_peer *next;
	uint32_t refs;
	uint32_t dead;	   /* the process has gone */
	uint32_t fetching; /* its segments are on their way */
	struct df_member member;
	struct df_view view;
	void *room; /* shm: where the first segment lies or will lie */
};

struct df_node_conn {
	struct df_conn conn; /* first */
	struct df_entry *entry;
	uint64_t gen;
	uint32_t nr_slots, slot_bytes;
	struct df_block block; /* owner */
	struct df_bell *bell;
};

int df_node_create(const struct df_tl_ops *tl, struct df_peer *peer, uint64_t key,
		   uint32_t nr_slots, uint32_t slot_bytes, uint64_t base, struct df_bell *bell,
		   struct df_conn **out);
int df_node_found(const struct df_tl_ops *tl, struct df_peer *peer, uint64_t key,
		  const struct df_found *found, struct df_bell *bell, struct df_conn **out);
int df_node_use(struct df_conn *conn);
void df_node_unuse(struct df_conn *conn);
int df_node_close(struct df_conn *conn);
void df_node_forget(struct df_conn *conn);
void df_node_end(const struct df_conn *conn, struct df_kconn *out);
int df_node_progress(void);

extern const struct df_tl_ops df_tl_self_ops;
extern const struct df_tl_ops df_tl_shm_ops;

#endif
