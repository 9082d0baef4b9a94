/*
 * Passes over an endpoint: one look at the pending work of its links and at arrivals. The thread
 * that makes a pass owns all of the endpoint except what its `lock` guards (net.h). This is the
 * endpoint's thread, or, if no medium can block, a thread that waits for an operation and helps
 * (df_tl_progress(), runtime/transport/transport.h). Helping avoids a wake-up in the path of that
 * operation. A try-lock gives the right to a pass; a thread that does not get it goes on without
 * one.
 */
#ifndef DF_TRANSPORT_PROGRESS_H
#define DF_TRANSPORT_PROGRESS_H

struct df_net_ep;

/*
 * Makes a pass and handles arrivals. Returns 1 if it made progress. The caller holds help.passing.
 */
int df_net_pass(struct df_net_ep *ep);
/* The endpoint's thread; never returns; calls no CUDA function. */
void df_net_run(struct df_net_ep *ep);
/* In the child of a fork: forgets the parent's endpoints. */
void df_net_pass_forked(void);

#endif
