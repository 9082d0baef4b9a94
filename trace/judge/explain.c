/*
 * Writes sentences: the verdict itself, what dfshim would do about it, and how to fix the
 * program.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "trace/record/names.h"
#include "trace/judge/judge_int.h"
#include "trace/judge/say.h"
#include "runtime/base/vec.h"

#define BIT(k) (1u << (k))

void df_line_put(struct df_line *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(b->s + b->n, sizeof(b->s) - b->n, fmt, ap);
	va_end(ap);
	if (n > 0)
		b->n = b->n + (size_t)n < sizeof(b->s) ? b->n + (size_t)n : sizeof(b->s) - 1;
}

/* Maximum number of ranks of a cycle that its sentence names, besides the last one. */
#define PATH_RANKS 16

/* Writes the rank at the beginning of a step. Returns 0 if the node belongs to no rank. */
static int path_name(struct df_check_result *r, size_t step, char *buf, size_t size)
{
	const struct df_node *n = &r->g.nodes[r->steps[step].from];

	if (df_node_is_op(n))
		df_say_rank(r->set, &r->set->ops[n->ref], buf, size);
	else if (n->kind == DF_N_THREAD || n->kind == DF_N_WORK || n->kind == DF_N_SLOT)
		df_line_host(r, n, buf, size);
	else
		return 0;
	return 1;
}

void df_line_path(struct df_check_result *r, struct df_line *b)
{
	char last[48] = "", first[48] = "", name[48];
	size_t nr = 0;

	for (size_t i = 0; i < r->nr_steps; i++) {
		if (!path_name(r, i, name, sizeof(name)) || !strcmp(name, last))
			continue;
		if (!nr)
			snprintf(first, sizeof(first), "%s", name);
		if (nr++ < PATH_RANKS)
			df_line_put(b, "%s%s", nr > 1 ? " -> " : "", name);
		snprintf(last, sizeof(last), "%s", name);
	}
	if (nr > PATH_RANKS + 1)
		df_line_put(b, " -> (%zu more)", nr - PATH_RANKS - 1);
	if (nr > PATH_RANKS)
		df_line_put(b, " -> %s", last);
	if (strcmp(last, first))
		df_line_put(b, " -> %s", first);
}

/* Appends the distinct operations of the cycle: "A#1, C7#2". */
static size_t put_ops(struct df_check_result *r, struct df_line *b)
{
	char name[96], seen[16][96];
	size_t nr = 0;

	for (size_t i = 0; i < r->nr_involved; i++) {

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
		if (nr == 16) {
			df_line_put(b, ", ...");
			break;
		}
		df_line_put(b, "%s%s", nr ? ", " : "", name);
		snprintf(seen[nr++], sizeof(seen[0]), "%s", name);
	}
	return nr;
}

/* Writes the cycle's ranks and its operations. */
static void put_cycle(struct df_check_result *r, struct df_line *b)
{
	df_line_path(r, b);
	df_line_put(b, " over ");
	put_ops(r, b);
}

/* Returns how many of the involved operations are messages. */
static size_t count_p2p(struct df_check_result *r)
{
	size_t nr = 0;

	for (size_t i = 0; i < r->nr_involved; i++)
		nr += df_kind_is_p2p(r->set->ops[r->involved[i]].l.kind) != 0;
	return nr;
}

const struct df_node *df_line_thread(struct df_check_result *r, size_t which)
{
	/* Skip background calls: the thread that polls for one is the one that waits. */
	for (size_t i = 0; i < r->nr_steps; i++) {
		const struct df_node *n = &r->g.nodes[r->steps[i].from];

		if (n->kind == DF_N_THREAD && n->thread && !which--)
			return n;
	}
	return NULL;
}

const char *df_line_host(struct df_check_result *r, const struct df_node *n, char *buf, size_t size)
{
	return df_say_host(&r->g, (uint32_t)(n - r->g.nodes), buf, size);
}

/*
 * Returns a thread of the cycle that is in a call. Skips threads that wait outside of NCCL and
 * CUDA, such as for the end of another thread.
 */
static const struct df_node *calling_thread(struct df_check_result *r, size_t which)
{
	const struct df_node *t;

	for (size_t i = 0; (t = df_line_thread(r, i)); i++)
		if (r->set->traces[t->trace].calls[t->ref].call != DF_CALL_OUTSIDE && !which--)
			return t;
	return NULL;
}

static void order_line(struct df_check_result *r, struct df_line *b)
{
	const struct df_node *t = calling_thread(r, 0), *t2 = calling_thread(r, 1);

	if (t && !strcmp(r->qualifier, "connect")) {
		char h1[48], h2[48];

		df_line_put(b,
			    "%s and %s use different communicators first, and each waits in its "
			    "first call for the other to connect",
			    df_line_host(r, t, h1, sizeof(h1)),
			    t2 ? df_line_host(r, t2, h2, sizeof(h2)) : "another rank");
		return;
	}
	if (t && !strcmp(r->qualifier, "pair")) {
		int several = calling_thread(r, 2) != NULL;
		char h1[48], h2[48];

		df_line_put(b,
			    "%s%s%s%s in calls that send or receive: NCCL connects two ranks at "
			    "their first message, and waits for both",
			    df_line_host(r, t, h1, sizeof(h1)), several ? ", " : " and ",
			    t2 ? df_line_host(r, t2, h2, sizeof(h2)) : "another rank",
			    several ? " and others wait for one another" : " wait for each other");
		return;
	}
	if (t && (!strcmp(r->qualifier, "init") || !strcmp(r->qualifier, "destroy"))) {
		uint32_t c = r->set->traces[t->trace].calls[t->ref].call;
		uint32_t c2 = t2 ? r->set->traces[t2->trace].calls[t2->ref].call : c;
		char h1[64], h2[64] = "another rank";

		df_line_host(r, t, h1, sizeof(h1));
		if (t2)
			df_line_host(r, t2, h2, sizeof(h2));
		/*
		 * These are threads of one process whose ranks have no names yet: name the
		 * threads.
		 */
		if (t2 && !strcmp(h1, h2)) {
			df_say_thread(r->set, t->trace, t->thread, h1, sizeof(h1));
			df_say_thread(r->set, t2->trace, t2->thread, h2, sizeof(h2));
		}
		if (c != c2)
			df_line_put(b, "%s is in %s and %s is in %s; each waits for the other", h1,
				    df_call_text(c), h2, df_call_text(c2));
		else
			df_line_put(
				b,
				"%s and %s are in different calls of %s; each waits for the other",
				h1, h2, df_call_text(c));
		return;
	}
	if (r->nr_involved && count_p2p(r) == r->nr_involved)
		df_line_put(b, "sends and receives wait for one another: cycle ");
	else if (r->stuck_insts > 2)
		df_line_put(b,
			    "%zu ranks issued %zu operations on %zu communicators in different "
			    "orders; shortest cycle ",
			    r->stuck_ranks, r->stuck_insts, r->stuck_comms);
	else
		df_line_put(b, "ranks issued the same operations in different orders: cycle ");
	put_cycle(r, b);
	if (!strcmp(r->qualifier, "hazard"))
		df_line_put(b,
			    " (their buffers overlap on every rank, so they cannot be reordered)");
	if (!strcmp(r->qualifier, "stream"))
		df_line_put(b, " (a stream or an event puts one behind the other, and other work "
			       "keeps it so)");
	if (!strcmp(r->qualifier, "data"))
		df_line_put(b, " (other work stands between them, so they cannot be reordered)");
}

#define WAITS_FOR_DEVICE (1u << DF_E_SYNC_DEVICE | 1u << DF_E_SYNC_IMPLICIT)

static void sync_line(struct df_check_result *r, struct df_line *b)
{
	char h[48];
	const struct df_node *t = df_line_thread(r, 0);

	for (size_t i = 0; t && i < r->nr_steps; i++) {
		/* Among several threads, name the one whose call is the cause. */
		if ((r->steps[i].cut ||
		     (r->remedy == DF_W_P && r->steps[i].kinds & WAITS_FOR_DEVICE)) &&
		    r->g.nodes[r->steps[i].from].kind == DF_N_THREAD) {
			t = &r->g.nodes[r->steps[i].from];
			break;
		}
	}
	if (!t || !strcmp(r->qualifier, "legacy stream")) {
		df_line_put(b, "the legacy default stream serialises operations that ranks issued "
			       "in different orders: cycle ");
		put_cycle(r, b);
		return;
	}
	df_line_put(b, "%s is in %s, which %s ", df_line_host(r, t, h, sizeof(h)),
		    df_call_text(r->set->traces[t->trace].calls[t->ref].call),
		    !strcmp(r->qualifier, "implicit") ? "waits implicitly for" : "waits for");
	put_ops(r, b);
	df_line_put(b, "; cycle ");
	df_line_path(r, b);
}

/*
 * Returns the work that thread `t` of the cycle waits for, or NULL if it waits for something else.
 * Stores the node that the work waits for in *behind.
 */
static const struct df_litem *work_of(const struct df_check_result *r, const struct df_node *t,
				      const struct df_node **behind)
{
	for (size_t i = 0; i + 1 < r->nr_steps; i++) {
		const struct df_node *w = &r->g.nodes[r->steps[i].to];

		if (&r->g.nodes[r->steps[i].from] != t || w->kind != DF_N_WORK)
			continue;
		*behind = &r->g.nodes[r->steps[i + 1].to];
		return &r->set->traces[w->trace].items[w->ref];
	}
	return NULL;
}

/*
 * Whether the work is a copy that waits directly for an operation, although no unfinished operation
 * of its process writes the copied memory.
 */
static int needs_nobody(const struct df_check_result *r, const struct df_node *t,
			const struct df_litem *work, const struct df_node *behind)
{
	const struct df_trc *trc = &r->set->traces[t->trace];
	struct df_range copy = {work->from, work->from + work->bytes}, reads, writes;

	if (!work->bytes || !df_node_is_op(behind))
		return 0;
	for (size_t i = 0; i < trc->nr_uops; i++) {
		df_uop_buffers(r->set, &r->set->ops[trc->first_op + i], &reads, &writes);
		if (df_range_overlap(copy, writes))
			return 0;
	}
	return 1;
}

/*
 * Describes a thread that waits for work other than a collective: "a memcpy that its stream puts
 * behind B#2". Returns 0 if there is no such thread.
 */
static int behind_line(struct df_check_result *r, struct df_line *b)
{
	const struct df_node *t, *found = NULL, *behind, *op = NULL;
	const struct df_litem *work = NULL, *w;
	char h[48], name[160];
	int alone = 0;

	for (size_t i = 0; (t = df_line_thread(r, i)) && !alone; i++) {
		w = work_of(r, t, &behind);
		if (!w)
			continue;
		alone = needs_nobody(r, t, w, behind);
		if (found && !alone)
			continue;
		found = t;
		work = w;
		op = behind;
	}
	if (!found)
		return 0;
	df_line_put(b, "%s waits in %s for a %s", df_line_host(r, found, h, sizeof(h)),
		    df_call_text(r->set->traces[found->trace].calls[found->ref].call),
		    df_work_name((uint32_t)work->b & 0xff));
	if (alone)
		df_line_put(b, " of %llu bytes that no operation writes, so it needs no other rank",
			    (unsigned long long)work->bytes);
	df_line_put(b, ", %s its stream puts it behind %s: cycle ", alone ? "but" : "and",
		    df_node_is_op(op)
			    ? df_say_op(r->set, &r->set->ops[op->ref], name, sizeof(name))
			    : df_say_node(&r->g, (uint32_t)(op - r->g.nodes), name, sizeof(name)));
	return 1 + alone;
}

static void data_line(struct df_check_result *r, struct df_line *b)
{
	char h[48];
	const struct df_node *t = df_line_thread(r, 0);

	if (behind_line(r, b)) {
		;
	} else if (t) {
		df_line_put(b,
			    "%s waits in %s for a result that needs another rank, and that rank "
			    "waits for %s: cycle ",
			    df_line_host(r, t, h, sizeof(h)),
			    df_call_text(r->set->traces[t->trace].calls[t->ref].call),
			    df_line_host(r, t, h, sizeof(h)));
	} else {
		df_line_put(b, "the operations need each other's results: cycle ");
	}
	put_cycle(r, b);
}

static void resource_line(struct df_check_result *r, struct df_line *b)
{
	if (!r->is_cycle) {
		df_line_put(b, "all ranks have reached ");
		put_ops(r, b);
		df_line_put(b,
			    ", some in one order and some in the other, and none has finished for "
			    "%.1f s: the devices do not have room for all of them at once",
			    (double)r->quiet_ns / 1e9);
		return;
	}
	if (!strcmp(r->qualifier, "queue")) {
		df_line_put(b, "independent operations wait for one another because their streams "
			       "share a hardware queue: cycle ");
		put_cycle(r, b);
		return;
	}
	df_line_put(b,
		    "operations that hold all slots wait for operations that have no slot: cycle ");
	put_cycle(r, b);
}

/* ---- remedy and fix ------------------------------------------------------------------------- */

/* Whether the process of each thread of the cycle has other work queued after stuck operations. */
static int has_work_behind(struct df_check_result *r)
{
	const struct df_node *t;
	size_t nr = 0;

	for (; (t = df_line_thread(r, nr)); nr++) {
		int has = 0;

		for (size_t n = 0; n < r->g.nr_nodes && !has; n++)
			has = r->g.nodes[n].kind == DF_N_WORK && r->g.stuck[n] &&
			      r->g.nodes[n].trace == t->trace;
		if (!has)
			return 0;
	}
	return nr > 0;
}

static const char *fix_text(struct df_check_result *r)
{
	if (r->verdict != DF_V_SLOW && r->verdict != DF_V_HOST &&
	    df_line_two_threads(r, &(struct df_line){.n = 0}))
		return "give each thread a communicator of its own (dist.new_group), or let one "
		       "thread issue all of the group's operations";
	switch (r->verdict) {
	case DF_V_ORDER:
		if (!strcmp(r->qualifier, "init") || !strcmp(r->qualifier, "destroy") ||
		    !strcmp(r->qualifier, "connect"))
			return "make these calls in the same order on all ranks, or put them in "
			       "one ncclGroupStart/End";
		if (!strcmp(r->qualifier, "buffered"))
			return "receive the messages from one rank to another in the order in "
			       "which they are sent";
		if (!strcmp(r->qualifier, "pair"))
			return "put the messages that meet into one ncclGroupStart/End (PyTorch: "
			       "batch_isend_irecv), or call them in the same order on all ranks";
		if (r->nr_involved && count_p2p(r) == r->nr_involved)
			return "put each send and its receive into one ncclGroupStart/End, or let "
			       "even ranks send first";
		if (count_p2p(r))
			return "issue the messages and collectives in the same order on all ranks, "
			       "or group them";
		return "issue these operations in the same order on all ranks";
	case DF_V_RESOURCE:
		return !strcmp(r->qualifier, "queue")
			       ? "raise CUDA_DEVICE_MAX_CONNECTIONS, or issue the operations in "
				 "the same order on all ranks"
			       : "issue the operations in the same order on all ranks, or have "
				 "fewer in flight at once";
	case DF_V_SYNC:
		if (!strcmp(r->qualifier, "implicit"))
			return "use the stream-ordered call (cudaFreeAsync, cudaMemcpyAsync), or "
			       "make it before the operation is issued";
		if (has_work_behind(r))
			return "issue the operations in the same order on all ranks (PyTorch: call "
			       "backward() of the models in the same order)";
		if (!strcmp(r->qualifier, "explicit"))
			return "synchronise the stream that is needed instead of the device, or "
			       "issue the other operation first";
		return "create the streams with cudaStreamNonBlocking, or put no work on the "
		       "legacy default stream";
	case DF_V_DATA:
		if (behind_line(r, &(struct df_line){.n = 0}) > 1)
			return "make the copy before the operation is issued, or on a stream that "
			       "does not wait for it (PyTorch: async_op=True, and wait() after the "
			       "copy), or issue the operations in the same order on all ranks";
		return "issue the operations in the same order on all ranks before waiting for a "
		       "result";
	case DF_V_MISSING:
		if (!strcmp(r->qualifier, "destroyed"))
			return "let all ranks make this call before they destroy the communicator, "
			       "or none of them";
		if (!strcmp(r->qualifier, "exited") && df_exit_of(r) > 1)
			return "look for the error in that process's log";
		return !strcmp(r->qualifier, "exited") || !strcmp(r->qualifier, "thread ended")
			       ? "give all ranks the same number of iterations (drop_last, join), "
				 "or let all ranks exit together"
			       : "find out why this rank does not make the call that the others "
				 "made (see the first divergence)";
	case DF_V_MISMATCH:
		return "pass the same arguments on all ranks, or use another communicator for "
		       "operations that differ";
	case DF_V_INIT:
		return !strcmp(r->qualifier, "exited")
			       ? "find out why this process exited before the communicator was made"
			       : "make this call, with the same id, on every rank of the "
				 "communicator";
	case DF_V_CRASH:
		return "look for the reason in that process's log, its core file, or the kernel's "
		       "log (out of memory)";
	case DF_V_GPU_STUCK:
		return "stop the kernel that occupies the device, or let it use fewer "
		       "multiprocessors";
	case DF_V_NET_STALL:
		if (r->link && r->link->held)
			return "look where this function waits (`gdb -p`, thread dfshim-net), or "
			       "use another network (NCCL_NET_PLUGIN, DFSHIM_NET)";
		if (r->link && r->link->unmapped)
			return "let the process that cannot map it have more file descriptors "
			       "(`ulimit -n`)";
		return "check the links between these machines (or peer access between these "
		       "devices: ACS, IOMMU)";
	case DF_V_NCCL_INTERNAL:
		return r->proxy ? "look at the kernel on that GPU (cuda-gdb, compute-sanitizer), "
				  "and for a newer NCCL; NCCL_PROTO=Simple narrows it down"
				: "";
	case DF_V_HOST:
		if (r->nr_held)
			return df_other_thread(r, 0)->at_lock == DF_LOCK_SCRIPT
				       ? "give the interpreter's lock back around this call "
					 "(ctypes.CDLL, Py_BEGIN_ALLOW_THREADS)"
				       : "release the lock before waiting for the result, or let "
					 "one thread issue these operations in one order";
		return "on all ranks, put the waits outside CUDA and NCCL in the same order "
		       "relative to the collectives";
	default:
		return "";
	}
}

/*
 * Names a call that the job needs even with the remedy. The trace does not show whether the rank
 * would reach it.
 */
static void say_to_come(struct df_check_result *r, struct df_line *b)
{
	const struct df_edge *e = r->to_come == DF_NONE ? NULL : &r->g.edges[r->to_come];
	const struct df_node *from = e ? &r->g.nodes[e->from] : NULL, *next;
	char op[96], rank[48];

	if (!e && r->remedy == DF_W_P)
		df_line_put(b, " and the operations of the cycle finish, in stream order");
	if (!e)
		return;
	next = &r->g.nodes[e->to];
	df_say_member(r->set, next->gcomm, next->rank, rank, sizeof(rank));
	if (next->gcomm != DF_NONE && !df_set_entry(r->set, next->gcomm, next->rank))
		df_line_put(b, "; the next step of %s is unknown: it left no trace", rank);
	else if (from->kind == DF_N_MATCH)
		df_line_put(b,
			    "; %s has still to issue its part of %s, and the trace does not show "
			    "what it does before that",
			    rank,
			    df_say_op(r->set, &r->set->ops[r->g.insts[from->ref].first], op,
				      sizeof(op)));
	else
		df_line_put(b,
			    "; %s has still to make another call, and the trace does not show what "
			    "it does before that",
			    rank);
}

/*
 * Whether the cycle contains a wait for a stream or an event. DFSHIM_RELEASE=all allows to release
 * it.
 */
static int waits_for_stream(const struct df_check_result *r)
{
	for (size_t i = 0; i < r->nr_steps; i++)
		if (r->steps[i].kinds & 1u << DF_E_SYNC_STREAM)
			return 1;
	return 0;
}

static void remedy(struct df_check_result *r, struct df_line *b)
{
	switch ((int)r->remedy) {
	case DF_W_P:
		if (!strcmp(r->qualifier, "connect") || !strcmp(r->qualifier, "pair") ||
		    r->verdict == DF_V_SYNC) {
			df_line_put(b, "preventable: dfshim makes connections in the background, "
				       "and no thread waits for them");
		} else if (!r->is_cycle) {
			df_line_put(b, "preventable: dfshim preempts operations, and others get "
				       "their room");
		} else {
			df_line_put(b, "preventable: dfshim preempts the marked wait");
			say_to_come(r, b);
		}
		break;
	case DF_W_SI:
		df_line_put(b, "preventable: CUDA does not require the marked call to wait for "
			       "this operation, and under dfshim it does not");
		say_to_come(r, b);
		break;
	case DF_W_SE:
		if (has_work_behind(r)) {
			df_line_put(b, "released only with DFSHIM_RELEASE=device or all: other "
				       "work is queued behind the operations, and the cycle may "
				       "move to the streams");
			break;
		}
		df_line_put(b, "can be released: dfshim lets the marked wait return early if "
			       "DFSHIM_RELEASE allows it");
		break;
	default:
		if (r->if_buffered)
			df_line_put(b, "preventable if the messages fit into dfshim's buffers: "
				       "their sends then do not wait for the receives");
		else if (r->is_cycle && (r->nr_others || r->has_unknown_members))
			df_line_put(
				b, "not preventable, unless another thread issues the missing "
				   "operation: the program relies on the other waits of the cycle");
		else if (r->is_cycle)
			df_line_put(
				b,
				"not preventable: the program relies on every wait of the cycle%s",
				r->verdict == DF_V_DATA && waits_for_stream(r)
					? "; with DFSHIM_RELEASE=all dfshim releases waits for "
					  "streams and events too, and the program may then read "
					  "results in host memory before they are there"
					: "");
		break;
	}
}

static void sentence(struct df_check_result *r, struct df_line *b, enum df_verdict v)
{
	switch (v) {
	case DF_V_OK:
		if (r->killed)
			df_line_put(b, "%" PRIu64 " operations are unfinished",
				    r->set->nr_issued - r->set->nr_finished);
		else if (r->set->nr_issued > r->set->nr_finished)
			df_line_put(b,
				    "%" PRIu64 " operations are in flight, none of them is stuck",
				    r->set->nr_issued - r->set->nr_finished);
		else
			df_line_put(b, "all %" PRIu64 " operations finished", r->set->nr_finished);
		break;
	case DF_V_ORDER:
		if (!strcmp(r->qualifier, "buffered"))
			df_line_behind(r, b);
		else
			order_line(r, b);
		break;
	case DF_V_RESOURCE:
		resource_line(r, b);
		break;
	case DF_V_SYNC:
		sync_line(r, b);
		break;
	case DF_V_DATA:
		data_line(r, b);
		break;
	case DF_V_MISSING:
		df_line_missing(r, b);
		break;
	case DF_V_MISMATCH:
		df_line_mismatch(r, b);
		break;
	case DF_V_INIT:
		df_line_init(r, b);
		break;
	case DF_V_CRASH:
		df_line_crash(r, b);
		break;
	case DF_V_GPU_STUCK:
		df_line_gpu(r, b);
		break;
	case DF_V_NET_STALL:
		if (r->link)
			df_line_link(r, b);
		else if (r->proxy)
			df_line_proxy(r, b);
		else
			df_line_stall(r, b);
		break;
	case DF_V_NCCL_INTERNAL:
		if (r->proxy)
			df_line_proxy(r, b);
		else
			df_line_hosts(r, b);
		break;
	case DF_V_HOST:
		df_line_hosts(r, b);
		break;
	default:
		df_line_unknown(r, b);
	}
}

int df_explain(struct df_check_result *r)
{
	struct df_line b = {.n = 0}, remedy_line = {.n = 0};
	int slow = r->verdict == DF_V_SLOW, lost = 0;
	enum df_verdict v = slow || r->killed ? r->otherwise : r->verdict;

	df_line_put(&b, "%s: ", df_verdict_word(r->verdict));
	sentence(r, &b, v);
	df_line_two_threads(r, &b);
	if (r->is_cycle && r->nr_others && v != DF_V_HOST)
		df_line_others(r, &b);
	if (r->has_unknown_members)
		df_line_put(&b, "; it is not known which threads have still to join the "
				"communicator, and any other thread may do so");
	if (slow)
		df_line_put(&b, "; the rank may only be slow, otherwise this is %s",
			    df_verdict_word(r->otherwise));
	if (r->killed)
		df_line_put(&b,
			    "; the traces end there: the processes were killed after %.1f s "
			    "without progress, too soon to know whether this would have ended",
			    (double)r->quiet_ns / 1e9);
	remedy(r, &remedy_line);
	r->line = strdup(b.s);
	r->fix = strdup(fix_text(r));
	r->remedy_text = strdup(remedy_line.s);
	if (!r->line || !r->fix || !r->remedy_text)
		return -ENOMEM;
	/*
	 * If the ring has overwritten records of a rank, its records end too early, which is no
	 * divergence.
	 */
	for (size_t i = 0; i < r->set->nr_entries; i++)
		lost |= r->set->entries[i].lost_open != 0;
	if (r->verdict != DF_V_OK && !(lost && r->verdict == DF_V_UNKNOWN))
		df_explain_divergence(r);
	df_explain_link(r);
	df_explain_proxy(r);
	df_explain_ignored(r);
	return 0;
}
