/*
 * A job of the evaluation as lists of units, one for each rank: a collective, a group of messages, other work, a
 * synchronisation. A collective on a stream of its own waits for the compute stream through an event, and the compute
 * stream for it where its result is used next, which is what frameworks do. Each unit has a site: the place in the
 * program that all ranks share.
 */
#ifndef DEADLOCK_EVAL_UNITS_H
#define DEADLOCK_EVAL_UNITS_H

#include "make.h"
#include "runtime/base/rng.h"

#define EV_RANKS 8
#define EV_BIG	 UNBUFFERED

enum ev_unit_kind { EU_COLL, EU_P2P, EU_JOIN, EU_WORK, EU_SSYNC, EU_DSYNC, EU_ISYNC };

struct ev_unit {
	enum ev_unit_kind kind;
	int site, comm, coll, stream, blocking, grouped, nr;
	uint64_t n;
	struct {
		int send, peer;
		uint64_t n;
	} m[8];
};

enum ev_change {
	EV_NONE,
	EV_SWAP,      /* two units of different communicators, on one rank or every second */
	EV_SWAP_SAME, /* two of one communicator */
	EV_SWAP_SYNC, /* with a synchronisation of the device between them on all ranks */
	EV_SWAP_ALL,  /* on all ranks: no harm */
	EV_DROP,
	EV_REPEAT,
	EV_COUNT,
	EV_KIND,
	EV_STOP, /* a rank's program ends early */
	EV_UNGROUP,
	EV_SYNC, /* synchronisations on one rank: no harm */
	EV_NR
};

static const char *const ev_changes[EV_NR] = {"none",
					      "swap",
					      "swap in a communicator",
					      "swap with synchronisation",
					      "swap on all ranks",
					      "drop",
					      "repeat",
					      "count",
					      "kind",
					      "stop",
					      "ungroup",
					      "synchronise"};

static const char *const ev_shapes[] = {"MLP",	     "GPT-2",	     "mBART",	  "Swin",
					"OpenFold",  "AllToAll",     "AllReduce", "AllGather",
					"Broadcast", "ReduceScatter"};
#define EV_MODELS      5
#define EV_COLLECTIVES 5

struct ev_job {
	struct script s;
	struct df_rng rng;
	struct ev_unit *u[EV_RANKS];
	int nr[EV_RANKS], ranks, tp, dp, site;
	int tp_comm[EV_RANKS], dp_comm[EV_RANKS]; /* -1 none; hierarchies: node and across */
	int tp_stream, dp_stream, world_stream;
	uint64_t message;
	enum ev_change change;
};

static inline uint64_t ev_below(struct ev_job *j, uint64_t n)
{
	return df_rng_below(&j->rng, n);
}

static inline struct ev_unit *ev_at(struct ev_job *j, int r, int at)
{
	struct ev_unit *u;

	j->u[r] = realloc(j->u[r], (size_t)(j->nr[r] + 1) * sizeof(*u));
	u = &j->u[r][at];
	memmove(u + 1, u, (size_t)(j->nr[r]++ - at) * sizeof(*u));
	memset(u, 0, sizeof(*u));
	return u;
}

static inline struct ev_unit *ev_add(struct ev_job *j, int r, enum ev_unit_kind kind)
{
	struct ev_unit *u = ev_at(j, r, j->nr[r]);

	u->kind = kind;
	u->site = j->site;
	return u;
}

static inline void ev_all(struct ev_job *j, enum ev_unit_kind kind)
{
	for (int r = 0; r < j->ranks; r++)
		ev_add(j, r, kind);
	j->site++;
}

static inline void ev_coll_of(struct ev_job *j, const int *comms, int stream, int coll, uint64_t n,
			      int blocking)
{
	for (int r = 0; r < j->ranks; r++) {
		struct ev_unit *u;

		if (comms && comms[r] < 0)
			continue;
		u = ev_add(j, r, EU_COLL);
		u->comm = comms ? comms[r] : 0;
		u->stream = stream;
		u->coll = coll;
		u->n = n;
		u->blocking = blocking;
	}
	j->site++;
}

/* Tensor parallelism: its result is used at once. */
static inline void ev_tp(struct ev_job *j, int coll, uint64_t n)
{
	ev_all(j, EU_WORK);
	if (j->tp > 1)
		ev_coll_of(j, j->tp_comm, j->tp_stream, coll, n, 1);
}

/* Gradients: overlapped with what follows, until ev_all(EU_JOIN). */
static inline void ev_dp(struct ev_job *j, int coll, uint64_t n)
{
	if (j->dp > 1)
		ev_coll_of(j, j->dp_comm, j->dp_stream, coll, n, 0);
}

static inline void ev_world(struct ev_job *j, int coll, uint64_t n)
{
	ev_coll_of(j, NULL, j->world_stream, coll, n, 1);
}

/* Where rank r stands among those that it shares a communicator with; NULL if with nobody. */
static inline const struct sc_comm *ev_mates(struct ev_job *j, const int *comms, int r, int *me)
{
	const struct sc_comm *c = comms[r] >= 0 ? &j->s.comms[comms[r]] : NULL;

	if (!c || c->nr < 2)
		return NULL;
	*me = sc_comm_rank(c, r);
	return c;
}

/* Messages of rank r, none as yet. */
static inline struct ev_unit *ev_messages(struct ev_job *j, int r, const int *comms, int stream,
					  int grouped)
{
	struct ev_unit *u = ev_add(j, r, EU_P2P);

	u->comm = comms[r];
	u->stream = stream;
	u->blocking = 1;
	u->grouped = grouped;
	return u;
}

static inline void ev_message(const struct ev_job *j, struct ev_unit *u, int send, int peer)
{
	u->m[u->nr].send = send;
	u->m[u->nr].peer = peer;
	u->m[u->nr++].n = j->message;
}

/* To and from ranks of a communicator that are `step` places away; what is beyond an end wraps round. */
static inline void ev_shift(struct ev_job *j, const int *comms, int stream, int step)
{
	for (int r = 0, me; r < j->ranks; r++) {
		const struct sc_comm *c = ev_mates(j, comms, r, &me);
		struct ev_unit *u;

		if (!c)
			continue;
		u = ev_messages(j, r, comms, stream, 1);
		ev_message(j, u, 1, c->ranks[(me + step) % c->nr]);
		ev_message(j, u, 0, c->ranks[(me + c->nr - step % c->nr) % c->nr]);
	}
	j->site++;
}

/* All pairs of a communicator in one group. */
static inline void ev_exchange(struct ev_job *j, const int *comms, int stream)
{
	for (int r = 0, me; r < j->ranks; r++) {
		const struct sc_comm *c = ev_mates(j, comms, r, &me);
		struct ev_unit *u = c ? ev_messages(j, r, comms, stream, 1) : NULL;

		for (int q = 0; c && q < c->nr; q++)
			for (int send = 1; send >= 0 && q != me; send--)
				ev_message(j, u, send, c->ranks[q]);
	}
	j->site++;
}

/* Along the ranks of a communicator, from the first. */
static inline void ev_chain(struct ev_job *j, const int *comms, int stream)
{
	for (int r = 0, me; r < j->ranks; r++) {
		const struct sc_comm *c = ev_mates(j, comms, r, &me);

		for (int send = 0; c && send < 2; send++)
			if (me != (send ? c->nr - 1 : 0))
				ev_message(j, ev_messages(j, r, comms, stream, 0), send,
					   c->ranks[send ? me + 1 : me - 1]);
	}
	j->site++;
}

/* ---- from units to steps ------------------------------------------------------------------------------------------ */

static inline void ev_event(struct script *s, int r, const char *kind, int of, int on, int waits)
{
	char name[16];
	int e;

	snprintf(name, sizeof(name), "%s%d", kind, *kind == 'a' ? waits : of);
	e = sc_name(&s->event, name);
	put(s, r, 0, SC_REC, of)->object = e;
	put(s, r, 0, SC_WAIT, on)->object = e;
}

static inline void ev_emit(struct ev_job *j, int r, const struct ev_unit *u)
{
	struct script *s = &j->s;
	struct sc_step *st;
	char name[16];

	switch (u->kind) {
	case EU_WORK:
		put(s, r, 0, SC_WORK, 0);
		return;
	case EU_SSYNC:
		put(s, r, 0, SC_SSYNC, 0);
		return;
	case EU_DSYNC:
		put(s, r, 0, SC_DSYNC, 0);
		return;
	case EU_ISYNC:
		put(s, r, 0, SC_FREE, 0);
		return;
	case EU_JOIN:
		for (int k = 1; k < s->stream.nr; k++)
			ev_event(s, r, "b", k, 0, 0);
		return;
	default:
		break;
	}
	if (u->stream)
		ev_event(s, r, "a", 0, u->stream, u->stream);
	if (u->kind == EU_COLL) {
		st = put(s, r, 0, SC_COLL, u->stream);
		st->comm = u->comm;
		st->coll = u->coll;
		st->count = u->n;
		st->in = sc_buf(s, NULL, r);
		st->out = sc_buf(s, NULL, r);
	} else {
		if (u->grouped)
			put(s, r, 0, SC_OPEN, 0);
		for (int k = 0; k < u->nr; k++) {
			st = put(s, r, 0, u->m[k].send ? SC_SEND : SC_RECV, u->stream);
			st->comm = u->comm;
			st->peer = u->m[k].peer;
			st->count = u->m[k].n;
			/* Large ones share their buffers. */
			snprintf(name, sizeof(name), "m%d.%d.%d", u->stream, k, u->m[k].send);
			st->in = st->out = sc_buf(s, name, r);
		}
		if (u->grouped)
			put(s, r, 0, SC_CLOSE, 0);
	}
	if (u->stream && u->blocking)
		ev_event(s, r, "b", u->stream, 0, 0);
}

#endif
