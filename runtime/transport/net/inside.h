/*
 * Records which function of a network library an endpoint's thread is in. A function that does not
 * return stops the thread, and so all work of the endpoint. The watchdog reports the function and
 * since when.
 */
#ifndef DF_TRANSPORT_NET_INSIDE_H
#define DF_TRANSPORT_NET_INSIDE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/time.h"

struct df_net_ep;
struct df_net_link;

/* Part of an endpoint. */
struct df_net_inside {
	const char *function; /* atomic; NULL if the thread is in none */
	/* the begin of the last call, its link, its plugin; all atomic */
	uint64_t since;
	const struct df_net_link *link;
	const char *library;
	/*
	 * For the watchdog only: time of its last check; start of the call it saw then; how long
	 * the process was stopped since; the link it reported.
	 */
	uint64_t looked, seen, stopped;
	const struct df_net_link *told;
};

/* Called around each such call: df_net_enter(), then df_net_left() with the result. */
static inline void df_net_enter(struct df_net_inside *in, const struct df_net_link *l,
				const char *library, const char *function)
{
	__atomic_store_n(&in->since, df_now_ns(), __ATOMIC_RELAXED);
	__atomic_store_n(&in->link, l, __ATOMIC_RELAXED);
	__atomic_store_n(&in->library, library, __ATOMIC_RELAXED);
	/*
	 * RELEASE pairs with the ACQUIRE in df_net_look_inside(): time and link are visible before
	 * the function.
	 */
	__atomic_store_n(&in->function, function, __ATOMIC_RELEASE);
}

static inline int df_net_left(struct df_net_inside *in, int ret)
{
	__atomic_store_n(&in->function, NULL, __ATOMIC_RELAXED);
	return ret;
}

#endif
