/*
 * Compares calls before NCCL launches them. The ranks of a node publish their call in each place of
 * a communicator: collectives by their number, messages by their number for that pair and
 * direction. If two calls in one place differed, NCCL would compute wrong data or never end.
 *
 * A word has the lap of its place in the low 16 bits and a hash above. Ranks that are a lap apart
 * are not compared, because the word of that place is overwritten; the judge of the traces can
 * still find the difference.
 *
 * Only the thread that puts operations on the lane enters it; no locks.
 */
#include <stdio.h>
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/comm/comm.h"
#include "runtime/exec/nccl/compare.h"
#include "runtime/exec/nccl/lane.h"
#include "runtime/exec/nccl/shared.h"
#include "runtime/watch/watchdog.h"
#include "trace/record/names.h"

#define LAP 0xffffull
#define ANY 0 /* hash of a call that is not compared */

static uint64_t word_of(uint64_t hash, uint64_t at, uint64_t nr)
{
	return (hash & ~LAP) | ((at / nr + 1) & LAP);
}

static int is_message(uint32_t kind)
{
	return kind == DF_COLL_SEND || kind == DF_COLL_RECV;
}

uint64_t df_lane_match(const struct df_sig *sig)
{
	uint64_t size = df_dtype_bytes(sig->type), name[3] = {sig->count * (size ? size : 1)};

	/* Types are not compared where nothing is reduced, because NCCL moves bytes there. */
	if (!is_message(sig->kind)) {
		name[1] = sig->kind;
		if (df_kind_reduces(sig->kind))
			name[1] |= (uint64_t)sig->type << 8 | (uint64_t)sig->redop << 16;
		if (df_kind_rooted(sig->kind))
			name[2] = (uint32_t)sig->root + 1u;
	}
	return df_hash_bytes(name, sizeof(name), 1) | (LAP + 1);
}

const char *df_lane_say(const struct df_lane_call *c, char *buf, size_t size)
{
	uint32_t kind = c->what & 0xff, type = c->what >> 8 & 0xff, redop = c->what >> 16 & 0xff;
	int root = (int)(c->what >> 32) - 1;
	int n = snprintf(buf, size, "%s(%llu x %s", df_kind_name(kind),
			 (unsigned long long)c->count, df_dtype_name(type));

	if (df_kind_reduces(kind) && n > 0 && (size_t)n < size)
		n += snprintf(buf + n, size - (size_t)n, ", %s", df_redop_name(redop));
	if (df_kind_rooted(kind) && n > 0 && (size_t)n < size)
		n += snprintf(buf + n, size - (size_t)n, ", root %d", root);
	if (n > 0 && (size_t)n < size)
		snprintf(buf + n, size - (size_t)n, ")");
	return buf;
}

struct df_lane_call df_lane_call(const struct df_op *op)
{
	return (struct df_lane_call){.count = op->count,
				     .what = (uint64_t)op->kind | (uint64_t)op->type << 8 |
					     (uint64_t)op->redop << 16 |
					     (uint64_t)(uint32_t)(op->root + 1) << 32};
}

static int collective_differs(struct df_lane *lane, const struct df_op *op, uint64_t match)
{
	struct df_lane_view *v = lane->view;
	uint64_t at = v->place++, row = at % DF_LANE_PLACES, *words = v->words + row * v->nr, w,
		 mine = word_of(match, at, DF_LANE_PLACES);
	struct df_lane_call call = df_lane_call(op), *c = &v->areas[v->slot].calls[row], other;
	char a[96], b[96];
	uint32_t i;

	/* RELAXED: the exchange below publishes these stores. */
	__atomic_store_n(&c->count, call.count, __ATOMIC_RELAXED);
	__atomic_store_n(&c->what, call.what, __ATOMIC_RELAXED);
	/*
	 * SEQ_CST pairs with the exchange on the other ranks: of two ranks that publish at the same
	 * time at least one sees the other's word. Without it both could miss the difference. The
	 * exchange also releases the call to the rank that reports it.
	 */
	__atomic_exchange_n(&words[v->slot], mine, __ATOMIC_SEQ_CST);
	for (i = 0; i < v->nr; i++) {
		/* SEQ_CST pairs with the exchange of rank i, which says why. */
		w = __atomic_load_n(&words[i], __ATOMIC_SEQ_CST);
		if (w == mine || (w & LAP) != (mine & LAP) || !(w & ~LAP) || !(mine & ~LAP))
			continue;
		c = &v->areas[i].calls[row];
		other.count = __atomic_load_n(&c->count, __ATOMIC_RELAXED);
		other.what = __atomic_load_n(&c->what, __ATOMIC_RELAXED);
		df_warn("communicator %016llx, collective %llu: rank %d calls %s, rank %u calls "
			"%s: MISMATCH. It is not launched",
			(unsigned long long)lane->comm->hash, (unsigned long long)at + 1,
			lane->comm->rank, df_lane_say(&call, a, sizeof(a)), v->ranks[i],
			df_lane_say(&other, b, sizeof(b)));
		return 1;
	}
	return 0;
}

static int message_differs(struct df_lane *lane, const struct df_op *op, uint64_t match)
{
	struct df_lane_view *v = lane->view;
	int sends = op->kind == DF_COLL_SEND, peer = v->slots[op->root];
	uint64_t at, *pair, mine, w;
	uint32_t from, to;

	if (peer < 0 || op->root == lane->comm->rank)
		return 0;
	at = v->messages[2 * peer + sends]++;
	from = sends ? v->slot : (uint32_t)peer;
	to = sends ? (uint32_t)peer : v->slot;
	pair = v->pairs + (((uint64_t)from * v->nr + to) * 2) * DF_LANE_PAIRS + at % DF_LANE_PAIRS;
	mine = word_of(match, at, DF_LANE_PAIRS);
	/* SEQ_CST pairs with the peer's exchange and load, as in collective_differs(). */
	__atomic_exchange_n(pair + (sends ? 0 : DF_LANE_PAIRS), mine, __ATOMIC_SEQ_CST);
	w = __atomic_load_n(pair + (sends ? DF_LANE_PAIRS : 0), __ATOMIC_SEQ_CST);
	if (w == mine || (w & LAP) != (mine & LAP))
		return 0;
	df_warn("communicator %016llx: message %llu from rank %u to rank %u has one size on the "
		"sender and another on the receiver (on rank %d %llu x %s): MISMATCH. It is not "
		"launched",
		(unsigned long long)lane->comm->hash, (unsigned long long)at + 1, v->ranks[from],
		v->ranks[to], lane->comm->rank, (unsigned long long)op->count,
		df_dtype_name(op->type));
	return 1;
}

/*
 * Whether the collectives of a group differ from one another. NCCL chooses their order itself, so
 * their places are not known.
 */
static int is_mixed(struct df_lane_op *const *group, size_t nr)
{
	uint64_t first = 0;
	size_t i;

	for (i = 0; i < nr; i++) {
		if (is_message(group[i]->op.kind))
			continue;
		if (first && group[i]->match != first)
			return 1;
		first = group[i]->match;
	}
	return 0;
}

int df_lane_differs(struct df_lane *lane, struct df_lane_op *const *group, size_t nr)
{
	int mixed = nr > 1 && is_mixed(group, nr), differs = 0;
	size_t i;

	for (i = 0; i < nr && !differs; i++) {
		const struct df_op *op = &group[i]->op;

		if (is_message(op->kind))
			differs = message_differs(lane, op, group[i]->match);
		else if (op->kind != DF_COLL_SENDRECV_SELF)
			differs = collective_differs(lane, op, mixed ? ANY : group[i]->match);
	}
	/* Only one rank reports the difference. RELAXED: the exchange publishes no other data. */
	if (differs && !__atomic_exchange_n(&lane->view->s->told, 1, __ATOMIC_RELAXED))
		df_watchdog_mismatch(lane->comm->hash);
	return differs;
}
