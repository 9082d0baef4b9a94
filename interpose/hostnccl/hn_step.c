/*
 * Executes one operation, one step at a time. Nothing here waits, so the operations of a group take
 * turns, as do those of all ranks of a process. Only the engine's thread calls this.
 *
 * A collective is processed in chunks. Each rank copies its part of the chunk to memory that all
 * can read. When all ranks have done so for the same operation, each takes its share. The memory is
 * reused two chunks later, when all ranks have taken theirs. If one rank issues a different
 * operation, the others wait for ever. A message uses the slots of its pair of ranks.
 */
#include <string.h>
#include "interpose/hostnccl/hn.h"
#include "kernels/reduce.h"
#include "runtime/base/err.h"

static uint64_t signature(const struct df_hn_op *o)
{
	return ((uint64_t)o->kind ^ (uint64_t)o->type << 8 ^ (uint64_t)o->redop << 16 ^
		(uint64_t)(uint32_t)o->root << 24 ^ (uint64_t)o->count * 2654435761u) *
		       0x9e3779b97f4a7c15ull ^
	       o->index;
}

/* Returns the bytes of a rank's part in one chunk. */
static size_t part_bytes(const struct df_hn_op *o)
{
	switch (o->kind) {
	case DF_HN_REDUCESCATTER:
	case DF_HN_ALLTOALL:
	case DF_HN_SCATTER:
		return DF_HN_CHUNK / (size_t)o->comm->nranks & ~(size_t)63;
	default:
		return DF_HN_CHUNK;
	}
}

struct part {
	/* `each` is the distance between the parts of two ranks in a chunk */
	size_t at, bytes, each;
};

static struct part part_of(const struct df_hn_op *o)
{
	struct part p = {.each = part_bytes(o)};

	p.at = (size_t)o->piece * p.each;
	p.bytes = DF_MIN(p.each, o->bytes - p.at);
	return p;
}

static void put(const struct df_hn_op *o, void *to, size_t from, size_t bytes)
{
	struct dfk_move m = {.dst = to,
			     .a = (const char *)o->in + from,
			     .elems = bytes / dfk_type_bytes((uint32_t)o->type),
			     .type = (uint32_t)o->type,
			     .redop = o->reduce,
			     .arg = o->arg,
			     .pre_a = 1};

	if (o->reduce == DF_PREMULSUM)
		dfk_move(&m);
	else
		memcpy(to, (const char *)o->in + from, bytes);
}

/* Copies this rank's part to a chunk. */
static void bring(const struct df_hn_op *o, char *to)
{
	struct part p = part_of(o);
	int k;

	switch (o->kind) {
	case DF_HN_BROADCAST:
	case DF_HN_SCATTER:
		if (o->comm->rank != o->root)
			return;
		break;
	default:
		break;
	}
	if (p.each == DF_HN_CHUNK) {
		put(o, to, p.at, p.bytes);
		return;
	}
	for (k = 0; k < o->comm->nranks; k++)
		put(o, to + (size_t)k * p.each, (size_t)k * o->bytes + p.at, p.bytes);
}

static void combine(const struct df_hn_op *o, size_t from, const struct part *p)
{
	struct df_hn_comm *c = o->comm;
	char *out = (char *)o->out + p->at;
	struct dfk_move m = {
		.dst = out,
		.a = df_hn_stage(c, 0, c->nr_chunks) + from,
		.elems = p->bytes / dfk_type_bytes((uint32_t)o->type),
		.type = (uint32_t)o->type,
		/* PREMULSUM was already applied when the part was copied. */
		.redop = o->reduce == DF_PREMULSUM ? DF_SUM : o->reduce,
		.arg = o->arg,
	};
	int k;

	m.post = c->nranks == 1;
	if (m.post)
		dfk_move(&m);
	for (k = 1; k < c->nranks; k++) {
		m.b = df_hn_stage(c, k, c->nr_chunks) + from;
		m.post = k == c->nranks - 1;
		dfk_move(&m);
		m.a = out;
	}
}

/* Takes this rank's share of a chunk. */
static void take(const struct df_hn_op *o)
{
	struct df_hn_comm *c = o->comm;
	struct part p = part_of(o);
	char *out = (char *)o->out + p.at;
	size_t mine = (size_t)c->rank * p.each;
	int k;

	switch (o->kind) {
	case DF_HN_ALLREDUCE:
		combine(o, 0, &p);
		break;
	case DF_HN_REDUCE:
		if (c->rank == o->root)
			combine(o, 0, &p);
		break;
	case DF_HN_REDUCESCATTER:
		combine(o, mine, &p);
		break;
	case DF_HN_BROADCAST:
		memcpy(out, df_hn_stage(c, o->root, c->nr_chunks), p.bytes);
		break;
	case DF_HN_SCATTER:
		memcpy(out, df_hn_stage(c, o->root, c->nr_chunks) + mine, p.bytes);
		break;
	case DF_HN_ALLGATHER:
	case DF_HN_GATHER:
		for (k = 0; k < c->nranks && (o->kind == DF_HN_ALLGATHER || c->rank == o->root);
		     k++)
			memcpy(out + (size_t)k * o->bytes, df_hn_stage(c, k, c->nr_chunks),
			       p.bytes);
		break;
	default:
		for (k = 0; k < c->nranks; k++)
			memcpy(out + (size_t)k * o->bytes, df_hn_stage(c, k, c->nr_chunks) + mine,
			       p.bytes);
	}
}

static int step_coll(struct df_hn_op *o)
{
	struct df_hn_comm *c = o->comm;
	struct df_hn_seat *seats = c->share->seats, *me = &seats[c->rank];
	uint64_t chunk = c->nr_chunks, want = signature(o);
	int k, moved = 0;

	if (o->index != c->coll_turn)
		return 0;
	if (!o->posted) {
		/*
		 * ACQUIRE pairs with the RELEASE of taken below: without it, this could overwrite
		 * data that another rank still reads.
		 */
		for (k = 0; k < c->nranks; k++)
			if (__atomic_load_n(&seats[k].taken, __ATOMIC_ACQUIRE) + 1 < chunk)
				return 0;
		if (!o->no_data)
			bring(o, df_hn_stage(c, c->rank, chunk));
		__atomic_store_n(&me->signature[chunk % 2], want, __ATOMIC_RELAXED);
		/*
		 * RELEASE pairs with the ACQUIRE below: without it a rank could see the number
		 * before signature and bytes.
		 */
		__atomic_store_n(&me->posted, chunk + 1, __ATOMIC_RELEASE);
		o->posted = moved = 1;
	}
	/* ACQUIRE pairs with the RELEASE of posted above, which says why. */
	for (k = 0; k < c->nranks; k++)
		if (__atomic_load_n(&seats[k].posted, __ATOMIC_ACQUIRE) <= chunk ||
		    __atomic_load_n(&seats[k].signature[chunk % 2], __ATOMIC_RELAXED) != want)
			return moved;
	if (!o->no_data)
		take(o);
	o->posted = 0;
	o->piece++;
	c->nr_chunks++;
	/*
	 * RELEASE pairs with the ACQUIRE above: without it another rank could overwrite memory that
	 * this one still reads.
	 */
	__atomic_store_n(&me->taken, chunk + 1, __ATOMIC_RELEASE);
	if (o->piece * part_bytes(o) >= o->bytes) {
		o->over = 1;
		c->coll_turn++;
	}
	return 1;
}

static uint64_t *count_of(const struct df_hn_op *o, int finished)
{
	size_t n = (size_t)o->comm->nranks;

	return &o->comm->counts[(o->kind == DF_HN_SEND ? 0 : 2 * n) + (finished ? n : 0) +
				(size_t)o->root];
}

/* Returns the bytes of a message that are in the next slot. */
static size_t slot_bytes(const struct df_hn_op *o)
{
	return DF_MIN((size_t)DF_HN_SLOT, o->bytes - (size_t)o->piece * DF_HN_SLOT);
}

static int message_moved(struct df_hn_op *o)
{
	o->piece++;
	if (o->piece * DF_HN_SLOT >= o->bytes) {
		o->over = 1;
		++*count_of(o, 1);
	}
	return 1;
}

static int step_send(struct df_hn_op *o)
{
	struct df_hn_pair *p = df_hn_pair(o->comm, o->comm->rank, o->root);
	uint64_t at = p->posted;

	/*
	 * ACQUIRE pairs with the RELEASE in step_recv(): without it this could overwrite a slot
	 * that the receiver still reads.
	 */
	if (at - __atomic_load_n(&p->taken, __ATOMIC_ACQUIRE) >= DF_HN_SLOTS)
		return 0;
	p->bytes[at % DF_HN_SLOTS] = o->bytes;
	if (o->bytes && !o->no_data)
		memcpy(p->data[at % DF_HN_SLOTS], (const char *)o->in + o->piece * DF_HN_SLOT,
		       slot_bytes(o));
	/*
	 * RELEASE pairs with the ACQUIRE in step_recv(): without it the receiver could see the
	 * number before the bytes.
	 */
	__atomic_store_n(&p->posted, at + 1, __ATOMIC_RELEASE);
	return message_moved(o);
}

static int step_recv(struct df_hn_op *o)
{
	struct df_hn_pair *p = df_hn_pair(o->comm, o->root, o->comm->rank);
	uint64_t at = p->taken;

	/* ACQUIRE pairs with the RELEASE in step_send(), which says why. */
	if (__atomic_load_n(&p->posted, __ATOMIC_ACQUIRE) == at ||
	    p->bytes[at % DF_HN_SLOTS] != o->bytes)
		return 0;
	if (o->bytes && !o->no_data)
		memcpy((char *)o->out + o->piece * DF_HN_SLOT, p->data[at % DF_HN_SLOTS],
		       slot_bytes(o));
	/* RELEASE pairs with the ACQUIRE in step_send(), which says why. */
	__atomic_store_n(&p->taken, at + 1, __ATOMIC_RELEASE);
	return message_moved(o);
}

void df_hn_op_begin(struct df_hn_op *o)
{
	o->piece = 0;
	o->posted = o->over = 0;
	o->index = o->kind >= DF_HN_SEND ? (*count_of(o, 0))++ : o->comm->nr_colls++;
	if (o->arg_at)
		memcpy(&o->arg, o->arg_at, dfk_type_bytes((uint32_t)o->type));
}

int df_hn_op_step(struct df_hn_op *o)
{
	if (o->kind < DF_HN_SEND)
		return step_coll(o);
	/* Messages of a pair are processed in order. */
	if (o->index != *count_of(o, 1))
		return 0;
	return o->kind == DF_HN_SEND ? step_send(o) : step_recv(o);
}
