/*
 * The life of a link's queue pair: created, connected, chosen for slices, destroyed; see rdma.c.
 * Called by the thread that makes a pass.
 */
#ifndef DF_TRANSPORT_NET_VERBS_PAIR_H
#define DF_TRANSPORT_NET_VERBS_PAIR_H

#include "runtime/transport/net/verbs/verbs_int.h"

/*
 * df_verbs_pair_make() creates the queue pair, ready to receive. df_verbs_pair_join() connects it
 * to the other side's. df_verbs_pair_end() destroys it: posted frames are released, and the other
 * side can no longer write.
 */
int df_verbs_pair_make(struct df_net_link *l, struct pair *q);
int df_verbs_pair_join(struct df_net_link *l, struct pair *q, const struct df_net_frame *info);
void df_verbs_pair_end(struct df_net_link *l, struct pair *q);
/* Creates a queue pair that is connected to itself, for reads. */
int df_verbs_self_make(const struct rail *r, struct pair *q);
void df_verbs_self_end(struct pair *q);
/* Returns the cost of a slice: its bytes plus a fixed part. */
static inline uint64_t df_verbs_weight(uint32_t bytes)
{
	return bytes + 4096u;
}
/* Records that the oldest posted frame is done, and its time. */
void df_verbs_pair_done(struct pair *q, const struct df_net_frame *f, uint64_t now);
/*
 * Returns the pair with the lowest estimated completion time for a slice. Pairs over spare ports
 * are used only if there is no other.
 */
struct pair *df_verbs_pair_choose(const struct path *p, uint32_t bytes);
/* On the connecting side: returns the port for pair k, taking those of working devices in turn. */
int df_verbs_rail(const struct df_net_link *l, int k);
/*
 * Returns the port for the other side's pair k, on the accepting side. Prefers the port with the
 * same order as theirs (networks may have one switch for each port) if it is as near to our GPU.
 * For pairs beyond those they began, or if that device has failed, takes the port with the fewest
 * pairs, as near as possible. With NCCL_CROSS_NIC=0 returns the port of the same order, or -1.
 */
int df_verbs_rail_with(const struct df_net_link *l, int k, const struct df_net_frame *f);
/* Writes the pair's address for the other side. */
void df_verbs_pair_info(const struct df_net_link *l, const struct pair *q,
			struct df_net_frame *out);
/* Allocates and registers the memory of a pair. Returns NULL with errno. */
struct pair *df_verbs_pair_new(struct df_net_link *l, int rail);
/*
 * Moves a pair without a queue pair to another port. Returns -ENOMEM with errno and changes
 * nothing.
 */
int df_verbs_pair_move(struct df_net_link *l, struct pair *q, int rail);
/* Posts the i-th receive. Its completion has DF_VERBS_RECEIVE in the work request's id. */
int df_verbs_pair_receive(struct pair *q, uint32_t i);
#define DF_VERBS_RECEIVE (1ull << 32)
/* Returns the -errno for the status of a failed completion. */
int df_verbs_status_errno(enum ibv_wc_status status);

#endif
