/*
 * Decides which operations are launched next (sequence.h). Has no thread of its own and no locks:
 * the state belongs to the thread that calls.
 */
#include <errno.h>
#include <stdlib.h>
#include <uthash.h>
#include "runtime/base/list.h"
#include "runtime/base/vec.h"
#include "runtime/exec/nccl/sequence.h"

#define MAX_NEED     (1u << 20)
#define MAX_BUFFERED 8 /* number of short messages of a pair that fit into NCCL's buffer */

/* One operation of a meeting. */
struct part {
	struct unit *unit; /* NULL if the operation has not arrived, or is decided */
	uint32_t op;	   /* number of the operation in the unit */
	uint8_t is_here;
};

/* Operations that take place together. */
struct meeting {
	uint64_t key;
	uint32_t need, here;
	struct part *parts;  /* by side */
	uint64_t mark;	     /* number of the search that chose the meeting last */
	struct df_list node; /* link in df_lanes_sequence.waiting */
	uint64_t since;	     /* number of the pause after which the meeting was added there */
	/* for a message: */
	struct pair *pair; /* NULL if it is no message */
	uint32_t number;   /* number of its send */
	uint8_t is_short;
	UT_hash_handle hh;
};

/* The operations that a rank issues together. */
struct unit {
	uint64_t name; /* rank << 32 | number */
	/* numbers of operations: in all, that have arrived, that are not decided */
	uint32_t nr, here, left;
	uint32_t nr_short; /* messages that may end in NCCL's buffer */
	uint64_t mark;	   /* number of the search that visited the unit last */
	UT_hash_handle hh;
	/* by operation: its meeting; NULL if it has not arrived, or is decided */
	struct meeting *in[];
};

/* The messages from one rank to another. */
struct pair {
	/* messages that were sent but not received, in the order of the sends */
	struct meeting *buffered[MAX_BUFFERED];
	uint32_t nr_buffered;
	uint32_t front;	 /* the lowest number of a send that is not decided */
	uint32_t *ahead; /* greater numbers of sends that are decided */
	size_t nr_ahead, cap_ahead;
	uint64_t mark; /* number of the search that has chosen ... */
	uint32_t more; /* ... this number of messages for the buffer */
};

struct df_lanes_sequence {
	df_lanes_go go;
	void *arg;
	struct meeting *meetings;
	struct unit *units;
	struct pair *pairs;	/* by sender and receiver */
	struct df_list waiting; /* meetings that may be decided after a pause */
	uint64_t pauses;
	/* whether a meeting was added to `waiting` since the last pause, or may now be decided */
	int waits;
	uint64_t search; /* number of the current search */
	struct meeting **chosen;
	size_t nr_chosen, cap_chosen;
	uint32_t nr;
	uint32_t *now; /* by rank: number of its operations in the decision */
};

struct df_lanes_sequence *df_lanes_sequence_new(uint32_t nr, df_lanes_go go, void *arg)
{
	struct df_lanes_sequence *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->go = go;
	q->arg = arg;
	q->nr = nr;
	df_list_init(&q->waiting);
	q->pairs = calloc((size_t)nr * nr, sizeof(*q->pairs));
	q->now = calloc(nr, sizeof(*q->now));
	if (!q->pairs || !q->now) {
		df_lanes_sequence_free(q);
		return NULL;
	}
	return q;
}

static void unit_free(struct df_lanes_sequence *q, struct unit *u)
{
	HASH_DEL(q->units, u);
	free(u);
}

static void meeting_free(struct df_lanes_sequence *q, struct meeting *m)
{
	HASH_DEL(q->meetings, m);
	df_list_del(&m->node);
	free(m->parts);
	free(m);
}

void df_lanes_sequence_free(struct df_lanes_sequence *q)
{
	struct meeting *m, *next_m;
	struct unit *u, *next_u;
	size_t i;

	if (!q)
		return;
	HASH_ITER(hh, q->meetings, m, next_m)
	{
		meeting_free(q, m);
	}
	HASH_ITER(hh, q->units, u, next_u)
	{
		unit_free(q, u);
	}
	for (i = 0; q->pairs && i < (size_t)q->nr * q->nr; i++)
		free(q->pairs[i].ahead);
	free(q->pairs);
	free(q->now);
	free(q->chosen);
	free(q);
}

static int is_complete(const struct meeting *m)
{
	return m->here == m->need;
}

/* Lists the meeting among those that may be decided after a pause. */
static void wait_for_pause(struct df_lanes_sequence *q, struct meeting *m)
{
	m->since = q->pauses;
	df_list_del(&m->node);
	df_list_add_tail(&q->waiting, &m->node);
	q->waits = 1;
}

/* ---- the search ------------------------------------------------------------------------------ */

static void begin(struct df_lanes_sequence *q)
{
	q->search++;
	q->nr_chosen = 0;
}

static int push(struct df_lanes_sequence *q, struct meeting *m)
{
	struct meeting **at = DF_VEC_PUSH(q->chosen, q->nr_chosen, q->cap_chosen);

	if (!at)
		return -ENOMEM;
	m->mark = q->search;
	*at = m;
	return 0;
}

/*
 * Chooses the meeting if all its operations have arrived. For a message this includes the receives
 * of the messages that are in the buffer before it. Returns 1 if it was chosen, 0 if not, or
 * -ENOMEM.
 */
static int choose(struct df_lanes_sequence *q, struct meeting *m)
{
	const struct pair *p = m->pair;
	uint32_t i;

	if (m->mark == q->search)
		return 1;
	if (!is_complete(m))
		return 0;
	for (i = 0; p && i < p->nr_buffered && p->buffered[i] != m; i++)
		if (!is_complete(p->buffered[i]))
			return 0;
	for (i = 0; p && i < p->nr_buffered && p->buffered[i] != m; i++)
		if (p->buffered[i]->mark != q->search && push(q, p->buffered[i]))
			return -ENOMEM;
	return push(q, m) ? -ENOMEM : 1;
}

/*
 * Chooses the unit's meetings. Returns 1, 0 if `whole` and one of them is not complete, or
 * -ENOMEM.
 */
static int choose_unit(struct df_lanes_sequence *q, struct unit *u, int whole)
{
	uint32_t k;
	int ret;

	if (u->mark == q->search)
		return 1;
	u->mark = q->search;
	if (whole && u->here < u->nr)
		return 0;
	for (k = 0; k < u->nr; k++) {
		ret = u->in[k] ? choose(q, u->in[k]) : 1;
		if (ret < 0 || (!ret && whole))
			return ret;
	}
	return 1;
}

/*
 * Chooses the meeting, and all meetings that chosen units connect with it. If `whole`, all of them
 * must be complete. Returns 1, 0 if the meeting cannot be chosen, or -ENOMEM.
 */
static int choose_all(struct df_lanes_sequence *q, struct meeting *first, int whole)
{
	struct unit *u;
	size_t i;
	uint32_t s;
	int ret;

	begin(q);
	ret = choose(q, first);
	for (i = 0; i < q->nr_chosen && ret > 0; i++)
		for (s = 0; s < q->chosen[i]->need && ret > 0; s++) {
			u = q->chosen[i]->parts[s].unit;
			ret = u ? choose_unit(q, u, whole) : 1;
		}
	return ret;
}

/*
 * Chooses the short messages of the unit that fit into NCCL's buffer. Returns as choose_all()
 * does.
 */
static int choose_short(struct df_lanes_sequence *q, const struct unit *u)
{
	uint32_t k;

	begin(q);
	for (k = 0; k < u->nr; k++) {
		struct meeting *m = u->in[k];
		struct pair *p = m ? m->pair : NULL;

		if (!p || !m->is_short || is_complete(m))
			continue;
		if (p->mark != q->search) {
			p->mark = q->search;
			p->more = 0;
		}
		if (m->number != p->front + p->more || p->nr_buffered + p->more == MAX_BUFFERED)
			continue;
		if (push(q, m))
			return -ENOMEM;
		p->more++;
	}
	return q->nr_chosen != 0;
}

/* ---- decisions ------------------------------------------------------------------------------- */

/* Notes that the pair's send with this number is decided. */
static void advance(struct pair *p, uint32_t number)
{
	size_t i = 0;

	p->ahead[p->nr_ahead++] = number; /* decide() has allocated the space */
	while (i < p->nr_ahead) {
		if (p->ahead[i] == p->front) {
			p->ahead[i] = p->ahead[--p->nr_ahead];
			p->front++;
			i = 0;
		} else {
			i++;
		}
	}
}

static void note_message(struct meeting *m)
{
	struct pair *p = m->pair;
	uint32_t i;

	if (p->nr_buffered && p->buffered[0] == m) {
		p->nr_buffered--;
		for (i = 0; i < p->nr_buffered; i++)
			p->buffered[i] = p->buffered[i + 1];
		return;
	}
	advance(p, m->number);
	if (!is_complete(m))
		p->buffered[p->nr_buffered++] = m;
}

static uint32_t rank_of(const struct unit *u)
{
	return (uint32_t)(u->name >> 32);
}

static void decide_part(struct df_lanes_sequence *q, struct part *p)
{
	struct unit *u = p->unit;
	uint32_t rank = rank_of(u);

	q->go(q->arg, rank, (uint32_t)u->name, p->op, !--q->now[rank]);
	u->in[p->op] = NULL;
	p->unit = NULL;
	if (!--u->left)
		unit_free(q, u);
}

/* Decides the operations of the chosen meetings that have arrived. Returns 1 or -ENOMEM. */
static int decide(struct df_lanes_sequence *q)
{
	size_t i;
	uint32_t s;

	for (i = 0; i < q->nr_chosen; i++) {
		struct pair *p = q->chosen[i]->pair;

		if (p && DF_VEC_ROOM(p->ahead, p->cap_ahead, p->nr_ahead + q->nr_chosen))
			return -ENOMEM;
	}
	for (i = 0; i < q->nr_chosen; i++)
		for (s = 0; s < q->chosen[i]->need; s++)
			if (q->chosen[i]->parts[s].unit)
				q->now[rank_of(q->chosen[i]->parts[s].unit)]++;
	for (i = 0; i < q->nr_chosen; i++) {
		struct meeting *m = q->chosen[i];

		for (s = 0; s < m->need; s++)
			if (m->parts[s].unit)
				decide_part(q, &m->parts[s]);
		if (m->pair)
			note_message(m);
		if (is_complete(m))
			meeting_free(q, m);
		else
			df_list_del(&m->node);
	}
	/* The decided operations may have prevented others. */
	q->waits |= !df_list_empty(&q->waiting);
	return 1;
}

/*
 * Decides the meeting with everything that it needs, if that has arrived. Returns 1, 0 if it has
 * not, or -ENOMEM.
 */
static int decide_with(struct df_lanes_sequence *q, struct meeting *m)
{
	int ret = is_complete(m) ? choose_all(q, m, 0) : choose_short(q, m->parts[0].unit);

	return ret > 0 ? decide(q) : ret;
}

/* Tries the meetings that have waited for a pause. Returns as decide_with() does. */
static int decide_waiting(struct df_lanes_sequence *q)
{
	struct meeting *m;
	int ret;

	df_list_each(m, &q->waiting, node)
	{
		ret = m->since < q->pauses ? decide_with(q, m) : 0;
		if (ret)
			return ret;
	}
	return 0;
}

int df_lanes_sequence_waits(const struct df_lanes_sequence *q)
{
	return q->waits;
}

int df_lanes_sequence_pause(struct df_lanes_sequence *q)
{
	struct meeting *last;
	int ret;

	while ((ret = decide_waiting(q)) > 0)
		;
	last = df_list_last(&q->waiting, struct meeting, node);
	q->waits = last && last->since == q->pauses;
	q->pauses++;
	return ret;
}

/* ---- arrival --------------------------------------------------------------------------------- */

static struct meeting *meeting_of(struct df_lanes_sequence *q, uint64_t key, uint32_t need)
{
	struct meeting *m;

	HASH_FIND(hh, q->meetings, &key, sizeof(key), m);
	if (m)
		return m;
	m = calloc(1, sizeof(*m));
	if (m)
		m->parts = calloc(need, sizeof(*m->parts));
	if (!m || !m->parts) {
		free(m);
		return NULL;
	}
	m->key = key;
	m->need = need;
	df_list_init(&m->node);
	HASH_ADD(hh, q->meetings, key, sizeof(m->key), m);
	return m;
}

static struct unit *unit_of(struct df_lanes_sequence *q, uint32_t rank, uint32_t number,
			    uint32_t nr)
{
	uint64_t name = (uint64_t)rank << 32 | number;
	struct unit *u;

	HASH_FIND(hh, q->units, &name, sizeof(name), u);
	if (u)
		return u;
	u = calloc(1, sizeof(*u) + nr * sizeof(u->in[0]));
	if (!u)
		return NULL;
	u->name = name;
	u->nr = u->left = nr;
	HASH_ADD(hh, q->units, name, sizeof(u->name), u);
	return u;
}

static int is_valid(const struct df_lanes_sequence *q, uint32_t rank,
		    const struct df_lanes_item *it)
{
	return rank < q->nr && it->need && it->need <= MAX_NEED && it->side < it->need &&
	       it->op < it->nr && it->nr <= MAX_NEED &&
	       (!it->message || (it->need == 2 && it->message <= q->nr));
}

/* Returns the pair to which the message belongs, or NULL. */
static struct pair *pair_of(const struct df_lanes_sequence *q, uint32_t rank,
			    const struct df_lanes_item *it)
{
	uint32_t peer = it->message - 1;

	if (!it->message)
		return NULL;
	return &q->pairs[it->side ? peer * q->nr + rank : rank * q->nr + peer];
}

int df_lanes_sequence_add(struct df_lanes_sequence *q, uint32_t rank,
			  const struct df_lanes_item *it)
{
	struct meeting *m;
	struct pair *p;
	struct unit *u;
	int ret;

	if (!is_valid(q, rank, it))
		return -EPROTO;
	p = pair_of(q, rank, it);
	m = meeting_of(q, it->key, it->need);
	u = unit_of(q, rank, it->unit, it->nr);
	if (!m || !u)
		return -ENOMEM;
	if (m->need != it->need || m->parts[it->side].is_here || (m->here && m->pair != p) ||
	    u->nr != it->nr || u->in[it->op])
		return -EPROTO;
	m->pair = p;
	if (p && !it->side) {
		m->number = it->number;
		m->is_short = it->is_short != 0;
		u->nr_short += m->is_short;
	}
	m->parts[it->side] = (struct part){u, it->op, 1};
	m->here++;
	u->in[it->op] = m;
	u->here++;
	/* The last operation of a unit may complete the meetings that are connected with it. */
	ret = u->here == u->nr ? choose_all(q, m, 1) : 0;
	if (ret > 0)
		ret = decide(q);
	if (ret)
		return ret < 0 ? ret : 0;
	if (is_complete(m) || (!it->side && m->is_short))
		wait_for_pause(q, m);
	/* A thread may wait for the end of its messages, and would look stuck meanwhile. */
	if (u->nr_short && u->here == u->nr)
		ret = choose_short(q, u);
	if (ret > 0)
		ret = decide(q);
	return ret < 0 ? ret : 0;
}
