/*
 * The programs of ordercheck.c: what happens before what in them, by CUDA's rules and NCCL's, the generator that
 * keeps them free of races, and the reference, which executes them step by step for all ranks.
 */
#ifndef CLIENT_ORDER_H
#define CLIENT_ORDER_H

#include "client.h"

#define CELLS	   96 /* of one memory: the rank's device, pinned memory, the rank's second device */
#define NR_CELLS   (3 * CELLS)
#define NR_STREAMS 9
#define NR_OWN	   6 /* streams of the rank's device */
#define LEGACY	   4
#define LEGACY2	   8
#define NR_EVENTS  8
#define NR_OWN_EV  6
#define MAX_RANKS  8
#define MAX_OPS	   192
#define MAX_STEPS  640
#define MAX_RUN	   12 /* cells of one range */

enum what {
	COLL,
	PAIR,
	TEMP,
	GRAPH,
	COPY,
	FILL,
	HOSTFN,
	RECORD,
	WAIT,
	SYNC_STREAM,
	SYNC_EVENT,
	SYNC_DEVICE,
	LOOK
};
enum kind {
	ALL_REDUCE,
	BROADCAST,
	REDUCE,
	ALL_GATHER,
	REDUCE_SCATTER,
	ALL_TO_ALL,
	SHIFT,
	NR_KINDS
};

static const char *const what_names[] = {
	"coll",	  "pair", "temp",	 "graph",      "copy",	      "fill", "hostfn",
	"record", "wait", "sync stream", "sync event", "sync device", "look"};
static const char *const kind_names[] = {"AllReduce",	  "Broadcast", "Reduce", "AllGather",
					 "ReduceScatter", "AlltoAll",  "shift"};

struct range {
	int at, n;
};

struct step {
	enum what what;
	enum kind kind;
	int stream, stream2, event, comm, root, form;
	struct range src, dst, src2, dst2;
	uint64_t value;
	int expect; /* LOOK: index of the first expected value */
};

struct set {
	uint64_t w[MAX_OPS / 64];
};

struct op {
	struct set before;
	struct range r[2], w[2];
	int stream;
};

struct plan {
	struct step steps[MAX_STEPS];
	int nr_steps;
	struct op ops[MAX_OPS];
	int nr_ops;
	struct set stream[NR_STREAMS], event[NR_EVENTS], comm[2], host;
	struct set seen; /* by probe() */
	int recorded[NR_EVENTS];
	uint64_t mem[MAX_RANKS][NR_CELLS];
	uint64_t expect[MAX_STEPS * MAX_RUN];
	int nr_expect;
	uint64_t rng;
	int rank, nr_ranks;
	/*
	 * In every other program the order of a communicator over streams is not relied upon: then more
	 * collectives may change places, because none passes on to another stream what was before it.
	 */
	int loose;
};

/* ---- sets ------------------------------------------------------------------------------------------ */

static void join(struct set *a, const struct set *b)
{
	unsigned i;

	for (i = 0; i < ARRAY_LEN(a->w); i++)
		a->w[i] |= b->w[i];
}

static int in(const struct set *a, int op)
{
	return a->w[op / 64] >> op % 64 & 1;
}

static int touch(struct range a, struct range b)
{
	return a.n && b.n && a.at < b.at + b.n && b.at < a.at + a.n;
}

/* ---- the reference --------------------------------------------------------------------------------- */

static int member(int comm, int rank)
{
	return comm < 2 || rank % 2 == 0;
}

static int comm_size(int comm, int nr_ranks)
{
	return comm < 2 ? nr_ranks : (nr_ranks + 1) / 2;
}

static void collective(struct plan *p, enum kind kind, int comm, int root, struct range src,
		       struct range dst)
{
	static __thread uint64_t old[MAX_RANKS][NR_CELLS];
	int every = comm < 2 ? 1 : 2, size = comm_size(comm, p->nr_ranks), r, i, n, k;

	memcpy(old, p->mem, sizeof(old));
	for (r = 0; r < size; r++) {
		uint64_t *out = &p->mem[r * every][dst.at];

		n = kind == ALL_GATHER ? src.n : dst.n;
		for (i = 0; i < dst.n; i++) {
			uint64_t sum = 0;

			for (k = 0; k < size; k++)
				sum += old[k * every]
					  [src.at + (kind == REDUCE_SCATTER ? r * n : 0) + i];
			switch (kind) {
			case ALL_REDUCE:
			case REDUCE_SCATTER:
				out[i] = sum;
				break;
			case REDUCE:
				if (r == root)
					out[i] = sum;
				break;
			case BROADCAST:
				out[i] = old[root * every][src.at + i];
				break;
			case ALL_GATHER:
				out[i] = old[i / n * every][src.at + i % n];
				break;
			case ALL_TO_ALL:
				n = dst.n / size;
				out[i] = old[i / n * every][src.at + r * n + i % n];
				break;
			default:
				out[i] = old[(r + size - 1) % size * every][src.at + i];
			}
		}
	}
}

static uint64_t function(uint64_t x, uint64_t value)
{
	return x * 3 + value;
}

static void apply(struct plan *p, const struct step *s)
{
	int r, i, times;

	switch (s->what) {
	case COLL:
		collective(p, s->kind, s->comm, s->root, s->src, s->dst);
		break;
	case PAIR:
		collective(p, ALL_REDUCE, s->comm, 0, s->src, s->dst);
		collective(p, ALL_REDUCE, s->comm, 0, s->src2, s->dst2);
		break;
	case TEMP:
		collective(p, ALL_REDUCE, s->comm, 0, s->src, s->dst);
		break;
	case GRAPH:
		for (times = 0; times <= s->form % 2; times++) {
			for (r = 0; r < p->nr_ranks; r++)
				memcpy(&p->mem[r][s->dst.at], &p->mem[r][s->src.at],
				       (size_t)s->src.n * sizeof(uint64_t));
			collective(p, ALL_REDUCE, s->comm, 0, s->dst, s->dst);
			collective(p, ALL_REDUCE, s->comm, 0, s->dst, s->dst2);
		}
		break;
	case COPY:
		for (r = 0; r < p->nr_ranks; r++)
			memcpy(&p->mem[r][s->dst.at], &p->mem[r][s->src.at],
			       (size_t)s->src.n * sizeof(uint64_t));
		break;
	case FILL:
		for (r = 0; r < p->nr_ranks; r++)
			memset(&p->mem[r][s->dst.at], (int)s->value,
			       (size_t)s->dst.n * sizeof(uint64_t));
		break;
	case HOSTFN:
		for (r = 0; r < p->nr_ranks; r++)
			for (i = 0; i < s->dst.n; i++)
				p->mem[r][s->dst.at + i] =
					function(p->mem[r][s->dst.at + i], s->value);
		break;
	default:
		break;
	}
}

/* ---- what happens before what ------------------------------------------------------------------------ */

static int rnd(struct plan *p, int n)
{
	return (int)(client_random(&p->rng) % (uint64_t)n);
}

static int blocking(int s)
{
	return s == 2 || s == 3 || s == 5 || s == 7;
}

static int legacy_of(int s)
{
	return s < NR_OWN ? LEGACY : LEGACY2;
}

/* What whatever is put on the stream now comes after. */
static struct set position(const struct plan *p, int s)
{
	struct set set = p->stream[s];
	int t, end = s < NR_OWN ? NR_OWN : NR_STREAMS;

	join(&set, &p->host);
	if (blocking(s))
		join(&set, &p->stream[legacy_of(s)]);
	if (s == legacy_of(s))
		for (t = s < NR_OWN ? 0 : NR_OWN; t < end; t++)
			if (blocking(t))
				join(&set, &p->stream[t]);
	return set;
}

static struct step *step_new(struct plan *p, enum what what)
{
	struct step *s = &p->steps[p->nr_steps];

	if (p->nr_steps == MAX_STEPS)
		return NULL;
	p->nr_steps++;
	memset(s, 0, sizeof(*s));
	s->what = what;
	return s;
}

static void record(struct plan *p, int event, int stream)
{
	struct step *s = step_new(p, RECORD);

	if (!s)
		return;
	s->event = event;
	s->stream = stream;
	p->event[event] = position(p, stream);
	p->recorded[event] = 1;
}

static void wait_event(struct plan *p, int event, int stream)
{
	struct step *s = step_new(p, WAIT);

	if (!s)
		return;
	s->event = event;
	s->stream = stream;
	join(&p->stream[stream], &p->event[event]);
}

/* Adds the operation, after events that order it behind what it would race with. -1: no room. */
static int add(struct plan *p, const struct step *s)
{
	struct op *o = &p->ops[p->nr_ops];
	int e, i, j, two = s->what == PAIR || s->what == GRAPH;
	struct step *to;

	if (p->nr_ops == MAX_OPS || p->nr_steps + 40 > MAX_STEPS)
		return -1;
	memset(o, 0, sizeof(*o));
	o->stream = s->stream;
	o->r[0] = s->what == FILL ? (struct range){0, 0} : s->src;
	o->w[0] = s->dst;
	if (s->what == PAIR)
		o->r[1] = s->src2;
	if (two)
		o->w[1] = s->dst2;
	for (e = p->nr_ops - 1; e >= 0; e--) {
		const struct op *q = &p->ops[e];
		int conflict = 0;

		o->before = position(p, s->stream);
		if (s->what == PAIR) {
			struct set other = position(p, s->stream2);

			join(&o->before, &other);
		}
		if ((s->what == COLL || s->what == PAIR) && s->comm < 2 && !p->loose)
			join(&o->before, &p->comm[s->comm]);
		if (in(&o->before, e))
			continue;
		for (i = 0; i < 2; i++)
			for (j = 0; j < 2; j++)
				conflict |= touch(o->w[i], q->w[j]) || touch(o->w[i], q->r[j]) ||
					    touch(o->r[i], q->w[j]);
		if (!conflict)
			continue;
		i = q->stream < NR_OWN ? rnd(p, NR_OWN_EV)
				       : NR_OWN_EV + rnd(p, NR_EVENTS - NR_OWN_EV);
		record(p, i, q->stream);
		wait_event(p, i, s->stream);
	}
	o->before = position(p, s->stream);
	if (s->what == PAIR) {
		struct set other = position(p, s->stream2);

		join(&o->before, &other);
	}
	if ((s->what == COLL || s->what == PAIR) && s->comm < 2 && !p->loose)
		join(&o->before, &p->comm[s->comm]);
	to = step_new(p, s->what);
	*to = *s;
	i = p->nr_ops++;
	/* On ranks that are not of the third communicator the operation orders nothing. */
	if (s->what != COLL || s->comm < 2)
		join(&p->stream[s->stream], &o->before);
	p->stream[s->stream].w[i / 64] |= 1ull << i % 64;
	if (s->what == PAIR)
		join(&p->stream[s->stream2], &p->stream[s->stream]);
	if (s->what == COLL || s->what == PAIR || s->what == TEMP) {
		if (s->comm < 2)
			join(&p->comm[s->comm],
			     s->what == TEMP && s->form >= 6 ? &o->before : &p->stream[s->stream]);
	}
	apply(p, to);
	return 0;
}

/* ---- making a program ------------------------------------------------------------------------------- */

static struct range pick(struct plan *p, int where, int n)
{
	return (struct range){where * CELLS + rnd(p, CELLS - n + 1), n};
}

/* One that is clear of another. */
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

/* Work on the stream that would see if one of the latest operations of the set were not finished. */
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
		/* A look at what nothing in flight writes; by a copy, which is a wait too, or directly. */
		s = step_new(p, LOOK);
		if (!s)
			return;
		s->src = pick(p, rnd(p, 3), 1 + rnd(p, MAX_RUN));
		s->stream = s->src.at < 2 * CELLS ? LEGACY : LEGACY2;
		s->form = rnd(p, 3);
		if (s->form == 2)
			s->stream =
				rnd(p, NR_OWN); /* cudaMemcpyAsync to memory that is not pinned */
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
			/* What the legacy stream waits for, the blocking ones wait for. */
			if (!rnd(p, 2))
				probe(p, &p->event[e], s == LEGACY ? 2 : s == LEGACY2 ? 7 : s);
		}
	}
}

static int same_signature(const struct step *a, const struct step *b)
{
	return a->comm == b->comm && a->kind == b->kind && a->src.n == b->src.n;
}

/* May this rank give out the two the other way round? */
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
			"%3d %-11s %-13s comm %d stream %d/%d event %d form %d: [%d,+%d) -> [%d,+%d)   "
			"[%d,+%d) -> [%d,+%d)\n",
			i, what_names[s->what], s->what == COLL ? kind_names[s->kind] : "", s->comm,
			s->stream, s->stream2, s->event, s->form, s->src.at, s->src.n, s->dst.at,
			s->dst.n, s->src2.at, s->src2.n, s->dst2.at, s->dst2.n);
	}
}

#endif
