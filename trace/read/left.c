/*
 * The final report of a process that exits: for each of its communicators, how many operations of
 * each signature or with each peer it has finished. The process's trace ends here, while its
 * finished operations may still be in progress on other ranks. The report shows that this rank's
 * part of these is not missing. It is small, because each process of the job sends it to all
 * others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/base/map.h"
#include "runtime/base/vec.h"
#include "trace/read/set.h"
#include "trace/record/names.h"
#include "trace/record/trace_hash.h"

#define MAX_KEYS 512 /* per process: 8 KiB */
#define ISSUED	 2   /* used in place of an operation's key; those are odd */

/* One operation of a process. */
struct part {
	uint64_t key, number;
	size_t at; /* position in the process's order */
	uint32_t comm;
	int open;
};

/*
 * The key of a row: `seen` is the key of the operations (df_seen_key() with local number 0), or 0
 * for the row of the rank itself.
 */
static uint64_t row_key(uint64_t comm_hash, int rank, uint64_t seen)
{
	return df_mix64(df_mix64(df_mix64(comm_hash) + (uint64_t)(uint32_t)rank) + seen);
}

/* The key of the row that has count and type of a message; `seen` as in row_key(). */
static uint64_t message_key(uint64_t comm_hash, int rank, uint64_t seen, uint64_t index)
{
	return row_key(comm_hash, rank, df_mix64(seen) + index);
}

static int by_key(const void *pa, const void *pb)
{
	const struct part *a = pa, *b = pb;

	return DF_CMP(a->key, b->key) ?: DF_CMP(a->at, b->at);
}

static int by_place(const void *pa, const void *pb)
{
	const struct part *a = pa, *b = pb;

	return a->at > b->at ? -1 : a->at < b->at;
}

/*
 * Keeps one part per key, with the number of operations before the first unfinished one. Returns
 * the number of keys.
 */
static size_t merge(struct part *parts, size_t nr)
{
	size_t keys = 0, i, k;

	qsort(parts, nr, sizeof(*parts), by_key);
	for (i = 0; i < nr; i = k) {
		struct part p = parts[i];

		for (k = i; k < nr && parts[k].key == p.key; k++) {
			p.at = parts[k].at;
			if (!p.open)
				p.number = parts[k].number + !parts[k].open;
			p.open |= parts[k].open;
		}
		parts[keys++] = p;
	}
	/* The latest first, because other processes may still execute them. */
	qsort(parts, keys, sizeof(*parts), by_place);
	return keys;
}

/*
 * Adds rows for the last DF_AHEAD finished messages of each pair, the latest first, while there is
 * room. A message that NCCL has buffered is finished although the peer's receive may have another
 * size. Returns the number of rows or -ENOMEM.
 */
static int add_messages(const struct df_load *l, const struct df_reader *r,
			struct df_left_row *rows, int room)
{
	struct df_map pairs = {0}; /* number of rows */
	int nr = 0, rc = 0;

	for (size_t i = l->nr_ops; i-- > 0 && nr < room && !rc;) {
		const struct df_lop *op = &l->ops[i];
		const struct df_trace_comm *c = df_reader_comm(r, op->comm);
		uint64_t *pair, seen = df_seen_key(0, op, 1);

		if (!c || !df_kind_is_p2p(op->kind) || op->state < DF_OP_FINISHED)
			continue;
		pair = df_map_at(&pairs, op->comm, seen);
		if (!pair)
			rc = -ENOMEM;
		else if ((*pair)++ < DF_AHEAD)
			rows[nr++] =
				(struct df_left_row){message_key(c->hash, c->rank, seen, op->index),
						     op->count << 8 | op->type};
	}
	df_map_fini(&pairs);
	return rc ? rc : nr;
}

int df_left_rows(const struct df_load *l, const struct df_reader *r, struct df_left_row **out,
		 size_t *nr)
{
	int nccl = df_header_places(&r->h);
	struct part *parts = calloc(l->nr_ops + 1, sizeof(*parts));
	struct df_left_row *rows = calloc(2 * (size_t)r->nr_comms + MAX_KEYS, sizeof(*rows));
	size_t keys = 0, first = 2 * (size_t)r->nr_comms, i;
	int rc = 0;

	if (!parts || !rows) {
		free(parts);
		free(rows);
		return -ENOMEM;
	}
	for (i = 0; i < l->nr_ops; i++) {
		const struct df_lop *op = &l->ops[i];
		const struct df_trace_comm *c = df_reader_comm(r, op->comm);

		if (!c)
			continue;
		parts[keys++] = (struct part){
			.key = row_key(c->hash, c->rank, df_seen_key(0, op, nccl)),
			.number = !nccl && op->has_match ? op->inst : op->index,
			.at = i,
			.comm = op->comm,
			.open = op->state < DF_OP_FINISHED,
		};
	}
	keys = merge(parts, keys);
	/*
	 * Each communicator begins with two rows: whether rows for all its keys follow, and the
	 * number of collectives issued.
	 */
	for (i = 0; i < r->nr_comms; i++) {
		const struct df_trace_comm *c = &r->comms[i];

		rows[2 * i] = (struct df_left_row){row_key(c->hash, c->rank, 0), !c->drops};
		rows[2 * i + 1] =
			(struct df_left_row){row_key(c->hash, c->rank, ISSUED), df_load_nr_coll(c)};
	}
	for (i = 0; i < keys; i++) {
		/*
		 * The other rows do not distinguish an unfinished collective from one that was
		 * never issued.
		 */
		if (parts[i].open)
			rows[2 * (parts[i].comm - 1) + 1].next = 0;
		if (i < MAX_KEYS)
			rows[first + i] = (struct df_left_row){parts[i].key, parts[i].number};
		else
			rows[2 * (parts[i].comm - 1)].next = 0;
	}
	free(parts);
	*nr = first + DF_MIN(keys, (size_t)MAX_KEYS);
	if (nccl && keys < MAX_KEYS)
		rc = add_messages(l, r, rows + *nr, MAX_KEYS - (int)keys);
	if (rc < 0) {
		free(rows);
		return rc;
	}
	*nr += (size_t)rc;
	*out = rows;
	return 0;
}

int df_check_add_left(struct df_check_set *set, const struct df_left_row *rows, size_t nr)
{
	struct df_lefts *l = &set->left;

	if (DF_VEC_ROOM(l->rows, l->cap, l->nr + nr))
		return -ENOMEM;
	memcpy(l->rows + l->nr, rows, nr * sizeof(*rows));
	l->nr += nr;
	return 0;
}

static int by_row(const void *pa, const void *pb)
{
	const struct df_left_row *a = pa, *b = pb;

	return a->key < b->key ? -1 : a->key > b->key;
}

void df_left_sort(struct df_lefts *l)
{
	if (l->nr)
		qsort(l->rows, l->nr, sizeof(*l->rows), by_row);
}

static const struct df_left_row *find(const struct df_lefts *l, uint64_t key)
{
	struct df_left_row want = {.key = key};

	return l->nr ? bsearch(&want, l->rows, l->nr, sizeof(want), by_row) : NULL;
}

enum df_left df_left_of(const struct df_lefts *l, uint64_t comm_hash, int rank, uint64_t seen,
			uint64_t want)
{
	const struct df_left_row *all = find(l, row_key(comm_hash, rank, 0)),
				 *row = find(l, row_key(comm_hash, rank, seen));

	if (!all)
		return DF_LEFT_UNTOLD;
	if (!row)
		return all->next ? DF_LEFT_LACKS : DF_LEFT_PERHAPS;
	return row->next > want ? DF_LEFT_FINISHED : DF_LEFT_LACKS;
}

int df_left_message(const struct df_lefts *l, uint64_t comm_hash, int rank, struct df_lop *op)
{
	const struct df_left_row *row =
		find(l, message_key(comm_hash, rank, df_seen_key(0, op, 1), op->index));

	if (!row)
		return 0;
	op->count = row->next >> 8;
	op->type = (uint8_t)row->next;
	return 1;
}

uint64_t df_left_issued(const struct df_lefts *l, uint64_t comm_hash, int rank)
{
	const struct df_left_row *row = find(l, row_key(comm_hash, rank, ISSUED));

	return row ? row->next : 0;
}
