/*
 * Finds which entries of a trace belong to one rank. A process has one rank per device, or several
 * ranks that share one. In the second case a communicator has more than one entry there. Entries of
 * different communicators belong to one rank if the same thread, and no other, issues on them. If
 * one thread serves several ranks, entries with equal rank numbers in communicators of equal size
 * belong together.
 */
#include <stdlib.h>
#include "trace/read/party.h"

#define CROWDED	    (-2)      /* the entry's device serves several ranks; which one is not known */
#define FIRST_PARTY (1 << 16) /* above all device numbers */

int df_trc_has_one_rank(const struct df_check_set *set, const struct df_trc *t)
{
	const struct df_trc_comm *e = set->entries + t->first_entry;

	for (uint32_t i = 1; i < t->nr_entries; i++)
		if (e[i].party != e[0].party || e[i].device != e[0].device)
			return 0;
	return 1;
}

int df_entry_uses(const struct df_trc_comm *e, uint32_t tid)
{
	for (uint32_t i = 0; i < e->nr_threads; i++)
		if (e->threads[i] == tid)
			return 1;
	return 0;
}

static int has_issued(const struct df_trc_comm *e, uint32_t tid)
{
	for (uint32_t i = 0; i < e->nr_issuers; i++)
		if (e->issuers[i] == tid)
			return 1;
	return 0;
}

/*
 * Whether the thread has issued on the entry. If not all issuers could be stored, any thread counts
 * that has issued and used the device last.
 */
static int may_have_issued(const struct df_trc_comm *e, const struct df_lthread *th)
{
	return has_issued(e, th->tid) ||
	       (e->more_threads && th->nr_issued && th->device == e->device);
}

static int same_party(const struct df_trc_comm *a, const struct df_trc_comm *b)
{
	return a->party == b->party && a->device == b->device;
}

/*
 * Whether the thread that created this entry also created an entry of another rank of the process,
 * for which another thread issues. Then each rank has its own thread.
 */
static int has_thread_each(const struct df_check_set *set, const struct df_trc_comm *e)
{
	const struct df_trc *t = &set->traces[e->trace];

	for (uint32_t i = 0; i < t->nr_entries; i++) {
		const struct df_trc_comm *f = &set->entries[t->first_entry + i];

		for (uint32_t k = 0; k < e->nr_threads && f->nr_issuers && !same_party(e, f); k++)
			if (df_entry_uses(f, e->threads[k]) && !has_issued(f, e->threads[k]))
				return 1;
	}
	return 0;
}

/* Whether the thread may be this rank's own, although it has issued nothing. */
static int is_own_idle(const struct df_trc_comm *e, const struct df_lthread *th)
{
	return th->device == e->device && !th->nr_issued && !th->is_ours && !th->part_of &&
	       !df_entry_uses(e, th->tid);
}

const struct df_trc_comm *df_entry_last(const struct df_check_set *set, const struct df_trc_comm *e)
{
	const struct df_trc *t = &set->traces[e->trace];
	const struct df_trc_comm *last = NULL;

	for (uint32_t i = 0; i < t->nr_entries; i++) {
		const struct df_trc_comm *f = &set->entries[t->first_entry + i];

		if (f->used && f->gcomm != DF_NONE && same_party(e, f) &&
		    (!last || f->last.rec > last->last.rec))
			last = f;
	}
	return last;
}

int df_entry_issues(const struct df_check_set *set, const struct df_trc_comm *e,
		    const struct df_lthread *th)
{
	const struct df_trc *t = &set->traces[e->trace];

	if (e->used)
		return may_have_issued(e, th);
	for (uint32_t i = 0; i < t->nr_entries; i++) {
		const struct df_trc_comm *f = &set->entries[t->first_entry + i];

		if (same_party(e, f) && may_have_issued(f, th))
			return 1;
	}
	return 0;
}

int df_entry_has_ended(const struct df_check_set *set, const struct df_trc_comm *e)
{
	const struct df_trc *t = &set->traces[e->trace];
	const struct df_trc_comm *last = df_entry_last(set, e);
	int ended = 0;

	if (!last && !has_thread_each(set, e))
		return 0;
	for (size_t k = 0; k < t->nr_threads; k++) {
		const struct df_lthread *th = &t->threads[k];

		if (!(last ? df_entry_issues(set, e, th) : is_own_idle(e, th)))
			continue;
		if (th->at != DF_AT_GONE)
			return 0;
		ended = 1;
	}
	return ended;
}

int df_entry_has_no_thread(const struct df_check_set *set, const struct df_trc_comm *e)
{
	return !df_entry_last(set, e) && has_thread_each(set, e);
}

int df_entry_is_foreign(const struct df_check_set *set, const struct df_trc_comm *e, uint32_t tid)
{
	const struct df_trc *t = &set->traces[e->trace];
	int foreign = 0;

	for (uint32_t i = 0; i < t->nr_entries; i++) {
		const struct df_trc_comm *f = &set->entries[t->first_entry + i];

		if (!has_issued(f, tid))
			continue;
		if (same_party(e, f))
			return 0;
		foreign = 1;
	}
	return foreign;
}

/*
 * Whether the communicator has another entry of the same process and device that this thread (0:
 * any thread) uses.
 */
static int has_other(const struct df_check_set *set, const struct df_trc_comm *e, uint32_t tid)
{
	const struct df_gcomm *g = &set->gcomms[e->gcomm];

	for (uint32_t i = g->first_entry; i < g->first_entry + g->nr_entries; i++) {
		const struct df_trc_comm *o = &set->entries[set->sorted[i]];

		if (o != e && o->trace == e->trace && o->device == e->device &&
		    (!tid || df_entry_uses(o, tid)))
			return 1;
	}
	return 0;
}

static int share_thread(const struct df_check_set *set, const struct df_trc_comm *a,
			const struct df_trc_comm *b)
{
	for (uint32_t i = 0; i < a->nr_threads; i++)
		if (df_entry_uses(b, a->threads[i]) && !has_other(set, a, a->threads[i]) &&
		    !has_other(set, b, a->threads[i]))
			return 1;
	return 0;
}

/* Whether a thread issues only for this rank of the communicator. */
static int has_own(const struct df_check_set *set, const struct df_trc_comm *e)
{
	for (uint32_t i = 0; i < e->nr_threads; i++)
		if (!has_other(set, e, e->threads[i]))
			return 1;
	return 0;
}

/*
 * Whether the entries have the same number in communicators of equal size. Entries that each have a
 * thread of their own belong to different ranks.
 */
static int share_number(const struct df_check_set *set, const struct df_trc_comm *a,
			const struct df_trc_comm *b)
{
	return a->rank == b->rank && !(has_own(set, a) && has_own(set, b)) &&
	       set->gcomms[a->gcomm].nranks == set->gcomms[b->gcomm].nranks;
}

/* Whether the rank already has an entry in the communicator; it can have only one. */
static int party_has(const struct df_trc_comm *e, uint32_t nr, int32_t party, uint32_t gcomm)
{
	for (uint32_t i = 0; i < nr; i++)
		if (e[i].party == party && e[i].gcomm == gcomm)
			return 1;
	return 0;
}

/* Returns the rank, among those of e[0] to e[k - 1], that e[k] belongs to, or CROWDED. */
static int32_t find_party(const struct df_check_set *set, const struct df_trc_comm *e, uint32_t k,
			  int (*share)(const struct df_check_set *set, const struct df_trc_comm *a,
				       const struct df_trc_comm *b))
{
	for (uint32_t j = 0; j < k; j++)
		if (e[j].party >= FIRST_PARTY && e[j].device == e[k].device &&
		    share(set, &e[j], &e[k]) && !party_has(e, k, e[j].party, e[k].gcomm))
			return e[j].party;
	return CROWDED;
}

static void split_device(const struct df_check_set *set, struct df_trc_comm *e, uint32_t nr,
			 int32_t *next)
{
	for (uint32_t k = 0; k < nr; k++) {
		if (e[k].party != CROWDED)
			continue;
		e[k].party = find_party(set, e, k, share_thread);
		if (e[k].party == CROWDED)
			e[k].party = find_party(set, e, k, share_number);
		if (e[k].party == CROWDED)
			e[k].party = (*next)++;
	}
}

void df_set_parties(struct df_check_set *set)
{
	for (size_t i = 0; i < set->nr_traces; i++) {
		const struct df_trc *t = &set->traces[i];
		struct df_trc_comm *e = &set->entries[t->first_entry];
		int32_t next = FIRST_PARTY;
		int crowded = 0;

		for (uint32_t k = 0; k < t->nr_entries; k++)
			e[k].party = e[k].device;
		for (uint32_t k = 0; k < t->nr_entries; k++) {
			if (t->dropped || e[k].gcomm == DF_NONE || e[k].party == CROWDED ||
			    !has_other(set, &e[k], 0))
				continue;
			crowded = 1;
			for (uint32_t j = 0; j < t->nr_entries; j++)
				if (e[j].device == e[k].device && e[j].gcomm != DF_NONE)
					e[j].party = CROWDED;
		}
		if (crowded)
			split_device(set, e, t->nr_entries, &next);
	}
}
