/*
 * The function of a network's library that an endpoint's thread is in. One that does not return holds the thread, and with it all that
 * the endpoint has to do; so who looks from outside (the watchdog) is to know which, and since when.
 */
#ifndef DF_TRANSPORT_NET_INSIDE_H
#define DF_TRANSPORT_NET_INSIDE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/time.h"

struct df_net_ep;
struct df_net_link;

/* Of an endpoint. */
struct df_net_inside {
	const char *function; /* atomic; NULL: in none */
	/* Of the last call, atomic: when, for which link, of which plugin. */
	uint64_t since;
	const struct df_net_link *link;
	const char *library;
	/* The watchdog's: its last look; the call that it saw then, by its time; how long it was stopped since; what it told of. */
	uint64_t looked, seen, stopped;
	const struct df_net_link *told;
};

/* Around such a call: df_net_enter(), and df_net_left() with what it has returned. */
static inline void df_net_enter(struct df_net_inside *in, const struct df_net_link *l,
				const char *library, const char *function)
{
	__atomic_store_n(&in->since, df_now_ns(), __ATOMIC_RELAXED);
	__atomic_store_n(&in->link, l, __ATOMIC_RELAXED);
	__atomic_store_n(&in->library, library, __ATOMIC_RELAXED);
	/* RELEASE pairs with the ACQUIRE in df_net_look_inside(): when it was entered, and for whom, comes first. */
	__atomic_store_n(&in->function, function, __ATOMIC_RELEASE);
}

static inline int df_net_left(struct df_net_inside *in, int ret)
{
	__atomic_store_n(&in->function, NULL, __ATOMIC_RELAXED);
	return ret;
}

/* df_net_look_held() (runtime/transport/transport.h) for an endpoint. */
void df_net_look_inside(struct df_net_ep *ep, uint64_t now, uint64_t pause);

#endif
