/*
 * Sorts a set's traces, communicators and threads by their content. They arrive in the order of a
 * folder or of the peers' answers, and later choices depend on their order: which of several
 * shortest cycles is shown, which rank is named first, how communicators are named. Sorted by
 * content, they give the same verdict in the watchdog and in the tools.
 *
 * Runs once per set, when all traces are added and before anything uses their numbers.
 */
#define _GNU_SOURCE /* qsort_r */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "trace/read/set.h"

static int by_number(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* By rank; for unknown ranks, or two runs of one rank, by machine and time. */
static int by_content(const void *pa, const void *pb, void *arg)
{
	const struct df_check_set *set = arg;
	uint32_t ia = *(const uint32_t *)pa, ib = *(const uint32_t *)pb;
	const struct df_trc *a = &set->traces[ia], *b = &set->traces[ib];

	/* A negative rank means none: as unsigned it sorts last. */
	return by_number((uint32_t)a->order, (uint32_t)b->order)
		       ?: by_number((uint32_t)a->h.rank, (uint32_t)b->h.rank)
		       ?: strcmp(a->h.host, b->h.host)
		       ?: by_number(a->h.host_hash, b->h.host_hash)
		       ?: by_number(a->h.boot_hash, b->h.boot_hash)
		       ?: by_number(a->first_ns, b->first_ns)
		       ?: by_number(a->h.pid, b->h.pid)
		       ?: by_number(a->last_ns, b->last_ns)
		       ?: by_number(a->nr_recs, b->nr_recs)
		       ?: by_number(ia, ib);
}

static int by_rec(const void *pa, const void *pb)
{
	const struct df_dead *a = pa, *b = pb;

	return by_number(a->trace, b->trace) ?: by_number(a->rec, b->rec);
}

static int link_by_rec(const void *pa, const void *pb)
{
	const struct df_broken_link *a = pa, *b = pb;

	return by_number(a->trace, b->trace) ?: by_number(a->rec, b->rec);
}

/* The new arrays of the set. */
struct moved {
	struct df_trc *traces;
	struct df_uop *ops;
	struct df_trc_comm *entries;
	struct df_gcomm *gcomms;
	uint32_t *trace, *gcomm; /* from the old number to the new one */
};

static void *room(size_t nr, size_t size)
{
	return calloc(nr + 1, size);
}

/* Appends the trace's operations and communicator entries to those of the traces before it. */
static void move_trace(const struct df_check_set *set, struct moved *m, uint32_t to, size_t *nr_ops,
		       size_t *nr_entries)
{
	struct df_trc *t = &m->traces[to];
	size_t ops = *nr_ops - t->first_op;
	uint32_t entries = (uint32_t)*nr_entries - t->first_entry;

	for (size_t i = 0; i < t->nr_uops; i++) {
		struct df_uop *u = &m->ops[(*nr_ops)++];

		*u = set->ops[t->first_op + i];
		u->trace = to;
		u->entry += entries;
	}
	for (uint32_t i = 0; i < t->nr_entries; i++) {
		struct df_trc_comm *e = &m->entries[(*nr_entries)++];

		*e = set->entries[t->first_entry + i];
		e->trace = to;
	}
	for (size_t i = 0; i < t->nr_items; i++)
		if (t->items[i].type == DF_ITEM_OP)
			t->items[i].a += ops;
	t->first_op += ops;
	t->first_entry += entries;
}

/* Numbers communicators in the order in which the entries name them. */
static void move_gcomms(struct df_check_set *set, struct moved *m)
{
	uint32_t nr = 0;

	memset(m->gcomm, 0xff, (set->nr_gcomms + 1) * sizeof(*m->gcomm));
	for (size_t i = 0; i < set->nr_entries; i++) {
		struct df_trc_comm *e = &m->entries[i];

		if (e->gcomm == DF_NONE)
			continue;
		if (m->gcomm[e->gcomm] == DF_NONE) {
			m->gcomms[nr] = set->gcomms[e->gcomm];
			m->gcomm[e->gcomm] = nr++;
		}
		e->gcomm = m->gcomm[e->gcomm];
	}
	/* Each communicator has an entry, so all of them have a number now. */
	for (size_t i = 0; i < set->nr_ops; i++)
		m->ops[i].gcomm = m->gcomm[m->ops[i].gcomm];
	for (size_t i = 0; i < set->gcomms_at.cap; i++)
		if (set->gcomms_at.slots[i].value)
			set->gcomms_at.slots[i].value =
				m->gcomm[set->gcomms_at.slots[i].value - 1] + 1;
}

static void swap_in(struct df_check_set *set, struct moved *m)
{
	free(set->traces);
	free(set->ops);
	free(set->entries);
	free(set->gcomms);
	set->traces = m->traces;
	set->ops = m->ops;
	set->entries = m->entries;
	set->gcomms = m->gcomms;
	set->cap_traces = set->nr_traces;
	set->cap_ops = set->nr_ops;
	set->cap_entries = set->nr_entries;
	set->cap_gcomms = set->nr_gcomms;
}

static int move(struct df_check_set *set, const uint32_t *from)
{
	struct moved m = {
		.traces = room(set->nr_traces, sizeof(*m.traces)),
		.ops = room(set->nr_ops, sizeof(*m.ops)),
		.entries = room(set->nr_entries, sizeof(*m.entries)),
		.gcomms = room(set->nr_gcomms, sizeof(*m.gcomms)),
		.trace = room(set->nr_traces, sizeof(*m.trace)),
		.gcomm = room(set->nr_gcomms, sizeof(*m.gcomm)),
	};
	size_t nr_ops = 0, nr_entries = 0;
	int ok = m.traces && m.ops && m.entries && m.gcomms && m.trace && m.gcomm;

	for (uint32_t to = 0; ok && to < set->nr_traces; to++) {
		m.traces[to] = set->traces[from[to]];
		m.trace[from[to]] = to;
		move_trace(set, &m, to, &nr_ops, &nr_entries);
	}
	if (ok) {
		move_gcomms(set, &m);
		for (size_t i = 0; i < set->nr_dead; i++)
			set->dead[i].trace = m.trace[set->dead[i].trace];
		for (size_t i = 0; i < set->nr_links; i++)
			set->links[i].trace = m.trace[set->links[i].trace];
		swap_in(set, &m);
	} else {
		free(m.traces);
		free(m.ops);
		free(m.entries);
		free(m.gcomms);
	}
	free(m.trace);
	free(m.gcomm);
	return ok ? 0 : -ENOMEM;
}

/*
 * Approximately the rank that users see: its rank in its largest communicator, or the launcher's
 * rank.
 */
static int32_t lowest_rank(const struct df_check_set *set, const struct df_trc *t)
{
	int32_t lowest = t->h.rank, best = 0;

	for (uint32_t i = 0; i < t->nr_entries; i++) {
		const struct df_trc_comm *e = &set->entries[t->first_entry + i];
		int32_t nranks = e->gcomm == DF_NONE ? 0 : set->gcomms[e->gcomm].nranks;

		if (nranks > best || (nranks == best && nranks && e->rank < lowest))
			lowest = e->rank;
		best = nranks > best ? nranks : best;
	}
	return t->h.rank >= 0 && t->h.world > (uint32_t)best ? t->h.rank : lowest;
}

int df_set_order(struct df_check_set *set)
{
	uint32_t *from = malloc((set->nr_traces + 1) * sizeof(*from));
	int same = 1, rc = 0;

	if (!from)
		return -ENOMEM;
	for (uint32_t i = 0; i < set->nr_traces; i++) {
		from[i] = i;
		set->traces[i].order = lowest_rank(set, &set->traces[i]);
	}
	qsort_r(from, set->nr_traces, sizeof(*from), by_content, set);
	for (uint32_t i = 0; i < set->nr_traces; i++)
		same &= from[i] == i;
	if (!same)
		rc = move(set, from);
	if (!rc && set->nr_dead)
		qsort(set->dead, set->nr_dead, sizeof(*set->dead), by_rec);
	if (!rc && set->nr_links)
		qsort(set->links, set->nr_links, sizeof(*set->links), link_by_rec);
	free(from);
	return rc;
}
