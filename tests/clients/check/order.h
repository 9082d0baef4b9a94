/*
 * The programs of ordercheck.c: which step happens before which by CUDA's rules and NCCL's, and the
 * reference, which executes them step by step for all ranks. order_make.h generates programs.
 */
#ifndef CLIENT_ORDER_H
#define CLIENT_ORDER_H

#include "../client.h"

/* cells of each memory: the rank's device, pinned memory, the second device */
#define CELLS	   96
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
#define MAX_RUN	   12 /* most cells of one range */

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
	int expect; /* for LOOK: index of the first expected value */
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
	struct set seen; /* operations that probe() has tested */
	int recorded[NR_EVENTS];
	uint64_t mem[MAX_RANKS][NR_CELLS];
	uint64_t expect[MAX_STEPS * MAX_RUN];
	int nr_expect;
	uint64_t rng;
	int rank, nr_ranks;
	/*
	 * In every other program the order of a communicator over streams is not used. Then more
	 * collectives may be exchanged, because none passes its predecessors on to another stream.
	 */
	int loose;
};

/* ---- sets ------------------------------------------------------------------------------------ */

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

/* ---- the reference --------------------------------------------------------------------------- */

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

/* ---- happens-before -------------------------------------------------------------------------- */

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

/* Returns the operations that work put on the stream now must follow. */
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

/*
 * Adds the operation. Adds events before it where it would otherwise race with earlier operations.
 * Returns -1 if there is no room.
 */
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
	/* On ranks outside the third communicator the operation orders nothing. */
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

#endif
