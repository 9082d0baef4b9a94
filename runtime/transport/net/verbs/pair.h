/* A queue pair of a link: made, joined to the other side's, chosen for a slice, ended; rdma.c has the whole. By who makes a pass. */
#ifndef DF_TRANSPORT_NET_VERBS_PAIR_H
#define DF_TRANSPORT_NET_VERBS_PAIR_H

#include "runtime/transport/net/verbs/rdma.h"

/* With a queue pair that can receive; the other side's is known; none any more: what was posted is not, nobody writes. */
int df_verbs_pair_make(struct df_net_link *l, struct pair *q);
int df_verbs_pair_join(struct df_net_link *l, struct pair *q, const struct df_net_frame *info);
void df_verbs_pair_end(struct df_net_link *l, struct pair *q);
/* One that is joined with itself, for reads. */
int df_verbs_self_make(const struct rail *r, struct pair *q);
void df_verbs_self_end(struct pair *q);
/* What a slice costs a pair: its bytes, and as much as these where it has few. */
static inline uint64_t df_verbs_weight(uint32_t bytes)
{
	return bytes + 4096u;
}
/* The oldest frame that was posted is done. */
void df_verbs_pair_done(struct pair *q, const struct df_net_frame *f, uint64_t now);
/* The pair that would have a slice of so many bytes there first, as fast as each has been; over spare ports when there is no other. */
struct pair *df_verbs_pair_choose(const struct path *p, uint32_t bytes);
/* Whose device has not failed: for pair k of the side that connects, each in turn. */
int df_verbs_rail(const struct df_net_link *l, int k);
/*
 * Which goes with theirs, for the other side: the same one of all, as networks with a switch for each port have it, if it is as near to our
 * GPU; else, for a pair beyond those that they began, or where that device has failed, the one with fewest pairs, of those that are as
 * near if there are any. With NCCL_CROSS_NIC=0 the same one or none, -1.
 */
int df_verbs_rail_with(const struct df_net_link *l, int k, const struct df_net_frame *f);
/* What the other side has to know of it. */
void df_verbs_pair_info(const struct df_net_link *l, const struct pair *q,
			struct df_net_frame *out);
/* Its memory, once a link. NULL with errno. */
struct pair *df_verbs_pair_new(struct df_net_link *l, int rail);
/* It has no queue pair now. -ENOMEM with errno: nothing has changed. */
int df_verbs_pair_move(struct df_net_link *l, struct pair *q, int rail);
int df_verbs_pair_receive(struct pair *q, uint32_t i);
#define DF_VERBS_RECEIVE (1ull << 32) /* of a work request's id */
/* What the status of a failed completion is as -errno. */
int df_verbs_status_errno(enum ibv_wc_status status);

#endif
