/*
 * The greeting of a connection. Each end proves that it knows the key of the accepting process,
 * which only processes of the job know (struct df_member). The names in a hello are public:
 * /proc/net shows them to all users of a machine.
 *
 *   the connecting end                        the accepting end
 *   hello: names, session, a challenge  ────▶
 *                                       ◀──── answer: a challenge, the proof
 *   proof                               ────▶
 *                                       ◀──── outcome: WELCOME or OVER
 *
 * No message before the proof changes the state of a link. Each connection has its own challenges,
 * so a recorded greeting proves nothing later (base/net/auth.h). After the greeting the connection
 * is trusted as far as TCP is.
 *
 * There is no time limit, because a process that waits for a processor or is stopped answers late.
 * drop_oldest() (socket.c) bounds the number of connections that have proved nothing.
 *
 * Called by the thread that makes a pass over the endpoint; no locks, nothing blocks. The count of
 * refusals belongs to the process.
 */
#define _GNU_SOURCE
#include "runtime/transport/net/socket/socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/transport/net/net.h"

/* shortest time between two messages about refused connections */
#define REPORT_NS (60 * DF_NS_PER_S)

/*
 * Connections refused since the last message, and when the next message may be written. Relaxed
 * atomics.
 */
static uint64_t refused, silent_until;

/* ---- refusals -------------------------------------------------------------------------------- */

/* Returns 1 to the one thread that may write the next message. */
static int may_report(uint64_t now)
{
	uint64_t until = __atomic_load_n(&silent_until, __ATOMIC_RELAXED);

	return now >= until && __atomic_compare_exchange_n(&silent_until, &until, now + REPORT_NS,
							   0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

uint64_t df_greeting_report_at(void)
{
	return __atomic_load_n(&refused, __ATOMIC_RELAXED)
		       ? __atomic_load_n(&silent_until, __ATOMIC_RELAXED)
		       : UINT64_MAX;
}

void df_greeting_report(uint64_t now)
{
	if (df_greeting_report_at() > now || !may_report(now))
		return;
	df_warn("%llu more connections to where dfshim takes data were refused since the last "
		"line about them",
		(unsigned long long)__atomic_exchange_n(&refused, 0, __ATOMIC_RELAXED));
}

static void refuse(struct df_net_ep *ep, struct stream *s, const char *why)
{
	if (may_report(df_now_ns()))
		df_warn("a connection from %s to %s, where dfshim takes data, is refused: %s; "
			"others are counted, with one line a minute",
			s->who, ep->address, why);
	else
		__atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
	df_tcp_close(ep, s);
}

/* Rejects a connection whose other end is not the process with that address. */
static void distrust(struct df_net_ep *ep, struct stream *s)
{
	struct df_net_link *l = s->link;

	if (may_report(df_now_ns()))
		df_warn("the process that answers at %s does not prove that it is of this job: "
			"dfshim does not use the connection",
			s->who);
	else
		__atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
	if (s == df_session(l)->knock) {
		df_tcp_fail(ep, s, -EACCES);
		return;
	}
	snprintf(l->what, sizeof(l->what),
		 "the process that answers there does not prove that it is of this job");
	df_session_fail(l, -EACCES);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* The send buffer of a new connection has room for a message. */
static int send_message(const struct stream *s, const void *m, size_t bytes)
{
	return send(s->fd, m, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes ? 0 : -EIO;
}

/*
 * Reads a message into s->in, and no byte more, because frames are read into slots. Returns 1 when
 * it is complete, else 0.
 */
static int receive_message(struct stream *s, size_t bytes)
{
	ssize_t n = recv(s->fd, s->in + s->have, bytes - s->have, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (!n)
		return -ECONNRESET;
	s->have += (size_t)n;
	if (s->have < bytes)
		return 0;
	s->have = 0;
	return 1;
}

_Static_assert(sizeof(struct hello) <= DF_HELLO_MAX, "a proof covers the whole hello");

static struct df_key proof_of(const struct df_key *secret, enum df_proof what,
			      const struct stream *s)
{
	return df_auth_proof(secret, what, &s->hello, sizeof(s->hello), &s->challenge);
}

/* ---- a medium for the session ---------------------------------------------------------------- */

static uint64_t media_of(const struct df_net_link *l)
{
	return l->ep->media & ~l->avoid;
}

/*
 * Chooses the medium from those that both sides have. Returns -errno if the session is over; if
 * there is no common medium, the link is lost.
 */
static int agree(struct df_net_link *l, uint64_t both)
{
	struct session *p = df_session(l);

	/* This side has given up one of these media since its hello. */
	if (both & ~media_of(l))
		return -EAGAIN;
	if (!both) {
		df_warn_once("device %d of this process and %s have no network in common: "
			     "DFSHIM_NET=%s here, another one there, or another hardware",
			     l->ep->device, df_net_member(l)->net,
			     df_env_text(DF_ENV_ROW_net) ? df_env_text(DF_ENV_ROW_net) : "auto");
		snprintf(l->what, sizeof(l->what), "no network in common");
		l->why = -EPROTONOSUPPORT;
		df_net_lost(l);
		return -EPROTONOSUPPORT;
	}
	p->carries = both;
	l->ops = l->ep->ops[__builtin_ctzll(both)];
	return 0;
}

/* Adds an open stream to the session, after both sides have proved the secret. */
static void adopt(struct stream *s, const struct df_key *secret, uint64_t carries)
{
	struct df_net_link *l = s->link;
	struct session *p = df_session(l);
	int ret;

	df_tcp_opened(df_sessions(l->ep), s);
	if (!s->index)
		p->key = proof_of(secret, DF_PROOF_SESSION, s);
	ret = l->ops ? 0 : agree(l, carries);
	if (!ret && ++p->nr_open == p->nr) {
		p->pause = 0;
		p->try_at = 0;
		if (p->knock)
			df_tcp_close(l->ep, p->knock);
		p->knock = NULL;
		ret = l->ops->begin(l);
	}
	if (ret)
		df_session_fail(l, ret);
}

struct df_key df_session_key(const struct df_net_link *l)
{
	return df_session(l)->key;
}

/* ---- the accepting end ----------------------------------------------------------------------- */

/* Answers a hello; changes no link. */
static void hello_arrived(struct df_net_ep *ep, struct stream *s)
{
	struct sessions *m = df_sessions(ep);
	struct hello *h = &s->hello;
	struct answer a;

	memcpy(h, s->in, sizeof(*h));
	if (h->magic != MAGIC) {
		refuse(ep, s, "it does not speak dfshim's protocol");
		return;
	}
	if (h->version != WIRE_VERSION) {
		refuse(ep, s, "it is of another version of dfshim");
		return;
	}
	if (h->to_proc != ep->proc || h->to_device != ep->device || !h->nr || h->nr > STREAMS_MAX ||
	    h->index >= h->nr || (h->word != HELLO && h->word != KNOCK) ||
	    h->without & ~(uint32_t)DF_NET_NONE) {
		refuse(ep, s, "it is not of this job");
		return;
	}
	if (df_key_make(&s->challenge)) {
		df_tcp_close(ep, s);
		return;
	}
	a.challenge = s->challenge;
	a.proof = proof_of(&ep->key, DF_PROOF_ACCEPTS, s);
	s->state = CHALLENGED;
	/* Move it to the end: a connection that has just sent something is dropped last. */
	df_list_del(&s->node);
	df_list_add_tail(&m->strangers, &s->node);
	if (send_message(s, &a, sizeof(a)))
		df_tcp_close(ep, s);
}

/* Handles the proof of a process of the job. */
static void introduced(struct df_net_ep *ep, struct stream *s)
{
	const struct hello *h = &s->hello;
	struct outcome o = {.word = WELCOME};
	struct df_net_link *l;
	struct session *p;

	l = df_net_link_of(ep, h->from_proc, h->from_device, h->without);
	/* The link is lost for good, even if the process can still reach us. */
	if (l && df_net_dead(l)) {
		o.word = OVER;
		send_message(s, &o, sizeof(o));
		df_tcp_close(ep, s);
		return;
	}
	/* A probe connection only asks whether we are alive. */
	p = l && h->word == HELLO ? df_session_new(l) : NULL;
	/* The hello is of an old session, or of one that is already complete or given up. */
	if (!p || h->session < p->session ||
	    (h->session == p->session && (!p->nr || p->nr != h->nr || p->v[h->index]))) {
		df_tcp_close(ep, s);
		return;
	}
	if (h->session > p->session) {
		df_session_fail(l, -ECONNRESET);
		p->session = h->session;
		p->nr = h->nr;
		p->carries = h->carries & media_of(l);
	}
	df_list_del(&s->node);
	df_strangers_add(ep, -1);
	s->link = l;
	s->index = h->index;
	s->state = OPEN;
	p->v[s->index] = s;
	o.carries = p->carries;
	if (send_message(s, &o, sizeof(o)))
		df_session_fail(l, -EIO);
	else
		adopt(s, &ep->key, p->carries);
}

static void proof_arrived(struct df_net_ep *ep, struct stream *s)
{
	struct df_key proof, right = proof_of(&ep->key, DF_PROOF_CONNECTS, s);

	memcpy(&proof, s->in, sizeof(proof));
	if (df_key_equal(&proof, &right))
		introduced(ep, s);
	else
		refuse(ep, s, "it does not prove that it is of this job");
}

/* ---- the connecting end ---------------------------------------------------------------------- */

void df_greeting_connected(struct df_net_ep *ep, struct stream *s)
{
	struct df_net_link *l = s->link;
	struct session *p = df_session(l);
	int error = 0;
	socklen_t len = sizeof(error);

	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &len))
		error = errno;
	if (error) {
		if (!l->up)
			l->why = -error;
		df_tcp_fail(ep, s, -error);
		return;
	}
	s->hello = (struct hello){.magic = MAGIC,
				  .version = WIRE_VERSION,
				  .index = (uint16_t)s->index,
				  .nr = (uint16_t)p->nr,
				  .from_proc = ep->proc,
				  .to_proc = l->proc,
				  .from_device = ep->device,
				  .to_device = l->device,
				  .session = p->session,
				  .without = l->without,
				  .carries = media_of(l)};
	if (s->state == KNOCKING) {
		s->hello.word = KNOCK;
		s->hello.nr = 1;
		s->hello.index = 0;
	}
	s->state = GREETING;
	df_tcp_events(ep, s, EPOLLIN);
	if (df_key_make(&s->hello.challenge) || send_message(s, &s->hello, sizeof(s->hello)))
		df_tcp_fail(ep, s, -EIO);
}

static void answer_arrived(struct df_net_ep *ep, struct stream *s)
{
	const struct df_key *secret = &df_net_member(s->link)->key;
	struct df_key proof;
	struct answer a;

	memcpy(&a, s->in, sizeof(a));
	s->challenge = a.challenge;
	proof = proof_of(secret, DF_PROOF_ACCEPTS, s);
	if (!df_key_equal(&proof, &a.proof)) {
		distrust(ep, s);
		return;
	}
	df_net_alive(s->link, df_now_ns());
	proof = proof_of(secret, DF_PROOF_CONNECTS, s);
	s->state = PROVED;
	if (send_message(s, &proof, sizeof(proof)))
		df_tcp_fail(ep, s, -EIO);
}

static void outcome_arrived(struct df_net_ep *ep, struct stream *s)
{
	struct df_net_link *l = s->link;
	struct outcome o;

	memcpy(&o, s->in, sizeof(o));
	if (o.word == OVER) {
		l->why = -ECONNABORTED;
		l->alive = l->since;
		snprintf(l->what, sizeof(l->what), "the other side has given it up");
		df_net_lost(l);
	} else if (s == df_session(l)->knock || o.word != WELCOME) {
		df_tcp_fail(ep, s, -EPROTO);
	} else {
		adopt(s, &df_net_member(l)->key, o.carries);
	}
}

/* ---- the message expected in each state ------------------------------------------------------ */

struct step {
	size_t bytes;
	void (*arrived)(struct df_net_ep *ep, struct stream *s);
};

static const struct step steps[] = {
	[STRANGER] = {sizeof(struct hello), hello_arrived},
	[CHALLENGED] = {sizeof(struct df_key), proof_arrived},
	[GREETING] = {sizeof(struct answer), answer_arrived},
	[PROVED] = {sizeof(struct outcome), outcome_arrived},
};

void df_greeting_look(struct df_net_ep *ep, struct stream *s)
{
	const struct step *step = &steps[s->state];
	int ret = receive_message(s, step->bytes);

	if (ret < 0)
		df_tcp_fail(ep, s, ret);
	else if (ret)
		step->arrived(ep, s);
}
