/*
 * Rank 0's part in launching held operations on the reserve (hold.h): the groups that the ranks
 * have announced, the search for sets of groups that need only one another, and the requests for
 * reserves. Only the lanes' thread enters it, except for df_lead_free(); no locks.
 */
#include <stdlib.h>
#include <uthash.h>
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/ctl/ctl.h"
#include "runtime/exec/nccl/hold.h"
#include "runtime/exec/nccl/lane.h"
#include "runtime/exec/nccl/lead.h"

/* Maximum number of groups launched on the reserve before another communicator may get it. */
#define MAX_SET 64

/* A group that a rank has announced. */
struct known {
	struct df_list node; /* link in the list of the rank's groups, in order */
	int32_t rank;
	uint32_t nr;
	uint64_t group;
	int launched;
	int chosen;    /* whether the group is in the set that will be served */
	uint64_t mark; /* number of the search that found the group last */
	struct peer *peers;
};

/* An entry of a hash table that finds a group by one of its idents. */
struct peer {
	struct {
		struct df_ident id;
		int64_t rank;
	} key;
	struct known *group;
	UT_hash_handle hh;
};

/* A device whose reserve a set of groups needs, and the last group that needs it. */
struct need {
	int32_t rank;
	uint64_t upto, device;
};

struct df_lead {
	uint32_t watch; /* number of the latest watching */
	int watches;	/* whether this watching is under way */
	int changed;	/* whether a group was announced since the last search */
	uint64_t since; /* when the last rank has joined the watching */
	/* by rank: its counts before the watching; NULL if they have not arrived */
	uint64_t **before;
	uint64_t *oldest;	/* by rank: all groups before this one have ended */
	struct df_list *groups; /* by rank: its announced groups */
	struct peer *peers;
	uint64_t marks;
	/* the reserves for the set that is being served: */
	struct need *needs;
	size_t nr_needs, at; /* number of reserves, and index of the one that was asked for last */
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

static void to_all(struct df_lane *lane, enum df_hold_what what, uint32_t watch)
{
	int i;

	for (i = 0; i < lane->comm->nranks; i++)
		df_hold_send(lane, i, (struct df_hold_head){.what = what, .watch = watch});
}

void df_lead_free(struct df_lane *lane)
{
	struct df_lead *lead = lane->hold.lead;

	if (!lead)
		return;
	if (lead->watches)
		to_all(lane, DF_HOLD_GONE, 0);
	forget_all(lead, lane->comm->nranks);
	free(lead->before);
	free(lead->groups);
	free(lead->oldest);
	free(lead);
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

void df_lead_watch(struct df_lane *lane)
{
	struct df_lead *lead = lead_of(lane);

	if (!lead)
		df_hold_no_memory(lane);
	if (!lead || lead->watches)
		return;
	lead->watches = 1;
	lead->since = df_now_ns();
	to_all(lane, DF_HOLD_WATCH, ++lead->watch);
}

static void note_before(struct df_lane *lane, struct df_lead *lead, const struct df_hold_message *m)
{
	int nranks = lane->comm->nranks;
	uint64_t *counts = df_hold_new_counts(nranks);
	uint32_t i;

	if (!counts)
		df_hold_no_memory(lane);
	for (i = 0; counts && i < m->h.nr; i++)
		*df_hold_count(counts, nranks, &m->idents[i]) = m->idents[i].nr;
	free(lead->before[m->h.from]);
	lead->before[m->h.from] = counts;
	lead->since = df_now_ns();
}

static void note_group(struct df_lane *lane, const struct df_hold_message *m)
{
	struct df_lead *lead = lane->hold.lead;
	struct known *k = calloc(1, sizeof(*k));
	struct peer *p = calloc((size_t)m->h.nr + 1, sizeof(*p));
	struct df_list *at;
	uint32_t i;

	if (!k || !p) {
		df_hold_no_memory(lane);
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
	/* Messages may arrive in another order after a link was restored. */
	for (at = lead->groups[k->rank].prev; at != &lead->groups[k->rank]; at = at->prev)
		if (df_list_entry(at, struct known, node)->group < k->group)
			break;
	df_list_add(at, &k->node);
}

/* A set of groups that a search collects. */
struct set {
	struct known **v;
	size_t nr, cap;
};

/* Adds a group to the set. Returns 0 or -ENOMEM. */
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
 * Adds the group of a rank that has this ident. Returns 0, 1 if the group is not known yet, 2 if it
 * had ended before the watching, or -ENOMEM.
 */
static int add_peer(struct df_lane *lane, struct set *s, int rank, struct df_ident id)
{
	struct df_lead *lead = lane->hold.lead;
	struct peer key = {.key = {id, rank}}, *p;

	if (!lead->before[rank])
		return 1;
	if (id.nr < *df_hold_count(lead->before[rank], lane->comm->nranks, &id))
		return 2;
	HASH_FIND(hh, lead->peers, &key.key, sizeof(key.key), p);
	return p ? add(lead, s, p->group) : 1;
}

/*
 * Adds the groups that have the other end of a message of this group. For each collective adds the
 * group of the next rank, which in turn adds that of its next rank. Returns 0, 1 or -ENOMEM as
 * add_peer() does.
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

/* Returns the group before this one on its rank, or NULL if that is not known. */
static struct known *before(const struct df_lead *lead, const struct known *k)
{
	return k->node.prev == &lead->groups[k->rank]
		       ? NULL
		       : df_list_entry(k->node.prev, struct known, node);
}

/*
 * Adds a group and all groups without which it cannot end: those of its peers, and those before it
 * on their lanes that have not ended. Returns 0 if all are known. Else adds none and returns 1, or
 * -ENOMEM.
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
		df_hold_send(lane, n->rank,
			     (struct df_hold_head){
				     .what = DF_HOLD_GIVE, .watch = lead->watch, .group = n->upto});
		return;
	}
	for (i = 0; i < lead->nr_needs; i++)
		df_hold_send(lane, lead->needs[i].rank,
			     (struct df_hold_head){.what = DF_HOLD_GO,
						   .watch = lead->watch,
						   .group = lead->needs[i].upto});
	free(lead->needs);
	lead->needs = NULL;
	lead->nr_needs = lead->at = 0;
	lead->changed = 1;
}

/*
 * Asks for the reserves that the set needs, if it needs any, and forgets its groups. Returns 0 or
 * -ENOMEM.
 */
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
	ask_next(lane, lead);
	return 0;
}

/* Finds groups that can end, and serves them. */
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
			/* The rank's later groups are launched after this one. */
			if (ret < 0 || (ret && !k->launched))
				break;
		}
	if (ret < 0 || serve(lane, &s))
		df_hold_no_memory(lane);
	free(s.v);
}

/*
 * Whether the watching has lasted long enough. All ranks have joined it then: a rank announces the
 * groups that are ready when it joins, so groups that wait for one another are found even if a
 * message takes longer than the watching.
 */
static int is_over(const struct df_lane *lane)
{
	const struct df_lead *lead = lane->hold.lead;
	int i;

	for (i = 0; i < lane->comm->nranks; i++)
		if (!lead->before[i])
			return 0;
	return !lead->needs && df_now_ns() - lead->since > DF_HOLD_WATCH_NS;
}

int df_lead_watches(const struct df_lane *lane)
{
	return lane->hold.lead && lane->hold.lead->watches;
}

int df_lead_turn(struct df_lane *lane)
{
	struct df_lead *lead = lane->hold.lead;

	if (!df_lead_watches(lane))
		return 0;
	if (lead->changed && !lead->needs) {
		lead->changed = 0;
		search(lane, lead);
	}
	if (!is_over(lane))
		return 1;
	to_all(lane, DF_HOLD_END_WATCH, lead->watch);
	forget_all(lead, lane->comm->nranks);
	lead->watches = 0;
	return 0;
}

void df_lead_gone(struct df_lane *lane, int rank)
{
	struct df_lead *lead = lane->hold.lead;
	uint64_t *counts;
	size_t max = (size_t)lane->comm->nranks * 2 + 1, i;

	if (!lead || !lead->watches)
		return;
	counts = df_hold_new_counts(lane->comm->nranks);
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

int df_lead_waits_for(const struct df_lane *lane, int rank)
{
	const struct df_lead *lead = lane->hold.lead;

	return lead && lead->watches &&
	       (!lead->before[rank] ||
		(lead->at < lead->nr_needs && lead->needs[lead->at].rank == rank));
}

void df_lead_read(struct df_lane *lane, const struct df_hold_message *m)
{
	struct df_lead *lead = lane->hold.lead;

	if (!lead || !lead->watches || m->h.watch != lead->watch)
		return;
	if (m->h.what == DF_HOLD_OLDEST)
		lead->oldest[m->h.from] = DF_MAX(lead->oldest[m->h.from], m->h.group);
	else if (m->h.what == DF_HOLD_BEFORE)
		note_before(lane, lead, m);
	else if (m->h.what == DF_HOLD_GROUP)
		note_group(lane, m);
	else if (lead->at < lead->nr_needs && lead->needs[lead->at].rank == m->h.from) {
		lead->at++;
		ask_next(lane, lead);
	}
	lead->changed = 1;
}
