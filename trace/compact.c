/*
 * A ring reduced to what an analysis needs: the watchdog sends this to its peers instead of megabytes.
 * The copy is taken while writers go on; a record that changes meanwhile is left out.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "trace/check.h"
#include "trace/hash.h"
#include "trace/names.h"
#include "trace/set.h"

#define LAST_RECORDS 16
#define MAX_BYTES    (1ULL << 32)

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
	 * Acquire pairs with the writer's release of `used`: without it the fields copied after this could
	 * be older than the word that says they are there.
	 */
	return atomic_load_explicit((_Atomic(uint32_t) *)(uintptr_t)used, memory_order_acquire);
}

/* Entries that are whole; what is being written is left out, and of strings what lies behind it. */
static void copy_tables(const struct df_trace_header *h, struct df_trace_header *copy)
{
	const char *comms = (const char *)h + h->off_comms,
		   *strings = (const char *)h + h->off_strings;
	uint64_t end = copy->strings_used, bytes;

	for (uint32_t i = 0; i < copy->comms_used && i < h->nr_comms; i++) {
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

/* A copy in which every entry and every record is either whole or invalid. */
static void *snapshot(const struct df_trace_header *h)
{
	size_t bytes = image_bytes(h);
	struct df_trace_header *copy;
	struct df_rec *to;
	const struct df_rec *from;

	if (bytes > MAX_BYTES)
		return NULL;
	copy = calloc(1, bytes);
	if (!copy)
		return NULL;
	copy_words(copy, h, h->header_bytes);
	copy_tables(h, copy);
	to = (struct df_rec *)((char *)copy + h->off_recs);
	from = (const struct df_rec *)((const char *)h + h->off_recs);
	for (uint64_t i = 0; i < h->nr_recs; i++) {
		/*
		 * Acquire pairs with the writer's release of the commit word: without it fields older than
		 * the word could be read.
		 */
		uint32_t commit = atomic_load_explicit(
			(_Atomic(uint32_t) *)(uintptr_t)&from[i].commit, memory_order_acquire);

		/*
		 * Acquire of each field pairs with the writer's releases after it cleared the word: without it
		 * the second look at the word could be taken before the fields were read.
		 */
		for (size_t k = 0; k < sizeof(struct df_rec) / 8; k++)
			((uint64_t *)&to[i])[k] = atomic_load_explicit(
				(_Atomic(uint64_t) *)((uintptr_t)&from[i] + k * 8),
				memory_order_acquire);
		if (atomic_load_explicit((_Atomic(uint32_t) *)(uintptr_t)&from[i].commit,
					 memory_order_relaxed) != commit)
			commit = 0;
		to[i].commit = commit;
	}
	return copy;
}

struct keep {
	struct df_load l;
	uint64_t first_item; /* record of the first unfinished operation */
	uint64_t *keys;	     /* last operations by what they match with */
	size_t size;
	uint8_t *op; /* operations to keep */
};

/* Of each signature and pair the last operation, so that a peer sees how far this rank came. */
static int mark_last(struct keep *k, int nccl)
{
	size_t size = 64;

	while (size < k->l.nr_ops * 2)
		size *= 2;
	k->keys = calloc(size, sizeof(*k->keys));
	if (!k->keys)
		return -ENOMEM;
	for (size_t i = k->l.nr_ops; i-- > 0;) {
		uint64_t key = df_seen_key(k->l.ops[i].comm, &k->l.ops[i], nccl);
		size_t at = (size_t)df_mix64(key) & (size - 1);

		while (k->keys[at] && k->keys[at] != key)
			at = (at + 1) & (size - 1);
		if (k->keys[at])
			continue;
		k->keys[at] = key;
		k->op[i] = 1;
	}
	return 0;
}

static int wanted(const struct keep *k, const struct df_rec *r, uint64_t index)
{
	const struct df_lcall *call;
	const struct df_lop *op;

	if (index + LAST_RECORDS > k->l.last_rec)
		return 1;
	switch (r->type) {
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
	case DF_REC_RELEASE:
		call = df_load_call(&k->l, r->op);
		return call && call->open;
	case DF_REC_STREAM_WORK:
	case DF_REC_STREAM_FENCE:
	case DF_REC_EVENT_RECORD:
	case DF_REC_EVENT_WAIT:
		return index > k->first_item;
	case DF_REC_OP_PREEMPT:
	case DF_REC_OP_RESUME:
	case DF_REC_CALL_EXIT:
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

static int write_image(struct keep *k, struct df_reader *r, void **image, size_t *bytes)
{
	const struct df_trace_header *h = &r->h;
	uint64_t nr = 0, cap = 64, index,
		 strings = h->strings_used < h->nr_string_bytes ? h->strings_used : 0;
	struct df_trace_header *out;
	const struct df_rec *rec;
	struct df_rec *to;
	size_t total;

	df_reader_rewind(r);
	while ((rec = df_reader_next(r, &index)))
		nr += (uint64_t)wanted(k, rec, index);
	while (cap < nr)
		cap *= 2;
	strings = (strings + 63) & ~63ULL;
	total = 4096 + r->nr_comms * sizeof(struct df_trace_comm) + strings +
		nr * sizeof(struct df_rec);
	out = calloc(1, total);
	if (!out)
		return -ENOMEM;
	*out = *h;
	out->nr_recs = cap;
	out->nr_comms = out->comms_used = r->nr_comms;
	out->nr_string_bytes = (uint32_t)strings;
	out->off_comms = 4096;
	out->off_strings = 4096 + r->nr_comms * sizeof(struct df_trace_comm);
	out->off_recs = out->off_strings + strings;
	out->next = nr;
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
		/* Counting is over: what is left carries the index that matching needs. */
		op = rec->type == DF_REC_OP_MATCH ? df_load_op(&k->l, rec->op) : NULL;
		if (op)
			to[nr].c = op->index;
		nr++;
	}
	*image = out;
	*bytes = total;
	return 0;
}

int df_trace_compact(const struct df_trace_header *ring, void **image, size_t *bytes)
{
	struct keep k = {.first_item = UINT64_MAX};
	struct df_reader r;
	void *copy;
	int rc;

	if (!ring)
		return -EINVAL;
	copy = snapshot(ring);
	if (!copy)
		return -ENOMEM;
	rc = df_reader_open_image(&r, copy, image_bytes(ring), NULL);
	if (rc) {
		free(copy);
		return rc;
	}
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
		rc = mark_last(&k, r.h.rules == 1 || r.h.mode == 1);
	if (!rc)
		rc = write_image(&k, &r, image, bytes);
	free(k.keys);
	free(k.op);
	df_load_fini(&k.l);
	df_reader_close(&r);
	free(copy);
	return rc;
}
