/*
 * See handles.h. An object follows its head in memory. The head counts how often the object was
 * used: the number is odd while it is in use.
 */
#include "interpose/profiler/handles.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "runtime/base/hash.h"

#define PLACE_BITS 20
#define USES_BITS  28
#define PART_AT	   48
#define KIND_AT	   52
#define MARK_AT	   56

struct head {
	uint32_t uses; /* atomic */
	/* for an unused object: the next unused one, as in df_profiler_objects.free */
	uint32_t next;
};

static uint64_t mark(void)
{
	/* the mark of this process; atomic, because any thread computes the same value */
	static uint64_t known;
	uint64_t m = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (!m) {
		/* 0 would make small numbers valid handles. */
		m = (df_mix64((uint64_t)getpid()) & 0xff) | 1;
		__atomic_store_n(&known, m, __ATOMIC_RELAXED);
	}
	return m << MARK_AT;
}

static struct head *head_at(const struct df_profiler_objects *o, uint32_t at)
{
	/*
	 * ACQUIRE pairs with the RELEASE in df_profiler_make(): without it the chunk might not be
	 * zeroed.
	 */
	unsigned char *chunk =
		at / DF_HANDLE_CHUNK < DF_HANDLE_CHUNKS
			? __atomic_load_n(&o->chunks[at / DF_HANDLE_CHUNK], __ATOMIC_ACQUIRE)
			: NULL;

	return chunk ? (struct head *)(void *)(chunk + (at % DF_HANDLE_CHUNK) *
							       (sizeof(struct head) + o->bytes))
		     : NULL;
}

static uint64_t handle_of(enum df_profiler_handle_kind kind, uint32_t uses, uint32_t at)
{
	return mark() | (uint64_t)kind << KIND_AT |
	       (uint64_t)(uses & ((1u << USES_BITS) - 1)) << PLACE_BITS | at;
}

uint64_t df_profiler_make(struct df_profiler_objects *o, void **object)
{
	uint32_t at = o->free ? o->free - 1 : o->nr;
	struct head *h;

	if (!o->free && at % DF_HANDLE_CHUNK == 0) {
		unsigned char *chunk =
			at / DF_HANDLE_CHUNK < DF_HANDLE_CHUNKS
				? calloc(DF_HANDLE_CHUNK, sizeof(struct head) + o->bytes)
				: NULL;

		if (!chunk)
			return 0;
		/* RELEASE pairs with the ACQUIRE in head_at(), which says why. */
		__atomic_store_n(&o->chunks[at / DF_HANDLE_CHUNK], chunk, __ATOMIC_RELEASE);
	}
	h = head_at(o, at);
	if (o->free)
		o->free = h->next;
	else
		o->nr++;
	memset(h + 1, 0, o->bytes);
	*object = h + 1;
	/* RELAXED: NCCL passes the handle to other threads in an ordered way. */
	__atomic_store_n(&h->uses, h->uses + 1, __ATOMIC_RELAXED);
	return handle_of(o->kind, h->uses, at);
}

static struct head *head_of(const struct df_profiler_objects *o, uint64_t handle)
{
	uint32_t at = (uint32_t)handle & ((1u << PLACE_BITS) - 1);
	struct head *h = df_profiler_handle_kind(handle) == o->kind ? head_at(o, at) : NULL;
	uint32_t uses = h ? __atomic_load_n(&h->uses, __ATOMIC_RELAXED) : 0;

	return uses & 1 && (uint32_t)(handle >> PLACE_BITS & ((1u << USES_BITS) - 1)) ==
				       (uses & ((1u << USES_BITS) - 1))
		       ? h
		       : NULL;
}

void df_profiler_drop(struct df_profiler_objects *o, uint64_t handle)
{
	struct head *h = head_of(o, handle);

	if (!h)
		return;
	__atomic_store_n(&h->uses, h->uses + 1, __ATOMIC_RELAXED);
	h->next = o->free;
	o->free = ((uint32_t)handle & ((1u << PLACE_BITS) - 1)) + 1;
}

void *df_profiler_find(const struct df_profiler_objects *o, uint64_t handle)
{
	struct head *h = head_of(o, handle);

	return h ? h + 1 : NULL;
}

void *df_profiler_at(const struct df_profiler_objects *o, uint32_t at, uint64_t *handle)
{
	struct head *h = head_at(o, at);
	uint32_t uses = h ? __atomic_load_n(&h->uses, __ATOMIC_RELAXED) : 0;

	*handle = uses & 1 ? handle_of(o->kind, uses, at) : 0;
	return uses & 1 ? h + 1 : NULL;
}

uint64_t df_profiler_handle_as(uint64_t handle, enum df_profiler_handle_kind kind, unsigned part)
{
	return (handle & ~(0xffull << PART_AT)) | (uint64_t)kind << KIND_AT |
	       (uint64_t)(part & 15) << PART_AT;
}

unsigned df_profiler_handle_part(uint64_t handle)
{
	return handle >> PART_AT & 15;
}

enum df_profiler_handle_kind df_profiler_handle_kind(uint64_t handle)
{
	return (handle ^ mark()) >> MARK_AT
		       ? DF_HANDLE_NONE
		       : (enum df_profiler_handle_kind)(handle >> KIND_AT & 15);
}

uint64_t df_profiler_handle_plain(enum df_profiler_handle_kind kind, uint32_t number)
{
	return mark() | (uint64_t)kind << KIND_AT | number;
}
