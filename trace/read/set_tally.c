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
#include "runtime/base/vec.h"

#define MAX_MEMBERS (1u << 22)
#define MAX_RANKS   (1 << 20)

/*
 * Ranks may name a communicator differently: use the name by the lowest rank, so that the order in
 * which traces are added does not matter.
 */
static void name_gcomm(struct df_gcomm *g, const struct df_trace_comm *c)
{
	if (!c->name[0] || (g->label[0] && c->rank >= g->named_by))
		return;
	df_comm_label(c->name, g->label, sizeof(g->label));
	g->named_by = c->rank;
}

/*
 * NCCL's profiler interface up to v3 does not report the number of ranks: there are at least rank +
 * 1.
 */
static void widen(struct df_gcomm *g, int32_t rank)
{
	if (rank >= g->nranks && rank < MAX_RANKS)
		g->nranks = rank + 1;
}

uint32_t df_set_gcomm(struct df_check_set *set, const struct df_trace_comm *c)
{
	struct df_gcomm *g;
	size_t at;

	if (set->nr_gcomms * 2 >= set->gcomm_map_size) {
		size_t size = set->gcomm_map_size ? set->gcomm_map_size * 2 : 256;
		uint32_t *map = malloc(size * sizeof(*map));

		if (!map)
			return DF_NONE;
		memset(map, 0xff, size * sizeof(*map));
		for (size_t i = 0; i < set->nr_gcomms; i++) {
			at = (size_t)df_mix64(set->gcomms[i].hash) & (size - 1);
			while (map[at] != DF_NONE)
				at = (at + 1) & (size - 1);
			map[at] = (uint32_t)i;
		}
		free(set->gcomm_map);
		set->gcomm_map = map;
		set->gcomm_map_size = size;
	}
	at = (size_t)df_mix64(c->hash) & (set->gcomm_map_size - 1);
	while (set->gcomm_map[at] != DF_NONE) {
		g = &set->gcomms[set->gcomm_map[at]];
		if (g->hash == c->hash) {
			name_gcomm(g, c);
			if (!c->nranks)
				widen(g, c->rank);
			return set->gcomm_map[at];
		}
		at = (at + 1) & (set->gcomm_map_size - 1);
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
	set->gcomm_map[at] = (uint32_t)(set->nr_gcomms - 1);
	return set->gcomm_map[at];
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

/* Returns the slot of a row, whether the row exists or not. */
static uint32_t *row_slot(const struct df_gcomm *g, uint64_t number)
{
	size_t at = (size_t)df_mix64(number) & (g->row_map_size - 1);

	while (g->row_map[at] != DF_NONE && g->rows[g->row_map[at]].number != number)
		at = (at + 1) & (g->row_map_size - 1);
	return &g->row_map[at];
}

static int grow_row_map(struct df_gcomm *g)
{
	size_t size = g->row_map_size ? g->row_map_size * 2 : 16;
	uint32_t *map = malloc(size * sizeof(*map));

	if (!map)
		return -ENOMEM;
	memset(map, 0xff, size * sizeof(*map));
	free(g->row_map);
	g->row_map = map;
	g->row_map_size = size;
	for (size_t i = 0; i < g->nr_rows; i++)
		*row_slot(g, g->rows[i].number) = (uint32_t)i;
	return 0;
}

/*
 * Indices mostly ascend, and each trace begins at about the same place: try the last row and the
 * next one.
 */
static struct df_seen_row *row_of(struct df_gcomm *g, uint64_t number)
{
	struct df_seen_row *row;
	uint32_t *slot;

	for (uint32_t i = g->last_row; i < g->nr_rows && i < g->last_row + 2; i++) {
		if (g->rows[i].number == number) {
			g->last_row = i;
			return &g->rows[i];
		}
	}
	if (g->nr_rows * 2 >= g->row_map_size && grow_row_map(g))
		return NULL;
	slot = row_slot(g, number);
	if (*slot == DF_NONE) {
		row = DF_VEC_PUSH(g->rows, g->nr_rows, g->cap_rows);
		if (!row)
			return NULL;
		memset(row, 0, sizeof(*row));
		row->number = number;
		*slot = (uint32_t)(g->nr_rows - 1);
	}
	g->last_row = *slot;
	return &g->rows[*slot];
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
		k ^= df_mix64((uint64_t)(uint32_t)op->peer << 1 | (op->kind == DF_KIND_SEND)) ^
		     (nccl ? 0 : df_op_signature(op));
	else if (!nccl)
		k ^= df_mix64(op->has_match ? op->sig : df_op_signature(op));
	return k | 1;
}

static struct df_seen_key *seen_slot(const struct df_trc *t, uint64_t key)
{
	size_t at = (size_t)df_mix64(key) & (t->seen_size - 1);

	while (t->seen[at].key && t->seen[at].key != key)
		at = (at + 1) & (t->seen_size - 1);
	return &t->seen[at];
}

uint64_t df_trc_seen(const struct df_trc *t, uint64_t key)
{
	return t->seen_size ? seen_slot(t, key)->next : 0;
}

int df_trc_saw(struct df_trc *t, uint64_t key, uint64_t next)
{
	struct df_seen_key *s;

	if (t->seen_used * 2 >= t->seen_size) {
		struct df_trc old = *t;

		t->seen_size = t->seen_size ? t->seen_size * 2 : 64;
		t->seen = calloc(t->seen_size, sizeof(*t->seen));
		if (!t->seen) {
			*t = old;
			return -ENOMEM;
		}
		for (size_t i = 0; i < old.seen_size; i++)
			if (old.seen[i].key)
				*seen_slot(t, old.seen[i].key) = old.seen[i];
		free(old.seen);
	}
	s = seen_slot(t, key);
	if (!s->key) {
		s->key = key;
		t->seen_used++;
	}
	if (next > s->next)
		s->next = next;
	return 0;
}
