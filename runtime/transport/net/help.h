/* Which threads may make passes over an endpoint (runtime/transport/progress.h). */
#ifndef DF_TRANSPORT_NET_HELP_H
#define DF_TRANSPORT_NET_HELP_H

#include <stdint.h>

#include "runtime/base/lock.h"

struct df_net_ep;

/* Part of an endpoint. */
struct df_net_help {
	struct df_trylock passing; /* the right to make a pass */
	struct df_net_ep *next;	   /* list of endpoints that may be helped; never changes */
	uint32_t helps;		   /* passes of other threads; atomic */
	uint32_t left;	 /* helpers that have left; the futex on which the thread dozes; atomic */
	uint32_t dozing; /* whether the thread sleeps while others make passes */
	/*
	 * Above 0 after a late start: the next operation that starts late is flushed at once. Each
	 * start in time counts this down; see df_tl_begun(). Atomic.
	 */
	uint32_t late;
	uint8_t asleep; /* the thread waits for descriptors with a timeout; under `passing` */
};

#endif
