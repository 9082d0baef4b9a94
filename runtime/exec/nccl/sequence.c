/*
 * The decision which operations are launched next (sequence.h). No thread of its own, no locks: it
 * belongs to the thread that calls it.
 */
#include <errno.h>
#include <stdlib.h>
#include <uthash.h>
#include "runtime/base/list.h"
#include "runtime/base/vec.h"
#include "runtime/exec/nccl/sequence.h"

#define MAX_NEED     (1u << 20)
#define MAX_BUFFERED 8 /* short messages of a pair that NCCL's buffer has room for */

/* One operation of a meeting. */
struct part {
	struct unit *unit; /* NULL: it is not there, or is decided */
	uint32_t op;	   /* its number in the unit */
	uint8_t is_here;
};

/* Operations that meet. */
struct meeting {
	uint64_t key;
	uint32_t need, here;
	struct part *parts;  /* by side */
	uint64_t mark;	     /* the search that chose it last */
	struct df_list node; /* in df_lanes_sequence.waiting */
	uint64_t since;	     /* the pause after which it is there */
	/* of a message: */
	struct pair *pair; /* else NULL */
	uint32_t number;   /* its send's */
	uint8_t is_short;
	UT_hash_handle hh;
};

/* The operations that a rank issues together. */
struct unit {
	uint64_t name;		 /* rank << 32 | number */
	uint32_t nr, here, left; /* operations in all; that were there; that are not decided */
	uint64_t mark;		 /* the search that saw it last */
	UT_hash_handle hh;
	struct meeting *in[]; /* by operation; NULL: it is not there, or is decided */
};

/* The messages from one rank to another. */
struct pair {
	struct meeting *buffered[MAX_BUFFERED]; /* sent, not received, in the order of the sends */
	uint32_t nr_buffered;
	uint32_t front;	 /* the lowest number of a send that is not decided */
	uint32_t *ahead; /* numbers above it that are decided */
	size_t nr_ahead, cap_ahead;
	uint64_t mark; /* the search that has chosen... */
	uint32_t more; /* ... this number of messages for the buffer */
};

struct df_lanes_sequence {
	df_lanes_go go;
	void *arg;
	struct meeting *meetings;
	struct unit *units;
	struct pair *pairs;	/* by sender and receiver */
	struct df_list waiting; /* meetings for which a pause may change something */
	uint64_t pauses;
	int waits;	 /* something is new there */
	uint64_t search; /* number of the current one */
	struct meeting **chosen;
	size_t nr_chosen, cap_chosen;
	uint32_t nr;
	uint32_t *now; /* by rank: its operations in the decision */
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

/* A pause may change something for the meeting. */
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
 * Chooses the meeting if all its operations are there. For a message that includes the receives
 * for those in the buffer before it. Returns 1 if it is chosen, 0, or -ENOMEM.
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

/* Chooses the unit's meetings. Returns 1, 0 if whole and one of them is missing, -ENOMEM. */
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
 * Chooses the meeting, and those of all units that are connected with it by chosen ones. whole: all
 * of them must be complete. Returns 1, 0 if it cannot be, -ENOMEM.
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

/* Chooses those short messages of the unit that NCCL's buffer takes. Returns as above. */
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

/* The pair's send of this number is decided. */
static void advance(struct pair *p, uint32_t number)
{
	size_t i = 0;

	p->ahead[p->nr_ahead++] = number; /* decide() has made room */
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

/* Decides what is there of the chosen meetings. Returns 1 or -ENOMEM. */
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
	/* It may have been in the way of others. */
	q->waits |= !df_list_empty(&q->waiting);
	return 1;
}

/* Decides what the meeting needs, if that is there. Returns 1, 0 if not, -ENOMEM. */
static int decide_with(struct df_lanes_sequence *q, struct meeting *m)
{
	int ret = is_complete(m) ? choose_all(q, m, 0) : choose_short(q, m->parts[0].unit);

	return ret > 0 ? decide(q) : ret;
}

/* Tries those that have waited for a pause. Returns as above. */
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

/* Returns the pair that the message belongs to, or NULL. */
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
	}
	m->parts[it->side] = (struct part){u, it->op, 1};
	m->here++;
	u->in[it->op] = m;
	u->here++;
	/* The last operation of a unit may make those complete that are connected with it. */
	ret = u->here == u->nr ? choose_all(q, m, 1) : 0;
	if (ret > 0)
		ret = decide(q);
	else if (!ret && (is_complete(m) || (!it->side && m->is_short)))
		wait_for_pause(q, m);
	return ret < 0 ? ret : 0;
}
