/*
 * RDMA verbs as a medium of the network: rdma.c, which has the whole, pair.c, a queue pair's life, readback.c, slices in GPU memory,
 * device.c, which finds and opens the ports of an endpoint, and events.c, what devices tell. An endpoint's thread owns all of it.
 *
 * libibverbs is opened at run time: its header says what it looks like, nothing is linked. Its functions of the data path
 * (ibv_post_send() and so on) are inline and go through the context.
 */
#ifndef DF_TRANSPORT_NET_VERBS_H
#define DF_TRANSPORT_NET_VERBS_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "runtime/base/net/pci.h"
#include "runtime/base/net/verbs.h"
#include "runtime/base/time.h"
#include "runtime/transport/net/net.h"

/* Macros that take the place of functions, whose exported versions do for us. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#define OUT_MAX	    64	/* frames in hand; a power of two */
#define IN_MAX	    256 /* receives that are posted; enough that a sender seldom finds none */
#define PAIRS_MAX   16
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

/* As struct ibv_ece, which older headers lack. */
struct ece {
	uint32_t vendor_id, options, comp_mask;
};

#define X(name) __typeof__(ibv_##name) *name;
struct df_ibv {
	DF_IBV_FUNCTIONS(X)
	/* Newer ones; NULL where the library has none. */
	struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *pd, void *at, size_t bytes, uint64_t iova,
				       unsigned int access);
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t bytes,
					uint64_t iova, int fd, int access);
	int (*query_ece)(struct ibv_qp *qp, struct ece *ece);
	int (*set_ece)(struct ibv_qp *qp, struct ece *ece);
};
#undef X

extern struct df_ibv df_ibv;

/* An open device; its ports share it. */
struct device {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct df_net_source completions, events; /* descriptors of the two above */
	int watched;
	int dead; /* it has reported a fatal error */
};

/* A queue pair of a link, over one port of each side. */
struct pair {
	struct ibv_qp *qp; /* NULL: none now */
	struct ibv_cq *cq;
	struct ibv_mr *mr; /* of `rings` */
	struct rings {
		struct df_net_frame out[OUT_MAX], in[IN_MAX];
	} * rings;
	struct df_net_conn *from[OUT_MAX];
	uint32_t head, tail; /* frames that have been posted, and are not done */
	uint32_t psn;
	uint32_t attempt; /* of this session; 0 none */
	union ibv_gid gid;
	uint16_t lid;
	uint8_t mtu;
	uint8_t rail, peer_rail, far; /* far: how many of these two are spare */
	uint8_t sends;		      /* it can send */
	uint8_t usable;		      /* and the other side's has sent something */
	uint8_t out;		      /* that it is not usable has been said */
	int broken;		      /* -errno: posting has failed */
	struct ece ece;
	uint64_t deadline;    /* of its setup */
	uint64_t moved;	      /* when a completion came, or the first frame of many was posted */
	uint64_t queued;      /* of slices that are posted and not done, by weight */
	double took, carried; /* ns and weight of the last slices */
	double given;	      /* weight of those that it was chosen for; forgotten by and by */
	uint8_t timed;	      /* how many there were, of the first ones */
	uint64_t since;	      /* usable */
	uint64_t rest;	      /* better not before */
	uint64_t pause;
	uint64_t retry_at; /* 0: not by itself */
	char peer_gid[64];
	char why[96]; /* it is not usable; "" */
};

/* Of a port: what has come into the GPU's memory and is read back (readback.c). */
struct readback {
	struct pair self;  /* joined with itself */
	struct ibv_mr *mr; /* of `byte` */
	uint8_t byte;
	struct df_late *late; /* slices, from `first` on */
	uint32_t first, nr, cap;
	uint32_t covered; /* so many of them came before the read that is under way */
	uint64_t
		posted; /* when the read, or without a queue pair the wait instead, began; 0: neither */
	/* Of df_verbs_readback_ask(): asked for, what the read is behind of, done. */
	uint64_t want, behind, done;
	uint64_t try_at; /* the queue pair is not made again before */
	int pairs; /* queue pairs of links over the port: as long as there are any it may write */
};

/* A port that an endpoint uses. */
struct rail {
	struct df_verbs_port port;
	struct device *device;
	enum df_pci_path path; /* from the GPU to its device */
	int spare;	       /* farther from the GPU than others: used when these fail */
	struct readback readback;
};

/* Of an endpoint. */
struct verbs {
	int nr;
	struct rail rail[DF_NET_RAILS];
	int nr_devices;
	struct device device[DF_NET_RAILS];
	int reads_back; /* what comes into the GPU's memory counts when it has been read back */
	uint64_t asked, read_at; /* read_at: a byte of it */
	uint32_t read_rkey[DF_NET_RAILS];
};

/* Of a link. */
struct path {
	struct pair *pair[PAIRS_MAX]; /* NULL: never used */
	int nr;			      /* pairs that there should be; at least ours */
	int begun;		      /* in this session */
	int lead;		      /* the pair of everything that is not a slice */
	/* What may be acknowledged, what will be when each pair has come to its mark; 0: nothing. */
	uint64_t ack, marked;
	uint32_t mark[PAIRS_MAX];
	uint64_t deadline;	  /* of the first pair */
	uint64_t behind;	  /* of the last session's end, for df_verbs_readback_done() */
	unsigned fails;		  /* setups, one after the other */
	uint64_t failing, failed; /* since when; the last time */
};

static inline struct verbs *df_verbs(const struct df_net_ep *ep)
{
	return ep->medium[__builtin_ctz(DF_NET_BIT_VERBS)];
}

static inline struct path *df_verbs_path(const struct df_net_link *l)
{
	return l->path;
}

static inline struct rail *df_verbs_pair_rail(const struct df_net_link *l, const struct pair *q)
{
	return &df_verbs(l->ep)->rail[q->rail];
}

/* Every device has failed. */
static inline int df_verbs_all_dead(const struct df_net_ep *ep)
{
	int i, dead = 1;

	for (i = 0; i < df_verbs(ep)->nr; i++)
		dead &= df_verbs(ep)->rail[i].device->dead;
	return dead;
}

/* device.c: finds ports by NCCL's rules and opens them, in bounded time. -errno, and has said why. */
int df_verbs_open(struct df_net_ep *ep, struct verbs **out);
/* NULL with errno. access: enum ibv_access_flags, relaxed ordering is added where it may be. */
struct ibv_mr *df_verbs_register(struct ibv_pd *pd, void *at, size_t bytes, int access);

/* rdma.c: how long a frame may be on its way. */
uint64_t df_verbs_patience(void);
/* The pair has failed; 1: and the session with it. */
int df_verbs_fail(struct df_net_link *l, int k, int why, const char *text);
/* One of our ports is active again. */
void df_verbs_again(struct df_net_link *l, int k);
/* May another medium take over? */
static inline int df_verbs_has_others(const struct df_net_link *l)
{
	return (l->ep->media & ~l->avoid & ~DF_NET_BIT_VERBS) != 0;
}

/* events.c */
int df_verbs_watch(struct df_net_ep *ep, struct device *d);

#endif
