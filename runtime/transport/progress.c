/*
 * Passes over an endpoint: the pending work of its links, done by its thread or by a waiting
 * thread; see progress.h.
 */
#include "runtime/transport/progress.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/futex.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "kernels/bell.h"
#include "runtime/transport/net/net.h"

#define GPU_LOOK_NS (20 * DF_NS_PER_US) /* a GPU rings no bell */
#define SAY_NS	    DF_NS_PER_S		/* a break is reported if it has not healed by then */
/* After a pass this recent, a busy caller need not flush: its next call makes a pass. */
#define BEGUN_NS (int64_t)(20 * DF_NS_PER_US)
/* A late start is flushed at once if fewer starts in time lie between it and the last late one. */
#define LATE  8
#define LOOKS 8 /* checks of a link that is not up before it is lost, at least */
/* Without passes of other threads for this time, the endpoint's thread makes them again. */
#define DOZE_NS DF_NS_PER_MS
/* The longest doze while others make passes: each wake-up takes a processor from them. */
#define DOZE_MAX_NS (4 * DF_NS_PER_MS)

static struct df_net_ep *helped; /* linked by help.next; atomic */

/* ---- links ----------------------------------------------------------------------------------- */

static void watch(struct df_net_link *l, uint64_t now)
{
	uint64_t bound = (uint64_t)df_env()->net_timeout_ms * DF_NS_PER_MS;
	uint64_t away = now - l->ep->passed;

	if (!l->opened && df_net_wanted(l)) {
		l->opened = 1;
		l->alive = now;
		if (!l->up)
			l->since = now;
		df_session_open(l);
	}
	if (l->up || !l->opened || l->bye || !l->since || df_net_has_left())
		return;
	if (!l->said && l->broken && now - l->since > DF_MIN(SAY_NS, bound / 2)) {
		l->said = 1;
		df_warn("the connection to device %d of %s (pid %u, %s) is broken (%s): dfshim "
			"tries to restore it",
			l->device, df_net_member(l)->hostname, df_net_member(l)->pid,
			df_net_member(l)->net, df_net_why(l));
		df_net_report(l, DF_NET_BROKEN, now - l->since);
	}
	/*
	 * Do not count time in which this process was stopped or had no processor: it is not the
	 * other side's silence.
	 */
	if (away > bound / LOOKS)
		l->alive = DF_MIN(l->alive + away - bound / LOOKS, now);
	if (now - l->alive > bound)
		df_net_lost(l);
}

/* Returns the union of enum df_net_looked of all connectors. */
static unsigned look_at_all(struct df_net_link *l, uint64_t now, int tell)
{
	struct df_list *at, *next;
	unsigned looked = 0;

	for (at = l->conns.next; at != &l->conns; at = next) {
		next = at->next;
		looked |= df_net_look(df_container_of(at, struct df_net_conn, node), now, tell);
	}
	return looked;
}

/* Returns 1 if it made progress. */
static int link_pass(struct df_net_link *l, uint64_t now, int tell, int arm)
{
	struct df_net_frame ack = {.type = DF_NET_ACK};
	unsigned looked;
	int moved = 0;

	if (df_net_dead(l) && l->opened != 2) {
		l->opened = 2;
		df_session_close(l);
		l->up = 0;
		df_net_acknowledged(l, UINT64_MAX);
	}
	if (l->opened != 2)
		watch(l, now);
	moved = df_session_push(l);
	if (l->ops)
		moved |= l->ops->poll(l, now, arm);
	looked = look_at_all(l, now, tell);
	/* Credits that travel with slices cost little. */
	if (looked & DF_NET_SLICES && looked & DF_NET_CREDITS && l->ops->gathers)
		looked |= look_at_all(l, now, 1);
	moved |= (looked & DF_NET_MOVED) != 0;
	if (!l->up)
		return moved;
	moved |= df_net_send_notes(l);
	if (!l->told)
		moved |= df_net_tell(l);
	if (l->heard != l->acked)
		moved |= l->ops->push(l);
	if (l->up && l->heard != l->acked)
		l->ops->send(l, &ack, NULL, NULL);
	if (l->up)
		moved |= l->ops->push(l);
	return moved;
}

/*
 * Whether the peer still waits for data or credits of this end. If credits were delayed, sends them
 * in the next pass.
 */
static int is_due(const struct df_net_conn *c, uint64_t now)
{
	if (!df_net_joined(c))
		return 0;
	if (!c->receives)
		return df_net_tail(c) != c->received;
	if (df_net_head(c) == c->told_head && c->received == c->told_received)
		return 0;
	c->link->ep->tell_at = now;
	return 1;
}

/*
 * When all sent slices have arrived, or never will, and all arrivals are acknowledged, sends BYE on
 * every link.
 */
static void flush_pass(struct df_net_ep *ep, uint64_t now)
{
	const struct df_net_frame bye = {.type = DF_NET_BYE};
	struct df_net_link *l;
	struct df_net_conn *c;
	uint32_t want = __atomic_load_n(&ep->flush, __ATOMIC_RELAXED);

	if (want == ep->flushed)
		return;
	for (l = df_net_links(ep); l; l = l->next) {
		if (df_net_dead(l) || !l->opened || l->bye)
			continue;
		if (l->up ? l->sent != l->seq : l->broken && l->settled != l->seq)
			return;
		df_list_each(c, &l->conns, node)
		{
			if (is_due(c, now))
				return;
		}
	}
	for (l = df_net_links(ep); l; l = l->next) {
		if (!l->up)
			continue;
		/* The session's streams send it at once, whatever the medium. */
		df_session_send(l, &bye, NULL, NULL);
		df_session_push(l);
	}
	/* RELEASE pairs with the ACQUIRE in df_tl_flush(): the work is done before the number. */
	__atomic_store_n(&ep->flushed, want, __ATOMIC_RELEASE);
}

static int pass(struct df_net_ep *ep, int arm)
{
	uint64_t now = df_now_ns();
	int moved = 0, tell = ep->tell_at && now >= ep->tell_at;
	struct df_net_link *l;
	struct df_list news;

	df_list_init(&news);
	df_mutex_lock(&ep->lock);
	df_list_splice_tail(&news, &ep->inbox);
	df_mutex_unlock(&ep->lock);
	while (!df_list_empty(&news)) {
		df_net_begin(df_list_first(&news, struct df_net_conn, node));
		moved = 1;
	}
	if (tell)
		ep->tell_at = 0;
	for (l = df_net_links(ep); l; l = l->next)
		moved |= link_pass(l, now, tell, arm);
	moved |= df_net_gpu_pass(ep, now, arm);
	__atomic_store_n(&ep->passed, now, __ATOMIC_RELAXED);
	flush_pass(ep, now);
	return moved;
}

int df_net_pass(struct df_net_ep *ep)
{
	int moved = pass(ep, 0);

	return df_session_poll(ep) || moved;
}

static int64_t sleep_for(struct df_net_ep *ep)
{
	uint64_t now = df_now_ns(), until = df_session_timer(ep);
	struct df_net_link *l;

	until = DF_MIN(until, df_net_gpu_due(ep));
	if (ep->tell_at)
		until = DF_MIN(until, ep->tell_at);
	for (l = df_net_links(ep); l; l = l->next) {
		if (l->look_at)
			until = DF_MIN(until, l->look_at);
		if (l->since && l->opened == 1 && !l->bye)
			until = DF_MIN(until, now + 100 * DF_NS_PER_MS);
		if (df_blocks->gpu && !df_list_empty(&l->conns))
			until = DF_MIN(until, now + GPU_LOOK_NS);
	}
	if (until == UINT64_MAX)
		return -1;
	return until > now ? (int64_t)(until - now) : 0;
}

/* ---- the thread, and threads that help it ---------------------------------------------------- */

/*
 * Sleeps while other threads make passes: until none was made for some time, or until a helper has
 * left since `left` was read. tests/model/help.pml models this protocol.
 */
static void doze(struct df_net_ep *ep, uint32_t left)
{
	uint32_t helps;
	int64_t ns;

	__atomic_store_n(&ep->help.dozing, 1, __ATOMIC_RELAXED);
	for (ns = DOZE_NS;; ns = DF_MIN(2 * ns, (int64_t)DOZE_MAX_NS)) {
		helps = __atomic_load_n(&ep->help.helps, __ATOMIC_RELAXED);
		df_futex_wait(&ep->help.left, left, ns, 0);
		if (__atomic_load_n(&ep->help.left, __ATOMIC_RELAXED) != left ||
		    __atomic_load_n(&ep->help.helps, __ATOMIC_RELAXED) == helps)
			break;
	}
	__atomic_store_n(&ep->help.dozing, 0, __ATOMIC_RELAXED);
}

/* From now on waiting threads may make passes, if no medium of the endpoint can block. */
static void allow_help(struct df_net_ep *ep)
{
	int i;

	for (i = 0; i < DF_NET_MEDIA; i++)
		if (ep->media & 1u << i && !ep->ops[i]->helped)
			return;
	ep->help.next = __atomic_load_n(&helped, __ATOMIC_RELAXED);
	/* RELEASE pairs with the ACQUIRE in helped_of(): the endpoint is complete. */
	while (!__atomic_compare_exchange_n(&helped, &ep->help.next, ep, 0, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
}

void df_net_run(struct df_net_ep *ep)
{
	uint32_t helps = 0, left = 0;
	int64_t ns;

	allow_help(ep);
	for (;;) {
		if (__atomic_load_n(&ep->help.helps, __ATOMIC_RELAXED) != helps ||
		    !df_trylock_try(&ep->help.passing)) {
			doze(ep, left);
			helps = __atomic_load_n(&ep->help.helps, __ATOMIC_RELAXED);
			left = __atomic_load_n(&ep->help.left, __ATOMIC_RELAXED);
			continue;
		}
		ep->help.asleep = 0;
		if (df_net_pass(ep)) {
			df_trylock_release(&ep->help.passing);
			continue;
		}
		df_bell_arm(&ep->bell);
		ns = pass(ep, 1) ? 0 : sleep_for(ep);
		ep->help.asleep = ns != 0;
		df_trylock_release(&ep->help.passing);
		if (ns)
			df_session_sleep(ep, ns);
		df_bell_disarm(&ep->bell);
	}
}

static struct df_net_ep *helped_of(int device)
{
	/* ACQUIRE pairs with the RELEASE in allow_help(): the endpoint is complete. */
	struct df_net_ep *ep = __atomic_load_n(&helped, __ATOMIC_ACQUIRE);

	while (ep && ep->device != device)
		ep = ep->help.next;
	return ep;
}

/*
 * Called before another thread's pass: that pass may change when the endpoint's thread has to wake.
 */
static void rouse(struct df_net_ep *ep)
{
	if (!ep->help.asleep)
		return;
	ep->help.asleep = 0;
	df_bell_ring(&ep->bell);
}

int df_tl_progress(int device)
{
	struct df_net_ep *ep = helped_of(device);
	int moved;

	if (!ep || !df_trylock_try(&ep->help.passing))
		return 0;
	__atomic_store_n(&ep->help.helps, ep->help.helps + 1, __ATOMIC_RELAXED);
	rouse(ep);
	moved = df_net_pass(ep);
	df_trylock_release(&ep->help.passing);
	return moved;
}

void df_tl_withdrawn(int device)
{
	/* An endpoint that cannot be helped has no references (sockets_alone(), net.c). */
	struct df_net_ep *ep = helped_of(device);
	struct df_net_link *l;

	if (!ep)
		return;
	/* A pass is short: it never blocks. */
	while (!df_trylock_try(&ep->help.passing))
		sched_yield();
	for (l = df_net_links(ep); l; l = l->next)
		df_session_withdrawn(l);
	df_trylock_release(&ep->help.passing);
}

/* Whether something can be sent now. This check is several times cheaper than a pass. */
static int due(const struct df_net_ep *ep)
{
	const struct df_net_link *l;
	const struct df_net_conn *c;

	for (l = df_net_links(ep); l; l = l->next) {
		if (!l->up)
			continue;
		if (l->sent != l->seq || l->heard != l->acked || df_session_unsent(l))
			return 1;
		df_list_each(c, &l->conns, node)
		{
			if (df_net_due(c))
				return 1;
		}
	}
	return 0;
}

static void wake(struct df_net_ep *ep)
{
	/*
	 * Relaxed: `passing` orders the remaining work. If the thread misses the wake-up, its doze
	 * ends by itself.
	 */
	__atomic_add_fetch(&ep->help.left, 1, __ATOMIC_RELAXED);
	if (__atomic_load_n(&ep->help.dozing, __ATOMIC_RELAXED))
		df_futex_wake(&ep->help.left, 1, 0);
}

/*
 * Sends a slice or a credit from this thread; wakes the endpoint's thread only for what cannot be
 * sent yet.
 */
static void send_due(struct df_net_ep *ep)
{
	int more = 0;

	if (!df_trylock_try(&ep->help.passing))
		return;
	if (due(ep)) {
		rouse(ep);
		pass(ep, 0);
		more = due(ep);
	}
	df_trylock_release(&ep->help.passing);
	if (more)
		wake(ep);
}

void df_tl_begun(int device, uint64_t now)
{
	struct df_net_ep *ep = helped_of(device);
	uint32_t late;

	if (!ep)
		return;
	late = __atomic_load_n(&ep->help.late, __ATOMIC_RELAXED);
	/* Signed: `passed` may exceed `now`. */
	if ((int64_t)(now - __atomic_load_n(&ep->passed, __ATOMIC_RELAXED)) <= BEGUN_NS) {
		if (late)
			__atomic_store_n(&ep->help.late, late - 1, __ATOMIC_RELAXED);
		return;
	}
	__atomic_store_n(&ep->help.late, LATE, __ATOMIC_RELAXED);
	if (late)
		send_due(ep);
}

void df_tl_leave(int device, int sleeps)
{
	struct df_net_ep *ep = helped_of(device);

	if (ep && sleeps)
		wake(ep);
	else if (ep)
		send_due(ep);
}

void df_net_pass_forked(void)
{
	helped = NULL;
}
