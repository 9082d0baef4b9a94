/*
 * The causes for which a program hangs (causes.h). Builds the graph of waits when the model can
 * make no progress, and finds its cycles.
 */
#include "causes.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CS_TASKS 512  /* operations and other work on streams */
#define CS_NODES 1408 /* two for each task, then threads and roots */
#define CS_EDGES 65536

enum cs_state { CS_ISSUED = 1, CS_STARTED, CS_DONE };

/* Kinds of edges. Removing a kind shows whether the corresponding rule change dissolves a cycle. */
enum cs_edge_kind {
	CS_HARD = 1,  /* no rule change removes this wait */
	CS_ORDER = 2, /* order of a stream, an event or a communicator that rules P relax */
	CS_ROOM = 4,  /* wait for a slot, or for another stream's work in the single queue */
	CS_ISYNC = 8,
	CS_DSYNC = 16,
	CS_FLAG = 32,  /* a thread waits for a flag that another thread sets */
	CS_NEVER = 64, /* the rank's program does not contain the operation */
	/* The records show these kinds in place of CS_FLAG and CS_NEVER: */
	CS_ANY = 128, /* a thread waits for an unknown thread */
	/* a thread of the rank is in a call, and may issue the operation afterwards */
	CS_LATER = 256,
	/* the thread is at its end; it polls for an operation or joins the rank's other thread */
	CS_POLL = 512,
	/* added to another kind: the rank has issued another signature in place of the operation */
	CS_CROSSED = 1024,
};

#define CS_TRUE (CS_HARD | CS_ORDER | CS_ROOM | CS_ISYNC | CS_DSYNC | CS_FLAG | CS_NEVER)
#define CS_SEEN ((CS_TRUE & ~(unsigned)(CS_NEVER | CS_FLAG)) | CS_ANY | CS_LATER | CS_POLL)

struct cs_task {
	int rank, thread, state, index;
	const struct df_mop *op;
	int deps[4], nr_deps, queue_dep;
	int p2p_index[DF_MOP_MAX_P2P];
};

struct cs_edge {
	int from, to;
	unsigned kind;
};

struct causes {
	struct df_mprog p;
	struct df_model_result res;
	enum df_model_mode mode;
	struct cs_task t[CS_TASKS];
	int nr_tasks;
	/*
	 * Nodes: 2i is the start and 2i+1 the end of task i. Threads follow from `first_thread` on,
	 * roots from `first_root` on.
	 */
	int nr_nodes, first_thread, first_root;
	uint64_t root[256]; /* verdict words of the roots; a root is an event that never happens */
	int nr_roots;
	struct cs_edge e[CS_EDGES];
	int nr_edges;
	uint64_t reach[CS_NODES][CS_NODES / 64];
};

uint64_t cs_bit(enum df_verdict v)
{
	return 1ULL << v;
}

static void cs_event(void *arg, enum df_model_event ev, int rank, int thread, size_t op,
		     const struct df_mop *mop, int task)
{
	struct causes *x = arg;
	struct cs_task *t;

	(void)op;
	if (task < 0)
		return;
	if (task >= CS_TASKS)
		abort();
	t = &x->t[task];
	if (ev == DF_ME_ISSUE) {
		*t = (struct cs_task){.rank = rank, .thread = thread, .op = mop, .queue_dep = -1};
		x->nr_tasks = task + 1;
	}
	if (ev == DF_ME_ISSUE || ev == DF_ME_START || ev == DF_ME_DONE)
		t->state = ev == DF_ME_ISSUE ? CS_ISSUED : ev == DF_ME_START ? CS_STARTED : CS_DONE;
}

static int cs_is_comm(const struct cs_task *t)
{
	return t->op->kind == DF_MOP_COLL || t->op->kind == DF_MOP_P2P;
}

/*
 * Finds the tasks that precede each task on its stream, event and queue, and the index of each
 * operation in its communicator.
 */
static void cs_orders(struct causes *x)
{
	for (int i = 0; i < x->nr_tasks; i++) {
		struct cs_task *t = &x->t[i];

		for (int k = i - 1; k >= 0; k--)
			if (x->t[k].rank == t->rank && x->t[k].op->stream == t->op->stream) {
				t->deps[t->nr_deps++] = k;
				break;
			}
		for (int k = i - 1; k >= 0 && t->op->kind == DF_MOP_WAIT; k--)
			if (x->t[k].rank == t->rank && x->t[k].op->kind == DF_MOP_RECORD &&
			    x->t[k].op->object == t->op->object) {
				t->deps[t->nr_deps++] = k;
				break;
			}
		for (int k = i - 1; k >= 0 && x->p.one_queue; k--)
			if (x->t[k].rank == t->rank) {
				t->queue_dep = k;
				break;
			}
		for (int k = 0; k < i; k++) {
			const struct cs_task *o = &x->t[k];

			if (o->rank != t->rank || o->op->kind != t->op->kind)
				continue;
			if (t->op->kind == DF_MOP_COLL)
				t->index += o->op->comm == t->op->comm;
			for (int a = 0; t->op->kind == DF_MOP_P2P && a < t->op->nr_p2p; a++)
				for (int b = 0; b < o->op->nr_p2p; b++)
					t->p2p_index[a] +=
						o->op->p2p[b].comm == t->op->p2p[a].comm &&
						o->op->p2p[b].send == t->op->p2p[a].send &&
						o->op->p2p[b].peer == t->op->p2p[a].peer;
		}
		/* One group may have several messages of a pair. */
		for (int a = 0; t->op->kind == DF_MOP_P2P && a < t->op->nr_p2p; a++)
			for (int b = 0; b < a; b++)
				t->p2p_index[a] += t->op->p2p[b].comm == t->op->p2p[a].comm &&
						   t->op->p2p[b].send == t->op->p2p[a].send &&
						   t->op->p2p[b].peer == t->op->p2p[a].peer;
	}
}

static void cs_edge(struct causes *x, int from, int to, unsigned kind)
{
	/* Nothing waits for an event that has already happened. */
	if (to < x->first_thread && x->t[to / 2].state >= (to % 2 ? CS_DONE : CS_STARTED))
		return;
	if (x->nr_edges == CS_EDGES)
		abort();
	x->e[x->nr_edges++] = (struct cs_edge){from, to, kind};
}

static int cs_root(struct causes *x, enum df_verdict v)
{
	if (x->nr_roots == 256)
		abort();
	x->root[x->nr_roots] = cs_bit(v);
	return x->first_root + x->nr_roots++;
}

static int cs_thread(const struct causes *x, int rank, int thread)
{
	return x->first_thread + rank * MODEL_THREADS + thread;
}

static const struct df_mop *cs_stands(const struct causes *x, int r, int t)
{
	const struct df_mthread *th = &x->p.threads[r][t];
	size_t pc = x->res.pc[r][t];

	return pc < th->nr_ops ? &th->ops[pc] : NULL;
}

/*
 * Returns the kind of edge if the records allow that the thread issues another operation: CS_LATER
 * if it is in a call, CS_POLL if it polls or joins another thread. Returns 0 if it has ended.
 */
static unsigned cs_may_go_on(const struct causes *x, int r, int t)
{
	if (cs_stands(x, r, t))
		return CS_LATER;
	for (int u = 1; u < x->p.nr_threads[r] && !t; u++)
		if (cs_stands(x, r, u))
			return CS_POLL;
	for (int k = 0; k < x->nr_tasks && !t; k++)
		if (x->t[k].rank == r && x->t[k].state != CS_DONE)
			return CS_POLL;
	return 0;
}

static int cs_hazard(const struct df_mop *a, const struct df_mop *b)
{
	uint64_t ra = a->kind == DF_MOP_COLL ? a->reads : 0,
		 wa = a->kind == DF_MOP_COLL ? a->writes : 0;
	uint64_t rb = b->kind == DF_MOP_COLL ? b->reads : 0,
		 wb = b->kind == DF_MOP_COLL ? b->writes : 0;

	return (wa & rb) || (ra & wb) || (wa & wb);
}

/*
 * Adds an edge from task i to every unfinished task before `at`, also past finished ones: rules P
 * consider each pair of operations separately.
 */
static void cs_behind(struct causes *x, int i, int at, uint8_t *seen)
{
	for (int k = 0; k < x->t[at].nr_deps; k++) {
		int d = x->t[at].deps[k];
		const struct cs_task *o = &x->t[d], *t = &x->t[i];
		int token = o->op->kind == DF_MOP_RECORD || o->op->kind == DF_MOP_WAIT;

		if (seen[d])
			continue;
		seen[d] = 1;
		if (o->state != CS_DONE && !token)
			cs_edge(x, 2 * i, 2 * d + 1,
				cs_is_comm(t) && cs_is_comm(o) && !cs_hazard(t->op, o->op)
					? CS_ORDER
					: CS_HARD);
		cs_behind(x, i, d, seen);
	}
}

/* Adds the reasons why task i does not start. */
static void cs_start(struct causes *x, int i)
{
	const struct cs_task *t = &x->t[i];
	int before = x->nr_edges;
	uint8_t seen[CS_TASKS] = {0};

	cs_behind(x, i, i, seen);
	/*
	 * With dfshim messages of one signature run one after the other. The model has this order
	 * only for collectives.
	 */
	for (int a = 0; x->mode != DF_MODEL_BASE && t->op->kind == DF_MOP_P2P && a < t->op->nr_p2p;
	     a++)
		for (int k = 0; k < i; k++)
			for (int b = 0; x->t[k].rank == t->rank && x->t[k].state != CS_DONE &&
					x->t[k].op->kind == DF_MOP_P2P && b < x->t[k].op->nr_p2p;
			     b++)
				if (x->t[k].op->p2p[b].comm == t->op->p2p[a].comm &&
				    x->t[k].op->p2p[b].peer == t->op->p2p[a].peer &&
				    x->t[k].op->p2p[b].send == t->op->p2p[a].send)
					cs_edge(x, 2 * i, 2 * k + 1, CS_HARD);
	if (x->mode != DF_MODEL_BASE) {
		/* dfshim does not make these waits. */
		for (int k = before; k < x->nr_edges; k++)
			if (x->e[k].kind == CS_ORDER)
				x->e[k--] = x->e[--x->nr_edges];
		return;
	}
	if (t->queue_dep >= 0 && x->t[t->queue_dep].state != CS_DONE)
		cs_edge(x, 2 * i, 2 * t->queue_dep + 1, CS_ROOM);
	if (x->nr_edges > before || !x->p.cap || !cs_is_comm(t))
		return;
	for (int k = 0; k < x->nr_tasks; k++)
		if (x->t[k].rank == t->rank && x->t[k].state == CS_STARTED && cs_is_comm(&x->t[k]))
			cs_edge(x, 2 * i, 2 * k + 1, CS_ROOM);
}

/*
 * Counts the operations that the thread has not issued yet and that match: collectives of the
 * communicator if `message` is null, else messages between the rank and `of` in the opposite
 * direction.
 */
static int cs_will_issue(const struct causes *x, int rank, int thread, int comm,
			 const struct df_mp2p *message, int of)
{
	const struct df_mthread *th = &x->p.threads[rank][thread];
	int nr = 0;

	for (size_t k = x->res.pc[rank][thread]; k < th->nr_ops; k++) {
		const struct df_mop *op = &th->ops[k];

		nr += !message && op->kind == DF_MOP_COLL && op->comm == comm;
		for (int a = 0; message && op->kind == DF_MOP_P2P && a < op->nr_p2p; a++)
			nr += op->p2p[a].comm == comm && op->p2p[a].send != message->send &&
			      op->p2p[a].peer == of;
	}
	return nr;
}

/*
 * Returns the script's communicator of an operation, or -1. to_model() records an event 1000 +
 * communicator after each operation.
 */
static int cs_base(const struct causes *x, const struct cs_task *t)
{
	const struct df_mthread *th = &x->p.threads[t->rank][t->thread];

	for (const struct df_mop *op = t->op; op < th->ops + th->nr_ops; op++)
		if (op->kind == DF_MOP_RECORD && op->object >= 1000)
			return op->object - 1000;
	return -1;
}

static int cs_issued(const struct causes *x, int rank, int comm)
{
	int nr = 0;

	for (int k = 0; k < x->nr_tasks; k++)
		nr += x->t[k].rank == rank && x->t[k].op->kind == DF_MOP_COLL &&
		      x->t[k].op->comm == comm;
	return nr;
}

/*
 * Whether rank r, which has not issued the match of task i, has issued another signature in the
 * same communicator that task i's rank has not issued.
 */
static int cs_crossed(const struct causes *x, int i, int r)
{
	const struct cs_task *t = &x->t[i];

	for (int k = 0; k < x->nr_tasks; k++) {
		const struct cs_task *o = &x->t[k];

		if (o->rank == r && o->state != CS_DONE && o->op->kind == DF_MOP_COLL &&
		    t->op->kind == DF_MOP_COLL && cs_base(x, o) == cs_base(x, t) &&
		    o->op->comm != t->op->comm && cs_issued(x, t->rank, o->op->comm) <= o->index)
			return 1;
	}
	return 0;
}

/*
 * Adds an edge for task i, which ends only after rank r issues the operation with index `place`.
 * Rank r has issued `have` operations.
 */
static void cs_needs_rank(struct causes *x, int i, int r, int comm, const struct df_mp2p *message,
			  int place, int have)
{
	int found = 0, crossed = cs_crossed(x, i, r);

	for (int t = 0; t < x->p.nr_threads[r] && !found; t++) {
		if (have + cs_will_issue(x, r, t, comm, message, x->t[i].rank) <= place)
			continue;
		cs_edge(x, 2 * i + 1, cs_thread(x, r, t), CS_HARD | (crossed ? CS_CROSSED : 0));
		found = 1;
	}
	if (found)
		return;
	cs_edge(x, 2 * i + 1, cs_root(x, crossed ? DF_V_MISMATCH : DF_V_MISSING), CS_NEVER);
	for (int t = 0; t < x->p.nr_threads[r]; t++)
		cs_edge(x, 2 * i + 1, cs_thread(x, r, t), cs_may_go_on(x, r, t));
}

/* Adds the reasons why task i does not end, as if it had started. */
static void cs_end(struct causes *x, int i)
{
	const struct cs_task *t = &x->t[i];

	cs_edge(x, 2 * i + 1, 2 * i, CS_HARD);
	for (int r = 0; t->op->kind == DF_MOP_COLL && r < x->p.nr_ranks; r++) {
		int k, have = 0;

		if (r == t->rank || !df_ranks_has(&x->p.comms[t->op->comm], r))
			continue;
		for (k = 0; k < x->nr_tasks; k++) {
			const struct cs_task *o = &x->t[k];

			if (o->rank != r || o->op->kind != DF_MOP_COLL ||
			    o->op->comm != t->op->comm)
				continue;
			have++;
			if (o->index != t->index)
				continue;
			if (o->op->sig != t->op->sig)
				cs_edge(x, 2 * i + 1, cs_root(x, DF_V_MISMATCH), CS_HARD);
			break;
		}
		if (k < x->nr_tasks)
			cs_edge(x, 2 * i + 1, 2 * k, CS_HARD);
		else
			cs_needs_rank(x, i, r, t->op->comm, NULL, t->index, have);
	}
	for (int a = 0; t->op->kind == DF_MOP_P2P && a < t->op->nr_p2p; a++) {
		const struct df_mp2p *m = &t->op->p2p[a];
		int k, b = 0, have = 0;
		unsigned kind = CS_HARD;

		/*
		 * A small send needs no receive. But before the send runs, the checker does not
		 * know whether the message will fit.
		 */
		if (m->send && x->p.buffered)
			kind = CS_LATER;
		for (k = 0; k < x->nr_tasks; k++) {
			const struct cs_task *o = &x->t[k];

			for (b = 0;
			     o->rank == m->peer && o->op->kind == DF_MOP_P2P && b < o->op->nr_p2p;
			     b++) {
				if (o->op->p2p[b].comm != m->comm ||
				    o->op->p2p[b].send == m->send || o->op->p2p[b].peer != t->rank)
					continue;
				have++;
				if (o->p2p_index[b] == t->p2p_index[a])
					break;
			}
			if (o->rank == m->peer && o->op->kind == DF_MOP_P2P && b < o->op->nr_p2p)
				break;
		}
		if (k == x->nr_tasks && kind == CS_LATER) {
			cs_root(x, DF_V_MISSING);
			for (int u = 0; u < x->p.nr_threads[m->peer]; u++)
				cs_edge(x, 2 * i + 1, cs_thread(x, m->peer, u), CS_LATER);
			continue;
		}
		if (k == x->nr_tasks) {
			cs_needs_rank(x, i, m->peer, m->comm, m, t->p2p_index[a], have);
			continue;
		}
		cs_edge(x, 2 * i + 1, 2 * k, kind);
		if (x->t[k].op->p2p[b].count != m->count)
			cs_edge(x, 2 * i + 1, cs_root(x, DF_V_MISMATCH), CS_HARD);
	}
}

/* Adds the waits of a thread. */
static void cs_host(struct causes *x, int r, int t)
{
	const struct df_mop *op = cs_stands(x, r, t);
	int from = cs_thread(x, r, t), setters = 0, joins = 0;

	/* At its end the rank's first thread joins the others, and then polls the streams. */
	for (int u = 1; u < x->p.nr_threads[r] && !op && !t; u++)
		joins |= cs_stands(x, r, u) != NULL;
	for (int k = 0; k < x->nr_tasks; k++) {
		const struct cs_task *o = &x->t[k];
		unsigned kind = 0;

		if (o->rank != r || o->state == CS_DONE)
			continue;
		if (!op)
			kind = t || joins ? 0 : CS_POLL;
		else if (op->kind == DF_MOP_SSYNC && o->op->stream == op->stream)
			kind = CS_HARD;
		else if (op->kind == DF_MOP_DSYNC)
			kind = CS_DSYNC;
		else if (op->kind == DF_MOP_ISYNC)
			kind = CS_ISYNC;
		if (kind)
			cs_edge(x, from, 2 * k + 1, kind);
	}
	for (int k = x->nr_tasks - 1; op && op->kind == DF_MOP_ESYNC && k >= 0; k--)
		if (x->t[k].rank == r && x->t[k].op->kind == DF_MOP_RECORD &&
		    x->t[k].op->object == op->object) {
			cs_edge(x, from, 2 * k + 1, CS_HARD);
			break;
		}
	for (int q = 0; op && op->kind == DF_MOP_HWAIT && q < x->p.nr_ranks; q++)
		for (int u = 0; u < x->p.nr_threads[q]; u++)
			for (size_t k = x->res.pc[q][u]; k < x->p.threads[q][u].nr_ops; k++)
				if (x->p.threads[q][u].ops[k].kind == DF_MOP_HSIGNAL &&
				    x->p.threads[q][u].ops[k].object == op->object) {
					cs_edge(x, from, cs_thread(x, q, u), CS_FLAG);
					setters++;
				}
	if (op && op->kind == DF_MOP_HWAIT && !setters)
		cs_edge(x, from, cs_root(x, DF_V_HOST), CS_FLAG);
	if (!joins && (!op || op->kind != DF_MOP_HWAIT))
		return;
	/*
	 * The records show only a thread that waits for an unknown thread, or a rank without calls.
	 * So MISSING is right too.
	 */
	cs_root(x, DF_V_MISSING);
	for (int q = 0; q < x->p.nr_ranks; q++)
		for (int u = 0; u < x->p.nr_threads[q]; u++)
			if (q != r || u != t)
				cs_edge(x, from, cs_thread(x, q, u), CS_ANY);
}

/* ---- cycles ---------------------------------------------------------------------------------- */

static int cs_reaches(const struct causes *x, int a, int b)
{
	return (int)(x->reach[a][b / 64] >> (b % 64) & 1);
}

static int cs_counts(const struct causes *x, int edge, unsigned kinds, int only_tasks)
{
	const struct cs_edge *e = &x->e[edge];

	return e->kind & kinds &&
	       (!only_tasks || (e->from < x->first_thread && e->to < x->first_thread));
}

/* Computes for all pairs of nodes whether a path of edges of these kinds exists. */
static void cs_reach(struct causes *x, unsigned kinds, int only_tasks)
{
	int words = (x->nr_nodes + 63) / 64;

	for (int n = 0; n < x->nr_nodes; n++) {
		memset(x->reach[n], 0, (size_t)words * 8);
		x->reach[n][n / 64] |= 1ULL << (n % 64);
	}
	for (int i = 0; i < x->nr_edges; i++)
		if (cs_counts(x, i, kinds, only_tasks))
			x->reach[x->e[i].from][x->e[i].to / 64] |= 1ULL << (x->e[i].to % 64);
	for (int via = 0; via < x->nr_nodes; via++)
		for (int n = 0; n < x->nr_nodes; n++)
			for (int w = 0; n != via && cs_reaches(x, n, via) && w < words; w++)
				x->reach[n][w] |= x->reach[via][w];
}

/* Whether a cycle of edges of these kinds exists that contains an edge of a kind in `with`. */
static int cs_circle(struct causes *x, unsigned kinds, unsigned with, int only_tasks)
{
	cs_reach(x, kinds, only_tasks);
	for (int i = 0; i < x->nr_edges; i++)
		if (cs_counts(x, i, kinds, only_tasks) && x->e[i].kind & with &&
		    cs_reaches(x, x->e[i].to, x->e[i].from))
			return 1;
	return 0;
}

/*
 * Returns the verdict words of all cycles. Cycles through a polling thread count only for DATA and
 * HOST: the next step of a polling thread is unknown, so the checker does not report that room,
 * order or a release would dissolve them.
 */
static uint64_t cs_circles(struct causes *x, unsigned kinds)
{
	unsigned some = kinds & ~(unsigned)CS_POLL;
	uint64_t set = 0;

	/* A polling thread waits for a result. */
	if (cs_circle(x, kinds, CS_POLL, 0))
		set |= cs_bit(DF_V_DATA);
	if (cs_circle(x, some, CS_ROOM, 0))
		set |= cs_bit(DF_V_RESOURCE);
	some &= ~(unsigned)CS_ROOM;
	if (cs_circle(x, some, CS_ORDER, 0))
		set |= cs_bit(DF_V_ORDER);
	some &= ~(unsigned)CS_ORDER;
	if (cs_circle(x, some, CS_ISYNC | CS_DSYNC, 0))
		set |= cs_bit(DF_V_SYNC);
	kinds &= ~(unsigned)(CS_ROOM | CS_ORDER | CS_ISYNC | CS_DSYNC);
	if (cs_circle(x, kinds, kinds, 1))
		set |= cs_bit(DF_V_ORDER) | cs_bit(DF_V_DATA);
	if (cs_circle(x, kinds, CS_FLAG | CS_ANY, 0))
		set |= cs_bit(DF_V_HOST);
	for (int i = 0; i < x->nr_edges; i++)
		if (x->e[i].kind & CS_CROSSED)
			set |= cs_bit(DF_V_MISMATCH);
	if (cs_circle(x, kinds & ~(unsigned)(CS_FLAG | CS_ANY), kinds, 0))
		set |= cs_bit(DF_V_DATA);
	return set;
}

uint64_t cs_words(const struct script *s, int ours, enum df_model_mode mode,
		  const struct df_model_schedule *schedule, struct model_map *map,
		  struct df_model_result *res)
{
	static struct causes x;
	uint64_t set = 0;

	memset(&x, 0, offsetof(struct causes, t));
	x.nr_tasks = x.nr_edges = x.nr_roots = 0;
	x.mode = mode;
	to_model_mapped(s, ours, &x.p, map);
	if (df_model_run(&x.p, mode, schedule, cs_event, &x, &x.res))
		abort();
	*res = x.res;
	if (!x.res.hung) {
		df_mprog_fini(&x.p);
		return 0;
	}
	cs_orders(&x);
	x.first_thread = 2 * x.nr_tasks;
	x.first_root = x.first_thread + x.p.nr_ranks * MODEL_THREADS;
	for (int i = 0; i < x.nr_tasks; i++) {
		if (x.t[i].state == CS_DONE)
			continue;
		if (x.t[i].state == CS_ISSUED)
			cs_start(&x, i);
		cs_end(&x, i);
	}
	for (int r = 0; r < x.p.nr_ranks; r++)
		for (int t = 0; t < x.p.nr_threads[r]; t++)
			cs_host(&x, r, t);
	x.nr_nodes = x.first_root + x.nr_roots;
	for (int i = 0; i < x.nr_roots; i++)
		set |= x.root[i];
	/*
	 * Work on a stream without operations is not recorded. If such work waits in the single
	 * queue, a thread that waits for it seems to wait for nothing.
	 */
	for (int r = 0; r < x.p.nr_ranks && x.p.one_queue; r++)
		for (int t = 0; t < x.p.nr_threads[r]; t++) {
			const struct df_mop *op = cs_stands(&x, r, t);

			if (op && op->kind == DF_MOP_SSYNC)
				set |= cs_bit(DF_V_GPU_STUCK);
		}
	set |= cs_circles(&x, CS_TRUE) | cs_circles(&x, CS_SEEN);
	df_mprog_fini(&x.p);
	return set;
}
