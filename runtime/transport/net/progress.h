/*
 * Passes over an endpoint: one look at the pending work of its links and at arrivals. The thread
 * that makes a pass owns all of the endpoint except what its `lock` guards (net.h). This is the
 * endpoint's thread, or, if no medium can block, a thread that waits for an operation and helps
 * (df_tl_progress(), runtime/transport/transport.h). Helping avoids a wake-up in the path of that
 * operation. A try-lock gives the right to a pass; a thread that does not get it goes on without
 * one.
 */
#ifndef DF_TRANSPORT_NET_PROGRESS_H
#define DF_TRANSPORT_NET_PROGRESS_H

#include <stdint.h>

#include "runtime/base/lock.h"

struct df_net_ep;

/* Part of an endpoint. */
struct df_net_help {
	struct df_trylock passing; /* the right to make a pass */
	struct df_net_ep *next;	   /* list of endpoints that may be helped; never changes */
	uint32_t helps;		   /* passes of other threads; atomic */
	uint32_t left; /* helpers that have left; the futex on which the thread dozes; atomic */
	uint32_t dozing;
	uint32_t
		/*
		 * flush the next `late` operations at once, because one started late:
		 * df_tl_begun(); atomic
		 */
		late;
	uint8_t asleep; /* the thread waits for descriptors with a timeout; under `passing` */
};

/*
 * Makes a pass and handles arrivals. Returns 1 if it made progress. The caller holds help.passing.
 */
int df_net_pass(struct df_net_ep *ep);
/* The endpoint's thread; never returns; calls no CUDA function. */
void df_net_run(struct df_net_ep *ep);
/* In the child of a fork: forgets the parent's endpoints. */
void df_net_pass_forked(void);

/* df_net_look_held() (runtime/transport/transport.h) for one endpoint. */
void df_net_look_inside(struct df_net_ep *ep, uint64_t now, uint64_t pause);

#endif
