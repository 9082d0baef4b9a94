/* Slices in a GPU's memory are read back before they count: readback.c, which has the whole. By who makes a pass. */
#ifndef DF_TRANSPORT_NET_VERBS_READBACK_H
#define DF_TRANSPORT_NET_VERBS_READBACK_H

#include "runtime/transport/net/verbs/rdma.h"

/* device.c: as df_verbs_register(), of a GPU's memory: as dma-buf, else by address, which *by says. NULL, with the reason. */
struct ibv_mr *df_verbs_register_gpu(const struct device *d, const struct df_far_rdma *at,
				     const char **by, char *why, size_t size);

/* A queue pair of a link over the port has been made, has been destroyed. joined: the other side may have written over it. */
void df_verbs_readback_opened(struct rail *r);
void df_verbs_readback_closed(struct df_net_ep *ep, struct rail *r, int joined);
/* Has the port its queue pair, if it needs one? -errno. */
int df_verbs_readback_make(struct df_net_ep *ep, struct rail *r);
/* A slice that has its place has come into the GPU's memory over this pair. */
void df_verbs_late(struct df_net_link *l, struct pair *q, const struct df_net_frame *f);
/* The queue pair has failed, if there is one. */
void df_verbs_readback_fail(struct df_net_ep *ep, struct rail *r, const char *text);
/* An event says that the port is down: no read is waited for; df_verbs_readback_look() asks the port. */
void df_verbs_readback_down(struct rail *r);
/* The link's session is over. */
void df_verbs_readback_end(struct df_net_link *l);

#endif
