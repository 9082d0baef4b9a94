/*
 * Slices in GPU memory count only after a readback; see readback.c. Called by the thread that makes
 * a pass.
 */
#ifndef DF_TRANSPORT_NET_VERBS_READBACK_H
#define DF_TRANSPORT_NET_VERBS_READBACK_H

#include "runtime/transport/net/verbs/verbs_int.h"

/*
 * Call after a queue pair of a link over the port was created or destroyed. joined: the other side
 * may have written over it.
 */
void df_verbs_readback_opened(struct rail *r);
void df_verbs_readback_closed(struct df_net_ep *ep, struct rail *r, int joined);
/* Creates the port's queue pair for reads, if one is needed. Returns -errno. */
int df_verbs_readback_make(struct df_net_ep *ep, struct rail *r);
/* A slice that df_net_place() accepted has arrived in GPU memory over this pair. */
void df_verbs_late(struct df_net_link *l, struct pair *q, const struct df_net_frame *f);
/* Handles a failure of the queue pair for reads, if there is one. */
void df_verbs_readback_fail(struct df_net_ep *ep, struct rail *r, const char *text);
/* Handles the event that the port is down: drops the pending read. look() queries the port. */
void df_verbs_readback_down(struct rail *r);
/* Handles the end of the link's session. */
void df_verbs_readback_end(struct df_net_link *l);

int df_verbs_readback_done(const struct df_net_ep *ep, uint64_t asked);
extern const struct df_net_gpu_ops df_verbs_readback_ops;

#endif
