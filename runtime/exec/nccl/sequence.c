/*
 * The decision which units are launched next (sequence.h). No thread of its own, no locks: it
 * belongs to the thread that calls it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include "runtime/base/vec.h"
#include "runtime/exec/nccl/sequence.h"

#define MAX_NEED     (1u << 20)
#define MAX_BUFFERED 8 /* short messages of a unit to one rank that NCCL's buffer has room for */

struct unit;

/* Operations that meet. */
struct meeting {
	uint64_t key;
	uint32_t need, here, launched;
	uint64_t mark;	   /* the search that saw it last */
	struct unit **who; /* by side; NULL: not there yet */
	/* of a message, which who[0] sends and who[1] receives: */
	struct pair *pair; /* else NULL */
	uint64_t at[2];	   /* its number among the pair's sends, and receives, on the lane */
	uint8_t is_short;  /* it can end in a buffer */
	uint8_t buffered;  /* it is in one: the sender does not wait */
	UT_hash_handle hh;
};

struct unit {
	struct unit *next; /* of its rank, not launched, by arrival */
	uint32_t rank, number;
	uint32_t left;	     /* meetings that are not complete */
	struct meeting **in; /* NULL: complete */
	size_t nr, cap;
	uint64_t mark;	 /* the search that chose it */
	size_t nr_short; /* of its operations */
	uint8_t whole, launched;
};

/* The messages from one rank to another: NCCL gives the n-th receive the n-th send. */
struct pair {
	uint64_t nr[2];	  /* sends and receives that are launched */
	uint64_t next[2]; /* ... or chosen by the search `mark` */
	uint64_t mark, complete;
	uint64_t buffered;	    /* sends that end in the buffer */
	const struct unit *buffers; /* the unit that these belong to; NULL: none */
};

struct rank {
	struct unit *first, **last;
	struct unit *coming; /* its last operation is not here yet */
	size_t nr_units;     /* in the list */
	uint32_t front;	     /* the lowest number that is not launched */
	uint32_t *ahead;     /* numbers above it that are launched */
	size_t nr_ahead, cap_ahead;
	/* meetings in which it waits for another rank: only its own part is launched */
	uint64_t open;
	uint64_t closes;    /* of these, those that the search would complete */
	struct unit *stuck; /* that these belong to, if there are any */
	int changed;	    /* some of its messages have ended */
};

struct df_lanes_sequence {
	void (*go)(void *arg, uint32_t rank, uint32_t unit);
	void *arg;
	struct meeting *meetings;
	uint64_t search;      /* number of the current one */
	struct unit **chosen; /* by it */
	size_t nr_chosen, cap_chosen;
	struct pair *pairs; /* by sender and receiver */
	uint32_t nr;
	struct rank ranks[];
};

struct df_lanes_sequence *
df_lanes_sequence_new(uint32_t nr, void (*go)(void *arg, uint32_t rank, uint32_t unit), void *arg)
{
	struct df_lanes_sequence *q = calloc(1, sizeof(*q) + nr * sizeof(*q->ranks));
	uint32_t i;

	if (!q)
		return NULL;
	q->go = go;
	q->arg = arg;
	q->nr = nr;
	q->pairs = calloc((size_t)nr * nr, sizeof(*q->pairs));
	if (!q->pairs) {
		free(q);
		return NULL;
	}
	for (i = 0; i < nr; i++) {
		q->ranks[i].last = &q->ranks[i].first;
		q->ranks[i].front = 1;
	}
	return q;
}

static void unit_free(struct df_lanes_sequence *q, struct unit *u)
{
	if (q->ranks[u->rank].stuck == u)
		q->ranks[u->rank].stuck = NULL;
	free(u->in);
	free(u);
}

static void meeting_free(struct df_lanes_sequence *q, struct meeting *m)
{
	HASH_DEL(q->meetings, m);
	free(m->who);
	free(m);
}

/* The unit has one meeting less to wait for. */
static void leave(struct df_lanes_sequence *q, struct unit *u)
{
	if (!--u->left)
		unit_free(q, u);
}

void df_lanes_sequence_free(struct df_lanes_sequence *q)
{
	struct meeting *m, *tmp;
	uint32_t i;

	if (!q)
		return;
	/* A unit is freed with the last meeting that it is in. */
	HASH_ITER(hh, q->meetings, m, tmp)
	{
		for (i = 0; i < m->need; i++)
			if (m->who[i])
				leave(q, m->who[i]);
		meeting_free(q, m);
	}
	for (i = 0; i < q->nr; i++)
		free(q->ranks[i].ahead);
	free(q->pairs);
	free(q->chosen);
	free(q);
}

static int is_front(const struct df_lanes_sequence *q, const struct unit *u)
{
	return u->number == q->ranks[u->rank].front;
}

/* ---- the search ------------------------------------------------------------------------------ */

static int choose(struct df_lanes_sequence *q, struct unit *u)
{
	struct unit **at;

	if (u->launched || u->mark == q->search)
		return 0;
	at = DF_VEC_PUSH(q->chosen, q->nr_chosen, q->cap_chosen);
	if (!at)
		return -ENOMEM;
	u->mark = q->search;
	*at = u;
	return 0;
}

static void begin(struct df_lanes_sequence *q)
{
	q->search++;
	q->nr_chosen = 0;
}

/* Counts what the meeting leaves complete on ranks that have launched their part of it. */
static void count_closed(struct df_lanes_sequence *q, struct meeting *m)
{
	uint32_t i;

	if (m->mark == q->search)
		return;
	m->mark = q->search;
	for (i = 0; i < m->need; i++)
		if (m->who[i]->launched && (i || !m->buffered))
			q->ranks[m->who[i]->rank].closes++;
}

static int by_number(const void *pa, const void *pb)
{
	const struct unit *a = *(struct unit *const *)pa, *b = *(struct unit *const *)pb;

	return a->number < b->number ? -1 : a->number > b->number;
}

static int side_of(const struct meeting *m, const struct unit *u)
{
	return m->who[0] != u;
}

static int is_chosen(const struct df_lanes_sequence *q, const struct unit *u)
{
	return u && (u->launched || u->mark == q->search);
}

/* Numbers the chosen units' messages as they would be on the lanes. */
static void number_messages(struct df_lanes_sequence *q)
{
	size_t i, k;

	/* Each rank's own are launched in their order of issue. */
	qsort(q->chosen, q->nr_chosen, sizeof(struct unit *), by_number);
	for (i = 0; i < q->nr_chosen; i++)
		for (k = 0; k < q->chosen[i]->nr; k++) {
			struct meeting *m = q->chosen[i]->in[k];
			struct pair *p = m->pair;
			int side = side_of(m, q->chosen[i]);

			if (!p)
				continue;
			if (p->mark != q->search) {
				p->mark = q->search;
				p->next[0] = p->nr[0];
				p->next[1] = p->nr[1];
			}
			m->at[side] = p->next[side]++;
		}
}

/* Whether each receive gets its own message if the chosen units are launched. */
static int keep_order(struct df_lanes_sequence *q)
{
	size_t i, k;

	number_messages(q);
	for (i = 0; i < q->nr_chosen; i++)
		for (k = 0; k < q->chosen[i]->nr; k++) {
			const struct meeting *m = q->chosen[i]->in[k];
			int side = side_of(m, q->chosen[i]);

			if (!m->pair)
				continue;
			if (is_chosen(q, m->who[!side])) {
				if (m->at[0] != m->at[1])
					return 0;
			} else if (m->at[side] < m->pair->next[!side]) {
				return 0;
			}
		}
	return 1;
}

/*
 * Chooses the unit, and all that has to be launched together with it. Returns 1 if all of it is
 * there and would end, 0 if not, -ENOMEM.
 */
static int all_there(struct df_lanes_sequence *q, struct unit *u)
{
	size_t i, k;
	uint32_t s;

	begin(q);
	if (choose(q, u))
		return -ENOMEM;
	for (i = 0; i < q->nr_chosen; i++) {
		for (k = 0; k < q->chosen[i]->nr; k++) {
			struct meeting *m = q->chosen[i]->in[k];

			if (m->here < m->need)
				return 0;
			for (s = 0; s < m->need; s++) {
				if (!m->who[s]->whole)
					return 0;
				if (choose(q, m->who[s]))
					return -ENOMEM;
			}
		}
	}
	for (s = 0; s < q->nr; s++)
		q->ranks[s].closes = 0;
	for (i = 0; i < q->nr_chosen; i++)
		for (k = 0; k < q->chosen[i]->nr; k++)
			count_closed(q, q->chosen[i]->in[k]);
	/* A rank that waits for another one would only queue the unit behind what waits. */
	for (i = 0; i < q->nr_chosen; i++)
		for (k = 0; k < q->chosen[i]->nr; k++)
			for (s = 0; s < q->chosen[i]->in[k]->need; s++) {
				const struct meeting *m = q->chosen[i]->in[k];
				const struct unit *w = m->who[s];

				if (!s && m->buffered)
					continue;
				if (q->ranks[w->rank].open > q->ranks[w->rank].closes)
					return 0;
			}
	return keep_order(q);
}

/* Chooses the unit, and the counterparts of one of its operations, if all of them are first. */
static int first_there(struct df_lanes_sequence *q, struct unit *u)
{
	size_t k;
	uint32_t s;

	if (!is_front(q, u))
		return 0;
	for (k = 0; k < u->nr; k++) {
		const struct meeting *m = u->in[k];
		int can = m->here == m->need;

		begin(q);
		for (s = 0; can && s < m->need; s++) {
			can = m->who[s]->launched || (m->who[s]->whole && is_front(q, m->who[s]) &&
						      !q->ranks[m->who[s]->rank].open);
			if (choose(q, m->who[s]))
				return -ENOMEM;
		}
		if (can && keep_order(q))
			return 1;
	}
	return 0;
}

/* Whether the unit can be launched although its messages have no receives yet. */
static int needs_nobody(struct df_lanes_sequence *q, struct unit *u)
{
	size_t k;

	/* Behind what waits for another rank the messages would wait too. */
	if (!is_front(q, u) || u->nr_short != u->nr || q->ranks[u->rank].open)
		return 0;
	begin(q);
	if (choose(q, u))
		return -ENOMEM;
	if (!keep_order(q))
		return 0;
	for (k = 0; k < u->nr; k++) {
		const struct pair *p = u->in[k]->pair;

		if (p->buffers || p->next[0] - p->nr[0] > MAX_BUFFERED)
			return 0;
	}
	return 1;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Moves the rank's front past the numbers that are launched. */
static void advance(struct rank *r)
{
	size_t i = 0;

	while (i < r->nr_ahead) {
		if (r->ahead[i] == r->front) {
			r->ahead[i] = r->ahead[--r->nr_ahead];
			r->front++;
			i = 0;
		} else {
			i++;
		}
	}
}

/* All parts of the meeting are launched. Returns 1 if a unit may be launched because of it. */
static int complete(struct df_lanes_sequence *q, struct meeting *m)
{
	struct pair *p = m->pair;
	int opened = p != NULL;
	uint32_t s;
	size_t k;

	for (s = 0; s < m->need; s++) {
		struct unit *w = m->who[s];
		struct rank *r = &q->ranks[w->rank];

		if (s || !m->buffered)
			opened |= !--r->open;
		r->changed |= p != NULL;
		for (k = 0; k < w->nr; k++)
			if (w->in[k] == m)
				w->in[k] = NULL;
		leave(q, w);
	}
	if (p) {
		p->complete++;
		p->buffered -= m->buffered;
		if (!p->buffered)
			p->buffers = NULL;
	}
	meeting_free(q, m);
	return opened;
}

/* The unit's parts in its meetings are launched. Returns as complete(). */
static int part_of(struct df_lanes_sequence *q, struct unit *u)
{
	struct rank *r = &q->ranks[u->rank];
	size_t k;
	int opened = 0;

	u->left++; /* it stays meanwhile */
	for (k = 0; k < u->nr; k++) {
		struct meeting *m = u->in[k];

		if (!m)
			continue;
		if (m->pair)
			m->pair->nr[side_of(m, u)]++;
		r->open++;
		if (++m->launched == m->need)
			opened |= complete(q, m);
	}
	r->stuck = u;
	r->changed = 1;
	leave(q, u);
	return opened;
}

/*
 * Those messages of the rank that NCCL now takes to its buffer do not keep it waiting. Returns 1 if
 * it waits for no other rank any more.
 */
static int settle(struct rank *r)
{
	const struct unit *u = r->stuck;
	size_t k;

	if (!r->changed)
		return 0;
	r->changed = 0;
	if (!u || !r->open)
		return 0;
	for (k = 0; k < u->nr; k++) {
		struct meeting *m = u->in[k];
		struct pair *p = m ? m->pair : NULL;

		if (!p || side_of(m, u) || !m->is_short || m->buffered)
			continue;
		/* Those before it that have no receive are in the buffer, and of its unit. */
		if (m->at[0] != p->complete + p->buffered || p->buffered == MAX_BUFFERED ||
		    (p->buffers && p->buffers != u))
			continue;
		m->buffered = 1;
		p->buffered++;
		p->buffers = u;
		r->open--;
	}
	return !r->open;
}

static void launch(struct df_lanes_sequence *q, struct unit *u)
{
	struct rank *r = &q->ranks[u->rank];
	struct unit **p = &r->first;

	while (*p != u)
		p = &(*p)->next;
	*p = u->next;
	if (!u->next)
		r->last = p;
	r->nr_units--;
	u->launched = 1;
	q->go(q->arg, u->rank, u->number);
	r->ahead[r->nr_ahead++] = u->number; /* df_lanes_sequence_add() has made room */
	advance(r);
}

/* Launches the unit, with all that it needs, if that is there. Returns 1, 0 if not, -ENOMEM. */
static int try(struct df_lanes_sequence *q, struct unit *u, int *opened)
{
	size_t i;
	uint32_t r;
	int ret = all_there(q, u);

	if (!ret)
		ret = first_there(q, u);
	if (!ret)
		ret = needs_nobody(q, u);
	if (ret <= 0)
		return ret;
	for (i = 0; i < q->nr_chosen; i++)
		launch(q, q->chosen[i]);
	for (i = 0; i < q->nr_chosen; i++)
		*opened |= part_of(q, q->chosen[i]);
	for (r = 0; r < q->nr; r++)
		*opened |= settle(&q->ranks[r]);
	return 1;
}

/* Tries those that are first on their rank, or all units, until one is launched. */
static int try_others(struct df_lanes_sequence *q, int all, int *opened)
{
	struct unit *u;
	uint32_t i;
	int ret = 0;

	for (i = 0; i < q->nr; i++)
		for (u = q->ranks[i].first; u; u = u->next) {
			ret = u->whole && (all || is_front(q, u)) ? try(q, u, opened) : 0;
			if (ret)
				return ret;
		}
	return 0;
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
		m->who = calloc(need, sizeof(struct unit *));
	if (!m || !m->who) {
		free(m);
		return NULL;
	}
	m->key = key;
	m->need = need;
	HASH_ADD(hh, q->meetings, key, sizeof(m->key), m);
	return m;
}

/* The unit that this operation belongs to. */
static struct unit *unit_of(struct rank *r, uint32_t rank, uint32_t number)
{
	struct unit *u = r->coming;

	if (u)
		return u;
	u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	u->rank = rank;
	u->number = number;
	*r->last = u;
	r->last = &u->next;
	r->nr_units++;
	r->coming = u;
	return u;
}

int df_lanes_sequence_add(struct df_lanes_sequence *q, uint32_t rank, uint32_t unit, uint64_t key,
			  uint32_t need, uint32_t side, const struct df_lanes_message *message,
			  int last)
{
	struct meeting *m, **at;
	struct pair *p = NULL;
	struct rank *r;
	struct unit *u;
	int ret, opened = 0;

	if (rank >= q->nr || !need || need > MAX_NEED || side >= need ||
	    (message && (need != 2 || message->peer >= q->nr)))
		return -EPROTO;
	r = &q->ranks[rank];
	if (message)
		p = side ? &q->pairs[message->peer * q->nr + rank]
			 : &q->pairs[rank * q->nr + message->peer];
	m = meeting_of(q, key, need);
	if (!m || DF_VEC_ROOM(r->ahead, r->cap_ahead, r->nr_ahead + r->nr_units + 1))
		return -ENOMEM;
	if (m->need != need || m->who[side] || (m->here && m->pair != p) ||
	    (r->coming && r->coming->number != unit))
		return -EPROTO;
	u = unit_of(r, rank, unit);
	at = u ? DF_VEC_PUSH(u->in, u->nr, u->cap) : NULL;
	if (!at)
		return -ENOMEM;
	*at = m;
	m->pair = p;
	if (p && !side && message->is_short) {
		m->is_short = 1;
		u->nr_short++;
	}
	u->left++;
	m->who[side] = u;
	m->here++;
	if (!last)
		return 0;
	u->whole = 1;
	r->coming = NULL;
	/*
	 * Only what is connected with this unit can be launched because of it. A launch makes
	 * others the first of their rank, or lets a rank wait for no others.
	 */
	ret = try(q, u, &opened);
	while (ret > 0)
		ret = try_others(q, opened, &opened);
	return ret;
}
