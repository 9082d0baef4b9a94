/*
 * The sentence for each verdict word, what would help, and how to fix the program.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "trace/names.h"
#include "trace/result.h"
#include "trace/vec.h"

#define BIT(k) (1u << (k))

/* A text that grows in place and never overflows. */
struct buf {
	char s[1024];
	size_t n;
};

static void put(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(b->s + b->n, sizeof(b->s) - b->n, fmt, ap);
	va_end(ap);
	if (n > 0)
		b->n = b->n + (size_t)n < sizeof(b->s) ? b->n + (size_t)n : sizeof(b->s) - 1;
}

static const char *host_of(struct df_check_result *r, const struct df_node *n, char *buf,
			   size_t size);

/* "r0 -> r5 -> r0" over the ranks of the cycle. */
static void put_path(struct df_check_result *r, struct buf *b)
{
	char last[48] = "", first[48] = "", name[48];

	for (size_t i = 0; i < r->nr_steps; i++) {
		const struct df_node *n = &r->g.nodes[r->steps[i].from];

		if (n->kind == DF_N_DONE || n->kind == DF_N_START)
			df_say_rank(r->set, &r->set->ops[n->ref], name, sizeof(name));
		else if (n->kind == DF_N_THREAD)
			host_of(r, n, name, sizeof(name));
		else if (n->kind == DF_N_WORK || n->kind == DF_N_SLOT)
			snprintf(name, sizeof(name), "%s", r->set->traces[n->trace].label);
		else
			continue;
		if (!strcmp(name, last))
			continue;
		if (!first[0])
			snprintf(first, sizeof(first), "%s", name);
		put(b, "%s%s", last[0] ? " -> " : "", name);
		snprintf(last, sizeof(last), "%s", name);
	}
	if (strcmp(last, first))
		put(b, " -> %s", first);
}

/* Distinct operations of the cycle: "A#1, C7#2". */
static size_t put_ops(struct df_check_result *r, struct buf *b)
{
	char name[96], seen[16][96];
	size_t nr = 0;

	for (size_t i = 0; i < r->nr_involved && nr < 16; i++) {
		const struct df_uop *u = &r->set->ops[r->involved[i]];
		int dup = 0;

		if (u->l.kind == DF_KIND_RECV || u->l.kind == DF_KIND_SEND)
			snprintf(name, sizeof(name), "%s %d->%d", r->set->gcomms[u->gcomm].label,
				 u->l.kind == DF_KIND_SEND ? u->l.rank : u->l.peer,
				 u->l.kind == DF_KIND_SEND ? u->l.peer : u->l.rank);
		else
			df_say_op(r->set, u, name, sizeof(name));
		for (size_t k = 0; k < nr; k++)
			dup |= !strcmp(seen[k], name);
		if (dup)
			continue;
		put(b, "%s%s", nr ? ", " : "", name);
		snprintf(seen[nr++], sizeof(seen[0]), "%s", name);
	}
	return nr;
}

static int only_p2p(struct df_check_result *r)
{
	for (size_t i = 0; i < r->nr_involved; i++)
		if (r->set->ops[r->involved[i]].l.kind != DF_KIND_SEND &&
		    r->set->ops[r->involved[i]].l.kind != DF_KIND_RECV)
			return 0;
	return r->nr_involved > 0;
}

static int any_p2p(struct df_check_result *r)
{
	for (size_t i = 0; i < r->nr_involved; i++)
		if (r->set->ops[r->involved[i]].l.kind == DF_KIND_SEND ||
		    r->set->ops[r->involved[i]].l.kind == DF_KIND_RECV)
			return 1;
	return 0;
}

/* The first thread of the cycle, or NULL. */
static const struct df_node *cycle_thread(struct df_check_result *r, size_t which)
{
	for (size_t i = 0; i < r->nr_steps; i++)
		if (r->g.nodes[r->steps[i].from].kind == DF_N_THREAD && !which--)
			return &r->g.nodes[r->steps[i].from];
	return NULL;
}

static const char *host_of(struct df_check_result *r, const struct df_node *n, char *buf,
			   size_t size)
{
	return df_say_host(&r->g, (uint32_t)(n - r->g.nodes), buf, size);
}

static void order_line(struct df_check_result *r, struct buf *b)
{
	const struct df_node *t = cycle_thread(r, 0), *t2 = cycle_thread(r, 1);

	if (t && !strcmp(r->qualifier, "connect")) {
		char h1[48], h2[48];

		put(b,
		    "%s and %s use different communicators first, and each waits inside that first call for the "
		    "other to connect",
		    host_of(r, t, h1, sizeof(h1)),
		    t2 ? host_of(r, t2, h2, sizeof(h2)) : "another rank");
		return;
	}
	if (t && (!strcmp(r->qualifier, "init") || !strcmp(r->qualifier, "destroy") ||
		  !strcmp(r->qualifier, "connect"))) {
		const struct df_lcall *c = &r->set->traces[t->trace].calls[t->ref];
		char h1[48], h2[48];

		put(b, "%s and %s are in different calls of %s, each waiting for the other",
		    host_of(r, t, h1, sizeof(h1)),
		    t2 ? host_of(r, t2, h2, sizeof(h2)) : "another rank", df_call_text(c->call));
		return;
	}
	if (only_p2p(r))
		put(b, "point-to-point cycle ");
	else if (r->stuck_insts > 2)
		put(b,
		    "%zu operations on %zu communicators have no common order on %zu ranks; shortest cycle ",
		    r->stuck_insts, r->stuck_comms, r->stuck_ranks);
	else
		put(b, "two orders of the same operations: cycle ");
	put_path(r, b);
	put(b, " over ");
	put_ops(r, b);
	if (!strcmp(r->qualifier, "hazard"))
		put(b,
		    " (their buffers overlap on every rank: the program's order contradicts itself)");
	if (!strcmp(r->qualifier, "data"))
		put(b, " (other work lies between them on every rank: they can't be reordered)");
}

static void sync_line(struct df_check_result *r, struct buf *b)
{
	char h[48];
	const struct df_node *t = cycle_thread(r, 0);

	for (size_t i = 0; t && i < r->nr_steps; i++) {
		/* Of several threads the one whose call is to blame. */
		if (r->steps[i].cut && r->g.nodes[r->steps[i].from].kind == DF_N_THREAD) {
			t = &r->g.nodes[r->steps[i].from];
			break;
		}
	}
	if (!t || !strcmp(r->qualifier, "legacy stream")) {
		put(b,
		    "the legacy default stream orders operations that have no common order: cycle ");
		put_path(r, b);
		put(b, " over ");
		put_ops(r, b);
		return;
	}
	put(b, "%s is in %s, which %s ", host_of(r, t, h, sizeof(h)),
	    df_call_text(r->set->traces[t->trace].calls[t->ref].call),
	    !strcmp(r->qualifier, "implicit") ? "waits, without promising it, for" : "waits for");
	put_ops(r, b);
	put(b, "; cycle ");
	put_path(r, b);
}

static void data_line(struct df_check_result *r, struct buf *b)
{
	char h[48];
	const struct df_node *t = cycle_thread(r, 0);

	if (t) {
		put(b,
		    "%s waits in %s for a result that needs another rank, which in turn waits for %s: cycle ",
		    host_of(r, t, h, sizeof(h)),
		    df_call_text(r->set->traces[t->trace].calls[t->ref].call),
		    host_of(r, t, h, sizeof(h)));
	} else {
		put(b, "the operations need each other's results: cycle ");
	}
	put_path(r, b);
	put(b, " over ");
	put_ops(r, b);
}

static void resource_line(struct df_check_result *r, struct buf *b)
{
	if (!strcmp(r->qualifier, "queue")) {
		put(b,
		    "streams that share one hardware queue order operations that are independent: cycle ");
		put_path(r, b);
		put(b, " over ");
		put_ops(r, b);
		return;
	}
	put(b, "all slots are held by operations that wait for operations without a slot: cycle ");
	put_path(r, b);
	put(b, " over ");
	put_ops(r, b);
}

/* ---- verdicts with a single culprit -------------------------------------------------------------- */

/* How many ranks' operations wait for the root: directly, and in all. */
static void count_waiters(struct df_check_result *r, size_t *direct, size_t *all)
{
	const struct df_node *root = &r->g.nodes[r->root];

	*direct = 0;
	for (size_t i = 0; i < r->g.nr_edges; i++) {
		const struct df_edge *e = &r->g.edges[i];
		const struct df_node *to = &r->g.nodes[e->to];

		/* Each communicator has a node of its own for the same process. */
		if (r->g.nodes[e->from].kind == DF_N_MATCH && to->kind == root->kind &&
		    to->mark == root->mark && to->trace == root->trace &&
		    (to->trace != DF_NONE || e->to == r->root))
			*direct += r->g.insts[r->g.nodes[e->from].ref].nr_here;
	}
	*all = r->stuck_ranks;
}

/* An operation that waits for the root. */
static const struct df_uop *a_waiter(struct df_check_result *r)
{
	for (size_t i = 0; i < r->g.nr_edges; i++) {
		const struct df_edge *e = &r->g.edges[i];

		if (e->to == r->root && r->g.nodes[e->from].kind == DF_N_MATCH)
			return &r->set->ops[r->g.insts[r->g.nodes[e->from].ref].first];
	}
	return NULL;
}

static void last_record(struct df_check_result *r, const struct df_entry *e, struct buf *b)
{
	const struct df_trc *t = &r->set->traces[e->trace];

	put(b, "%.1f s ago", df_say_ago(r->set, e->trace, t->last_ns));
}

static void missing_line(struct df_check_result *r, struct buf *b)
{
	const struct df_node *n = &r->g.nodes[r->root];
	const struct df_uop *u = a_waiter(r);
	struct df_entry *e = n->gcomm != DF_NONE ? df_set_entry(r->set, n->gcomm, n->rank) : NULL;
	char op[96] = "an operation", who[48];

	if (u)
		df_say_op(r->set, u, op, sizeof(op));
	df_say_member(r->set, n->gcomm, n->rank, who, sizeof(who));
	put(b, "%s waits for %s, ", op, who);
	if (!strcmp(r->qualifier, "exited") && e) {
		put(b, "whose process ended in order ");
		last_record(r, e, b);
	} else if (!strcmp(r->qualifier, "destroyed") && e) {
		put(b, "which has left communicator %s", r->set->gcomms[n->gcomm].label);
	} else if (e && e->failed_rec != DF_NO_REC) {
		put(b, "whose call on %s returned an error and was not repeated",
		    r->set->gcomms[n->gcomm].label);
		snprintf(r->qualifier, sizeof(r->qualifier), "failed");
	} else if (e) {
		uint64_t last = 0;

		for (size_t i = 0; i < r->set->traces[e->trace].nr_threads; i++)
			if (r->set->traces[e->trace].threads[i].last_ns > last)
				last = r->set->traces[e->trace].threads[i].last_ns;
		put(b, "which has not issued it: its host has made no NCCL or CUDA call for %.1f s",
		    df_say_ago(r->set, e->trace, r->set->traces[e->trace].last_progress_ns));
	}
	if (e && e->next_coll && strcmp(r->qualifier, "destroyed"))
		put(b, " (its last on %s is #%" PRIu64 ")", r->set->gcomms[n->gcomm].label,
		    e->next_coll);
}

static void crash_waited(struct df_check_result *r, struct buf *b)
{
	const struct df_node *n = &r->g.nodes[r->root];
	struct df_entry *e = n->gcomm != DF_NONE ? df_set_entry(r->set, n->gcomm, n->rank) : NULL;
	const struct df_member *m =
		n->gcomm != DF_NONE ? df_set_member(r->set, r->set->gcomms[n->gcomm].hash, n->rank)
				    : NULL;
	size_t direct, all;
	char who[48];

	count_waiters(r, &direct, &all);
	put(b, "%s is gone", df_say_member(r->set, n->gcomm, n->rank, who, sizeof(who)));
	if (e) {
		put(b, " (pid %u on %.64s, last record ", r->set->traces[e->trace].h.pid,
		    r->set->traces[e->trace].h.host);
		last_record(r, e, b);
		put(b, ")");
	} else if (m) {
		put(b, " (pid %u)", m->pid);
	}
	put(b, "; %zu operations wait for it directly, %zu ranks in all", direct, all);
}

static void crash_line(struct df_check_result *r, struct buf *b)
{
	if (!strcmp(r->qualifier, "ended")) {
		const struct df_dead *d = r->set->dead;
		char who[48] = "a process";

		while (d->in_order)
			d++;
		for (uint32_t g = 0; g < r->set->nr_gcomms; g++)
			if (r->set->gcomms[g].hash == d->comm_hash)
				df_say_member(r->set, g, d->rank, who, sizeof(who));
		put(b, "%s is gone (pid %u); its communicators were ended", who, d->pid);
		return;
	}
	crash_waited(r, b);
}

static void init_line(struct df_check_result *r, struct buf *b)
{
	for (size_t i = 0; i < r->g.nr_bars; i++) {
		const struct df_bar *bar = &r->g.bars[i];

		if (bar->call != DF_CALL_COMM_INIT || !r->g.stuck[bar->node])
			continue;
		put(b,
		    "communicator with unique id %016" PRIx64
		    ": %u of %u ranks are in ncclCommInitRank, %u missing",
		    bar->object, bar->nr_here, bar->expect, bar->expect - bar->nr_here);
		return;
	}
	put(b, "communicator set-up is not complete");
}

static void gpu_line(struct df_check_result *r, struct buf *b)
{
	const struct df_node *n = &r->g.nodes[r->root];
	const struct df_uop *u = &r->set->ops[n->ref];
	const struct df_trc *t = &r->set->traces[u->trace];
	const struct df_litem *work = t->before.type == DF_ITEM_WORK ? &t->before : NULL;
	char op[96], rank[48];

	for (size_t i = 0; i < t->nr_items; i++)
		if (t->items[i].type == DF_ITEM_WORK && t->items[i].rec < u->l.rec &&
		    (!work || t->items[i].stream == u->l.stream))
			work = &t->items[i];
	put(b,
	    "%s never started on %s although nothing of the program is in its way (issued %.1f s ago)",
	    df_say_op(r->set, u, op, sizeof(op)), df_say_rank(r->set, u, rank, sizeof(rank)),
	    df_say_ago(r->set, u->trace, u->l.issue_ns));
	if (work)
		put(b, "; a %s on stream %" PRIu64 " was put there before and may never end",
		    df_work_name((uint32_t)work->b), work->stream);
	else
		put(b, "; something that is not recorded occupies device %d", u->l.device);
}

static void stall_line(struct df_check_result *r, struct buf *b)
{
	const struct df_inst *in = &r->g.insts[r->g.nodes[r->root].ref];
	const struct df_uop *u = &r->set->ops[in->first];
	char op[96];

	put(b, "%s runs on all of its %u ranks, yet nothing has moved for %.1f s",
	    df_say_op(r->set, u, op, sizeof(op)), in->nr_here + in->nr_done,
	    (double)r->quiet_ns / 1e9);
}

static void host_line(struct df_check_result *r, struct buf *b)
{
	const struct df_node *n;
	char thread[64], h[48];

	if (r->is_cycle) {
		const struct df_node *t = cycle_thread(r, 0), *t2 = cycle_thread(r, 1);

		if (t)
			put(b, "%s is in %s", host_of(r, t, h, sizeof(h)),
			    df_call_text(r->set->traces[t->trace].calls[t->ref].call));
		if (t2)
			put(b, ", %s is in %s, each waiting for the other",
			    host_of(r, t2, h, sizeof(h)),
			    df_call_text(r->set->traces[t2->trace].calls[t2->ref].call));
		put(b, ": cycle ");
		put_path(r, b);
		return;
	}
	n = &r->g.nodes[r->root];
	if (n->kind == DF_N_THREAD) {
		const struct df_lcall *c = &r->set->traces[n->trace].calls[n->ref];

		put(b,
		    "%s of %s has been in %s for %.1f s, waiting for something that is not recorded",
		    df_say_thread(r->set, n->trace, n->thread, thread, sizeof(thread)),
		    r->set->traces[n->trace].label, df_call_text(c->call),
		    df_say_ago(r->set, n->trace, c->enter_ns));
	} else {
		put(b, "hosts wait in a barrier to which not all come");
	}
}

static void unknown_line(struct df_check_result *r, struct buf *b)
{
	const struct df_node *n = r->root == DF_NONE ? NULL : &r->g.nodes[r->root];
	char who[48], op[96];
	const struct df_uop *u = n ? a_waiter(r) : NULL;

	if (n && n->kind == DF_N_NEXT && u)
		put(b, "%s waits for %s, of which there is no trace",
		    df_say_op(r->set, u, op, sizeof(op)),
		    df_say_member(r->set, n->gcomm, n->rank, who, sizeof(who)));
	else
		put(b, "operations wait, and the records do not show for what");
}

/* ---- mismatches -------------------------------------------------------------------------------------- */

static const char *difference(const struct df_lop *a, const struct df_lop *b)
{
	if (a->kind != b->kind && !((a->kind == DF_KIND_SEND && b->kind == DF_KIND_RECV) ||
				    (a->kind == DF_KIND_RECV && b->kind == DF_KIND_SEND)))
		return "operation";
	if (a->count != b->count)
		return a->kind == DF_KIND_SEND || a->kind == DF_KIND_RECV ? "size" : "count";
	if (a->type != b->type)
		return "data type";
	if (a->peer != b->peer && a->kind == b->kind)
		return "root";
	return "reduction";
}

/* Groups equal signatures, names the minority. */
static void put_sides(struct df_check_result *r, struct buf *b, const struct df_lop *ops,
		      const int *ranks, size_t nr)
{
	char sig[96], first[96], where[256] = "";
	size_t best = 0, best_nr = 0, other = nr, n = 0;
	(void)r;

	for (size_t i = 0; i < nr; i++) {
		size_t same = 0;

		for (size_t k = 0; k < nr; k++)
			same += df_op_signature(&ops[k]) == df_op_signature(&ops[i]);
		if (same > best_nr) {
			best_nr = same;
			best = i;
		}
	}
	for (size_t i = 0; i < nr && other == nr; i++)
		if (df_op_signature(&ops[i]) != df_op_signature(&ops[best]))
			other = i;
	if (other == nr)
		return;
	for (size_t i = 0; i < nr && n + 16 < sizeof(where); i++)
		if (df_op_signature(&ops[i]) == df_op_signature(&ops[other]))
			n += (size_t)snprintf(where + n, sizeof(where) - n, "%sr%d", n ? ", " : "",
					      ranks[i]);
	df_say_sig(&ops[best], first, sizeof(first));
	df_say_sig(&ops[other], sig, sizeof(sig));
	put(b, " %s: %s on %s", difference(&ops[best], &ops[other]), sig, where);
	if (best_nr == 1 && nr == 2)
		put(b, ", %s on r%d", first, ranks[best]);
	else
		put(b, ", %s on the %zu others%s", first, best_nr,
		    best_nr > nr - best_nr ? " (majority)" : "");
}

#define MAX_SIDES 4096

static void mismatch_line(struct df_check_result *r, struct buf *b)
{
	struct df_lop *ops = malloc(MAX_SIDES * sizeof(*ops));
	int *ranks = malloc(MAX_SIDES * sizeof(*ranks));
	struct df_check_set *set = r->set;
	size_t nr = 0;

	if (!ops || !ranks)
		goto out;
	if (!strcmp(r->qualifier, "completed")) {
		const struct df_mismatch *m = &set->mismatches[0];
		const struct df_gcomm *g = &set->gcomms[m->gcomm];

		for (size_t i = 0; i < set->nr_mismatches; i++)
			if (set->mismatches[i].index < m->index &&
			    set->mismatches[i].gcomm == m->gcomm)
				m = &set->mismatches[i];
		if (!df_set_op(set, m->first_trace, m->first_rec, &ops[nr])) {
			ranks[nr] = ops[nr].comm && ops[nr].comm <=
							    set->traces[m->first_trace].nr_entries
					    ? set->entries[set->traces[m->first_trace].first_entry +
							   ops[nr].comm - 1]
						      .world
					    : 0;
			nr++;
		}
		for (size_t i = 0; i < set->nr_mismatches && nr < MAX_SIDES; i++) {
			const struct df_mismatch *x = &set->mismatches[i];

			if (x->gcomm != m->gcomm || x->index != m->index ||
			    df_set_op(set, x->trace, x->rec, &ops[nr]))
				continue;
			ranks[nr] = ops[nr].comm && ops[nr].comm <= set->traces[x->trace].nr_entries
					    ? set->entries[set->traces[x->trace].first_entry +
							   ops[nr].comm - 1]
						      .world
					    : 0;
			nr++;
		}
		put(b, "%s#%" PRIu64, g->label, m->index + 1);
		put_sides(r, b, ops, ranks, nr);
		put(b, "; it completed, so data may be wrong without an error");
		goto out;
	}
	for (uint32_t i = r->g.insts[r->g.nodes[r->root].ref].first; i != DF_NONE && nr < MAX_SIDES;
	     i = set->ops[i].next) {
		ops[nr] = set->ops[i].l;
		ranks[nr++] = set->entries[set->ops[i].entry].world;
	}
	if (nr) {
		char op[96];
		const struct df_inst *in = &r->g.insts[r->g.nodes[r->root].ref];
		const struct df_uop *u = &set->ops[in->first];

		if (in->p2p)
			put(b, "%s %d->%d #%" PRIu64, set->gcomms[u->gcomm].label, in->src, in->dst,
			    in->index + 1);
		else
			put(b, "%s", df_say_op(set, u, op, sizeof(op)));
		put_sides(r, b, ops, ranks, nr);
	}
out:
	free(ops);
	free(ranks);
}

/* ---- remedy and fix ------------------------------------------------------------------------------------ */

static const char *fix_text(struct df_check_result *r)
{
	switch (r->verdict) {
	case DF_V_ORDER:
		if (!strcmp(r->qualifier, "init") || !strcmp(r->qualifier, "destroy") ||
		    !strcmp(r->qualifier, "connect"))
			return "make these calls in the same order on all ranks, or put them in one ncclGroupStart/End";
		if (only_p2p(r))
			return "put each send and its receive into one ncclGroupStart/End, or let even ranks send first";
		if (any_p2p(r))
			return "issue the messages and collectives in the same order on all ranks, or group them";
		return "issue these operations in the same order on all ranks";
	case DF_V_RESOURCE:
		return !strcmp(r->qualifier, "queue")
			       ? "raise CUDA_DEVICE_MAX_CONNECTIONS, or issue the operations in the same order on all ranks"
			       : "issue the operations in the same order on all ranks, or have fewer in flight at once";
	case DF_V_SYNC:
		if (!strcmp(r->qualifier, "implicit"))
			return "use the stream-ordered call (cudaFreeAsync, cudaMemcpyAsync), or make it before the operation "
			       "is issued";
		if (!strcmp(r->qualifier, "explicit"))
			return "synchronise the stream that is needed instead of the device, or issue the other operation "
			       "first";
		return "create the streams with cudaStreamNonBlocking, or keep work off the legacy default stream";
	case DF_V_DATA:
		return "issue on all ranks in the same order, and only then wait for results";
	case DF_V_MISSING:
		return !strcmp(r->qualifier, "exited")
			       ? "give all ranks the same number of iterations (drop_last, join), or shut down together"
			       : "find the branch on which this rank left the common path (see the first divergence)";
	case DF_V_MISMATCH:
		return "make the ranks agree on this call, or give the operations communicators of their own";
	case DF_V_INIT:
		return "let every member of the communicator call ncclCommInitRank with the same id";
	case DF_V_CRASH:
		return "look for the reason in that process's own log, core file, or the kernel's log (out of memory)";
	case DF_V_GPU_STUCK:
		return "end the kernel that occupies the device, or leave it fewer multiprocessors";
	case DF_V_NET_STALL:
		return "check the links between these hosts (or peer access between these devices: ACS, IOMMU)";
	case DF_V_HOST:
		return "make the host waits come in an order that all ranks share with their collectives";
	default:
		return "";
	}
}

static const char *remedy_of(struct df_check_result *r)
{
	switch ((int)r->remedy) {
	case DF_W_P:
		if (!strcmp(r->qualifier, "connect"))
			return "preventable: connections can be made in the background instead of by waiting hosts";
		return "preventable: preempting the marked wait lets everything finish, with stream order kept";
	case DF_W_SI:
		return "preventable: the marked call was never promised to wait for this operation";
	case DF_W_SE:
		return "can be released: the marked wait may return early if DFSHIM_RELEASE allows it";
	default:
		return r->is_cycle
			       ? "not preventable: every wait of the cycle is a promise to the program"
			       : "";
	}
}

int df_explain(struct df_check_result *r)
{
	struct buf b = {.n = 0};

	put(&b, "%s: ", df_verdict_word(r->verdict));
	switch (r->verdict) {
	case DF_V_OK:
		if (r->set->nr_issued > r->set->nr_finished)
			put(&b, "%" PRIu64 " operations in flight, none of them stuck",
			    r->set->nr_issued - r->set->nr_finished);
		else
			put(&b, "all %" PRIu64 " operations finished", r->set->nr_finished);
		break;
	case DF_V_ORDER:
		order_line(r, &b);
		break;
	case DF_V_RESOURCE:
		resource_line(r, &b);
		break;
	case DF_V_SYNC:
		sync_line(r, &b);
		break;
	case DF_V_DATA:
		data_line(r, &b);
		break;
	case DF_V_SLOW:
	case DF_V_MISSING:
		missing_line(r, &b);
		if (r->verdict == DF_V_SLOW)
			put(&b, "; it may only be slow");
		break;
	case DF_V_MISMATCH:
		mismatch_line(r, &b);
		break;
	case DF_V_INIT:
		init_line(r, &b);
		break;
	case DF_V_CRASH:
		crash_line(r, &b);
		break;
	case DF_V_GPU_STUCK:
		gpu_line(r, &b);
		break;
	case DF_V_NET_STALL:
		stall_line(r, &b);
		break;
	case DF_V_NCCL_INTERNAL:
	case DF_V_HOST:
		host_line(r, &b);
		break;
	default:
		unknown_line(r, &b);
	}
	r->line = strdup(b.s);
	r->fix = strdup(fix_text(r));
	r->remedy_text = strdup(remedy_of(r));
	if (!r->line || !r->fix || !r->remedy_text)
		return -ENOMEM;
	if (r->verdict != DF_V_OK)
		df_explain_divergence(r);
	return 0;
}
