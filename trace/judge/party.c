/*
 * Which entries of a trace are one rank's. A process has a rank for each device, or several that share one: then a
 * communicator has more than one entry there. Entries of different communicators that are issued on by the same
 * thread, and by that thread only, are one rank's; where one thread serves several ranks, equal numbers in communicators
 * of equal size are.
 */
#include <stdlib.h>
#include "trace/judge/result.h"

#define CROWDED	    (-2)
#define FIRST_PARTY (1 << 16) /* above all numbers of devices */

int df_entry_uses(const struct df_entry *e, uint32_t tid)
{
	for (uint32_t i = 0; i < e->nr_threads; i++)
		if (e->threads[i] == tid)
			return 1;
	return 0;
}

/* Another entry of the same communicator on the same device of the same process, which uses the thread (0: any). */
static int has_other(const struct df_check_set *set, const struct df_entry *e, uint32_t tid)
{
	const struct df_gcomm *g = &set->gcomms[e->gcomm];

	for (uint32_t i = g->first_entry; i < g->first_entry + g->nr_entries; i++) {
		const struct df_entry *o = &set->entries[set->sorted[i]];

		if (o != e && o->trace == e->trace && o->device == e->device &&
		    (!tid || df_entry_uses(o, tid)))
			return 1;
	}
	return 0;
}

static int share_thread(const struct df_check_set *set, const struct df_entry *a,
			const struct df_entry *b)
{
	for (uint32_t i = 0; i < a->nr_threads; i++)
		if (df_entry_uses(b, a->threads[i]) && !has_other(set, a, a->threads[i]) &&
		    !has_other(set, b, a->threads[i]))
			return 1;
	return 0;
}

/* A thread issues for this rank of the communicator alone. */
static int has_own(const struct df_check_set *set, const struct df_entry *e)
{
	for (uint32_t i = 0; i < e->nr_threads; i++)
		if (!has_other(set, e, e->threads[i]))
			return 1;
	return 0;
}

/* Ranks of which each has a thread of its own, and not the same, are not one. */
static int share_number(const struct df_check_set *set, const struct df_entry *a,
			const struct df_entry *b)
{
	return a->rank == b->rank && !(has_own(set, a) && has_own(set, b)) &&
	       set->gcomms[a->gcomm].nranks == set->gcomms[b->gcomm].nranks;
}

/* A rank is in a communicator once. */
static int party_has(const struct df_entry *e, uint32_t nr, int32_t party, uint32_t gcomm)
{
	for (uint32_t i = 0; i < nr; i++)
		if (e[i].party == party && e[i].gcomm == gcomm)
			return 1;
	return 0;
}

/* The party that e[k] joins, of those that e[0] to e[k - 1] are; CROWDED: none. */
static int32_t find_party(const struct df_check_set *set, const struct df_entry *e, uint32_t k,
			  int (*share)(const struct df_check_set *set, const struct df_entry *a,
				       const struct df_entry *b))
{
	for (uint32_t j = 0; j < k; j++)
		if (e[j].party >= FIRST_PARTY && e[j].device == e[k].device &&
		    share(set, &e[j], &e[k]) && !party_has(e, k, e[j].party, e[k].gcomm))
			return e[j].party;
	return CROWDED;
}

static void split_device(const struct df_check_set *set, struct df_entry *e, uint32_t nr,
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
		struct df_entry *e = &set->entries[t->first_entry];
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
