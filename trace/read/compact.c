/*
 * Reduces a ring to what an analysis needs: the watchdog sends this to its peers instead of
 * megabytes. The copy is made while writers continue; a record that changes meanwhile is left out.
 *
 * The reduction can be repeated: reducing the kept records together with newer ones gives the same
 * result as reducing everything. So a process that is examined often (struct df_compact) pays only
 * for new records, not for its whole ring.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "trace/check.h"
#include "trace/record/trace_hash.h"
#include "trace/record/names.h"
#include "trace/read/compact.h"
#include "trace/read/set.h"

#define LAST_RECORDS 16
#define MAX_BYTES    (1ULL << 32)
#define MAX_AHEAD    512 /* messages that are kept for that reason in all */

static size_t image_bytes(const struct df_trace_header *h)
{
	return (size_t)(h->off_recs + h->nr_recs * sizeof(struct df_rec));
}

static void copy_words(void *to, const void *from, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += 8)
		*(uint64_t *)((char *)to + at) = atomic_load_explicit(
			(_Atomic(uint64_t) *)((uintptr_t)from + at), memory_order_relaxed);
}

static uint32_t used_word(const uint32_t *used)
{
	/*
	 * ACQUIRE pairs with the writer's RELEASE of `used`: without it, fields copied after this
	 * could be older than the word that declares them valid.
	 */
	return atomic_load_explicit((_Atomic(uint32_t) *)(uintptr_t)used, memory_order_acquire);
}

/*
 * Copies whole entries. Leaves out a communicator that is being written, and all strings from one
 * on that is being written.
 */
static void copy_tables(const struct df_trace_header *h, struct df_trace_header *copy,
			uint32_t nr_comms, uint64_t end)
{
	const char *comms = (const char *)h + h->off_comms,
		   *strings = (const char *)h + h->off_strings;
	uint64_t bytes;

	for (uint32_t i = 0; i < nr_comms && i < h->nr_comms; i++) {
		uint64_t at = i * sizeof(struct df_trace_comm);
		const struct df_trace_comm *c = (const struct df_trace_comm *)(comms + at);

		if (used_word(&c->used))
			copy_words((char *)copy + h->off_comms + at, c, sizeof(*c));
	}
	if (end > h->nr_string_bytes)
		end = h->nr_string_bytes;
	for (uint64_t at = 0; at + sizeof(struct df_trace_string) <= end; at += bytes) {
		const struct df_trace_string *s = (const struct df_trace_string *)(strings + at);

		if (!used_word(&s->used))
			break;
		bytes = sizeof(*s) + ((s->bytes + 7) & ~7u);
		copy_words((char *)copy + h->off_strings + at, s, bytes);
	}
}

#define ANY_LAP UINT64_MAX

int df_compact_record(struct df_rec *to, const struct df_rec *from, uint64_t index)
{
	/*
	 * ACQUIRE pairs with the writer's RELEASE of the commit word: without it, fields older than
	 * the word could be read.
	 */
	uint32_t commit = atomic_load_explicit((_Atomic(uint32_t) *)(uintptr_t)&from->commit,
					       memory_order_acquire);

	if (index != ANY_LAP && commit != (uint32_t)(index + 1))
		return 0;
	/*
	 * ACQUIRE of each field pairs with the writer's RELEASE stores after it cleared the word:
	 * without it, the second read of the word could happen before the fields were read.
	 */
	for (size_t k = 0; k < sizeof(struct df_rec) / 8; k++)
		((uint64_t *)to)[k] = atomic_load_explicit(
			(_Atomic(uint64_t) *)((uintptr_t)from + k * 8), memory_order_acquire);
	if (atomic_load_explicit((_Atomic(uint32_t) *)(uintptr_t)&from->commit,
				 memory_order_relaxed) != commit)
		commit = 0;
	to->commit = commit;
	return commit != 0;
}

/*
 * Returns a copy in which every entry and every record is whole or invalid. If the ring has not
 * wrapped, the copy has only the written part, so that the rest uses no memory.
 */
static void *snapshot(const struct df_trace_header *h)
{
	uint64_t next = atomic_load_explicit((_Atomic(uint64_t) *)(uintptr_t)&h->next,
					     memory_order_relaxed),
		 nr = h->nr_recs;
	struct df_trace_header *copy;
	struct df_rec *to;
	const struct df_rec *from;

	while (nr > 64 && next <= nr / 2)
		nr /= 2;
	if (h->off_recs + nr * sizeof(struct df_rec) > MAX_BYTES)
		return NULL;
	copy = calloc(1, (size_t)(h->off_recs + nr * sizeof(struct df_rec)));
	if (!copy)
		return NULL;
	copy_words(copy, h, h->header_bytes);
	if (nr < h->nr_recs) {
		copy->nr_recs = nr;
		copy->next = next;
	}
	copy_tables(h, copy, copy->comms_used, copy->strings_used);
	to = (struct df_rec *)((char *)copy + h->off_recs);
	from = (const struct df_rec *)((const char *)h + h->off_recs);
	for (uint64_t i = 0; i < nr; i++)
		df_compact_record(&to[i], &from[i], ANY_LAP);
	return copy;
}

struct keep {
	struct df_load l;
	uint64_t first_item; /* record of the first unfinished operation */
	uint8_t *op;	     /* operations to keep */
	int lean;	     /* for a proof, not for users: without texts and call sites */
};

/* Marks each communicator's last collective before the unfinished ones: the report names it. */
static int mark_finished(struct keep *k)
{
	uint32_t *last = calloc(k->l.nr_comms + 1, sizeof(*last)); /* its place + 1 */

	if (!last)
		return -ENOMEM;
	for (size_t i = k->l.nr_ops; i-- > 0;) {
		const struct df_lop *op = &k->l.ops[i];

		if (df_kind_is_p2p(op->kind) || op->comm > k->l.nr_comms)
			continue;
		if (op->state < DF_OP_FINISHED)
			last[op->comm] = 0;
		else if (!last[op->comm])
			last[op->comm] = (uint32_t)i + 1;
	}
	for (size_t i = 0; i <= k->l.nr_comms; i++)
		if (last[i])
			k->op[last[i] - 1] = 1;
	free(last);
	return 0;
}

/*
 * Marks the last operation of each signature and pair, so that a peer sees how far this rank is.
 * Also marks the last operation that each thread issued on a communicator, because that thread may
 * issue another. Where NCCL pairs messages by their index, marks the last DF_AHEAD of each pair:
 * the peer may be at any of them, and a report compares their sizes.
 */
static int mark_last(struct keep *k, int nccl)
{
	struct df_map calls = {0}, threads = {0}; /* of which an operation is marked */
	int rc = 0, left = nccl && !k->lean ? MAX_AHEAD : 0;

	for (size_t i = k->l.nr_ops; i-- > 0 && !rc;) {
		const struct df_lop *op = &k->l.ops[i];
		uint64_t *call = df_map_at(&calls, df_seen_key(op->comm, op, nccl), 0);
		uint64_t *thread = df_map_at(&threads, op->comm, op->thread);

		if (!call || !thread) {
			rc = -ENOMEM;
			continue;
		}
		if (!*call || !*thread) {
			k->op[i] = 1;
		} else if (left && df_kind_is_p2p(op->kind) && *call < DF_AHEAD) {
			k->op[i] = 1;
			left--;
		}
		++*call;
		*thread = 1;
	}
	df_map_fini(&calls);
	df_map_fini(&threads);
	return rc;
}

static int wanted(const struct keep *k, const struct df_rec *r, uint64_t index)
{
	const struct df_lcall *call;
	const struct df_lop *op;

	if (index + LAST_RECORDS > k->l.last_rec && !k->lean && r->type != DF_REC_HOST_AT)
		return 1;
	switch (r->type) {
	case DF_REC_SITE:
	case DF_REC_MARK:
	case DF_REC_CLOCK:
	case DF_REC_STALL:
		return !k->lean;
	case DF_REC_OP_ISSUE:
	case DF_REC_OP_ARGS:
	case DF_REC_OP_MATCH:
	case DF_REC_OP_DEP:
	case DF_REC_OP_BEHIND:
	case DF_REC_OP_SLOT:
	case DF_REC_OP_START:
	case DF_REC_OP_DONE:
		op = df_load_op(&k->l, r->op);
		return op && k->op[op - k->l.ops];
	case DF_REC_CALL_ENTER:
	case DF_REC_CALL_EXIT: /* of a background call */
	case DF_REC_RELEASE:
		call = df_load_call(&k->l, r->op);
		return call && call->open;
	case DF_REC_HOST_AT: {
		/* Leave it out if the thread has later records, because these may be left out. */
		const struct df_lthread *t = df_load_thread(&k->l, (uint32_t)r->a);

		return !k->lean && t &&
		       ((t->asks && t->asks_rec == index) || (t->at && t->at_rec == index) ||
			(t->at == DF_AT_POLLS && index > t->at_rec));
	}
	case DF_REC_STREAM_CREATE:
	case DF_REC_STREAM_DESTROY:
		/* A stream destroyed before the first unfinished operation has no work left. */
		return !df_load_stream_ended(&k->l, r->a, k->first_item);
	case DF_REC_STREAM_WORK:
	case DF_REC_STREAM_FENCE:
	case DF_REC_EVENT_RECORD:
	case DF_REC_EVENT_WAIT:
		return index > k->first_item;
	case DF_REC_OP_PREEMPT:
	case DF_REC_OP_RESUME:
	case DF_REC_PROXY_DONE:
	case DF_REC_POLLED:
	case DF_REC_MEM_ALLOC:
	case DF_REC_MEM_FREE:
	case DF_REC_DAEMON_LAUNCH:
	case DF_REC_DAEMON_QUIT:
	case DF_REC_GRAPH_LAUNCH:
		return 0;
	default:
		return 1;
	}
}

/*
 * Returns the operation that needs an OP_MATCH after this OP_ARGS record, or NULL. If NCCL executes
 * it, its index is counted from the first record, which the image may lack.
 */
static const struct df_lop *op_to_index(const struct keep *k, const struct df_rec *rec)
{
	const struct df_lop *op = rec->type == DF_REC_OP_ARGS ? df_load_op(&k->l, rec->op) : NULL;

	return op && op->flags & DF_OP_BY_NCCL && !op->has_index ? op : NULL;
}

static int write_image(struct keep *k, struct df_reader *r, void **image, size_t *bytes)
{
	const struct df_trace_header *h = &r->h;
	uint64_t nr = 0, cap = 64, index,
		 strings = h->strings_used < h->nr_string_bytes && !k->lean ? h->strings_used : 0;
	struct df_trace_header *out;
	const struct df_rec *rec;
	struct df_rec *to;
	uint64_t *number = NULL;
	size_t total;

	df_reader_rewind(r);
	while ((rec = df_reader_next(r, &index)))
		nr += wanted(k, rec, index) ? 1 + (op_to_index(k, rec) != NULL) : 0;
	while (cap < nr)
		cap *= 2;
	strings = (strings + 63) & ~63ULL;
	total = 4096 + r->nr_comms * sizeof(struct df_trace_comm) + strings +
		nr * sizeof(struct df_rec);
	if (!k->lean)
		total += nr * sizeof(*number);
	out = calloc(1, total);
	if (!out)
		return -ENOMEM;
	*out = *h;
	out->nr_recs = cap;
	out->nr_comms = out->comms_used = r->nr_comms;
	out->nr_string_bytes = (uint32_t)strings;
	if (k->lean)
		out->strings_used = 0;
	out->off_comms = 4096;
	out->off_strings = 4096 + r->nr_comms * sizeof(struct df_trace_comm);
	out->off_recs = out->off_strings + strings;
	out->next = nr;
	/* A verdict names records by their index in the file. */
	out->off_numbers = k->lean ? 0 : out->off_recs + nr * sizeof(*rec);
	if (!k->lean)
		number = (uint64_t *)((char *)out + out->off_numbers);
	if (r->nr_comms)
		memcpy((char *)out + out->off_comms, r->comms,
		       r->nr_comms * sizeof(struct df_trace_comm));
	for (uint32_t i = 0; i < r->nr_comms; i++)
		((struct df_trace_comm *)((char *)out + out->off_comms))[i].drops++;
	if (strings)
		memcpy((char *)out + out->off_strings, r->strings,
		       r->string_bytes < strings ? r->string_bytes : (size_t)strings);
	to = (struct df_rec *)((char *)out + out->off_recs);
	nr = 0;
	df_reader_rewind(r);
	while ((rec = df_reader_next(r, &index))) {
		const struct df_lop *op;

		if (!wanted(k, rec, index))
			continue;
		to[nr] = *rec;
		to[nr].commit = (uint32_t)(nr + 1);
		if (number)
			number[nr] = index;
		/*
		 * In the reduced trace operations can no longer be counted, so store the index that
		 * matching needs.
		 */
		op = rec->type == DF_REC_OP_MATCH ? df_load_op(&k->l, rec->op) : NULL;
		if (op)
			to[nr].c = op->index;
		nr++;
		op = op_to_index(k, rec);
		if (!op)
			continue;
		to[nr] = *rec;
		to[nr].type = DF_REC_OP_MATCH;
		to[nr].a = df_op_signature(op);
		to[nr].b = to[nr].c = op->index;
		to[nr].commit = (uint32_t)(nr + 1);
		if (number)
			number[nr] = index;
		nr++;
	}
	*image = out;
	*bytes = total;
	return 0;
}

/* Reduces `source`, a whole trace, to an image. lean: for a proof. */
static int reduce(const void *source, int lean, void **image, size_t *bytes)
{
	struct keep k = {.first_item = UINT64_MAX, .lean = lean};
	struct df_reader r;
	int rc = df_reader_open_image(&r, source, image_bytes(source), NULL);

	if (rc)
		return rc;
	df_load_init(&k.l);
	rc = df_load_trace(&k.l, &r);
	if (!rc) {
		k.op = calloc(k.l.nr_ops + 1, 1);
		rc = k.op ? 0 : -ENOMEM;
	}
	for (size_t i = 0; !rc && i < k.l.nr_ops; i++) {
		if (k.l.ops[i].state >= DF_OP_FINISHED)
			continue;
		k.op[i] = 1;
		if (k.l.ops[i].rec < k.first_item)
			k.first_item = k.l.ops[i].rec;
	}
	if (!rc)
		rc = mark_last(&k, df_header_places(&r.h));
	if (!rc && !lean)
		rc = mark_finished(&k);
	if (!rc)
		rc = write_image(&k, &r, image, bytes);
	free(k.op);
	df_load_fini(&k.l);
	df_reader_close(&r);
	return rc;
}

int df_check_add_ring(struct df_check_set *set, const struct df_trace_header *ring,
		      const char *name)
{
	struct df_trace_header *copy;

	if (!ring)
		return -EINVAL;
	copy = snapshot(ring);
	return df_set_take_image(set, copy, copy ? image_bytes(copy) : 0, name);
}

/*
 * A process that runs on after communicators ended because of a report is judged by what it does
 * now: makes the copy one in which the program left them, without the standstill before that.
 */
static void goes_on(struct df_trace_header *copy)
{
	struct df_rec *recs = (struct df_rec *)((char *)copy + copy->off_recs);
	uint64_t i, end = 0, first = copy->next > copy->nr_recs ? copy->next - copy->nr_recs : 0;

	for (i = copy->next; i > first; i--) {
		struct df_rec *r = &recs[(i - 1) & (copy->nr_recs - 1)];

		if (r->type == DF_REC_COMM_ABORT && r->comm && (r->a == 1 || r->a == 2)) {
			r->type = DF_REC_COMM_DESTROY;
			if (!end)
				end = i;
		} else if (i < end && (r->type == DF_REC_STALL || r->type == DF_REC_HOST_AT)) {
			r->type = DF_REC_NONE;
		}
	}
}

int df_trace_compact(const struct df_trace_header *ring, void **image, size_t *bytes)
{
	void *copy;
	int rc;

	if (!ring)
		return -EINVAL;
	copy = snapshot(ring);
	if (!copy)
		return -ENOMEM;
	goes_on(copy);
	rc = reduce(copy, 0, image, bytes);
	free(copy);
	return rc;
}

int df_trace_left(const struct df_trace_header *ring, struct df_left_row **rows, size_t *nr)
{
	struct df_trace_header *copy = ring ? snapshot(ring) : NULL;
	struct df_load l;
	struct df_reader r;
	int rc;

	if (!copy)
		return ring ? -ENOMEM : -EINVAL;
	rc = df_reader_open_image(&r, copy, image_bytes(copy), NULL);
	if (!rc) {
		df_load_init(&l);
		rc = df_load_trace(&l, &r);
		if (!rc)
			rc = df_left_rows(&l, &r, rows, nr);
		df_load_fini(&l);
		df_reader_close(&r);
	}
	free(copy);
	return rc;
}

/* ---- repeated reduction --------------------------------------------------------------------- */

#define TABLE 4096 /* offset of a source's communicators */

/*
 * Makes a trace of `old` and the records [from, to) of the ring. Returns -EAGAIN if one of these is
 * not whole.
 */
static int source(const struct df_trace_header *ring, const struct df_trace_header *old,
		  uint64_t from, uint64_t to, struct df_trace_header **out)
{
	uint64_t nr_old = old ? old->next : 0, nr = nr_old + (to - from), cap = 64;
	const struct df_rec *recs = (const struct df_rec *)((const char *)ring + ring->off_recs);
	uint32_t nr_comms = atomic_load_explicit((_Atomic(uint32_t) *)(uintptr_t)&ring->comms_used,
						 memory_order_relaxed);
	struct df_trace_header *h;
	struct df_rec *rec;

	if (nr_comms > ring->nr_comms)
		nr_comms = ring->nr_comms;
	while (cap < nr)
		cap *= 2;
	h = calloc(1, TABLE + nr_comms * sizeof(struct df_trace_comm) + cap * sizeof(*rec));
	if (!h)
		return -ENOMEM;
	copy_words(h, ring, sizeof(*h) / 8 * 8);
	copy_tables(ring, h, nr_comms, 0);
	h->nr_recs = cap;
	h->nr_comms = h->comms_used = nr_comms;
	h->nr_string_bytes = h->strings_used = 0;
	h->off_recs = h->off_strings = TABLE + nr_comms * sizeof(struct df_trace_comm);
	h->next = nr;
	/*
	 * The first records of these communicators are missing. The others carry the index that
	 * matching needs.
	 */
	for (uint32_t i = 0; i < nr_comms && (old || from); i++)
		((struct df_trace_comm *)((char *)h + h->off_comms))[i].drops |= 1;
	rec = (struct df_rec *)((char *)h + h->off_recs);
	if (nr_old)
		memcpy(rec, (const char *)old + old->off_recs, nr_old * sizeof(*rec));
	for (uint64_t i = from; i < to; i++) {
		struct df_rec *copy = &rec[nr_old + (i - from)];

		if (!df_compact_record(copy, &recs[i & (ring->nr_recs - 1)], i)) {
			/* Its writer abandoned it: it will never be whole. */
			if (h->lost && to - i > 64)
				continue;
			free(h);
			return -EAGAIN;
		}
		copy->commit = (uint32_t)(nr_old + (i - from) + 1);
		/* The process still runs, so records after the abort count too. */
		if (copy->type == DF_REC_COMM_ABORT)
			copy->type = DF_REC_COMM_DESTROY;
	}
	*out = h;
	return 0;
}

int df_trace_compact_step(struct df_compact *c, const struct df_trace_header *ring)
{
	uint64_t to = atomic_load_explicit((_Atomic(uint64_t) *)(uintptr_t)&ring->next,
					   memory_order_relaxed),
		 from = c->next;
	const struct df_trace_header *old = c->image;
	struct df_trace_header *h;
	void *image = NULL;
	size_t bytes = 0;
	int rc;

	if (old && to == from)
		return 0;
	/* Leave room for records that are written during the copy. */
	if (!old || to - from > ring->nr_recs / 2) {
		old = NULL;
		from = to > ring->nr_recs / 2 ? to - ring->nr_recs / 2 : 0;
	}
	rc = source(ring, old, from, to, &h);
	if (rc)
		return rc;
	rc = reduce(h, 1, &image, &bytes);
	free(h);
	if (rc)
		return rc;
	free(c->image);
	c->image = image;
	c->bytes = bytes;
	c->next = to;
	return 0;
}
