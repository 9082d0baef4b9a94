/*
 * RDMA verbs as a medium of the network, for rdma.c, which has the whole, and device.c, which finds and opens the port of
 * an endpoint. An endpoint's thread owns all of it, once it runs.
 *
 * libibverbs is opened at run time: its header says what it looks like, nothing is linked. Its functions of the data path
 * (ibv_post_send() and so on) are inline and go through the context.
 */
#ifndef DF_TRANSPORT_NET_VERBS_H
#define DF_TRANSPORT_NET_VERBS_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "runtime/base/net/verbs.h"
#include "runtime/base/time.h"
#include "runtime/transport/net/net.h"

/* Macros that take the place of functions, whose exported versions do for us. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#define OUT_MAX	    64	/* frames in hand; a power of two */
#define IN_MAX	    256 /* receives that are posted; enough that a sender seldom finds none */
#define SETUP_NS    (5 * DF_NS_PER_S)
#define SETUP_FAILS 2 /* then sockets are used, where they may be */

#define DF_IBV_FUNCTIONS(X)                                                                        \
	X(get_device_list)                                                                         \
	X(free_device_list)                                                                        \
	X(get_device_name)                                                                         \
	X(open_device)                                                                             \
	X(close_device)                                                                            \
	X(get_async_event)                                                                         \
	X(ack_async_event)                                                                         \
	X(query_port)                                                                              \
	X(query_gid)                                                                               \
	X(alloc_pd)                                                                                \
	X(dealloc_pd)                                                                              \
	X(reg_mr)                                                                                  \
	X(dereg_mr)                                                                                \
	X(create_comp_channel)                                                                     \
	X(destroy_comp_channel)                                                                    \
	X(create_cq)                                                                               \
	X(destroy_cq)                                                                              \
	X(get_cq_event)                                                                            \
	X(ack_cq_events)                                                                           \
	X(create_qp)                                                                               \
	X(modify_qp)                                                                               \
	X(destroy_qp)                                                                              \
	X(event_type_str)                                                                          \
	X(wc_status_str)

#define X(name) __typeof__(ibv_##name) *name;
struct df_ibv {
	DF_IBV_FUNCTIONS(X)
};
#undef X

extern struct df_ibv df_ibv;

/* Of an endpoint: the port that it uses. */
struct device {
	struct df_verbs_port port;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct df_net_source completions, events; /* descriptors of the two above */
	int watched;
};

/* Of a link. */
struct path {
	struct ibv_qp *qp; /* NULL: no session */
	struct ibv_cq *cq;
	struct ibv_mr *mr; /* of `rings` */
	struct rings {
		struct df_net_frame out[OUT_MAX], in[IN_MAX];
	} * rings;
	struct df_net_conn *from[OUT_MAX];
	uint32_t head, tail; /* frames that have been posted, and are not done */
	uint32_t psn;
	union ibv_gid gid;
	uint16_t lid;
	uint8_t mtu;
	uint8_t sends, peer_sends,
		heard;	   /* our QP can send; so can theirs; something has come over it */
	int broken;	   /* -errno: posting has failed */
	uint64_t deadline; /* of the setup */
	uint64_t moved;	   /* when a completion came, or the first frame of many was posted */
	unsigned fails;	   /* setups, one after the other */
	uint64_t failing;  /* since when */
	char peer_gid[64];
};

/* device.c: finds a port by NCCL's rules and opens it, in bounded time. -errno, and has said why. */
int df_verbs_open(struct df_net_ep *ep, struct device **out);
static inline struct device *df_verbs_device(const struct df_net_ep *ep)
{
	return ep->medium[__builtin_ctz(DF_NET_BIT_VERBS)];
}

#endif
