/*
 * Makes random programs. Everything follows from the seed. Synchronisations vary most.
 */
#include "random.h"
#include <string.h>

uint64_t rng;

static uint64_t rnd(uint64_t n)
{
	uint64_t z = rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (z ^ z >> 31) % n;
}

static int chance(unsigned percent)
{
	return rnd(100) < percent;
}

/* ---- programs -------------------------------------------------------------------------------- */

struct item {
	int p2p, comm, stream, coll, from, to, hazard;
	uint64_t count;
};

static void put_item(struct script *s, int r, int t, const struct item *x)
{
	struct sc_step *st;
	char name[16];

	if (x->p2p) {
		int both = x->p2p == 2;

		if (r != x->from && r != x->to)
			return;
		if (both)
			sc_put(s, r, t, SC_OPEN, 0);
		for (int k = 0; k <= both; k++) {
			st = sc_put(s, r, t, (r == x->from) ^ k ? SC_SEND : SC_RECV, x->stream);
			st->comm = x->comm;
			st->peer = r == x->from ? x->to : x->from;
			st->count = x->count;
			st->in = st->out = sc_buf(s, NULL, r);
		}
		if (both)
			sc_put(s, r, t, SC_CLOSE, 0);
		return;
	}
	if (sc_comm_rank(&s->comms[x->comm], r) < 0)
		return;
	st = sc_put(s, r, t, SC_COLL, x->stream);
	st->comm = x->comm;
	st->coll = x->coll;
	st->count = x->count;
	if (chance(2))
		st->count += 3;
	if (x->hazard && st->count == 4 && !chance(20)) {
		snprintf(name, sizeof(name), "x%d", x->stream);
		st->in = st->out = sc_buf(s, name, r);
	} else {
		st->in = sc_buf(s, NULL, r);
		st->out = sc_buf(s, NULL, r);
	}
}

/* Adds a synchronisation, an event or other work between two operations. */
static void put_between(struct script *s, int r, int t, int nr_streams, int mode, int threads)
{
	int stream = (int)rnd((uint64_t)nr_streams), e;
	struct sc_step *st;
	char name[16];

	if (threads && t)
		stream = nr_streams; /* the second thread's own stream */
	if (mode == 1 || mode > 4 || (mode == 3 && chance(50))) {
		switch (threads ? rnd(2) : mode > 4 ? 2 + rnd(6) : rnd(8)) {
		case 0:
		case 1:
			sc_put(s, r, t, SC_SSYNC, stream);
			if (chance(50)) {
				snprintf(name, sizeof(name), "x%d", stream);
				for (e = 0; e < s->buf.nr && strcmp(s->buf.v[e], name); e++)
					;
				if (e < s->buf.nr)
					sc_put(s, r, t, SC_READ, 0)->in = e;
			}
			break;
		case 2:
		case 3:
			sc_put(s, r, t, rnd(2) ? SC_FREE : rnd(2) ? SC_HALLOC : SC_HREG, 0);
			break;
		default:
			sc_put(s, r, t, SC_DSYNC, 0);
			if (chance(40)) {
				snprintf(name, sizeof(name), "x%d", stream);
				for (e = 0; e < s->buf.nr && strcmp(s->buf.v[e], name); e++)
					;
				if (e < s->buf.nr)
					sc_put(s, r, t, SC_READ, 0)->in = e;
			}
		}
	} else if (mode == 2 || mode == 3) {
		snprintf(name, sizeof(name), "e%d.%d", t, (int)rnd(2));
		e = sc_name(&s->event, name);
		st = sc_put(s, r, t, SC_REC, stream);
		st->object = e;
		if (!threads)
			stream = (int)rnd((uint64_t)nr_streams);
		st = sc_put(s, r, t, rnd(5) ? SC_WAIT : SC_ESYNC, stream);
		st->object = e;
	} else {
		sc_put(s, r, t, rnd(3) ? SC_WORK : SC_FN, stream);
	}
}

void generate(struct script *s, uint64_t seed)
{
	int nr_comms, nr_streams, nr_items, mode, threads, one_stream, large, i, j, r;
	struct item items[8];
	char name[24];

	rng = seed;
	memset(s, 0, sizeof(*s));
	snprintf(s->name, sizeof(s->name), "%llu", (unsigned long long)seed);
	s->nr_ranks = chance(60) ? 2 : 3 + (int)rnd(2);
	nr_comms = 1 + (int)rnd(4);
	nr_streams = 1 + (int)rnd(3);
	/*
	 * The steps between operations: few and other work (0), other work (4), synchronisations
	 * (1), events (2), both (3), synchronisations of the device (5 and 6).
	 */
	mode = (int)rnd(7);
	threads = nr_comms > 1 && chance(15);
	s->slots = 64;
	s->queues = 64;
	if (chance(15))
		s->slots = 1 + (int)rnd(2);
	else if (chance(15))
		s->queues = 1;
	if (mode > 4 && nr_streams < nr_comms)
		nr_streams = nr_comms < 3 ? nr_comms : 3;
	one_stream = s->queues == 1 || mode > 4 || chance(50);
	for (i = 0; i < nr_comms; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		sc_comm_add(s, name, 0);
		do {
			s->comms[i].nr = 0;
			s->comms[i].members = 0;
			for (r = 0; r < s->nr_ranks; r++)
				if (s->nr_ranks == 2 || chance(75))
					sc_comm_member(&s->comms[i], r);
		} while (s->comms[i].nr < 2);
	}
	for (i = 0; i <= nr_streams; i++) {
		snprintf(name, sizeof(name), "nb%d", i);
		sc_name(&s->stream, name);
	}
	/*
	 * All messages have the same size, so messages of a pair match in the same order by NCCL's
	 * rules and by dfshim's.
	 */
	large = chance(30);
	nr_items = 1 + (int)rnd(6);
	for (i = 0; i < nr_items; i++) {
		struct item *x = &items[i];
		const struct sc_comm *c;

		memset(x, 0, sizeof(*x));
		x->comm = (int)rnd((uint64_t)nr_comms);
		c = &s->comms[x->comm];
		x->stream = one_stream ? x->comm % nr_streams : (int)rnd((uint64_t)nr_streams);
		if (threads && x->comm == nr_comms - 1)
			x->stream = nr_streams;
		/*
		 * Only collectives in which every rank needs all others. A broadcast's root could
		 * finish before its peers begin.
		 */
		x->coll = rnd(3) ? SC_AR : rnd(2) ? SC_AG : SC_RS;
		x->count = rnd(3) ? 4 : 1000;
		x->hazard = chance(35);
		if (chance(25)) {
			x->p2p = chance(25) ? 2 : 1;
			x->from = c->ranks[rnd((uint64_t)c->nr)];
			do
				x->to = c->ranks[rnd((uint64_t)c->nr)];
			while (x->to == x->from);
			x->count = large ? LARGE : 4;
		}
	}
	for (r = 0; r < s->nr_ranks; r++) {
		struct item mine[8];

		memcpy(mine, items, sizeof(mine));
		for (j = (int)rnd(mode > 4 ? 5 : 3); j > 0 && nr_items > 1; j--) {
			struct item tmp;

			i = (int)rnd((uint64_t)nr_items - 1);
			tmp = mine[i];
			mine[i] = mine[i + 1];
			mine[i + 1] = tmp;
		}
		for (i = 0; i < nr_items; i++) {
			int t = threads && mine[i].comm == nr_comms - 1;

			if (chance(1))
				continue;
			put_item(s, r, t, &mine[i]);
			if (mode != 4 ? chance(25) : chance(5))
				put_between(s, r, t, nr_streams, mode, threads);
			if (chance(4)) {
				struct sc_step *st = sc_put(s, r, t, rnd(2) ? SC_HS : SC_HW, 0);

				st->object = sc_name(&s->flag, rnd(2) ? "f" : "g");
			}
		}
		if (!s->nr_threads[r])
			sc_put(s, r, 0, SC_WORK, 0);
	}
	/* Set every flag once, because a wait for a flag that is never set tests nothing. */
	for (i = 0; i < s->flag.nr; i++) {
		struct sc_step *st = sc_put(s, (int)rnd((uint64_t)s->nr_ranks), 0, SC_HS, 0);

		st->object = i;
	}
}
