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

#endif
