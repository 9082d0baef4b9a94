/*
 * The links of an endpoint: how they are found, what their sessions report of them, and the events
 * that follow. The thread that makes a pass owns a link, except where noted (net.h).
 */
#include "runtime/transport/net/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"

static void (*on_event)(const struct df_net_event *e);
static uint32_t leaves; /* set by df_net_goodbye(); atomic */

const struct df_member *df_net_member(const struct df_net_link *l)
{
	static const struct df_member unknown = {.hostname = "an unknown node"};

	return df_net_wanted(l) ? &l->member : &unknown;
}

struct df_net_link *df_net_link_of(struct df_net_ep *ep, uint64_t proc, int device,
				   uint32_t without)
{
	struct df_net_link *l;

	df_mutex_lock(&ep->lock);
	for (l = df_net_links(ep); l; l = l->next)
		if (l->proc == proc && l->device == device && l->without == without)
			goto out;
	l = calloc(1, sizeof(*l));
	if (!l)
		goto out;
	l->ep = ep;
	l->proc = proc;
	l->device = device;
	l->without = l->avoid = without;
	l->verbs_only = !(ep->wants & ~without & ~(uint32_t)DF_NET_BIT_VERBS);
	df_list_init(&l->conns);
	df_list_init(&l->notes);
	l->next = ep->links;
	/* RELEASE pairs with the ACQUIRE in df_net_links(): the link is complete. */
	__atomic_store_n(&ep->links, l, __ATOMIC_RELEASE);
out:
	df_mutex_unlock(&ep->lock);
	return l;
}

const char *df_net_why(const struct df_net_link *l)
{
	return l->what[0] ? l->what : strerror(-l->why);
}

/* Fills the fields that never change for a link. Any thread. */
static struct df_net_event event_of(const struct df_net_link *l, enum df_net_what what, uint64_t ns)
{
	return (struct df_net_event){.what = what,
				     .device = l->ep->device,
				     .peer_device = l->device,
				     .proc = l->proc,
				     .host = df_net_member(l)->host,
				     .pid = df_net_member(l)->pid,
				     .ns = ns,
				     .from = l->ep->address,
				     .to = df_net_member(l)->net,
				     .port = ""};
}

int df_net_has_left(void)
{
	/* Relaxed: a stale read reports at most one extra event. */
	return (int)__atomic_load_n(&leaves, __ATOMIC_RELAXED);
}

void df_net_report(const struct df_net_link *l, enum df_net_what what, uint64_t ns)
{
	struct df_net_event e = event_of(l, what, ns);
	char port[64];

	if (!on_event || df_net_has_left() || !df_net_wanted(l))
		return;
	l->ep->port(l->ep, port, sizeof(port));
	e.error = l->why;
	e.attempts = l->attempts;
	e.over = l->over ? l->over->name : "no network";
	e.why = df_net_why(l);
	e.port = port;
	on_event(&e);
}

void df_net_up(struct df_net_link *l)
{
	struct df_net_ep *ep = l->ep;
	uint64_t now = df_now_ns(), again = df_net_again(l);

	l->sent = df_list_empty(&l->notes)
			  ? l->seq
			  : df_list_first(&l->notes, struct df_net_note, node)->frame.seq - 1;
	l->up = 1;
	l->over = l->ops;
	l->alive = now;
	df_net_count(&ep->n.resent, again);
	if (l->broken) {
		df_net_count(&ep->n.healed, 1);
		df_warn("the connection to device %d of %s (pid %u) was broken (%s), and is back "
			"after %.1f s over %s: %llu slices are sent again",
			l->device, df_net_member(l)->hostname, df_net_member(l)->pid, df_net_why(l),
			(double)(now - l->since) / 1e9, l->ops->name, (unsigned long long)again);
		df_net_report(l, DF_NET_RESTORED, now - l->since);
	} else if (df_net_wanted(l)) {
		df_net_count(&ep->n.links, 1);
		df_info("device %d is joined with device %d of %s (pid %u, %s) over %s", ep->device,
			l->device, df_net_member(l)->hostname, df_net_member(l)->pid,
			df_net_member(l)->net, l->ops->name);
	}
	if (!again || !l->stuck)
		l->stuck = again ? now : 0;
	l->since = 0;
	l->broken = 0;
	l->attempts = 0;
	l->what[0] = '\0';
}

void df_net_down(struct df_net_link *l, int why)
{
	l->told = l->heard_told = 0;
	if (!l->up)
		return;
	l->up = 0;
	l->why = why;
	l->since = l->alive = df_now_ns();
	l->said = 0;
	if (l->bye || df_net_dead(l))
		return;
	l->broken = 1;
	df_net_count(&l->ep->n.faults, 1);
	if (!l->stuck || l->since - l->stuck <= (uint64_t)df_env()->net_timeout_ms * DF_NS_PER_MS)
		return;
	snprintf(l->what, sizeof(l->what),
		 "small packets arrive, large ones do not: set the MTU of both interfaces to what "
		 "every switch between them passes");
	l->alive = l->stuck;
	df_net_lost(l);
}

void df_net_alive(struct df_net_link *l, uint64_t now)
{
	l->alive = now;
}

void df_net_lost(struct df_net_link *l)
{
	if (df_net_dead(l))
		return;
	df_net_count(&l->ep->n.lost, 1);
	df_net_mark_dead(l);
	df_net_report(l, DF_NET_GONE, df_now_ns() - l->alive);
}

/* Called by the watchdog. */
static void tell_held(const struct df_net_link *l, enum df_net_what what, uint64_t ns,
		      const char *why)
{
	struct df_net_event e = event_of(l, what, ns);

	e.error = -ETIMEDOUT;
	e.over = l->ep->ops[__builtin_ctz(DF_NET_BIT_PLUGIN)]->name;
	e.why = why;
	if (on_event && df_net_wanted(l))
		on_event(&e);
}

void df_net_look_inside(struct df_net_ep *ep, uint64_t now, uint64_t pause)
{
	struct df_net_inside *in = &ep->inside;
	/*
	 * ACQUIRE pairs with the RELEASE in df_net_enter(): the fields are of this call or a later
	 * one.
	 */
	const char *function = __atomic_load_n(&in->function, __ATOMIC_ACQUIRE);
	const struct df_net_link *l = __atomic_load_n(&in->link, __ATOMIC_RELAXED);
	uint64_t since = __atomic_load_n(&in->since, __ATOMIC_RELAXED), ns, away;
	char text[160];

	if (in->told && (!function || since != in->seen)) {
		tell_held(in->told, DF_NET_RETURNED, now - in->seen, "");
		in->told = NULL;
	}
	/* While this process was stopped or had no processor, the function could not return. */
	away = now - DF_MIN(now, DF_MAX(in->looked, since));
	if (since != in->seen)
		in->stopped = 0;
	if (away > 2 * pause)
		in->stopped += away - pause;
	in->seen = since;
	in->looked = now;
	ns = now - DF_MIN(now, since + in->stopped);
	if (!function || in->told || ns <= pause)
		return;
	in->told = l;
	snprintf(text, sizeof(text), "the network plugin %s has not returned from %s",
		 (const char *)__atomic_load_n(&in->library, __ATOMIC_RELAXED), function);
	df_warn("%s for %.0f s: nothing moves between device %d and other nodes", text,
		(double)ns / 1e9, ep->device);
	tell_held(l, DF_NET_HELD, ns, text);
}

void df_net_goodbye(void)
{
	__atomic_store_n(&leaves, 1, __ATOMIC_RELAXED);
}

void df_net_links_forked(void)
{
	leaves = 0;
}

void df_net_on_event(void (*fn)(const struct df_net_event *e))
{
	on_event = fn;
}
