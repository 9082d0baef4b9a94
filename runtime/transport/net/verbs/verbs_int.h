/*
 * RDMA verbs as a medium of the network: rdma.c (the medium), pair.c (queue pairs), readback.c
 * (slices in GPU memory), device.c (ports of an endpoint) and events.c (events of devices). The
 * endpoint's thread owns all of it.
 *
 * libibverbs is opened at run time; its header declares it, and nothing is linked. Its inline
 * functions of the data path (ibv_post_send() and so on) call through the context.
 */
#ifndef DF_TRANSPORT_NET_VERBS_INT_H
#define DF_TRANSPORT_NET_VERBS_INT_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "runtime/base/net/pci.h"
#include "runtime/base/net/verbs.h"
#include "runtime/base/time.h"
#include "runtime/transport/net/net.h"

/* The header's macros replace functions; use the exported functions. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#define OUT_MAX	    64	/* posted frames of a pair, at most; a power of two */
#define IN_MAX	    256 /* posted receives, so many that a sender seldom finds none */
#define PAIRS_MAX   16
#define SETUP_NS    (5 * DF_NS_PER_S)
#define SETUP_FAILS 2 /* after this many failed setups sockets are used, if allowed */

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
	/* Newer functions; NULL if the library lacks them. */
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
	/* the descriptors of the channel and of asynchronous events */
	struct df_net_source completions, events;
	int watched;
	int dead; /* it reported a fatal error */
};

/* A queue pair of a link, over one port of each side. */
struct pair {
	struct ibv_qp *qp; /* NULL: none at present */
	struct ibv_cq *cq;
	struct ibv_mr *mr; /* of `rings` */
	struct rings {
		struct df_net_frame out[OUT_MAX], in[IN_MAX];
	} * rings;
	struct df_net_conn *from[OUT_MAX];
	uint32_t head, tail; /* frames posted and not done */
	uint32_t psn;
	uint32_t attempt; /* number of the attempt in this session; 0: none */
	union ibv_gid gid;
	uint16_t lid;
	uint8_t mtu;
	uint8_t rail, peer_rail, far; /* far: how many of the two ports are spare */
	uint8_t sends;		      /* it can send */
	uint8_t usable;		      /* it can send, and a frame of the other side has arrived */
	uint8_t out;		      /* whether a warning has reported it missing */
	int broken;		      /* -errno of a failed post; 0: none */
	struct ece ece;
	uint64_t deadline; /* of its setup */
	/* time of the last completion, or of the first post to an empty queue */
	uint64_t moved;
	uint64_t queued;      /* weight of the slices posted and not done */
	double took, carried; /* ns and weight of recent slices */
	double given;	      /* weight of the slices it was chosen for; decays */
	uint8_t timed;	      /* number of slices timed, up to TIMED */
	uint64_t since;	      /* when it became usable */
	uint64_t rest;	      /* no attempt before this time, if another pair works */
	uint64_t pause;
	uint64_t retry_at; /* 0: no attempt planned */
	char peer_gid[64];
	char why[96]; /* why it is not usable, or "" */
};

/* The readback of a port: slices in GPU memory that are not visible yet (readback.c). */
struct readback {
	struct pair self;  /* a queue pair connected to itself */
	struct ibv_mr *mr; /* of `byte` */
	uint8_t byte;
	struct df_late *late; /* pending slices, from `first` on */
	uint32_t first, nr, cap;
	uint32_t covered; /* how many of them the pending read covers */
	uint64_t posted;  /* when the read, or the wait that replaces it, began; 0: neither */
	/* Numbers of df_net_gpu_ops.ask(): requested, covered by the read, done. */
	uint64_t want, behind, done;
	uint64_t try_at; /* no attempt to create the queue pair before this time */
	int pairs; /* queue pairs of links over this port; while there are any, it may write */
};

/* A port that an endpoint uses. */
struct rail {
	struct df_verbs_port port;
	struct device *device;
	enum df_pci_path path; /* from the GPU to its device */
	int spare;	       /* farther from the GPU than others; used when those fail */
	struct readback readback;
};

/* The state of an endpoint. */
struct verbs {
	int nr;
	struct rail rail[DF_NET_RAILS];
	int nr_devices;
	struct device device[DF_NET_RAILS];
	int reads_back;		 /* slices in GPU memory count only after a readback */
	uint64_t asked, read_at; /* read_at: address of the byte to read */
	uint32_t read_rkey[DF_NET_RAILS];
};

/* The state of a link. */
struct path {
	struct pair *pair[PAIRS_MAX]; /* NULL: never used */
	int nr;			      /* number of pairs wanted; at least ours */
	int begun;		      /* whether verbs_begin() was called in this session */
	int lead;		      /* the pair for all frames except slices */
	/*
	 * The present acknowledgement, and the next, which is valid when each pair has completed up
	 * to its mark; marked 0: none.
	 */
	uint64_t ack, marked;
	uint32_t mark[PAIRS_MAX];
	uint64_t deadline; /* of the first pair */
	/* number for df_verbs_readback_done() from the end of the last session */
	uint64_t behind;
	unsigned fails;		  /* consecutive failed setups */
	uint64_t failing, failed; /* time of the first and of the last of them */
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

/*
 * device.c: finds ports by NCCL's rules and opens them, in bounded time. Returns -errno after a
 * message.
 */
int df_verbs_open(struct df_net_ep *ep, struct verbs **out);
/*
 * Registers memory, with relaxed ordering where possible. access: enum ibv_access_flags. Returns
 * NULL with errno.
 */
struct ibv_mr *df_verbs_register(struct ibv_pd *pd, void *at, size_t bytes, int access);

/* rdma.c: returns the longest time for a frame to complete. */
uint64_t df_verbs_patience(void);
/* Handles the failure of a pair. Returns 1 if the session failed with it. */
int df_verbs_fail(struct df_net_link *l, int k, int why, const char *text);
/* A port of this pair is active again. */
void df_verbs_again(struct df_net_link *l, int k);
/* Whether another medium may take over. */
static inline int df_verbs_has_others(const struct df_net_link *l)
{
	return (l->ep->media & ~l->avoid & ~DF_NET_BIT_VERBS) != 0;
}

/* events.c */
int df_verbs_watch(struct df_net_ep *ep, struct device *d);

/*
 * device.c: as df_verbs_register(), for GPU memory: as dma-buf, else by address. *by: which.
 * Returns NULL with the reason in why.
 */
struct ibv_mr *df_verbs_register_gpu(const struct device *d, const struct df_far_rdma *at,
				     const char **by, char *why, size_t size);

#endif
