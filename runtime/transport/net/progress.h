/*
 * Passes over an endpoint: a look at all that its links have to do and at what has come. Whoever makes one owns everything of the
 * endpoint but what its `lock` guards (net.h). That is its thread; or, where no medium has a call that could block, a thread that
 * waits for an operation and helps (df_tl_progress(), runtime/transport/transport.h), so that nobody has to be woken for what it
 * waits for. The right to a pass is a try-lock: who does not get it goes on without.
 */
#ifndef DF_TRANSPORT_NET_PROGRESS_H
#define DF_TRANSPORT_NET_PROGRESS_H

#include <stdint.h>

#include "runtime/base/lock.h"

struct df_net_ep;

/* Of an endpoint. */
struct df_net_help {
	struct df_trylock passing; /* the right to a pass */
	struct df_net_ep *next;	   /* of those that may be helped; set for good */
	uint32_t helps;		   /* passes of others; atomic */
	uint32_t left;	 /* so many have left; the thread's futex word while it dozes; atomic */
	uint32_t dozing; /* atomic */
	uint32_t
		late; /* operations for which it is remembered that one came late: df_tl_begun(); atomic */
	uint8_t asleep; /* the thread waits for descriptors, until a time that it knew; under `passing` */
};

/* A pass, and a look at what has come: 1 if something moved. By who has the right to it (help.passing). */
int df_net_pass(struct df_net_ep *ep);
/* The endpoint's thread, for ever; it calls no CUDA function. */
void df_net_run(struct df_net_ep *ep);
/* In a fork's child: the parent's endpoints are nobody's. */
void df_net_pass_forked(void);

#endif
