/* How held operations are launched on the reserve (hold.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/exec/nccl/budget.h"
#include "runtime/exec/nccl/hold.h"
#include "runtime/exec/nccl/lane.h"

/*
 * Rank 0 ends a watching when no group has been held for so long. All look as often whether the
 * processes that they wait for live.
 */
#define WATCH_NS (20 * DF_NS_PER_MS)
/* Groups that are launched on the reserve before another communicator may have it. */
#define MAX_SET 64

enum what {
	ASK_WATCH, /* to rank 0: a group is held here */
	WATCH,	   /* from rank 0: announce groups */
	BEFORE,	   /* to rank 0: the idents below these numbers had ended when the watching began */
	GROUP,	   /* to rank 0: this group is ready */
	OLDEST,	   /* to rank 0: all groups before this one have ended */
	GIVE,	   /* from rank 0: give the reserve for groups up to this one */
	GIVEN,	   /* to rank 0: done, or the groups have been launched meanwhile */
	GO,	   /* from rank 0: launch groups up to this one */
	END_WATCH, /* from rank 0 */
	GONE	   /* the sender has left the communicator, so all its operations have ended */
};

struct head {
	uint64_t comm, proc; /* proc: of the sender */
	int32_t from, to;
	uint32_t what, watch; /* enum what; number of the watching */
	uint64_t group;
	uint32_t launched, nr; /* nr: idents */
};

struct message {
	struct head h;
	struct df_ident idents[];
};

/* A message in its queue. */
struct letter {
	struct letter *next;
	struct message m;
};

static struct {
	struct df_mutex lock;
	struct letter *first, **last;
} inbox = {DF_MUTEX_INIT(DF_RANK_LEAF, "messages of lanes"), NULL, &inbox.first};

/* ---- idents ------------------------------------------------------------------------------------- */

static uint64_t *count(uint64_t *counts, int nranks, const struct df_ident *id)
{
	return &counts[id->class == DF_IDENT_COLL
			       ? 0
			       : (size_t)(id->class - DF_IDENT_SEND) * (size_t)nranks + 1 +
					 (size_t)id->peer];
}

static uint64_t *new_counts(int nranks)
{
	return calloc((size_t)nranks * 2 + 1, sizeof(uint64_t));
}

/* The ident of that number in an array of counts. */
static struct df_ident ident_at(size_t i, int nranks, uint64_t nr)
{
	struct df_ident id = {.nr = nr};

	if (i) {
		id.class = i - 1 < (size_t)nranks ? DF_IDENT_SEND : DF_IDENT_RECV;
		id.peer = (int32_t)((i - 1) % (size_t)nranks);
	}
	return id;
}

int df_hold_init(struct df_lane *lane)
{
	lane->hold.counts = new_counts(lane->comm->nranks);
	return lane->hold.counts ? 0 : -ENOMEM;
}

void df_hold_ident(struct df_lane *lane, const struct df_sig *sig, struct df_lane_op *e)
{
	uint64_t *nr;

	if (lane->hold.watch && !lane->hold.next)
		lane->hold.next = e;
	e->alone = sig->kind == DF_COLL_SENDRECV_SELF;
	if (e->alone)
		return;
	if (sig->kind == DF_COLL_SEND || sig->kind == DF_COLL_RECV)
		e->ident = (struct df_ident){
			sig->kind == DF_COLL_SEND ? DF_IDENT_SEND : DF_IDENT_RECV, sig->root, 0};
	nr = count(lane->hold.counts, lane->comm->nranks, &e->ident);
	e->ident.nr = (*nr)++;
}

int df_hold_may_forget(const struct df_lane *lane, const struct df_lane_op *e)
{
	return !lane->hold.watch || e->turn <= lane->hold.said;
}

/* ---- messages ----------------------------------------------------------------------------------- */

int df_hold_heard(const void *data, size_t bytes)
{
	struct head h;
	struct letter *l;

	if (bytes < sizeof(h))
		return 0;
	memcpy(&h, data, sizeof(h));
	if (bytes != sizeof(h) + h.nr * sizeof(struct df_ident))
		return 0;
	l = malloc(sizeof(*l) + bytes - sizeof(h));
	if (!l) {
		df_warn_once("no memory for a message of another rank: a held operation may hang");
		return 0;
	}
	l->next = NULL;
	memcpy(&l->m, data, bytes);
	df_mutex_lock(&inbox.lock);
	*inbox.last = l;
	inbox.last = &l->next;
	df_mutex_unlock(&inbox.lock);
	return 1;
}

static void gone(struct df_lane *lane, int rank);

static void send_idents(struct df_lane *lane, int to, struct head m, const struct df_ident *idents,
			size_t nr)
{
	const struct df_comm *comm = lane->comm;
	size_t bytes = sizeof(m) + nr * sizeof(*idents);
	struct message *full = malloc(bytes);
	int ret;

	if (!full) {
		df_warn_once("no memory for a message to another rank: a held operation may hang");
		return;
	}
	m.comm = comm->hash;
	m.proc = df_rt.self.proc;
	m.from = comm->rank;
	m.to = to;
	m.nr = (uint32_t)nr;
	full->h = m;
	if (nr)
		memcpy(full->idents, idents, nr * sizeof(*idents));
	ret = df_ctl_send(comm->ctl, comm->members[to].proc, DF_MSG_EXECUTOR, full, bytes);
	free(full);
	/* Its process has ended, or the communicator has. */
	if (ret)
		gone(lane, to);
}

static void send(struct df_lane *lane, int to, struct head m)
{
	send_idents(lane, to, m, NULL, 0);
}

/* ---- a rank ------------------------------------------------------------------------------------- */

static void begin_watch(struct df_lane *lane, uint32_t watch)
{
	int nranks = lane->comm->nranks;
	size_t max = (size_t)nranks * 2 + 1, i, nr = 0;
	struct df_ident *before = malloc(max * sizeof(*before));
	uint64_t *counts = new_counts(nranks), *at;
	struct df_lane_op *e;

	if (before && counts) {
		df_mutex_lock(&lane->lock);
		memcpy(counts, lane->hold.counts, max * sizeof(*counts));
		for (e = lane->oldest; e; e = e->next) {
			at = e->alone ? NULL : count(counts, nranks, &e->ident);
			if (at && *at > e->ident.nr)
				*at = e->ident.nr;
		}
		lane->hold.watch = lane->ended ? 0 : watch;
		lane->hold.said = lane->oldest ? lane->oldest->turn - 1 : lane->nr_groups;
		lane->hold.next = lane->oldest;
		df_mutex_unlock(&lane->lock);
		for (i = 0; i < max; i++)
			if (counts[i])
				before[nr++] = ident_at(i, nranks, counts[i]);
		send_idents(lane, 0, (struct head){.what = BEFORE, .watch = watch}, before, nr);
	} else {
		df_warn_once("no memory: a held operation may hang");
	}
	free(before);
	free(counts);
}

static void end_watch(struct df_lane *lane)
{
	df_mutex_lock(&lane->lock);
	lane->hold.watch = 0;
	df_mutex_unlock(&lane->lock);
	lane->hold.asked = 0;
	lane->hold.oldest = 0;
}

/* Whether the data of the group that begins with e is there. *nr: its operations. Lock held. */
static int is_ready(const struct df_lane_op *e, size_t *nr)
{
	uint64_t number = e->turn;
	uint32_t k;

	for (*nr = 0; e && e->turn == number; e = e->next, ++*nr) {
		if (!e->closed)
			return 0;
		for (k = 0; k < e->nr_waits; k++)
			/* ACQUIRE pairs with the write of that point, as in has_ended() of lane.c. */
			if (__atomic_load_n(e->waits[k].addr, __ATOMIC_ACQUIRE) < e->waits[k].value)
				return 0;
	}
	return 1;
}

/* Announces the lane's next group if it is ready. Returns 1 if it was. */
static int announce(struct df_lane *lane)
{
	struct head m = {.what = GROUP};
	struct df_ident *idents = NULL;
	struct df_lane_op *e;
	size_t nr = 0, i = 0;
	int ready;

	df_mutex_lock(&lane->lock);
	e = lane->hold.watch ? lane->hold.next : NULL;
	ready = e && is_ready(e, &nr);
	if (ready)
		idents = malloc((nr + 1) * sizeof(*idents));
	if (idents) {
		m.watch = lane->hold.watch;
		m.group = lane->hold.said = e->turn;
		m.launched = !lane->next || e->turn < lane->next->turn;
		for (; nr; nr--, e = e->next)
			if (!e->alone)
				idents[i++] = e->ident;
		lane->hold.next = e;
	}
	df_mutex_unlock(&lane->lock);
	if (idents)
		send_idents(lane, 0, m, idents, i);
	free(idents);
	return m.group != 0;
}

/* Reports how far the lane's groups have ended, if that has changed. */
static void report_oldest(struct df_lane *lane)
{
	const struct df_lane_op *e;
	uint64_t oldest;
	uint32_t watch;

	df_mutex_lock(&lane->lock);
	watch = lane->hold.watch;
	/* ACQUIRE pairs with the lane's write of the word, as in has_ended() of lane.c. */
	for (e = lane->oldest; e && __atomic_load_n(e->word, __ATOMIC_ACQUIRE) >= e->value;)
		e = e->next;
	oldest = e ? e->turn : lane->nr_groups + 1;
	df_mutex_unlock(&lane->lock);
	if (!watch || oldest == lane->hold.oldest)
		return;
	lane->hold.oldest = oldest;
	send(lane, 0, (struct head){.what = OLDEST, .watch = watch, .group = oldest});
}

/* ---- rank 0 ------------------------------------------------------------------------------------- */

/* A group that a rank has announced. */
struct known {
	struct df_list node; /* the rank's groups, in order */
	int32_t rank;
	uint32_t nr;
	uint64_t group;
	int launched;
	int chosen;    /* it is in the set that will be served */
	uint64_t mark; /* the search that found it last */
	struct peer *peers;
};

/* Finds a group by one of its idents. */
struct peer {
	struct {
		struct df_ident id;
		int64_t rank;
	} key;
	struct known *group;
	UT_hash_handle hh;
};

/* A device whose reserve a set of groups needs. */
struct need {
	int32_t rank;
	uint64_t upto, device;
};

struct df_lead {
	uint32_t watch;		/* the last one's number */
	int watches;		/* it is under way */
	int changed;		/* something was announced since the last search */
	uint64_t busy;		/* when a group was held last */
	uint64_t **before;	/* counts of each rank; NULL: not heard */
	uint64_t *oldest;	/* of each rank: its groups before this one have ended */
	struct df_list *groups; /* of each rank */
	struct peer *peers;
	uint64_t marks;
	/* the set that gets its reserves: */
	struct need *needs;
	size_t nr_needs, at; /* at: the one that was asked last */
};

static void forget_group(struct df_lead *lead, struct known *k)
{
	uint32_t i;

	for (i = 0; i < k->nr; i++)
		HASH_DEL(lead->peers, &k->peers[i]);
	df_list_del(&k->node);
	free(k->peers);
	free(k);
}

static void forget_all(struct df_lead *lead, int nranks)
{
	struct known *k, *tmp;
	int i;

	for (i = 0; i < nranks; i++) {
		df_list_each_safe(k, tmp, &lead->groups[i], node) forget_group(lead, k);
		free(lead->before[i]);
		lead->before[i] = NULL;
		lead->oldest[i] = 0;
	}
	free(lead->needs);
	lead->needs = NULL;
	lead->nr_needs = lead->at = 0;
}

static void to_all(struct df_lane *lane, enum what what, uint32_t watch)
{
	int i;

	for (i = 0; i < lane->comm->nranks; i++)
		send(lane, i, (struct head){.what = what, .watch = watch});
}

void df_hold_fini(struct df_lane *lane)
{
	struct df_lead *lead = lane->hold.lead;

	if (lead) {
		if (lead->watches)
			to_all(lane, GONE, 0);
		forget_all(lead, lane->comm->nranks);
		free(lead->before);
		free(lead->groups);
		free(lead->oldest);
		free(lead);
	}
	free(lane->hold.counts);
}

static struct df_lead *lead_of(struct df_lane *lane)
{
	struct df_lead *lead = lane->hold.lead;
	size_t nranks = (size_t)lane->comm->nranks, i;

	if (lead)
		return lead;
	lead = calloc(1, sizeof(*lead));
	if (!lead)
		return NULL;
	lead->before = calloc(nranks, sizeof(*lead->before));
	lead->groups = calloc(nranks, sizeof(*lead->groups));
	lead->oldest = calloc(nranks, sizeof(*lead->oldest));
	if (!lead->before || !lead->groups || !lead->oldest) {
		free(lead->oldest);
		free(lead->before);
		free(lead->groups);
		free(lead);
		return NULL;
	}
	for (i = 0; i < nranks; i++)
		df_list_init(&lead->groups[i]);
	lane->hold.lead = lead;
	return lead;
}

static void ask_watch(struct df_lane *lane)
{
	struct df_lead *lead = lead_of(lane);

	if (!lead || lead->watches)
		return;
	lead->watches = 1;
	lead->busy = df_now_ns();
	to_all(lane, WATCH, ++lead->watch);
}

static void note_before(struct df_lane *lane, struct df_lead *lead, const struct message *m)
{
	int nranks = lane->comm->nranks;
	uint64_t *counts = new_counts(nranks);
	uint32_t i;

	for (i = 0; counts && i < m->h.nr; i++)
		*count(counts, nranks, &m->idents[i]) = m->idents[i].nr;
	free(lead->before[m->h.from]);
	lead->before[m->h.from] = counts;
	/* On a slow machine all of them take longer than WATCH_NS. */
	lead->busy = df_now_ns();
}

static void note_group(struct df_lead *lead, const struct message *m)
{
	struct known *k = calloc(1, sizeof(*k));
	struct peer *p = calloc((size_t)m->h.nr + 1, sizeof(*p));
	struct df_list *at;
	uint32_t i;

	if (!k || !p) {
		df_warn_once("no memory: a held operation may hang");
		free(k);
		free(p);
		return;
	}
	k->rank = m->h.from;
	k->group = m->h.group;
	k->launched = m->h.launched != 0;
	k->nr = m->h.nr;
	k->peers = p;
	for (i = 0; i < m->h.nr; i++) {
		p[i].key.id = m->idents[i];
		p[i].key.rank = m->h.from;
		p[i].group = k;
		HASH_ADD(hh, lead->peers, key, sizeof(p[i].key), &p[i]);
	}
	/* A link that was restored may have changed the order of messages. */
	for (at = lead->groups[k->rank].prev; at != &lead->groups[k->rank]; at = at->prev)
		if (df_list_entry(at, struct known, node)->group < k->group)
			break;
	df_list_add(at, &k->node);
}

/* A set of groups under search. */
struct set {
	struct known **v;
	size_t nr, cap;
};

/* Returns 0 or -ENOMEM. */
static int add(struct df_lead *lead, struct set *s, struct known *k)
{
	struct known **v;

	if (k->chosen || k->mark == lead->marks)
		return 0;
	if (s->nr == s->cap) {
		v = realloc(s->v, (s->cap * 2 + 16) * sizeof(*v));
		if (!v)
			return -ENOMEM;
		s->v = v;
		s->cap = s->cap * 2 + 16;
	}
	k->mark = lead->marks;
	s->v[s->nr++] = k;
	return 0;
}

/*
 * Adds a rank's group that has this ident. Returns 0, 1 if it is unknown yet, 2 if it had ended
 * before the watching, or -ENOMEM.
 */
static int add_peer(struct df_lane *lane, struct set *s, int rank, struct df_ident id)
{
	struct df_lead *lead = lane->hold.lead;
	struct peer key = {.key = {id, rank}}, *p;

	if (!lead->before[rank])
		return 1;
	if (id.nr < *count(lead->before[rank], lane->comm->nranks, &id))
		return 2;
	HASH_FIND(hh, lead->peers, &key.key, sizeof(key.key), p);
	return p ? add(lead, s, p->group) : 1;
}

/*
 * Adds the groups that have the other end of a message of this one, and for each collective that of
 * the next rank, which adds that of its next. Returns 0, 1 or -ENOMEM as add_peer().
 */
static int add_peers(struct df_lane *lane, struct set *s, const struct known *k)
{
	struct df_ident id;
	int ret = 0, q, nranks = lane->comm->nranks;
	uint32_t i;

	for (i = 0; i < k->nr && (!ret || ret == 2); i++) {
		id = k->peers[i].key.id;
		if (id.class != DF_IDENT_COLL) {
			q = id.peer;
			id.class = id.class == DF_IDENT_SEND ? DF_IDENT_RECV : DF_IDENT_SEND;
			id.peer = k->rank;
			ret = add_peer(lane, s, q, id);
			continue;
		}
		for (q = k->rank + 1, ret = 2; q < k->rank + nranks && ret == 2; q++)
			ret = add_peer(lane, s, q % nranks, id);
	}
	return ret == 2 ? 0 : ret;
}

/* The group before it of its rank, if that is known. */
static struct known *before(const struct df_lead *lead, const struct known *k)
{
	return k->node.prev == &lead->groups[k->rank]
		       ? NULL
		       : df_list_entry(k->node.prev, struct known, node);
}

/*
 * Adds a group and all those without which it cannot end: those of its peers, and those before it
 * on their lanes that have not ended. Returns 0 if all are known; 1 if not yet, or -ENOMEM, without adding.
 */
static int add_closed(struct df_lane *lane, struct set *s, struct known *first)
{
	struct df_lead *lead = lane->hold.lead;
	size_t nr = s->nr, i;
	struct known *k;
	int ret;

	lead->marks++;
	ret = add(lead, s, first);
	for (i = nr; i < s->nr && !ret; i++) {
		k = s->v[i];
		ret = add_peers(lane, s, k);
		k = before(lead, k);
		if (!ret && k && k->group >= lead->oldest[k->rank])
			ret = add(lead, s, k);
	}
	if (ret)
		s->nr = nr;
	for (i = nr; i < s->nr; i++)
		s->v[i]->chosen = 1;
	return ret;
}

static int by_device(const void *a, const void *b)
{
	const struct need *x = a, *y = b;

	return (x->device > y->device) - (x->device < y->device);
}

static void ask_next(struct df_lane *lane, struct df_lead *lead)
{
	const struct need *n = &lead->needs[lead->at];
	size_t i;

	if (lead->at < lead->nr_needs) {
		send(lane, n->rank,
		     (struct head){.what = GIVE, .watch = lead->watch, .group = n->upto});
		return;
	}
	for (i = 0; i < lead->nr_needs; i++)
		send(lane, lead->needs[i].rank,
		     (struct head){.what = GO, .watch = lead->watch, .group = lead->needs[i].upto});
	free(lead->needs);
	lead->needs = NULL;
	lead->nr_needs = lead->at = 0;
	lead->changed = 1;
}

/* Asks for the reserves that the set needs, if it needs any, and forgets its groups. */
static int serve(struct df_lane *lane, struct set *s)
{
	struct df_lead *lead = lane->hold.lead;
	struct need *n = calloc(s->nr + 1, sizeof(*n));
	size_t i, j, nr = 0;

	if (!n)
		return -ENOMEM;
	for (i = 0; i < s->nr; i++) {
		struct known *k = s->v[i];

		for (j = 0; j < nr && n[j].rank != k->rank;)
			j++;
		if (!k->launched && j == nr)
			n[nr++] = (struct need){k->rank, k->group,
						lane->comm->members[k->rank].device_id};
		else if (!k->launched)
			n[j].upto = DF_MAX(n[j].upto, k->group);
		forget_group(lead, k);
	}
	if (!nr) {
		free(n);
		return 0;
	}
	qsort(n, nr, sizeof(*n), by_device);
	lead->needs = n;
	lead->nr_needs = nr;
	lead->at = 0;
	lead->busy = df_now_ns();
	ask_next(lane, lead);
	return 0;
}

/* Serves groups that can end. */
static void search(struct df_lane *lane, struct df_lead *lead)
{
	struct set s = {0};
	struct known *k;
	int i, ret = 0;

	for (i = 0; i < lane->comm->nranks && ret >= 0; i++)
		df_list_each(k, &lead->groups[i], node)
		{
			if (s.nr >= MAX_SET)
				break;
			ret = k->chosen ? 0 : add_closed(lane, &s, k);
			/* Later ones are launched after it. */
			if (ret < 0 || (ret && !k->launched))
				break;
		}
	if (ret < 0 || serve(lane, &s))
		df_warn_once("no memory: a held operation may hang");
	free(s.v);
}

static void lead_turn(struct df_lane *lane, struct df_lead *lead)
{
	const struct known *k;
	int i;

	if (!lead->watches)
		return;
	if (lead->changed && !lead->needs) {
		lead->changed = 0;
		search(lane, lead);
	}
	/* A rank's last group is launched only if all are. */
	for (i = 0; i < lane->comm->nranks; i++)
		if ((k = df_list_last(&lead->groups[i], struct known, node)) && !k->launched)
			lead->busy = df_now_ns();
	if (lead->needs || df_now_ns() - lead->busy < WATCH_NS)
		return;
	to_all(lane, END_WATCH, lead->watch);
	forget_all(lead, lane->comm->nranks);
	lead->watches = 0;
}

/* ---- the thread --------------------------------------------------------------------------------- */

/* Whether each ident is one of the communicator. */
static int are_valid(const struct message *m, int nranks)
{
	uint32_t i;

	for (i = 0; i < m->h.nr; i++)
		if (m->idents[i].class > DF_IDENT_RECV || m->idents[i].peer < 0 ||
		    m->idents[i].peer >= nranks)
			return 0;
	return m->h.from >= 0 && m->h.from < nranks;
}

/* That rank has no operation that has not ended, and answers no message. */
static void gone(struct df_lane *lane, int rank)
{
	struct df_lead *lead = lane->hold.lead;
	uint64_t *counts;
	size_t max = (size_t)lane->comm->nranks * 2 + 1, i;

	if (!rank) {
		df_budget_open(lane);
		end_watch(lane);
	}
	if (!lead || !lead->watches || !rank)
		return;
	counts = new_counts(lane->comm->nranks);
	for (i = 0; counts && i < max; i++)
		counts[i] = UINT64_MAX;
	free(lead->before[rank]);
	lead->before[rank] = counts;
	lead->changed = 1;
	if (lead->at < lead->nr_needs && lead->needs[lead->at].rank == rank) {
		lead->at++;
		ask_next(lane, lead);
	}
}

/* A message to rank 0 about the watching that is under way. */
static void lead_reads(struct df_lane *lane, const struct message *m)
{
	struct df_lead *lead = lane->hold.lead;

	if (!lead || !lead->watches || m->h.watch != lead->watch)
		return;
	if (m->h.what == OLDEST)
		lead->oldest[m->h.from] = DF_MAX(lead->oldest[m->h.from], m->h.group);
	else if (m->h.what == BEFORE)
		note_before(lane, lead, m);
	else if (m->h.what == GROUP)
		note_group(lead, m);
	else if (lead->needs && lead->needs[lead->at].rank == m->h.from) {
		lead->at++;
		ask_next(lane, lead);
	}
	lead->changed = 1;
}

static void read_one(struct df_lane *lane, const struct message *m)
{
	switch (m->h.what) {
	case ASK_WATCH:
		if (!lane->comm->rank)
			ask_watch(lane);
		break;
	case WATCH:
		begin_watch(lane, m->h.watch);
		break;
	case BEFORE:
	case GROUP:
	case OLDEST:
	case GIVEN:
		lead_reads(lane, m);
		break;
	case GIVE:
		lane->hold.give = m->h.watch;
		df_budget_ask(lane, m->h.group);
		break;
	case GO:
		df_budget_go(lane, m->h.group);
		break;
	case END_WATCH:
		end_watch(lane);
		break;
	case GONE:
		gone(lane, m->h.from);
		break;
	default:
		break;
	}
}

/* The lane to which the message is addressed has been freed. */
static void answer_gone(const struct head *h)
{
	struct head m = {.what = GONE, .comm = h->comm, .from = h->to, .to = h->from};

	m.proc = df_rt.self.proc;
	if (h->what == ASK_WATCH || h->what == WATCH || h->what == GIVE)
		(void)df_ctl_send(NULL, h->proc, DF_MSG_EXECUTOR, &m, sizeof(m));
}

void df_hold_read(struct df_lane *(*find)(uint64_t hash, int rank),
		  void (*put)(struct df_lane *lane))
{
	struct letter *l, *next;
	struct df_lane *lane;

	df_mutex_lock(&inbox.lock);
	l = inbox.first;
	inbox.first = NULL;
	inbox.last = &inbox.first;
	df_mutex_unlock(&inbox.lock);
	for (; l; l = next) {
		next = l->next;
		lane = find(l->m.h.comm, l->m.h.to);
		if (lane) {
			if (are_valid(&l->m, lane->comm->nranks))
				read_one(lane, &l->m);
			put(lane);
		} else {
			answer_gone(&l->m.h);
		}
		free(l);
	}
}

/* A process that has exited answers no message. */
static void look_for_exits(struct df_lane *lane)
{
	const struct df_member *members = lane->comm->members;
	struct df_lead *lead = lane->hold.lead;
	uint64_t now = df_now_ns();
	int i, nranks = lane->comm->nranks;

	if ((!lane->hold.asked && !(lead && lead->watches)) || now - lane->hold.looked < WATCH_NS)
		return;
	lane->hold.looked = now;
	if (lane->comm->rank && df_ctl_is_dead(members[0].proc))
		gone(lane, 0);
	for (i = 1; i < nranks && lead && lead->watches; i++)
		if ((!lead->before[i] ||
		     (lead->at < lead->nr_needs && lead->needs[lead->at].rank == i)) &&
		    df_ctl_is_dead(members[i].proc))
			gone(lane, i);
}

/* Whether the lane's next group is held although its data is there. */
static int needs_room(struct df_lane *lane)
{
	size_t nr;
	int needs;

	if (!df_budget_holds(lane))
		return 0;
	df_mutex_lock(&lane->lock);
	needs = lane->next && is_ready(lane->next, &nr);
	df_mutex_unlock(&lane->lock);
	return needs;
}

void df_hold_turn(struct df_lane *lane)
{
	if (!lane->hold.asked && needs_room(lane)) {
		lane->hold.asked = 1;
		send(lane, 0, (struct head){.what = ASK_WATCH});
	}
	while (announce(lane))
		;
	report_oldest(lane);
	if (df_budget_answer(lane))
		send(lane, 0, (struct head){.what = GIVEN, .watch = lane->hold.give});
	look_for_exits(lane);
	if (lane->hold.lead)
		lead_turn(lane, lane->hold.lead);
}
