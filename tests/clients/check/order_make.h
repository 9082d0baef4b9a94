/*
 * Random programs of ordercheck.c (order.h). They are free of races, because order.h's add() orders
 * conflicting operations by events.
 */
#ifndef CLIENT_ORDER_MAKE_H
#define CLIENT_ORDER_MAKE_H

#include "order.h"

static struct range pick(struct plan *p, int where, int n)
{
	return (struct range){where * CELLS + rnd(p, CELLS - n + 1), n};
}

/* Returns a range that does not overlap `of` and `of2`. */
static struct range pick_clear(struct plan *p, int where, int n, struct range of, struct range of2)
{
	struct range r;

	do
		r = pick(p, where, n);
	while (touch(r, of) || touch(r, of2));
	return r;
}

static const struct range none = {0, 0};

static int memory_of(struct plan *p)
{
	return rnd(p, 4) ? 0 : 1;
}

static int make_op(struct plan *p)
{
	struct step s = {0};
	int n = 1 + rnd(p, 6), size, w;

	s.value = client_random(&p->rng);
	s.form = rnd(p, 12);
	s.stream = rnd(p, NR_OWN);
	s.comm = rnd(p, 5) / 2;
	size = comm_size(s.comm, p->nr_ranks);
	s.root = rnd(p, size);
	w = rnd(p, 100);
	if (w < 45 && s.comm == 2 && s.stream == LEGACY)
		s.stream = 0;
	if (w < 45) {
		s.what = COLL;
		s.kind = (enum kind)(rnd(p, 2) ? 0 : rnd(p, NR_KINDS));
		if (s.kind >= ALL_GATHER && s.kind <= ALL_TO_ALL)
			n = 1 + rnd(p, MAX_RUN / size > 3 ? 3 : MAX_RUN / size);
		s.src = pick(p, memory_of(p),
			     n * (s.kind == REDUCE_SCATTER || s.kind == ALL_TO_ALL ? size : 1));
		s.dst = pick_clear(p, memory_of(p),
				   n * (s.kind == ALL_GATHER || s.kind == ALL_TO_ALL ? size : 1),
				   s.src, none);
		if (s.kind == ALL_REDUCE && !rnd(p, 3))
			s.dst = s.src;
		return add(p, &s);
	}
	if (w < 70) {
		s.what = COPY;
		s.stream = rnd(p, NR_STREAMS);
		s.src = pick(p, s.stream < NR_OWN ? memory_of(p) : rnd(p, 3), n);
		s.dst = pick_clear(p, s.stream < NR_OWN ? memory_of(p) : rnd(p, 3), n, s.src, none);
		return add(p, &s);
	}
	if (w < 78) {
		s.what = FILL;
		s.value &= 0xff;
		s.stream = rnd(p, NR_STREAMS);
		s.dst = pick(p, s.stream < NR_OWN ? 0 : 2, n);
		return add(p, &s);
	}
	if (w < 85) {
		s.what = HOSTFN;
		s.stream = rnd(p, NR_STREAMS);
		s.src = s.dst = pick(p, 1, n);
		return add(p, &s);
	}
	s.comm = rnd(p, 2);
	s.src = pick(p, 0, n);
	s.dst = pick_clear(p, 0, n, s.src, none);
	if (w < 91) {
		s.what = PAIR;
		s.stream2 = rnd(p, NR_OWN);
		s.src2 = pick_clear(p, 0, n, s.src, s.dst);
		do
			s.dst2 = pick_clear(p, 0, n, s.src, s.dst);
		while (touch(s.dst2, s.src2));
		return add(p, &s);
	}
	if (w < 97) {
		s.what = TEMP;
		return add(p, &s);
	}
	s.what = GRAPH;
	s.dst2 = pick_clear(p, 0, n, s.src, s.dst);
	return add(p, &s);
}

/*
 * Adds work to the stream that shows whether one of the latest operations of the set is not
 * finished.
 */
static void probe(struct plan *p, const struct set *set, int stream)
{
	struct step s = {.what = COPY, .stream = stream};
	int i = p->nr_ops - 1;

	while (i >= 0 &&
	       (!in(set, i) || in(&p->seen, i) || !p->ops[i].w[0].n || p->ops[i].w[0].n > 8))
		i--;
	if (i < 0)
		return;
	s.src = p->ops[i].w[0];
	s.dst = pick_clear(p, 0, s.src.n, s.src, none);
	s.form = rnd(p, 12);
	p->seen.w[i / 64] |= 1ull << i % 64;
	add(p, &s);
}

static void make_sync(struct plan *p)
{
	struct step *s;
	struct set set;
	int i, e, bad;

	switch (rnd(p, 5)) {
	case 0:
		s = step_new(p, SYNC_STREAM);
		if (!s)
			return;
		s->stream = rnd(p, NR_STREAMS);
		s->form = rnd(p, 2);
		set = p->stream[s->stream];
		if (s->stream == legacy_of(s->stream))
			set = position(p, s->stream);
		join(&p->host, &set);
		probe(p, &set, rnd(p, 2));
		break;
	case 1:
		e = rnd(p, NR_EVENTS);
		s = p->recorded[e] ? step_new(p, SYNC_EVENT) : NULL;
		if (!s)
			return;
		s->event = e;
		s->form = rnd(p, 2);
		join(&p->host, &p->event[e]);
		probe(p, &p->event[e], rnd(p, 2));
		break;
	case 2:
		if (rnd(p, 3))
			return;
		s = step_new(p, SYNC_DEVICE);
		if (!s)
			return;
		s->form = rnd(p, 2);
		for (i = s->form ? NR_OWN : 0; i < (s->form ? NR_STREAMS : NR_OWN); i++)
			join(&p->host, &p->stream[i]);
		break;
	default:
		/*
		 * Reads memory that no operation in flight writes: by a copy, which also waits, or
		 * directly.
		 */
		s = step_new(p, LOOK);
		if (!s)
			return;
		s->src = pick(p, rnd(p, 3), 1 + rnd(p, MAX_RUN));
		s->stream = s->src.at < 2 * CELLS ? LEGACY : LEGACY2;
		s->form = rnd(p, 3);
		if (s->form == 2)
			s->stream =
				rnd(p, NR_OWN); /* cudaMemcpyAsync() to memory that is not pinned */
		if (s->form == 1 && s->src.at / CELLS != 1)
			s->form = 0;
		set = s->form == 1 ? p->host : position(p, s->stream);
		for (e = bad = 0; e < p->nr_ops; e++)
			bad |= !in(&set, e) &&
			       (touch(p->ops[e].w[0], s->src) || touch(p->ops[e].w[1], s->src));
		if (bad) {
			p->nr_steps--;
			return;
		}
		join(&p->host, &set);
		s->expect = p->nr_expect;
		memcpy(p->expect + p->nr_expect, &p->mem[p->rank][s->src.at],
		       (size_t)s->src.n * sizeof(uint64_t));
		p->nr_expect += s->src.n;
	}
}

static void make(struct plan *p, int nr_ops)
{
	int i, r, e, s;

	for (r = 0; r < p->nr_ranks; r++)
		for (i = 0; i < NR_CELLS; i++)
			p->mem[r][i] = client_seed(client_seed_value, (uint64_t)r, (uint64_t)i);
	while (p->nr_ops < nr_ops) {
		if (make_op(p))
			break;
		if (!rnd(p, 5))
			make_sync(p);
		s = rnd(p, NR_STREAMS);
		e = s < NR_OWN ? rnd(p, NR_OWN_EV) : NR_OWN_EV + rnd(p, NR_EVENTS - NR_OWN_EV);
		if (!rnd(p, 4))
			record(p, e, s);
		e = rnd(p, NR_EVENTS);
		if (!rnd(p, 4) && p->recorded[e]) {
			s = rnd(p, NR_STREAMS);
			wait_event(p, e, s);
			/*
			 * The blocking streams wait for everything that the legacy stream waits
			 * for.
			 */
			if (!rnd(p, 2))
				probe(p, &p->event[e], s == LEGACY ? 2 : s == LEGACY2 ? 7 : s);
		}
	}
}

static int same_signature(const struct step *a, const struct step *b)
{
	return a->comm == b->comm && a->kind == b->kind && a->src.n == b->src.n;
}

/* Whether this rank may exchange the two operations. */
static int independent(const struct plan *p, const struct step *a, const struct step *b)
{
	if (a->what != COLL || b->what != COLL || same_signature(a, b) ||
	    (a->stream == LEGACY) != (b->stream == LEGACY) ||
	    (a->comm == b->comm && a->stream != b->stream))
		return 0;
	if (a->stream == b->stream && a->comm != b->comm && !p->loose)
		return 0;
	return !touch(a->dst, b->dst) && !touch(a->dst, b->src) && !touch(a->src, b->dst);
}

static void disorder(struct plan *p, uint64_t *rng)
{
	int i;

	for (i = 0; i + 1 < p->nr_steps; i++) {
		struct step s = p->steps[i];

		if (!independent(p, &s, &p->steps[i + 1]) || client_random(rng) % 2)
			continue;
		p->steps[i] = p->steps[i + 1];
		p->steps[i + 1] = s;
	}
}

static void print(const struct plan *p)
{
	int i;

	for (i = 0; i < p->nr_steps; i++) {
		const struct step *s = &p->steps[i];

		fprintf(stderr,
			"%3d %-11s %-13s comm %d stream %d/%d event %d form %d: [%d,+%d) -> "
			"[%d,+%d)   [%d,+%d) -> [%d,+%d)\n",
			i, what_names[s->what], s->what == COLL ? kind_names[s->kind] : "", s->comm,
			s->stream, s->stream2, s->event, s->form, s->src.at, s->src.n, s->dst.at,
			s->dst.n, s->src2.at, s->src2.n, s->dst2.at, s->dst2.n);
	}
}

#endif
