/*
 * Adds observations to the verdict: the first difference between the ranks' calls, lost records,
 * and other notes. A developer can act on the first difference earliest.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/err.h"
#include "trace/record/names.h"
#include "trace/judge/result.h"
#include "trace/judge/say.h"
#include "trace/judge/judge_int.h"

/*
 * Whether the other rank takes part in this operation: it belongs to the communicator, or is the
 * peer of the message.
 */
static int shared(const struct df_check_set *set, const struct df_uop *u,
		  const struct df_trc_comm *other)
{
	int32_t rank = -1;

	for (uint32_t k = 0; k < set->traces[other->trace].nr_entries; k++) {
		const struct df_trc_comm *e =
			&set->entries[set->traces[other->trace].first_entry + k];

		if (e->gcomm == u->gcomm && e->party == other->party)
			rank = e->rank;
	}
	if (rank < 0)
		return 0;
	if (u->l.kind == DF_KIND_SEND || u->l.kind == DF_KIND_RECV)
		return u->l.peer == rank;
	return 1;
}

/* Whether a and b are the same call on two ranks, or the two ends of one message. */
static int same_place(const struct df_uop *a, const struct df_uop *b)
{
	if (a->gcomm != b->gcomm || a->sig != b->sig)
		return 0;
	if (a->l.kind == DF_KIND_SEND || a->l.kind == DF_KIND_RECV)
		return (b->l.kind == DF_KIND_SEND || b->l.kind == DF_KIND_RECV) &&
		       a->l.kind != b->l.kind && a->l.index == b->l.index;
	return a->l.index == b->l.index && a->l.kind == b->l.kind;
}

/*
 * Returns the first unfinished operation of the rank `mine` at or after *at that the rank `other`
 * shares, or NULL.
 */
static const struct df_uop *next_shared(const struct df_check_set *set,
					const struct df_trc_comm *mine,
					const struct df_trc_comm *other, size_t *at)
{
	const struct df_trc *t = &set->traces[mine->trace];

	for (; *at < t->nr_uops; ++*at) {
		const struct df_uop *u = &set->ops[t->first_op + *at];

		if (set->entries[u->entry].party == mine->party && shared(set, u, other))
			return &set->ops[t->first_op + (*at)++];
	}
	return NULL;
}

/*
 * Number of operations searched for the members of a group. Operations of other threads may lie
 * between them.
 */
#define GROUP_WINDOW ((size_t)1024)

/*
 * Whether the other rank has issued the counterpart of u in the same group as `other`. Inside a
 * group the order makes no difference.
 */
static int is_in_group(const struct df_check_set *set, const struct df_uop *u,
		       const struct df_uop *other)
{
	const struct df_trc *t = &set->traces[other->trace];
	size_t at = (size_t)(other - set->ops) - t->first_op,
	       end = DF_MIN(at + GROUP_WINDOW, t->nr_uops);

	for (size_t i = at - DF_MIN(at, GROUP_WINDOW); other->l.group && i < end; i++) {
		const struct df_uop *x = &set->ops[t->first_op + i];

		if (x->l.group == other->l.group && same_place(u, x) &&
		    set->entries[x->entry].party == set->entries[other->entry].party)
			return 1;
	}
	return 0;
}

static void say_with_site(struct df_check_result *r, const struct df_uop *u, unsigned skip,
			  char *buf, size_t size)
{
	char op[96], sig[96], site[160];

	df_say_site(r->set, u->trace, u->l.site, skip, site, sizeof(site));
	snprintf(buf, size, "%s %s%s%s%s", df_say_op(r->set, u, op, sizeof(op)),
		 df_say_sig(&u->l, sig, sizeof(sig)), site[0] ? " at " : "", site, "");
}

/* Returns the unfinished operation of the rank `of` that is the same call as `like`, or NULL. */
static const struct df_lop *unfinished_like(const struct df_check_set *set,
					    const struct df_trc_comm *of, const struct df_lop *like)
{
	const struct df_trc *t = &set->traces[of->trace];

	for (size_t i = 0; i < t->nr_uops; i++) {
		const struct df_uop *u = &set->ops[t->first_op + i];

		if (&set->entries[u->entry] == of && u->l.index == like->index &&
		    u->sig == df_op_signature(like))
			return &u->l;
	}
	return NULL;
}

/*
 * Finds the last collectives that two members of one communicator issued alike before they differ.
 * Returns 0 if none is known.
 */
static int last_alike(const struct df_check_set *set, const struct df_trc_comm *a,
		      const struct df_trc_comm *b, const struct df_lop **la,
		      const struct df_lop **lb)
{
	*la = a->finished.serial ? &a->finished : NULL;
	*lb = b->finished.serial ? &b->finished : NULL;
	if (*la && (!*lb || (*la)->index > (*lb)->index))
		*lb = unfinished_like(set, b, *la);
	else if (*lb && (!*la || (*lb)->index > (*la)->index))
		*la = unfinished_like(set, a, *lb);
	return *la && *lb && df_op_signature(*la) == df_op_signature(*lb);
}

#define ALIKE_FRAMES 3

/*
 * Names the last call that both ranks issued alike, on any communicator that both are members of.
 * ua and ub are the last such unfinished operation on each rank, or NULL.
 */
static void say_alike(struct df_check_result *r, const struct df_trc_comm *a,
		      const struct df_trc_comm *b, const struct df_uop *ua, const struct df_uop *ub)
{
	const struct df_check_set *set = r->set;
	const struct df_trc *t = &set->traces[a->trace];
	const struct df_lop *la, *lb, *best[2] = {ua ? &ua->l : NULL, ub ? &ub->l : NULL};
	struct df_uop u = ua ? *ua : (struct df_uop){.trace = a->trace};
	char op[96], sig[96], at[2][400];

	for (uint32_t i = t->first_entry; i < t->first_entry + t->nr_entries; i++) {
		const struct df_trc_comm *mine = &set->entries[i], *its = NULL;

		for (uint32_t k = 0; k < set->traces[b->trace].nr_entries && !its; k++) {
			its = &set->entries[set->traces[b->trace].first_entry + k];
			if (its->gcomm != mine->gcomm || its->party != b->party)
				its = NULL;
		}
		if (!its || mine->gcomm == DF_NONE || mine->party != a->party ||
		    !last_alike(set, mine, its, &la, &lb) || (best[0] && best[0]->rec > la->rec))
			continue;
		best[0] = la;
		best[1] = lb;
		u.l = *la;
		u.gcomm = mine->gcomm;
		u.entry = i;
	}
	if (!best[0])
		return;
	r->alike_site[0] = best[0]->site;
	r->alike_site[1] = best[1]->site;
	df_say_stack(r->set, a->trace, best[0]->site, ALIKE_FRAMES, at[0], sizeof(at[0]));
	df_say_stack(r->set, b->trace, best[1]->site, ALIKE_FRAMES, at[1], sizeof(at[1]));
	df_say_op(set, &u, op, sizeof(op));
	df_say_sig(&u.l, sig, sizeof(sig));
	if (!at[0][0] || !at[1][0] || !strcmp(at[0], at[1]))
		r->alike = df_text("%s %s%s%s", op, sig, at[0][0] ? " at " : "", at[0]);
	else
		r->alike = df_text("%s %s at %s on r%d, at %s on r%d", op, sig, at[0], a->world,
				   at[1], b->world);
}

/* Describes the first difference between the two ranks. Returns 0 if there is none. */
static int between(struct df_check_result *r, const struct df_trc_comm *a,
		   const struct df_trc_comm *b)
{
	const struct df_check_set *set = r->set;
	const struct df_uop *alike[2] = {NULL, NULL};
	size_t ia = 0, ib = 0, pos = 1;
	char ta[400], tb[400];

	for (;; pos++) {
		struct df_say_lines lines = {0};
		const struct df_uop *ua = next_shared(set, a, b, &ia),
				    *ub = next_shared(set, b, a, &ib);

		if (!ua && !ub)
			return 0;
		if (ua && ub && same_place(ua, ub)) {
			alike[0] = ua;
			alike[1] = ub;
			continue;
		}
		if (ua && ub && is_in_group(set, ua, ub) && is_in_group(set, ub, ua))
			continue;
		if (ua)
			df_say_compare(&lines, r->set, ua->trace, ua->l.site);
		if (ub)
			df_say_compare(&lines, r->set, ub->trace, ub->l.site);
		if (ua)
			say_with_site(r, ua, lines.shared, ta, sizeof(ta));
		if (ub)
			say_with_site(r, ub, lines.shared, tb, sizeof(tb));
		r->divergence = df_text(
			"r%d issued %s, r%d issued %s (unfinished operation %zu that both share)",
			a->world, ua ? ta : "nothing more", b->world, ub ? tb : "nothing more",
			pos);
		if (ua) {
			r->div_trace[0] = ua->trace;
			r->div_rec[0] = ua->l.rec;
			r->div_site[0] = ua->l.site;
			r->div_rank[0] = a->world;
		}
		if (ub) {
			r->div_trace[1] = ub->trace;
			r->div_rec[1] = ub->l.rec;
			r->div_site[1] = ub->l.site;
			r->div_rank[1] = b->world;
		}
		r->part_entry[0] = (uint32_t)(a - set->entries);
		r->part_entry[1] = (uint32_t)(b - set->entries);
		say_alike(r, a, b, alike[0], alike[1]);
		return 1;
	}
}

#define RANKS_COMPARED 16

/*
 * Describes the first difference among the ranks of the cycle, if there is one. Returns 0 if fewer
 * than two ranks could be compared.
 */
static int among_involved(struct df_check_result *r)
{
	const struct df_check_set *set = r->set;
	const struct df_trc_comm *ranks[RANKS_COMPARED];
	size_t nr = 0, k;

	for (size_t i = 0; i < r->nr_involved && nr < RANKS_COMPARED; i++) {
		const struct df_trc_comm *e = &set->entries[set->ops[r->involved[i]].entry];

		for (k = 0;
		     k < nr && (e->trace != ranks[k]->trace || e->device != ranks[k]->device); k++)
			;
		if (k == nr)
			ranks[nr++] = e;
	}
	for (size_t i = 0; i < nr; i++)
		for (k = i + 1; k < nr; k++)
			if (between(r, ranks[i], ranks[k]))
				return 1;
	return nr > 1;
}

static void other_roots(struct df_check_result *r)
{
	if (r->nr_roots > 1)
		df_note(r, "%zu independent causes were found; this is the most serious one",
			r->nr_roots);
}

#define DROPS_TOLD 3

/*
 * Writes " (A 120, B 3)": the communicators whose records the rings have overwritten, in descending
 * order of the number of records.
 */
static void drops_by_comm(const struct df_check_set *set, char *buf, size_t size)
{
	uint64_t below = UINT64_MAX;
	uint32_t last = 0;
	size_t at = 0;

	buf[0] = 0;
	for (int told = 0; told < DROPS_TOLD; told++) {
		uint64_t most = 0;
		uint32_t which = 0;

		for (uint32_t i = 0; i < set->nr_gcomms; i++) {
			const struct df_gcomm *g = &set->gcomms[i];
			uint64_t sum = 0;

			for (uint32_t k = 0; k < g->nr_entries; k++)
				sum += set->entries[set->sorted[g->first_entry + k]].drops;
			/* Communicators with equal counts follow in the order of their index. */
			if (sum > most && (sum < below || (sum == below && i > last))) {
				most = sum;
				which = i;
			}
		}
		if (!most || at >= size)
			break;
		at += (size_t)snprintf(buf + at, size - at, "%s%s %" PRIu64, at ? ", " : " (",
				       set->gcomms[which].label, most);
		below = most;
		last = which;
	}
	if (at && at < size)
		snprintf(buf + at, size - at, ")");
}

static void coverage(struct df_check_result *r)
{
	char whose[256];
	const struct df_check_set *set = r->set;
	const struct df_gcomm *lacking = NULL;
	uint64_t drops = 0;
	size_t missing = 0, cut = 0, is_short = 0;
	uint64_t lost = 0;

	for (size_t i = 0; i < set->nr_gcomms; i++) {
		const struct df_gcomm *g = &set->gcomms[i];

		if (g->nr_entries && (size_t)g->nranks > g->nr_entries + missing) {
			missing = (size_t)g->nranks - g->nr_entries;
			lacking = g;
		}
	}
	for (size_t i = 0; i < set->nr_traces; i++) {
		cut += set->traces[i].cut;
		is_short += set->traces[i].is_short;
		lost += set->traces[i].nr_lost;
		if (set->traces[i].h.next > set->traces[i].h.nr_recs)
			drops += set->traces[i].h.next - set->traces[i].h.nr_recs;
	}
	if (missing)
		df_note(r, "no trace was found for %zu rank%s of communicator %s", missing,
			DF_PLURAL(missing), lacking->label);
	if (drops) {
		drops_by_comm(set, whose, sizeof(whose));
		df_note(r,
			"%" PRIu64
			" older records were overwritten%s; a larger DFSHIM_TRACE_MB keeps more",
			drops, whose);
	}
	if (lost)
		df_note(r,
			"the records of %" PRIu64
			" unfinished operations were overwritten: only their number is known",
			lost);
	if (is_short)
		df_note(r, "%zu trace file%s cut off before the last record that was written",
			is_short, is_short == 1 ? " is" : "s are");
	if (cut)
		df_note(r, "the verdict is for the moment when the job gave up (%zu traces)", cut);
	if (set->nr_torn)
		df_note(r, "%" PRIu64 " records were incomplete and were skipped", set->nr_torn);
}

/*
 * number of next ranks that each rank is compared with; ranks of one machine have similar
 * numbers
 */
#define NEIGHBOURS 64

/*
 * Finds two ranks of a communicator that use a device with the same number on one machine. Returns
 * 0 if there are none.
 */
static int share_device(const struct df_check_set *set, const struct df_gcomm *g,
			const struct df_trc_comm *pair[2])
{
	for (uint32_t i = 0; i < g->nr_entries; i++)
		for (uint32_t k = i + 1; k < g->nr_entries && k <= i + NEIGHBOURS; k++) {
			const struct df_trc_comm *a =
				&set->entries[set->sorted[g->first_entry + i]];
			const struct df_trc_comm *b =
				&set->entries[set->sorted[g->first_entry + k]];

			if (a->device < 0 || a->device != b->device ||
			    set->traces[a->trace].h.host_hash != set->traces[b->trace].h.host_hash)
				continue;
			pair[0] = a;
			pair[1] = b;
			return 1;
		}
	return 0;
}

/*
 * Notes that an operation which all ranks reached but which makes no progress may wait for space on
 * a device. In mode trace it is not visible which of NCCL's kernels are resident, so the verdict
 * does not change.
 */
static void unseen_room(struct df_check_result *r)
{
	const struct df_check_set *set = r->set;
	const struct df_trc_comm *pair[2];
	const struct df_match *in;
	size_t others = 0;

	if (r->verdict != DF_V_NET_STALL || r->link || r->proxy || r->root == DF_NONE ||
	    r->g.nodes[r->root].kind != DF_N_MATCH)
		return;
	in = &r->g.insts[r->g.nodes[r->root].ref];
	if (!(set->ops[in->first].l.flags & DF_OP_BY_NCCL) &&
	    !df_header_lanes(&set->traces[set->ops[in->first].trace].h))
		return;
	for (size_t i = 0; i < r->g.nr_insts; i++)
		others += r->g.stuck[r->g.insts[i].node] && !r->g.insts[i].nr_missing &&
			  r->g.insts[i].gcomm != in->gcomm;
	if (share_device(set, &set->gcomms[in->gcomm], pair))
		df_note(r,
			"r%d and r%d both use device %d of %.64s%s. NCCL's kernels of both must "
			"fit on it at the same time; the trace does not show whether they do, so "
			"this may be RESOURCE",
			pair[0]->world, pair[1]->world, pair[0]->device,
			set->traces[pair[0]->trace].h.host,
			pair[0]->trace == pair[1]->trace
				? ""
				: ", if their processes see the same devices");
	else if (others)
		df_note(r,
			"%zu operations of other communicators have also reached all their ranks, "
			"in the same order, and do not finish. The trace does not show which of "
			"NCCL's kernels got room on the device; they may starve one another, so "
			"this may be RESOURCE",
			others);
}

#define MAX_FAULTS 8 /* maximum number of faults that are noted */

/* Notes each fault that the machines have recorded, once. */
static void faults(struct df_check_result *r)
{
	uint64_t seen[MAX_FAULTS][2];
	size_t nr = 0, i;

	if (r->verdict != DF_V_NET_STALL && r->verdict != DF_V_GPU_STUCK)
		return;
	for (uint32_t t = 0; t < r->set->nr_traces; t++) {
		const struct df_trc *trc = &r->set->traces[t];

		for (size_t k = 0; k < trc->nr_notes && nr < MAX_FAULTS; k++) {
			const struct df_rec *rec = &trc->notes[k].rec;
			char text[256];

			if (rec->type != DF_REC_HARDWARE || trc->dropped)
				continue;
			for (i = 0; i < nr; i++)
				if (seen[i][0] == trc->h.host_hash && seen[i][1] == rec->c)
					break;
			if (i < nr || !df_say_string(r->set, t, rec->c, text, sizeof(text)))
				continue;
			seen[nr][0] = trc->h.host_hash;
			seen[nr++][1] = rec->c;
			df_note(r, "%.64s, %.1f s ago: %s", trc->h.host,
				df_say_ago(r->set, t, rec->time_ns), text);
		}
	}
}

/*
 * Returns the operation that b's rank issues next if it has the signature of a's call, else
 * NULL.
 */
static const struct df_uop *next_is(const struct df_check_set *set, const struct df_side *b,
				    const struct df_side *a)
{
	const struct df_trc *t = &set->traces[b->trace];

	for (size_t j = 0; j < t->nr_uops; j++) {
		const struct df_uop *c = &set->ops[t->first_op + j];

		if (c->entry == b->entry && c->l.index == b->op.index + 1 && c->sig == a->sig &&
		    !df_kind_is_p2p(c->l.kind))
			return c;
	}
	return NULL;
}

/* Notes that two adjacent calls on one communicator seem to be swapped between ranks. */
static void swapped(struct df_check_result *r)
{
	const struct df_check_set *set = r->set;
	const struct df_uop *c = NULL;

	if (r->verdict != DF_V_MISMATCH || r->root == DF_NONE || df_mismatch_sides(r))
		return;
	for (size_t i = 0; i < r->nr_sides && !c; i++)
		for (size_t k = 0; k < r->nr_sides && !c; k++)
			if (r->sides[i].sig != r->sides[k].sig && r->sides[k].trace != DF_NONE &&
			    r->sides[i].op.index == r->sides[k].op.index)
				c = next_is(set, &r->sides[k], &r->sides[i]);
	if (c)
		df_note(r,
			"it looks swapped with %s#%" PRIu64
			": each rank issued here what the other issued there, so the ranks "
			"issued the operations of one communicator in different orders",
			set->gcomms[c->gcomm].label, c->l.index + 1);
}

void df_explain_ignored(struct df_check_result *r)
{
	size_t old = r->set->nr_dropped;

	if (old)
		df_note(r, "%zu trace%s of an earlier run %s ignored", old, DF_PLURAL(old),
			old == 1 ? "was" : "were");
}

void df_explain_divergence(struct df_check_result *r)
{
	const struct df_check_set *set = r->set;
	const struct df_trc_comm *a = NULL, *b = NULL;
	int found = among_involved(r);

	if (!found && r->root != DF_NONE && r->g.nodes[r->root].kind == DF_N_MATCH) {
		const struct df_match *in = &r->g.insts[r->g.nodes[r->root].ref];
		const struct df_uop *first = &set->ops[in->first];

		a = &set->entries[first->entry];
		for (uint32_t i = in->first; i != DF_NONE; i = set->ops[i].next)
			if (set->ops[i].sig != first->sig)
				b = &set->entries[set->ops[i].entry];
	}
	if (!found && !b && r->root != DF_NONE && r->g.nodes[r->root].kind == DF_N_NEXT &&
	    r->g.nodes[r->root].ref != DF_NONE) {
		b = &set->entries[r->g.nodes[r->root].ref];
		for (size_t i = 0; i < r->g.nr_edges; i++) {
			const struct df_edge *e = &r->g.edges[i];

			if (e->to == r->root && r->g.nodes[e->from].kind == DF_N_MATCH)
				a = &set->entries
					     [set->ops[r->g.insts[r->g.nodes[e->from].ref].first]
						      .entry];
		}
	}
	if (a && b)
		between(r, a, b);
	swapped(r);
	other_roots(r);
	unseen_room(r);
	faults(r);
	df_explain_launches(r);
	coverage(r);
}
