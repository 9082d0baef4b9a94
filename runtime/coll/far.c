/*
 * Measures latency and bandwidth between the nodes of a communicator. The first rank of each node
 * measures the way to the next node, in a ring. It uses connectors like those of collectives, and
 * so whatever network connects the two nodes, with all its costs:
 *
 *   the asker      sends slices, the last of which asks for an answer, and times the answer
 *   the answerer   receives slices, and answers
 *
 * All nodes ask and answer at the same time, so each way is measured under the load of a ring. It
 * measures single small slices (PING: a round trip), then a row of them (ROW: the cost of a
 * message), then bytes, twice as many in each round (MANY). The last rounds are long enough to fill
 * a queue, a window or a token bucket that absorbs the first bytes. The least of several times
 * counts, since other load only adds time.
 *
 * The results are sent to all ranks, and the slowest way decides, so that all ranks choose alike.
 * Each process remembers the ways between nodes that it has received: a later communicator measures
 * only those that the asking rank does not know. A measurement that is cut short, by a slow network
 * or a busy machine, is made up to three times.
 *
 * Only the exchange among the ranks can block, and it ends when one of them has ended.
 */
#include "runtime/coll/far.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/abi.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/number.h"
#include "runtime/base/time.h"
#include "runtime/base/vec.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/coll/dev.h"
#include "runtime/program/build/cost.h"
#include "kernels/bell.h"
#include "runtime/transport/transport.h"

#define SLOTS	   16
#define SLOT_BYTES (32u << 10)
#define UNIT	   64u /* bytes of the smallest slice */
#define PINGS	   8
#define ROWS	   4
#define FULLS	   3
#define FIRST	   4096u /* bytes of the first round of phase MANY */
#define MOST	   (SLOTS * SLOT_BYTES)
#define LONG_NS	   (2 * DF_NS_PER_MS)	/* a longer round has filled the queues on its way */
#define START_NS   (250 * DF_NS_PER_MS) /* until the two are connected */
#define BOUND_NS   (40 * DF_NS_PER_MS)	/* from the first answer on */
#define DRAIN_NS   (250 * DF_NS_PER_MS) /* after that, until the last answer arrives */

/* ---- ends of connectors ---------------------------------------------------------------------- */

struct end {
	const struct df_tl_ops *tl;
	struct df_peer *peer;
	uint64_t key;
	struct df_conn *conn;
	struct df_kconn k;
	uint64_t pos; /* number of the next slice */
	int found;
};

/* First word of a slice: another slice follows; answer this one; no more will follow. */
enum word { MORE, ASK, LAST };

static uint32_t *slot(const struct end *e)
{
	return (uint32_t *)(void *)(e->k.slots + (e->pos % e->k.nr_slots) * e->k.slot_bytes);
}

/* Creates the receiving end. */
static int end_create(struct end *e, uint32_t slot_bytes)
{
	int ret = e->tl->create(e->peer, e->key, SLOTS, slot_bytes, DF_CONN_ZERO, 0, &e->conn);

	if (!ret)
		e->tl->end(e->conn, &e->k);
	return ret;
}

/* Finds the sending end. Returns -EAGAIN if it is not announced yet. */
static int end_find(struct end *e)
{
	struct df_slices *s;
	int ret = e->tl->find(e->peer, e->key, &e->conn);

	if (ret)
		return ret;
	ret = e->tl->use(e->conn);
	s = ret ? NULL : calloc(1, sizeof(*s) + SLOTS * sizeof(s->cnt[0]));
	if (!s) {
		if (!ret)
			e->tl->unuse(e->conn);
		e->tl->forget(e->conn);
		e->conn = NULL;
		return ret ? ret : -ENOMEM;
	}
	/* Each slice's length is set when it is sent. */
	*s = (struct df_slices){
		.loops = UINT64_MAX, .per_loop = SLOTS, .tile_bytes = UNIT, .last_bytes = UNIT};
	e->conn->slices = s;
	e->tl->end(e->conn, &e->k);
	memset(e->k.slots, 0, (size_t)e->k.nr_slots * e->k.slot_bytes);
	e->found = 1;
	return 0;
}

static void end_leave(struct end *e)
{
	if (e->conn && e->found) {
		e->tl->unuse(e->conn);
		e->tl->forget(e->conn);
	} else if (e->conn) {
		e->tl->close(e->conn);
	}
	e->conn = NULL;
}

static void end_send(struct end *e, int device, enum word word, uint32_t bytes)
{
	e->conn->slices->cnt[e->pos % SLOTS] = bytes / UNIT;
	*slot(e) = word;
	e->pos++;
	/*
	 * RELEASE pairs with the ACQUIRE in df_net_tail(): the slice and its length are complete.
	 */
	__atomic_store_n(e->k.tail, e->pos, __ATOMIC_RELEASE);
	df_bell_ring(e->k.bell);
	df_tl_progress(device);
}

/* Sender: returns the number of slices that have not been received. */
static uint64_t end_unread(const struct end *e)
{
	/*
	 * ACQUIRE pairs with the RELEASE by which the network passes on a credit: the slot may be
	 * written again.
	 */
	return e->pos - __atomic_load_n(e->k.head, __ATOMIC_ACQUIRE);
}

/* Receiver: whether another slice has arrived. */
static int end_has(const struct end *e)
{
	/* ACQUIRE pairs with the RELEASE by which the network passes on a slice: it is complete. */
	return __atomic_load_n(e->k.tail, __ATOMIC_ACQUIRE) != e->pos;
}

static void end_take(struct end *e)
{
	/*
	 * RELEASE pairs with the ACQUIRE in df_net_head() (runtime/transport/net/net.h): our reads
	 * precede it.
	 */
	__atomic_store_n(e->k.head, e->pos, __ATOMIC_RELEASE);
	df_bell_ring(e->k.bell);
}

/* ---- one way --------------------------------------------------------------------------------- */

/* A role asks or answers, over a connector each way. */
struct role {
	struct end to, from;
	uint64_t begin, end; /* time of the first answer or question; latest end */
	int active;
	/* Only the asker uses the rest. */
	enum { PING, ROW, MANY } phase;
	int waits;	/* for the answer to the round that began at `since` */
	uint64_t since; /* 0: nothing was asked */
	int rounds;	/* of the phase */
	int slow, full; /* successive rounds longer than LONG_NS; rounds of MOST bytes */
	int late;	/* time is up */
	int stuck;	/* the last answer never arrived */
	uint32_t bytes;
	double ping, row, byte; /* ns; 0: unknown */
};

static void role_end(struct role *r)
{
	end_leave(&r->to);
	end_leave(&r->from);
	if (r->to.peer)
		r->to.tl->peer_put(r->to.peer);
	r->to.peer = NULL;
	r->active = 0;
}

/*
 * Begins the measurement of one direction, in which rank `from` asks and rank `to` answers. This
 * rank is one of the two.
 */
static void role_begin(struct role *r, const struct df_comm *comm, int from, int to, int attempt)
{
	const struct df_member *me = &comm->members[comm->rank],
			       *other = &comm->members[me->rank == from ? to : from];
	const struct df_tl_ops *tl = df_tl_select(me, other);
	uint64_t way = df_hash_u64(df_hash_u64(comm->hash, 0x66617200u + (unsigned)attempt),
				   (uint64_t)(uint32_t)from << 32 | (uint32_t)to);
	int asks = me->rank == from;

	*r = (struct role){.end = df_now_ns() + START_NS, .active = 1};
	r->to.tl = r->from.tl = tl;
	r->to.key = df_hash_u64(way, (uint64_t)asks);
	r->from.key = df_hash_u64(way, (uint64_t)!asks);
	if (!tl || !(tl->caps & DF_TL_NETWORK) || tl->peer_get(me, other, &r->to.peer)) {
		r->active = 0;
		return;
	}
	r->from.peer = r->to.peer;
	if (end_create(&r->from, asks ? UNIT : SLOT_BYTES))
		role_end(r);
}

static void least(double *of, double ns)
{
	if (!(*of > 0) || ns < *of)
		*of = ns;
}

/* Evaluates a round that took ns. Returns 0 after the last one. */
static int measured(struct role *r, double ns)
{
	double beyond = ns - r->ping, byte;
	int slow = beyond > LONG_NS, full = r->bytes == MOST;

	r->rounds++;
	switch (r->phase) {
	case PING:
		least(&r->ping, ns);
		if (r->rounds < PINGS && (r->rounds < 2 || r->ping * r->rounds < BOUND_NS / 8))
			return 1;
		break;
	case ROW:
		least(&r->row, ns);
		if (r->rounds < ROWS && r->row * r->rounds < BOUND_NS / 8)
			return 1;
		r->bytes = FIRST;
		break;
	case MANY:
		/* The answer takes part of the time, but not all of it. */
		byte = DF_MAX(beyond, ns / 4) / r->bytes;
		/*
		 * The better of two successive long rounds counts; a short round may have met an
		 * empty queue.
		 */
		r->byte = (slow && r->slow) || (full && r->full) ? DF_MIN(byte, r->byte) : byte;
		r->slow = slow ? r->slow + 1 : 0;
		r->full += full;
		r->bytes = DF_MIN(2 * r->bytes, MOST);
		/*
		 * On a busy machine any round may be long: the last ones decide, if there is time
		 * for them.
		 */
		return r->full < FULLS;
	}
	r->phase++;
	r->rounds = 0;
	return 1;
}

static void ask(struct role *r, int device)
{
	uint32_t nr = 1, bytes = UNIT, i;

	if (r->phase == ROW)
		nr = SLOTS;
	if (r->phase == MANY) {
		nr = (r->bytes + SLOT_BYTES - 1) / SLOT_BYTES;
		bytes = r->bytes / nr;
	}
	r->since = df_now_ns();
	for (i = 0; i < nr; i++)
		end_send(&r->to, device, i + 1 < nr ? MORE : ASK, bytes);
	r->waits = 1;
}

/*
 * Looks for the connector to the other side. Returns 1 if something has changed: it is found, or
 * never will be.
 */
static int look_for(struct role *r)
{
	int ret = end_find(&r->to);

	if (ret && ret != -EAGAIN)
		role_end(r);
	return ret != -EAGAIN;
}

/* Returns 1 if something has changed. */
static int asker(struct role *r, int device, uint64_t now)
{
	int more;

	if (!r->active)
		return 0;
	if (now > r->end) {
		/* The answer is still missing, so the time until now is a lower bound. */
		if (r->waits && r->phase != PING && !r->late)
			r->byte = DF_MAX(r->byte,
					 ((double)(now - r->since) - r->ping) /
						 (r->phase == ROW ? SLOTS * UNIT : r->bytes));
		r->late = 1;
		/* Keep the connectors for slices that are still in transit. */
		if (r->waits && !end_has(&r->from) && now < r->end + DRAIN_NS)
			return 0;
		r->stuck = r->begin && r->waits && !end_has(&r->from);
		/* Let the other side stop waiting. */
		if (r->to.found && end_unread(&r->to) < SLOTS)
			end_send(&r->to, device, LAST, UNIT);
		role_end(r);
		return 1;
	}
	if (!r->to.found)
		return look_for(r);
	if (r->waits && end_has(&r->from)) {
		r->from.pos++;
		end_take(&r->from);
		r->waits = 0;
		if (!r->begin) {
			r->begin = now;
			r->end = now + BOUND_NS;
		}
		more = measured(r, (double)(df_now_ns() - r->since));
		if (!more)
			r->end = 0;
		return 1;
	}
	/* All slices of a round must have a slot. */
	if (r->waits || end_unread(&r->to))
		return 0;
	ask(r, device);
	return 1;
}

static int answerer(struct role *r, int device, uint64_t now)
{
	enum word word;

	if (!r->active)
		return 0;
	if (now > r->end) {
		role_end(r);
		return 1;
	}
	if (!r->to.found)
		return look_for(r);
	if (!end_has(&r->from) || end_unread(&r->to) == SLOTS)
		return 0;
	if (!r->begin) {
		r->begin = now;
		r->end = now + BOUND_NS + 2 * DRAIN_NS;
	}
	word = (enum word) * slot(&r->from);
	r->from.pos++;
	if (word == MORE)
		return 1;
	end_take(&r->from);
	if (word == ASK)
		end_send(&r->to, device, ASK, UNIT);
	else
		role_end(r);
	return 1;
}

/* Other load only adds time, so the lower figure is better. */
static void better(uint16_t *figure, uint16_t now)
{
	if (now && (!*figure || now < *figure))
		*figure = now;
}

/*
 * prev, next: first ranks of the neighbouring nodes, -1: none; this rank is the first of its node.
 * out: what is known of the way to next, and updated here.
 */
static void measure(const struct df_comm *comm, int prev, int next, int attempt, struct df_far *out)
{
	int device = comm->dev->index;
	struct role asks = {.active = 0}, answers = {.active = 0};

	if (next >= 0)
		role_begin(&asks, comm, comm->rank, next, attempt);
	if (prev >= 0)
		role_begin(&answers, comm, prev, comm->rank, attempt);
	while ((asks.active || answers.active) && !__atomic_load_n(&comm->stop, __ATOMIC_RELAXED)) {
		int moved = df_tl_progress(device);

		moved |= asker(&asks, device, df_now_ns());
		moved |= answerer(&answers, device, df_now_ns());
		if (!moved && (asks.begin || answers.begin))
			sched_yield();
		else if (!moved)
			df_sleep_ns(20 * DF_NS_PER_US);
	}
	role_end(&asks);
	role_end(&answers);
	df_tl_leave(device, 0);
	if (next < 0)
		return;
	better(&out->ns, df_cal_code(asks.ping / 2));
	better(&out->inst, df_cal_code(DF_MAX(asks.row - asks.ping, asks.row / 4) / (SLOTS - 1)));
	better(&out->byte, df_cal_code(asks.byte));
	out->tries = asks.full == FULLS || asks.stuck ? DF_FAR_TRIES : out->tries + 1;
}

/* ---- all ways -------------------------------------------------------------------------------- */

/* The ways that this process has received. */
static struct df_mutex known_lock = DF_MUTEX_INIT(DF_RANK_LEAF, "ways between nodes");
static struct way {
	uint64_t key;
	struct df_far far;
} * known;
static uint32_t nr_known, cap_known;

static struct way *find(uint64_t key)
{
	uint32_t i;

	for (i = 0; i < nr_known; i++)
		if (known[i].key == key)
			return &known[i];
	return NULL;
}

static uint64_t way_of(const struct df_comm *comm, int from, int to)
{
	const struct df_member *a = &comm->members[from], *b = &comm->members[to];

	return df_hash_u64(df_hash_u64(a->node, b->node), a->avoid | b->avoid);
}

static struct df_far recall(uint64_t key)
{
	struct df_far far = {0};
	const struct way *w;

	df_mutex_lock(&known_lock);
	w = find(key);
	if (w)
		far = w->far;
	df_mutex_unlock(&known_lock);
	return far;
}

static void remember(uint64_t key, struct df_far far)
{
	struct way *w;

	df_mutex_lock(&known_lock);
	w = find(key);
	if (!w)
		w = DF_VEC_PUSH(known, nr_known, cap_known);
	/* Without room it is measured again. */
	if (w)
		*w = (struct way){key, far};
	df_mutex_unlock(&known_lock);
}

/* Lists the first rank of each node, in the order of these ranks. */
static void firsts(const struct df_comm *comm, int *first)
{
	int i, v, nr = 0;

	for (i = 0; i < comm->nranks && nr < comm->choice.nodes; i++) {
		for (v = 0; v < nr && comm->members[first[v]].node != comm->members[i].node; v++)
			;
		if (v == nr)
			first[nr++] = i;
	}
}

/* Exchanges all ranks' results: far[v] is the path from node v. first[v]: that node's rank. */
static int exchange(struct df_comm *comm, const int *first, struct df_far mine, struct df_far *far)
{
	struct df_far *all = malloc((size_t)comm->nranks * sizeof(*all));
	int ret = -ENOMEM, v;

	if (all)
		ret = df_ctl_allgather(comm->ctl, &mine, sizeof(mine), all, &comm->stop);
	for (v = 0; !ret && v < comm->choice.nodes; v++)
		far[v] = all[first[v]];
	free(all);
	return ret;
}

int df_far_members(struct df_comm *comm)
{
	int nodes = comm->choice.nodes, v, me = -1, nr = 0, attempt = 0, again, ret = -ENOMEM;
	struct df_cost *c = &comm->choice.cost;
	struct df_far mine = {0}, *far;
	uint64_t begin = df_now_ns();
	int *first;

	if (!df_rt.measures_far || nodes < 2)
		return 0;
	first = malloc((size_t)nodes * sizeof(*first));
	far = malloc((size_t)nodes * sizeof(*far));
	if (!first || !far)
		goto out;
	firsts(comm, first);
	for (v = 0; v < nodes; v++)
		if (first[v] == comm->rank)
			me = v;
#define NEXT(v)	 (((v) + 1) % nodes)
#define PREV(v)	 (((v) + nodes - 1) % nodes)
#define LACKS(v) (far[v].tries < DF_FAR_TRIES)
	if (me >= 0)
		mine = recall(way_of(comm, comm->rank, first[NEXT(me)]));
	ret = exchange(comm, first, mine, far);
	if (ret)
		goto out;
	for (v = 0; v < nodes; v++)
		nr += LACKS(v);
	/*
	 * All ranks know which nodes measure, and whether any does. A way that was cut short by a
	 * busy machine gets another attempt; one that was never heard from does not.
	 */
	do {
		if (me >= 0 && (LACKS(me) || LACKS(PREV(me))))
			measure(comm, LACKS(PREV(me)) ? first[PREV(me)] : -1,
				LACKS(me) ? first[NEXT(me)] : -1, attempt, &mine);
		if (nr)
			ret = exchange(comm, first, mine, far);
		if (ret)
			goto out;
		for (v = 0, again = 0; v < nodes; v++)
			again += LACKS(v) && far[v].ns;
		attempt++;
	} while (again);
	for (v = 0; v < nodes; v++)
		if (far[v].tries)
			remember(way_of(comm, first[v], first[NEXT(v)]), far[v]);
	df_far_agree(c, nodes, far);
	df_log(DF_LOG_INFO,
	       "the slowest way between %d nodes: %.1f us there, %.1f us a message, %.0f MB/s; %d "
	       "ways measured in %.1f ms",
	       nodes, c->far_ns / 1e3, c->far_inst_ns / 1e3, 1e3 / c->far_byte_ns, nr,
	       (double)(df_now_ns() - begin) / 1e6);
out:
	free(first);
	free(far);
	return ret;
}

int df_far_parse(const char *text, struct df_cost *c)
{
	double us, mb, message = c->far_inst_ns / 1e3;
	const char *at;
	char *end;

	if (!text || !*text || !strcmp(text, "auto"))
		return 1;
	if (!strcmp(text, "default"))
		return 0;
	us = df_strtod(text, &end);
	if (end == text || *end != ':')
		return -EINVAL;
	at = end + 1;
	mb = df_strtod(at, &end);
	if (end != at && *end == ':') {
		at = end + 1;
		message = df_strtod(at, &end);
	}
	if (end == at || *end ||
	    !(us >= 0 && us <= 1e6 && mb > 0 && mb <= 1e7 && message >= 0 && message <= 1e6))
		return -EINVAL;
	c->far_ns = us * 1e3;
	c->far_byte_ns = 1e3 / mb;
	c->far_inst_ns = message * 1e3;
	return 0;
}
