/* Compares calls between nodes (nodes.h). */
#include <stdlib.h>
#include <string.h>
#include "runtime/base/env.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/exec/nccl/compare.h"
#include "runtime/exec/nccl/hold.h"
#include "runtime/exec/nccl/nodes.h"
#include "runtime/exec/nccl/lane.h"
#include "runtime/exec/nccl/lead.h"
#include "runtime/exec/nccl/shared.h"
#include "runtime/watch/watchdog.h"

/* A collective that has not ended for this time is reported. */
#define LATE_NS (200 * DF_NS_PER_MS)

/* A rank's collective. A message carries it in the place of idents (hold.h). */
struct df_lane_report {
	uint64_t nr, match; /* `nr` counts from 1 on; `match` is as in compare.c */
	struct df_lane_call call;
};

_Static_assert(sizeof(struct df_lane_report) % sizeof(struct df_ident) == 0, "sent as idents");

/*
 * Finds the lane's oldest operation that has not ended, if it is a collective whose place in the
 * communicator is known. The place is not known inside a group, because NCCL chooses the order of a
 * group's operations. Returns 1 if found.
 */
static int oldest(struct df_lane *lane, uint64_t *serial, struct df_lane_report *r)
{
	const struct df_lane_op *e;
	int found;

	df_mutex_lock(&lane->lock);
	/*
	 * ACQUIRE pairs with the lane's write of the word: without it the operation's results might
	 * not be visible.
	 */
	for (e = lane->oldest; e && __atomic_load_n(e->word, __ATOMIC_ACQUIRE) >= e->value;)
		e = e->next;
	*serial = e ? e->serial : 0;
	found = e && e->put && !e->dropped && !e->alone && e->ident.class == DF_IDENT_COLL &&
		(!e->next || e->next->turn != e->turn);
	if (found)
		*r = (struct df_lane_report){e->ident.nr + 1, e->match, df_lane_call(&e->op)};
	df_mutex_unlock(&lane->lock);
	return found;
}

static void compare(struct df_lane *lane, int from, const struct df_lane_report *r)
{
	struct df_lane_nodes *seen = &lane->nodes;
	char a[96], b[96];
	int i, n = lane->comm->nranks;

	if (!seen->reports)
		seen->reports = calloc((size_t)n, sizeof(*seen->reports));
	if (!seen->reports)
		return;
	seen->reports[from] = *r;
	for (i = 0; i < n; i++) {
		const struct df_lane_report *o = &seen->reports[i];

		if (o->nr != r->nr || o->match == r->match)
			continue;
		df_warn("communicator %016llx, collective %llu: rank %d calls %s, rank %d calls "
			"%s: MISMATCH",
			(unsigned long long)lane->comm->hash, (unsigned long long)r->nr, from,
			df_lane_say(&r->call, a, sizeof(a)), i,
			df_lane_say(&o->call, b, sizeof(b)));
		df_watchdog_mismatch(lane->comm->hash);
		/* Forget the reports, so that the difference is reported only once. */
		memset(seen->reports, 0, (size_t)n * sizeof(*seen->reports));
		return;
	}
}

void df_lane_nodes_turn(struct df_lane *lane, uint64_t now)
{
	struct df_lane_nodes *seen = &lane->nodes;
	struct df_lane_report r;
	uint64_t serial;

	/* On one node, calls have been compared before the launch. */
	if ((lane->view && (int)lane->view->nr == lane->comm->nranks) || lane->agree ||
	    lane->comm->nranks == 1)
		return;
	if (!oldest(lane, &serial, &r) || serial != seen->serial) {
		seen->serial = serial;
		seen->since = now;
		return;
	}
	if (now - seen->since < LATE_NS || seen->reported == r.nr)
		return;
	seen->reported = r.nr;
	df_hold_report(lane, &r, sizeof(r) / sizeof(struct df_ident));
}

void df_lane_nodes_read(struct df_lane *lane, const struct df_hold_message *m)
{
	struct df_lane_report r;

	if (lane->comm->rank || m->h.nr != sizeof(r) / sizeof(struct df_ident))
		return;
	memcpy(&r, m->idents, sizeof(r));
	if (r.nr)
		compare(lane, m->h.from, &r);
}
