/*
 * Facts that need all traces: the names of ranks, which processes are alive, the differences of
 * clocks. Runs once per set, before the graph is built.
 */
#define _GNU_SOURCE /* qsort_r */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "trace/read/party.h"
#include "trace/read/set.h"
#include "runtime/base/vec.h"

static int by_rank(const void *pa, const void *pb, void *arg)
{
	const struct df_check_set *set = arg;
	const struct df_trc_comm *a = &set->entries[*(const uint32_t *)pa];
	const struct df_trc_comm *b = &set->entries[*(const uint32_t *)pb];

	return DF_CMP(a->gcomm, b->gcomm) ?:
		       DF_CMP(a->rank, b->rank) ?:
			       DF_CMP(b->last_ns, a->last_ns) ?: DF_CMP(a, b);
}

struct df_trc_comm *df_set_entry(const struct df_check_set *set, uint32_t gcomm, int rank)
{
	const struct df_gcomm *g = &set->gcomms[gcomm];
	uint32_t lo = g->first_entry, hi = lo + g->nr_entries;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (set->entries[set->sorted[mid]].rank < rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < g->first_entry + g->nr_entries && set->entries[set->sorted[lo]].rank == rank)
		return &set->entries[set->sorted[lo]];
	return NULL;
}

const struct df_trc_member *df_set_member(const struct df_check_set *set, uint32_t gcomm, int rank)
{
	const struct df_gcomm *g = &set->gcomms[gcomm];

	return rank >= 0 && (uint32_t)rank < g->nr_members && g->members[rank].pid
		       ? &g->members[rank]
		       : NULL;
}

int df_check_add_silent(struct df_check_set *set, const struct df_check_silent *s)
{
	struct df_check_silent *to = DF_VEC_PUSH(set->silent, set->nr_silent, set->cap_silent);

	if (!to)
		return -ENOMEM;
	*to = *s;
	return 0;
}

const struct df_check_silent *df_set_silent(const struct df_check_set *set, uint32_t gcomm,
					    int rank)
{
	const struct df_kin *kin = df_set_kin_of(set, gcomm, rank);

	for (size_t i = 0; i < set->nr_silent; i++)
		if (set->silent[i].comm == set->gcomms[gcomm].hash && set->silent[i].rank == rank)
			return &set->silent[i];
	return kin ? df_set_silent(set, kin->gcomm, kin->parent) : NULL;
}

const struct df_dead *df_set_dead(const struct df_check_set *set, uint32_t gcomm, int rank)
{
	const struct df_trc_member *m = df_set_member(set, gcomm, rank);
	const struct df_kin *kin = df_set_kin_of(set, gcomm, rank);

	for (size_t i = 0; i < set->nr_dead; i++) {
		const struct df_dead *d = &set->dead[i];

		if ((d->comm_hash == set->gcomms[gcomm].hash && d->rank == rank) ||
		    (m && d->host_hash == m->host_hash && d->pid == m->pid))
			return d;
	}
	return kin ? df_set_dead(set, kin->gcomm, kin->parent) : NULL;
}

static uint64_t began_at(const struct df_trc *t)
{
	return (t->began_ns ?: t->first_ns) + (uint64_t)t->skew_ns;
}

static uint64_t last_at(const struct df_trc *t)
{
	return t->last_ns + (uint64_t)t->skew_ns;
}

static void drop(struct df_check_set *set, struct df_trc *t)
{
	if (t->dropped)
		return;
	t->dropped = 1;
	set->nr_dropped++;
	set->nr_recs -= t->nr_recs;
	set->nr_torn -= t->nr_torn;
	set->nr_issued -= t->nr_ops;
	set->nr_finished -= t->nr_finished;
}

struct run {
	size_t same;	       /* a trace of the same run; for a run's first trace, itself */
	uint64_t begun, ended; /* in the first trace: for the whole run */
};

static struct run *run_of(struct run *runs, size_t i)
{
	while (runs[i].same != i)
		i = runs[i].same = runs[runs[i].same].same;
	return &runs[i];
}

/*
 * Traces without a launcher's rank belong to one run if they share communicators. A run that had
 * ended when another one began is an earlier run.
 */
static int drop_old_unranked(struct df_check_set *set)
{
	struct run *runs = malloc((set->nr_traces + 1) * sizeof(*runs));
	size_t *of_comm = calloc(set->nr_gcomms + 1, sizeof(*of_comm)); /* a trace's index plus 1 */
	uint64_t newest = 0;
	int rc = runs && of_comm ? 0 : -ENOMEM;

	for (size_t i = 0; !rc && i < set->nr_traces; i++)
		runs[i] = (struct run){i, UINT64_MAX, 0};
	for (size_t i = 0; !rc && i < set->nr_entries; i++) {
		const struct df_trc_comm *e = &set->entries[i];

		if (e->gcomm == DF_NONE || set->traces[e->trace].h.world)
			continue;
		if (!of_comm[e->gcomm])
			of_comm[e->gcomm] = e->trace + 1;
		run_of(runs, e->trace)->same = (size_t)(run_of(runs, of_comm[e->gcomm] - 1) - runs);
	}
	for (int pass = 0; !rc && pass < 3; pass++)
		for (size_t i = 0; i < set->nr_traces; i++) {
			struct df_trc *t = &set->traces[i];
			struct run *run = run_of(runs, i);

			if (t->h.world || !t->nr_entries)
				continue;
			if (pass == 0 && began_at(t) < run->begun)
				run->begun = began_at(t);
			if (pass == 0 && last_at(t) > run->ended)
				run->ended = last_at(t);
			if (pass == 1 && run->begun > newest)
				newest = run->begun;
			if (pass == 2 && run->ended < newest)
				drop(set, t);
		}
	free(runs);
	free(of_comm);
	return rc;
}

/*
 * A folder may contain traces of an earlier run: of two traces with one rank, drop the one that
 * ended first.
 */
static int drop_old_runs(struct df_check_set *set)
{
	for (size_t i = 0; i < set->nr_traces; i++) {
		struct df_trc *a = &set->traces[i];

		for (size_t k = 0; k < set->nr_traces && a->h.world && a->h.rank >= 0; k++) {
			const struct df_trc *b = &set->traces[k];

			if (i != k && b->h.world && b->h.rank == a->h.rank &&
			    last_at(a) < began_at(b))
				drop(set, a);
		}
	}
	return drop_old_unranked(set);
}

static void align_clocks(struct df_check_set *set)
{
	for (size_t i = 1; i < set->nr_traces; i++) {
		const struct df_trace_header *z = &set->traces[0].h, *h = &set->traces[i].h;

		if (h->boot_hash != z->boot_hash && h->real_ns && z->real_ns)
			set->traces[i].skew_ns =
				(int64_t)((h->real_ns - h->mono_ns) - (z->real_ns - z->mono_ns));
	}
}

static int sort_entries(struct df_check_set *set)
{
	uint32_t nr = 0;

	set->sorted = malloc((set->nr_entries + 1) * sizeof(*set->sorted));
	if (!set->sorted)
		return -ENOMEM;
	for (size_t i = 0; i < set->nr_entries; i++)
		if (set->entries[i].gcomm != DF_NONE && !set->traces[set->entries[i].trace].dropped)
			set->sorted[nr++] = (uint32_t)i;
	/* qsort_r(), because several threads may judge at once. */
	qsort_r(set->sorted, nr, sizeof(*set->sorted), by_rank, set);
	for (uint32_t i = 0; i < nr; i++) {
		struct df_gcomm *g = &set->gcomms[set->entries[set->sorted[i]].gcomm];

		if (!g->nr_entries++)
			g->first_entry = i;
	}
	return 0;
}

/* Users see a rank as its number in its largest communicator. */
static void name_ranks(struct df_check_set *set)
{
	for (size_t i = 0; i < set->nr_traces; i++) {
		struct df_trc *t = &set->traces[i];
		struct df_trc_comm *e = &set->entries[t->first_entry];
		int lo = -1, hi = -1;

		for (uint32_t k = 0; k < t->nr_entries; k++) {
			int best = 0;

			e[k].world = t->h.rank;
			for (uint32_t j = 0; j < t->nr_entries; j++) {
				if (e[j].gcomm == DF_NONE || (e[j].party != e[k].party && j != k))
					continue;
				if (set->gcomms[e[j].gcomm].nranks > best) {
					best = set->gcomms[e[j].gcomm].nranks;
					e[k].world = e[j].rank;
				}
				if (j > 64 && j > k)
					break;
			}
			/*
			 * In a communicator smaller than the job, the launcher's rank is better
			 * than the rank there.
			 */
			if (t->h.rank >= 0 && t->h.world > (uint32_t)best)
				e[k].world = t->h.rank;
			if (e[k].gcomm == DF_NONE)
				continue;
			if (lo < 0 || e[k].world < lo)
				lo = e[k].world;
			if (e[k].world > hi)
				hi = e[k].world;
		}
		if (lo < 0)
			lo = hi = t->h.rank;
		if (lo < 0)
			snprintf(t->label, sizeof(t->label), "p%u", t->h.pid);
		else if (lo == hi)
			snprintf(t->label, sizeof(t->label), "r%d", lo);
		else
			snprintf(t->label, sizeof(t->label), "r%d-r%d", lo, hi);
	}
}

static void name_comms(struct df_check_set *set)
{
	unsigned next = 0;

	for (size_t i = 0; i < set->nr_gcomms; i++) {
		struct df_gcomm *g = &set->gcomms[i];

		if (g->label[0] || !g->nr_entries)
			continue;
		if (next < 26)
			snprintf(g->label, sizeof(g->label), "%c", 'A' + (char)next);
		else
			snprintf(g->label, sizeof(g->label), "C%u", next);
		next++;
	}
}

/* Whether this is the trace of the dead process, or of a process with its rank. */
static int is_trace_of(const struct df_check_set *set, const struct df_trc *t,
		       const struct df_dead *d)
{
	int it = t->h.host_hash == d->host_hash && t->h.pid == d->pid;

	for (uint32_t j = 0; j < t->nr_entries && !it; j++) {
		const struct df_trc_comm *e = &set->entries[t->first_entry + j];

		it = e->gcomm != DF_NONE && e->rank == d->rank && d->comm_hash &&
		     set->gcomms[e->gcomm].hash == d->comm_hash;
	}
	return it;
}

/*
 * Whether this process had given up another one that it could not reach. Then its own end followed
 * from that.
 */
static int gave_up(const struct df_check_set *set, size_t trace)
{
	for (size_t i = 0; i < set->nr_links; i++)
		if (set->links[i].trace == trace && set->links[i].gone)
			return 1;
	return 0;
}

/*
 * Whether this process had seen another one end. Then its later actions and its own end followed
 * from that.
 */
static int saw_death(const struct df_check_set *set, size_t trace)
{
	for (size_t i = 0; i < set->nr_dead; i++)
		if (set->dead[i].trace == trace &&
		    !is_trace_of(set, &set->traces[trace], &set->dead[i]))
			return 1;
	return 0;
}

/*
 * A process with records from after the hang was noticed survived the hang: its end is a
 * consequence. The same holds for a process that noticed the hang itself and then did nothing, or
 * ended its communicators, even if the others noticed the hang later.
 */
static int was_ended(const struct df_check_set *set, const struct df_dead *d)
{
	const struct df_trc *by = &set->traces[d->trace];

	for (size_t k = 0; k < set->nr_traces; k++) {
		const struct df_trc *t = &set->traces[k];

		if (t->dropped || !is_trace_of(set, t, d))
			continue;
		if ((t->cut && (t->stall_ms || saw_death(set, k) || gave_up(set, k))) ||
		    (d->late &&
		     ((t->stall_ms && t->last_ns <= t->stall_ns) ||
		      t->last_ns + (uint64_t)t->skew_ns >= by->stall_ns + (uint64_t)by->skew_ns)))
			return 1;
	}
	return 0;
}

/*
 * The parent, dfshim run, recorded the signal after all processes of the job had ended. So
 * processes that began later belong to a later run in the same folder.
 */
static int is_of_earlier_run(const struct df_check_set *set, const struct df_dead *d)
{
	uint64_t at = d->time_ns + (uint64_t)set->traces[d->trace].skew_ns;

	for (size_t k = 0; d->signal && k < set->nr_traces; k++)
		if (!set->traces[k].dropped && began_at(&set->traces[k]) > at)
			return 1;
	return 0;
}

static void find_fates(struct df_check_set *set, const struct df_check_opts *opts)
{
	int some_alive = 0;
	size_t nr = 0;

	for (size_t i = 0; i < set->nr_dead; i++)
		if (!set->traces[set->dead[i].trace].dropped && !was_ended(set, &set->dead[i]) &&
		    !is_of_earlier_run(set, &set->dead[i]))
			set->dead[nr++] = set->dead[i];
	set->nr_dead = nr;
	for (size_t i = 0; i < set->nr_dead; i++) {
		struct df_dead *d = &set->dead[i];

		for (size_t k = 0; k < set->nr_traces; k++) {
			struct df_trc *t = &set->traces[k];
			int it = is_trace_of(set, t, d);

			/*
			 * The rank's own trace is better evidence: it says how it exited, while a
			 * peer only saw the connection close.
			 */
			if (it && t->fate == DF_EXITED && !t->dropped)
				d->in_order = (int)t->h.closed;
			if (it && t->fate == DF_ALIVE) {
				t->fate = d->in_order ? DF_EXITED : DF_DEAD;
				t->h.closed = (uint32_t)d->in_order;
			}
		}
	}
	if (!opts || !opts->alive)
		return;
	for (size_t k = 0; k < set->nr_traces; k++)
		some_alive |= !set->traces[k].cut && opts->alive(&set->traces[k].h) == 1;
	for (size_t k = 0; k < set->nr_traces && !some_alive; k++)
		set->killed |= set->traces[k].fate == DF_ALIVE && !set->traces[k].cut &&
			       !opts->alive(&set->traces[k].h);
	/*
	 * If all processes have ended, the whole job was ended, and this cannot show which one
	 * ended first.
	 */
	for (size_t k = 0; k < set->nr_traces && some_alive; k++)
		if (set->traces[k].fate == DF_ALIVE && !set->traces[k].cut &&
		    !opts->alive(&set->traces[k].h))
			set->traces[k].fate = DF_DEAD;
}

/* Returns when the oldest unfinished operation in the traces was issued. */
static uint64_t first_unfinished(const struct df_check_set *set)
{
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < set->nr_ops; i++) {
		const struct df_trc *t = &set->traces[set->ops[i].trace];
		uint64_t at = set->ops[i].l.issue_ns + (uint64_t)t->skew_ns;

		if (!t->dropped && set->ops[i].l.issue_ns && at < first)
			first = at;
	}
	return first;
}

/*
 * The legacy stream waits for some streams only, and the ring may have lost the records that show
 * which.
 */
static int streams_unknown(const struct df_check_set *set, const struct df_trc *t)
{
	int legacy = 0;

	for (size_t k = 0; k < t->nr_streams; k++)
		legacy |= t->streams[k].flags & 2;
	for (size_t i = 0; legacy && i < t->nr_uops; i++) {
		size_t k = 0;

		while (k < t->nr_streams && t->streams[k].id != set->ops[t->first_op + i].l.stream)
			k++;
		if (k == t->nr_streams)
			return 1;
	}
	return 0;
}

/* first: when the oldest unfinished operation was issued */
static int is_damaged(const struct df_check_set *set, const struct df_trc *t, uint64_t first)
{
	/* Overwritten records do not matter if they are older than all unfinished operations. */
	return t->is_short || t->is_guess || t->nr_lost ||
	       (t->h.next > t->h.nr_recs &&
		(t->first_ns + (uint64_t)t->skew_ns > first || streams_unknown(set, t)));
}

int df_set_is_whole(const struct df_check_set *set, uint32_t gcomm)
{
	const struct df_gcomm *g = &set->gcomms[gcomm];
	uint64_t first = first_unfinished(set);

	if ((size_t)g->nranks > g->nr_entries)
		return 0;
	for (uint32_t i = 0; i < g->nr_entries; i++) {
		uint32_t e = set->sorted[g->first_entry + i];

		if (is_damaged(set, &set->traces[set->entries[e].trace], first))
			return 0;
	}
	return 1;
}

int df_set_is_partial(const struct df_check_set *set)
{
	uint64_t first = first_unfinished(set);
	uint32_t world = 0, here = 0;

	for (size_t i = 0; i < set->nr_gcomms; i++)
		if (set->gcomms[i].nr_entries &&
		    (size_t)set->gcomms[i].nranks > set->gcomms[i].nr_entries)
			return 1;
	for (size_t i = 0; i < set->nr_traces; i++) {
		const struct df_trc *t = &set->traces[i];

		if (t->dropped)
			continue;
		if (is_damaged(set, t, first))
			return 1;
		world = t->h.world > world ? t->h.world : world;
		here++;
	}
	return here < world;
}

/* Sorts the traces, puts them on one clock, and drops those of earlier runs. */
static int arrange(struct df_check_set *set)
{
	int rc = df_set_order(set);

	if (rc)
		return rc;
	align_clocks(set);
	return drop_old_runs(set);
}

/*
 * Returns when the first process that had recorded the hang ended its communicators. Only earlier
 * records are evidence: later actions of any process may be consequences. For example, a process is
 * released from a wait outside NCCL and reaches the collective that ended without it. Returns 0 if
 * the traces already end at such a time, or if no process gave up.
 */
static uint64_t given_up(const struct df_check_set *set)
{
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < set->nr_traces; i++) {
		const struct df_trc *t = &set->traces[i];

		/* A running process answers with its current state. */
		if (t->hosts || t->until_ns)
			return 0;
		if (!t->dropped && t->stall_ms && t->cut_ns &&
		    t->cut_ns + (uint64_t)t->skew_ns < first)
			first = t->cut_ns + (uint64_t)t->skew_ns;
	}
	for (size_t i = 0; first != UINT64_MAX && i < set->nr_traces; i++)
		if (!set->traces[i].dropped && last_at(&set->traces[i]) > first)
			return first;
	return 0;
}

int df_set_seal(struct df_check_set *set, const struct df_check_opts *opts)
{
	uint64_t until;
	int rc;

	if (set->sealed)
		return 0;
	rc = arrange(set);
	until = rc ? 0 : given_up(set);
	if (until) {
		rc = df_set_until(set, until);
		if (!rc)
			rc = arrange(set);
	}
	if (rc)
		return rc;
	rc = sort_entries(set);
	if (rc)
		return rc;
	df_set_parties(set);
	name_ranks(set);
	name_comms(set);
	find_fates(set, opts);
	rc = df_set_kin(set);
	if (rc)
		return rc;
	df_left_sort(&set->left);
	set->now_ns = opts ? opts->now_ns : 0;
	for (size_t i = 0; i < set->nr_traces; i++) {
		uint64_t last = set->traces[i].last_ns + (uint64_t)set->traces[i].skew_ns;

		if ((!opts || !opts->now_ns) && !set->traces[i].dropped && last > set->now_ns)
			set->now_ns = last;
	}
	set->sealed = 1;
	return 0;
}
