/*
 * The data that is kept of finished operations: communicators over all traces, the signatures of
 * the ranks in each place, and the number issued of each signature or pair.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/record/trace_hash.h"
#include "trace/record/names.h"
#include "trace/read/set.h"
#include "runtime/base/err.h"
#include "runtime/base/vec.h"

#define MAX_MEMBERS (1u << 22)
#define MAX_RANKS   (1 << 20)

/*
 * Ranks may name a communicator differently. The name by the lowest rank is used, so that the order
 * in which traces are added does not matter.
 */
static void name_gcomm(struct df_gcomm *g, const struct df_trace_comm *c)
{
	if (!c->name[0] || (g->label[0] && c->rank >= g->named_by))
		return;
	df_comm_label(c->name, g->label, sizeof(g->label));
	g->named_by = c->rank;
}

/*
 * NCCL's profiler interface up to v3 does not report the number of ranks. It is at least the
 * highest rank plus 1.
 */
static void widen(struct df_gcomm *g, int32_t rank)
{
	if (rank >= g->nranks && rank < MAX_RANKS)
		g->nranks = rank + 1;
}

uint32_t df_set_gcomm(struct df_check_set *set, const struct df_trace_comm *c)
{
	uint64_t *number = df_map_at(&set->gcomms_at, c->hash, 0);
	struct df_gcomm *g;

	if (!number)
		return DF_NONE;
	if (*number) {
		g = &set->gcomms[*number - 1];
		name_gcomm(g, c);
		if (!c->nranks)
			widen(g, c->rank);
		return (uint32_t)*number - 1;
	}
	g = DF_VEC_PUSH(set->gcomms, set->nr_gcomms, set->cap_gcomms);
	if (!g)
		return DF_NONE;
	memset(g, 0, sizeof(*g));
	g->hash = c->hash;
	g->parent = c->parent;
	g->nranks = c->nranks > 0 && c->nranks <= MAX_RANKS ? c->nranks : 1;
	if (!c->nranks)
		widen(g, c->rank);
	g->mismatch = UINT64_MAX;
	name_gcomm(g, c);
	*number = set->nr_gcomms;
	return (uint32_t)*number - 1;
}

int df_set_put_member(struct df_check_set *set, uint32_t gcomm, uint64_t rank,
		      const struct df_trc_member *m)
{
	struct df_gcomm *g = &set->gcomms[gcomm];

	if (rank >= (uint64_t)g->nranks)
		return 0;
	if (rank >= g->nr_members) {
		uint32_t nr = (uint32_t)g->nranks;
		struct df_trc_member *fresh;

		/* Only forged traces have this many; the report then lacks a pid. */
		if (set->nr_members + nr > MAX_MEMBERS)
			return 0;
		fresh = calloc(nr, sizeof(*fresh));
		if (!fresh)
			return -ENOMEM;
		g->members = fresh;
		g->nr_members = nr;
		set->nr_members += nr;
	}
	if (!g->members[rank].pid)
		g->members[rank] = *m;
	return 0;
}

uint64_t df_op_signature(const struct df_lop *op)
{
	int reduces = df_kind_reduces(op->kind), rooted = df_kind_rooted(op->kind);
	uint64_t h;

	if (op->kind == DF_KIND_SEND || op->kind == DF_KIND_RECV)
		return df_mix64(op->count *
				(df_dtype_bytes(op->type) ? df_dtype_bytes(op->type) : 1));
	h = op->kind | (uint64_t)op->type << 8 | (uint64_t)(reduces ? op->redop : 0) << 16 |
	    (uint64_t)(uint32_t)(rooted ? op->peer : -1) << 24;
	return df_mix64(df_mix64(h) ^ op->count);
}

/*
 * Returns the row with this number, which it adds if needed. Indices mostly ascend, so it tries the
 * last row and the next one before the map.
 */
static struct df_seen_row *row_of(struct df_gcomm *g, uint64_t number)
{
	struct df_seen_row *row;
	uint64_t *at;

	for (size_t i = g->last_row; i < g->nr_rows && i < g->last_row + 2; i++) {
		if (g->rows[i].number == number) {
			g->last_row = i;
			return &g->rows[i];
		}
	}
	at = df_map_at(&g->rows_at, number, 0);
	if (!at)
		return NULL;
	if (!*at) {
		row = DF_VEC_PUSH(g->rows, g->nr_rows, g->cap_rows);
		if (!row)
			return NULL;
		memset(row, 0, sizeof(*row));
		row->number = number;
		*at = g->nr_rows;
	}
	g->last_row = *at - 1;
	return &g->rows[g->last_row];
}

int df_set_compare(struct df_check_set *set, uint32_t gcomm, const struct df_lop *op)
{
	struct df_gcomm *g = &set->gcomms[gcomm];
	struct df_inst_seen *s;
	uint64_t sig = df_op_signature(op);
	struct df_seen_row *row = row_of(g, op->index / DF_SEEN_ROW);

	if (!row)
		return -ENOMEM;
	s = &row->at[op->index % DF_SEEN_ROW];
	if (!s->nr++)
		s->sig = sig;
	else if (s->sig != sig && op->index < g->mismatch)
		g->mismatch = op->index;
	return 0;
}

uint32_t df_set_first_mismatch(const struct df_check_set *set)
{
	uint32_t i = 0;

	while (i < set->nr_gcomms && set->gcomms[i].mismatch == UINT64_MAX)
		i++;
	return i < set->nr_gcomms ? i : DF_NONE;
}

/* ---- how many of each kind were issued ------------------------------------------------------ */

uint64_t df_seen_key(uint32_t local, const struct df_lop *op, int nccl)
{
	uint64_t k = (uint64_t)local << 32;

	if (op->kind == DF_KIND_SEND || op->kind == DF_KIND_RECV)
		/* Never df_mix64(0), which is 0: a receive from rank 0 is no collective. */
		k ^= df_mix64((uint64_t)(uint32_t)op->peer << 2 | 2 | (op->kind == DF_KIND_SEND)) ^
		     (nccl ? 0 : df_op_signature(op));
	else if (!nccl)
		k ^= df_mix64(op->has_match ? op->sig : df_op_signature(op));
	return k | 1;
}

uint64_t df_trc_seen(const struct df_trc *t, uint64_t key)
{
	const uint64_t *next = df_map_find(&t->seen, key, 0);

	return next ? *next : 0;
}

int df_trc_saw(struct df_trc *t, uint64_t key, uint64_t next)
{
	uint64_t *most = df_map_at(&t->seen, key, 0);

	if (!most)
		return -ENOMEM;
	*most = DF_MAX(*most, next);
	return 0;
}
