/*
 * Makes the jobs for the evaluation of the checker (eval.c): the communication of one or two steps
 * of training, or of a collective that consists of messages and smaller collectives, with one
 * change. Everything follows from the seed.
 */
#include <stdlib.h>
#include <string.h>
#include "eval.h"

/*
 * A job has a list of units for each rank. A unit is a collective, a group of messages, other work,
 * or a synchronisation. As in frameworks, a collective on a stream of its own waits for the compute
 * stream through an event, and the compute stream waits for the collective where its result is used
 * next. The site of a unit is its place in the program, which is the same on all ranks.
 */

const char *const ev_changes[EV_NR] = {"none",
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

const char *const ev_shapes[] = {"MLP",	      "GPT-2",	      "mBART",	   "Swin",
				 "OpenFold",  "AllToAll",     "AllReduce", "AllGather",
				 "Broadcast", "ReduceScatter"};

static uint64_t ev_below(struct ev_job *j, uint64_t n)
{
	return df_rng_below(&j->rng, n);
}

static struct ev_unit *ev_at(struct ev_job *j, int r, int at)
{
	struct ev_unit *u;

	j->u[r] = realloc(j->u[r], (size_t)(j->nr[r] + 1) * sizeof(*u));
	u = &j->u[r][at];
	memmove(u + 1, u, (size_t)(j->nr[r]++ - at) * sizeof(*u));
	memset(u, 0, sizeof(*u));
	return u;
}

static struct ev_unit *ev_add(struct ev_job *j, int r, enum ev_unit_kind kind)
{
	struct ev_unit *u = ev_at(j, r, j->nr[r]);

	u->kind = kind;
	u->site = j->site;
	return u;
}

static void ev_all(struct ev_job *j, enum ev_unit_kind kind)
{
	for (int r = 0; r < j->ranks; r++)
		ev_add(j, r, kind);
	j->site++;
}

static void ev_coll_of(struct ev_job *j, const int *comms, int stream, int coll, uint64_t n,
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

/* A collective of tensor parallelism. The next work needs its result. */
static void ev_tp(struct ev_job *j, int coll, uint64_t n)
{
	ev_all(j, EU_WORK);
	if (j->tp > 1)
		ev_coll_of(j, j->tp_comm, j->tp_stream, coll, n, 1);
}

/* A collective of gradients. It overlaps with later units until ev_all(EU_JOIN). */
static void ev_dp(struct ev_job *j, int coll, uint64_t n)
{
	if (j->dp > 1)
		ev_coll_of(j, j->dp_comm, j->dp_stream, coll, n, 0);
}

static void ev_world(struct ev_job *j, int coll, uint64_t n)
{
	ev_coll_of(j, NULL, j->world_stream, coll, n, 1);
}

/*
 * Returns rank r's communicator and its place `me` there, or NULL if no other rank is in the
 * communicator.
 */
static const struct sc_comm *ev_mates(struct ev_job *j, const int *comms, int r, int *me)
{
	const struct sc_comm *c = comms[r] >= 0 ? &j->s.comms[comms[r]] : NULL;

	if (!c || c->nr < 2)
		return NULL;
	*me = sc_comm_rank(c, r);
	return c;
}

/* Adds a group of messages of rank r, which is still empty. */
static struct ev_unit *ev_messages(struct ev_job *j, int r, const int *comms, int stream,
				   int grouped)
{
	struct ev_unit *u = ev_add(j, r, EU_P2P);

	u->comm = comms[r];
	u->stream = stream;
	u->blocking = 1;
	u->grouped = grouped;
	return u;
}

static void ev_message(const struct ev_job *j, struct ev_unit *u, int send, int peer)
{
	u->m[u->nr].send = send;
	u->m[u->nr].peer = peer;
	u->m[u->nr++].n = j->message;
}

/*
 * Each rank sends to the rank `step` places after it in the communicator, and receives from the
 * rank `step` places before it. Places wrap round.
 */
static void ev_shift(struct ev_job *j, const int *comms, int stream, int step)
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

/* All pairs of a communicator exchange messages in one group. */
static void ev_exchange(struct ev_job *j, const int *comms, int stream)
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

/* Sends messages along the ranks of a communicator, from the first to the last. */
static void ev_chain(struct ev_job *j, const int *comms, int stream)
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

/* ---- from units to steps --------------------------------------------------------------------- */

static void ev_event(struct script *s, int r, const char *kind, int of, int on, int waits)
{
	char name[16];
	int e;

	snprintf(name, sizeof(name), "%s%d", kind, *kind == 'a' ? waits : of);
	e = sc_name(&s->event, name);
	sc_put(s, r, 0, SC_REC, of)->object = e;
	sc_put(s, r, 0, SC_WAIT, on)->object = e;
}

static void ev_emit(struct ev_job *j, int r, const struct ev_unit *u)
{
	struct script *s = &j->s;
	struct sc_step *st;
	char name[16];

	switch (u->kind) {
	case EU_WORK:
		sc_put(s, r, 0, SC_WORK, 0);
		return;
	case EU_SSYNC:
		sc_put(s, r, 0, SC_SSYNC, 0);
		return;
	case EU_DSYNC:
		sc_put(s, r, 0, SC_DSYNC, 0);
		return;
	case EU_ISYNC:
		sc_put(s, r, 0, SC_FREE, 0);
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
		st = sc_put(s, r, 0, SC_COLL, u->stream);
		st->comm = u->comm;
		st->coll = u->coll;
		st->count = u->n;
		st->in = sc_buf(s, NULL, r);
		st->out = sc_buf(s, NULL, r);
	} else {
		if (u->grouped)
			sc_put(s, r, 0, SC_OPEN, 0);
		for (int k = 0; k < u->nr; k++) {
			st = sc_put(s, r, 0, u->m[k].send ? SC_SEND : SC_RECV, u->stream);
			st->comm = u->comm;
			st->peer = u->m[k].peer;
			st->count = u->m[k].n;
			/* Messages share buffers, because large ones need much memory. */
			snprintf(name, sizeof(name), "m%d.%d.%d", u->stream, k, u->m[k].send);
			st->in = st->out = sc_buf(s, name, r);
		}
		if (u->grouped)
			sc_put(s, r, 0, SC_CLOSE, 0);
	}
	if (u->stream && u->blocking)
		ev_event(s, r, "b", u->stream, 0, 0);
}

static int ev_talks(const struct ev_unit *u)
{
	return u->kind == EU_COLL || u->kind == EU_P2P;
}

/*
 * Returns a random unit of rank r of this kind; EU_JOIN stands for any collective or group of
 * messages. Returns -1 if none was found.
 */
static int ev_pick(struct ev_job *j, int r, enum ev_unit_kind kind)
{
	for (int tries = 0; tries < 200; tries++) {
		int i = (int)ev_below(j, (uint64_t)j->nr[r]);

		if (j->u[r][i].kind == kind || (kind == EU_JOIN && ev_talks(&j->u[r][i])))
			return i;
	}
	return -1;
}

static void ev_swap_units(struct ev_unit *a, struct ev_unit *b)
{
	struct ev_unit t = *a;

	*a = *b;
	*b = t;
}

/*
 * Picks two units i < k of rank r that are close together: of one communicator if `same` is 1, else
 * of different ones. Returns 0 if none were found.
 */
static int ev_pick_pair(struct ev_job *j, int r, int same, int *i, int *k)
{
	for (int tries = 0; tries < 300; tries++) {
		const struct ev_unit *u = j->u[r];

		*i = ev_pick(j, r, EU_JOIN);
		if (*i < 0)
			return 0;
		for (*k = *i + 1; *k < j->nr[r] && *k < *i + 6; ++*k)
			if (ev_talks(&u[*k]) && (u[*k].comm == u[*i].comm) == same &&
			    ev_below(j, 2))
				return 1;
	}
	return 0;
}

static int ev_find(const struct ev_job *j, int r, int site)
{
	for (int i = 0; i < j->nr[r]; i++)
		if (j->u[r][i].site == site)
			return i;
	return -1;
}

/* Exchanges two sites of the program on rank q, if the rank has both. */
static void ev_swap_on(struct ev_job *j, int q, int site, int other)
{
	int i = ev_find(j, q, site), k = ev_find(j, q, other);

	if (i >= 0 && k >= 0)
		ev_swap_units(&j->u[q][i], &j->u[q][k]);
}

/*
 * Exchanges two sites on rank r, or on every second rank like the black fields of a chessboard. The
 * latter makes cycles that pass through rows and columns.
 */
static void ev_swap_sites(struct ev_job *j, int r, int site, int other)
{
	int many = (int)ev_below(j, 2), parity = (r / j->tp + r % j->tp) & 1;

	for (int q = 0; q < j->ranks; q++)
		if (q == r || (many && ((q / j->tp + q % j->tp) & 1) == parity))
			ev_swap_on(j, q, site, other);
}

static void ev_mutate(struct ev_job *j)
{
	int r = (int)ev_below(j, (uint64_t)j->ranks), i, k, site, other;
	struct ev_unit *u, copy;

	switch (j->change) {
	case EV_SWAP:
		if (ev_pick_pair(j, r, 0, &i, &k))
			ev_swap_sites(j, r, j->u[r][i].site, j->u[r][k].site);
		break;
	case EV_SWAP_SAME:
		if (ev_pick_pair(j, r, 1, &i, &k))
			ev_swap_units(&j->u[r][i], &j->u[r][k]);
		break;
	case EV_SWAP_SYNC:
		if (!ev_pick_pair(j, r, 0, &i, &k))
			break;
		site = j->u[r][i].site;
		other = j->u[r][k].site;
		ev_swap_sites(j, r, site, other);
		for (int q = 0; q < j->ranks; q++) {
			i = ev_find(j, q, site);
			k = ev_find(j, q, other);
			if (i < 0 || k < 0)
				continue;
			i = i < k ? i : k;
			/*
			 * No later work may wait for the result, so that only the wait for the
			 * device matters.
			 */
			j->u[q][i].blocking = 0;
			u = ev_at(j, q, i + 1);
			u->kind = ev_below(j, 2) ? EU_DSYNC : EU_ISYNC;
			u->site = -1;
		}
		break;
	case EV_SWAP_ALL:
		if (!ev_pick_pair(j, r, 0, &i, &k))
			break;
		site = j->u[r][i].site;
		other = j->u[r][k].site;
		for (int q = 0; q < j->ranks; q++)
			ev_swap_on(j, q, site, other);
		break;
	case EV_DROP:
		i = ev_pick(j, r, EU_JOIN);
		memmove(&j->u[r][i], &j->u[r][i + 1],
			(size_t)(--j->nr[r] - i) * sizeof(struct ev_unit));
		break;
	case EV_REPEAT:
		i = ev_pick(j, r, EU_JOIN);
		copy = j->u[r][i];
		*ev_at(j, r, i) = copy;
		break;
	case EV_COUNT:
		u = &j->u[r][ev_pick(j, r, EU_JOIN)];
		u->n += 1 + ev_below(j, u->n + 1);
		if (u->nr)
			u->m[ev_below(j, (uint64_t)u->nr)].n += 1 + ev_below(j, 100);
		break;
	case EV_KIND:
		i = ev_pick(j, r, EU_COLL);
		if (i >= 0)
			j->u[r][i].coll = j->u[r][i].coll == SC_AR ? SC_AG : SC_AR;
		break;
	case EV_STOP:
		j->nr[r] = 1 + (int)ev_below(j, (uint64_t)j->nr[r] - 1);
		break;
	case EV_UNGROUP:
		i = ev_pick(j, r, EU_P2P);
		site = i >= 0 ? j->u[r][i].site : -1;
		for (int q = 0; site >= 0 && q < j->ranks; q++) {
			i = ev_find(j, q, site);
			if (i >= 0)
				j->u[q][i].grouped = 0;
		}
		break;
	case EV_SYNC:
		for (int n = 0; n < 3; n++) {
			i = ev_pick(j, r, EU_JOIN);
			u = ev_at(j, r, i);
			u->kind = EU_SSYNC + (int)ev_below(j, 3);
			u->site = -1;
		}
		break;
	default:
		break;
	}
}

/* ---- models ---------------------------------------------------------------------------------- */

static void ev_mlp(struct ev_job *j)
{
	for (int l = 0; l < 8; l++) /* 16 layers: pairs that are split by columns and by rows */
		ev_tp(j, SC_AR, 4096);
	ev_world(j, SC_AR, 1);
	for (int l = 0; l < 8; l++) {
		ev_tp(j, SC_AR, 4096);
		if (l & 1)
			ev_dp(j, SC_AR, 8192);
	}
}

static void ev_gpt2(struct ev_job *j)
{
	ev_tp(j, SC_AR, 3072);	     /* embedding */
	for (int l = 0; l < 12; l++) /* attention and MLP of six layers */
		ev_tp(j, SC_AR, 3072);
	ev_tp(j, SC_AG, 1000); /* logits and loss */
	ev_tp(j, SC_AR, 8);
	for (int l = 0; l < 12; l++) {
		ev_tp(j, SC_AR, 3072);
		if (l % 4 == 3)
			ev_dp(j, SC_RS, 6144);
	}
	ev_world(j, SC_AR, 1); /* norm of the gradients */
	ev_all(j, EU_JOIN);
	ev_dp(j, SC_AG, 6144);
}

static void ev_mbart(struct ev_job *j)
{
	if (j->tp > 1)
		ev_coll_of(j, j->tp_comm, j->tp_stream, SC_BC, 512, 1); /* the batch */
	for (int l = 0; l < 4 + 6; l++) /* two layers of the encoder, two of the decoder */
		ev_tp(j, SC_AR, 1024);
	ev_tp(j, SC_AG, 2048);
	for (int l = 0; l < 6 + 4; l++) {
		ev_tp(j, SC_AR, 1024);
		if (l % 3 == 2)
			ev_dp(j, SC_AR, 2048);
	}
	ev_world(j, SC_AR, 4000); /* embeddings that encoder and decoder share */
}

static void ev_swin(struct ev_job *j)
{
	static const int depth[] = {2, 2, 6, 2};

	for (int backward = 0; backward < 2; backward++)
		for (int k = 0; k < 4; k++) {
			int stage = backward ? 3 - k : k;

			for (int b = 0; b < depth[stage]; b++) {
				/* Shifted windows need the neighbour's border. */
				if (b & 1)
					ev_shift(j, j->tp > 1 ? j->tp_comm : j->dp_comm,
						 j->tp > 1 ? j->tp_stream : j->dp_stream, 1);
				ev_tp(j, SC_AR, (uint64_t)1024 << (stage & 1));
				if (backward && !(b & 1))
					ev_dp(j, SC_AR, 2048);
			}
			if (stage < 3)
				ev_tp(j, SC_AG, 512); /* merging of patches */
		}
}

static void ev_openfold(struct ev_job *j)
{
	for (int backward = 0; backward < 2; backward++)
		for (int b = 0; b < 2; b++) {
			ev_tp(j, SC_A2A, 512); /* from rows to columns of the alignment */
			ev_tp(j, SC_A2A, 512);
			ev_tp(j, SC_AG, 1024); /* mean of the outer product */
			for (int t = 0; t < 2; t++)
				ev_tp(j, SC_AR, 2048); /* triangle updates, outgoing and incoming */
			for (int t = 0; t < 2; t++)
				ev_tp(j, SC_A2A, 1024);
			ev_tp(j, SC_AR, 512);
			if (backward) {
				ev_dp(j, SC_RS, 1024);
				ev_dp(j, SC_AR, 4096);
			}
		}
	ev_world(j, SC_AR, 1);
}

/* ---- collectives from smaller parts ---------------------------------------------------------- */

/*
 * The part of a collective across nodes: one collective, or `shifts` rounds of messages if `p2p` is
 * set.
 */
static void ev_across(struct ev_job *j, int stream, int p2p, int shifts, int coll, uint64_t n)
{
	for (int k = 0; p2p && k < shifts; k++)
		ev_shift(j, j->dp_comm, stream, 1);
	if (!p2p && j->dp > 1)
		ev_coll_of(j, j->dp_comm, stream, coll, n, 1);
}

static void ev_hierarchical(struct ev_job *j, int which)
{
	int chunks = 2 + (int)ev_below(j, 4), p2p = (int)ev_below(j, 2), m = j->dp;

	for (int c = 0; c < chunks; c++) {
		uint64_t n = 256 + 64 * ev_below(j, 4);
		int stream = c & 1 ? j->tp_stream : j->dp_stream;

		ev_all(j, EU_WORK);
		switch (which) {
		case 0: /* all-to-all: inside the node, then across nodes */
			ev_exchange(j, j->tp_comm, stream);
			if (p2p)
				ev_exchange(j, j->dp_comm, stream);
			ev_across(j, stream, p2p, 0, SC_A2A, n);
			break;
		case 1: /* reduce-scatter, AllReduce across nodes, AllGather */
			ev_coll_of(j, j->tp_comm, stream, SC_RS, n, 1);
			ev_across(j, stream, p2p, 2 * (m - 1), SC_AR, n);
			ev_coll_of(j, j->tp_comm, stream, SC_AG, n, 1);
			break;
		case 2:
			ev_across(j, stream, p2p, m - 1, SC_AG, n);
			ev_coll_of(j, j->tp_comm, stream, SC_AG, n * (uint64_t)m, 1);
			break;
		case 3:
			if (p2p)
				ev_chain(j, j->dp_comm, stream);
			ev_across(j, stream, p2p, 0, SC_BC, n);
			ev_coll_of(j, j->tp_comm, stream, SC_BC, n, 1);
			break;
		default:
			ev_coll_of(j, j->tp_comm, stream, SC_RS, n * (uint64_t)m, 1);
			ev_across(j, stream, p2p, m - 1, SC_RS, n);
		}
	}
}

static void ev_comms(struct ev_job *j)
{
	char name[24];
	int c;

	sc_comm_add(&j->s, "W", 0);
	for (int r = 0; r < j->ranks; r++)
		sc_comm_member(&j->s.comms[0], r);
	memset(j->tp_comm, -1, sizeof(j->tp_comm));
	memset(j->dp_comm, -1, sizeof(j->dp_comm));
	for (int d = 0; j->tp > 1 && d < j->dp; d++) {
		snprintf(name, sizeof(name), "T%d", d);
		c = sc_comm_add(&j->s, name, 0);
		for (int t = 0; t < j->tp; t++) {
			sc_comm_member(&j->s.comms[c], d * j->tp + t);
			j->tp_comm[d * j->tp + t] = c;
		}
	}
	for (int t = 0; j->dp > 1 && t < j->tp; t++) {
		snprintf(name, sizeof(name), "D%d", t);
		c = sc_comm_add(&j->s, name, 0);
		for (int d = 0; d < j->dp; d++) {
			sc_comm_member(&j->s.comms[c], d * j->tp + t);
			j->dp_comm[d * j->tp + t] = c;
		}
	}
}

void ev_make(struct ev_job *j, int shape, int number, uint64_t seed)
{
	static const int places[3][3] = {{1, 2, 3}, {0, 0, 0}, {0, 1, 1}};
	static void (*const models[])(struct ev_job *) = {ev_mlp, ev_gpt2, ev_mbart, ev_swin,
							  ev_openfold};
	const int *place;
	int steps;

	memset(j, 0, sizeof(*j));
	df_rng_init(&j->rng, seed * 1000003 + (uint64_t)(shape * 1000 + number));
	snprintf(j->s.name, sizeof(j->s.name), "%s.%d", ev_shapes[shape], number);
	j->ranks = 2 + 2 * (number % 4);
	j->tp = j->ranks > 2 || shape >= EV_MODELS || ev_below(j, 2) ? 2 : 1;
	j->dp = j->ranks / j->tp;
	j->s.nr_ranks = j->ranks;
	j->s.slots = 4;
	j->s.queues = 8;
	j->message = ev_below(j, 2) ? EV_BIG : 512;
	place = places[ev_below(j, 3)];
	j->tp_stream = place[0];
	j->dp_stream = place[1];
	j->world_stream = place[2];
	ev_comms(j);
	for (int k = 0; k < 4; k++) {
		char name[8];

		snprintf(name, sizeof(name), "nb%d", k);
		sc_name(&j->s.stream, name);
	}
	steps = shape < EV_MODELS ? 1 + (int)ev_below(j, 2) : 1;
	for (int k = 0; k < steps; k++) {
		if (shape < EV_MODELS)
			models[shape](j);
		else
			ev_hierarchical(j, shape - EV_MODELS);
		ev_all(j, EU_JOIN);
		ev_all(j, EU_WORK); /* the optimizer */
		if (ev_below(j, 2))
			ev_all(j, EU_SSYNC);
	}
	/*
	 * A third of the changes are EV_SWAP or EV_SWAP_SYNC. The others are drawn from all
	 * changes.
	 */
	j->change = EV_NONE;
	if (ev_below(j, 5))
		j->change = ev_below(j, 3)   ? 1 + (enum ev_change)ev_below(j, EV_NR - 1)
			    : ev_below(j, 2) ? EV_SWAP
					     : EV_SWAP_SYNC;
	ev_mutate(j);
	for (int r = 0; r < j->ranks; r++)
		for (int i = 0; i < j->nr[r]; i++)
			ev_emit(j, r, &j->u[r][i]);
}

void ev_free(struct ev_job *j)
{
	for (int r = 0; r < j->ranks; r++)
		free(j->u[r]);
	sc_free(&j->s);
}
