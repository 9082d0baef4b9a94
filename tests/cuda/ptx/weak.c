/*
 * Global memory that is about as weakly ordered as PTX allows, between a block and everything else.
 * A thread's stores are published in any order: at the latest by the thread's next release or by
 * any release after the block's next barrier, or earlier at random. A loaded value may be as old as
 * the thread's last acquire, or the block's last acquire before a barrier, if the block loaded it
 * then. So a missing release, acquire or barrier shows as stale data. Relaxed accesses behave the
 * same way, but a polling thread sees a new value soon. Reference: PTX ISA, memory consistency
 * model: causality by release and acquire patterns and barriers.
 *
 * This is weaker than hardware, where an acquire invalidates the cache of the whole multiprocessor
 * and a fence waits for all its stores. Not modelled: a load that is overtaken by a later store.
 */
#include <stdlib.h>
#include "runtime/base/vec.h"
#include "tests/cuda/ptx/mem.h"

static struct word *word_of(struct block *b, uintptr_t at)
{
	return &mem_page(b, at)->words[(at & (PAGE - 1)) / 8];
}

/* Returns a bit for each of these bytes of their word. */
static uint8_t bytes_of(uintptr_t at, unsigned int bytes)
{
	return (uint8_t)(((1u << bytes) - 1) << (at & 7));
}

static uint64_t bits_of(uint8_t bytes)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v |= bytes >> i & 1 ? 255ull << 8 * i : 0;
	return v;
}

/*
 * Publishes the dirty bytes in the largest possible pieces. The bytes beside them may belong to
 * other blocks, so they are not written.
 */
static void out(struct word *w, uintptr_t at)
{
	unsigned int i = 0;

	while (w->dirty && i < 8) {
		unsigned int n = 8;

		while (n > 1 && (i % n || (w->dirty >> i & ((1u << n) - 1)) != (1u << n) - 1))
			n /= 2;
		if (w->dirty >> i & 1)
			mem_store(at + i, n, w->value >> 8 * i);
		i += n;
	}
	w->dirty = 0;
}

struct waiting {
	uintptr_t at;
	struct word *w;
};

static void drop(struct block *b, uint32_t i)
{
	out(b->waiting[i].w, b->waiting[i].at);
	b->waiting[i] = b->waiting[--b->nr_waiting];
}

void weak_flush(struct block *b)
{
	while (b->nr_waiting)
		drop(b, b->nr_waiting - 1);
}

static void flush_word(struct block *b, struct word *w)
{
	uint32_t i;

	for (i = 0; w->dirty && i < b->nr_waiting; i++)
		if (b->waiting[i].w == w)
			drop(b, i);
}

void weak_release(struct block *b, uint32_t thread)
{
	uint32_t i = 0;

	while (i < b->nr_waiting) {
		const struct word *w = b->waiting[i].w;

		if (w->thread == thread || w->epoch < b->epoch)
			drop(b, i);
		else
			i++;
	}
}

void weak_acquire(struct block *b, const struct who *me)
{
	me->w->acquired[me->thread % LANES] = ++b->acquires;
}

/* Returns the smallest stamp that a value may have for this thread. */
static uint32_t needed(const struct block *b, const struct who *me)
{
	uint32_t own = me->w->acquired[me->thread % LANES];

	return own > b->acquires_at_barrier ? own : b->acquires_at_barrier;
}

uint64_t weak_load(struct block *b, const struct who *me, uintptr_t at, unsigned int bytes)
{
	struct word *w = word_of(b, at);
	uint64_t v;

	if (me->in->mods & M_ACQUIRE) {
		flush_word(b, w);
		w->stamp = 0;
		v = mem_load(at, bytes);
		weak_acquire(b, me);
		return v;
	}
	/* A polling thread must see a new value soon, so strong loads reload often. */
	if (!w->stamp || w->stamp < needed(b, me) || ptx_draw(b) % (me->strong ? 2 : 16) == 0) {
		uint64_t own = bits_of(w->dirty);

		w->value = (w->value & own) | (mem_load(at & ~(uintptr_t)7, 8) & ~own);
		w->stamp = b->acquires;
	}
	v = w->value >> 8 * (at & 7);
	return bytes == 8 ? v : v & ((1ull << 8 * bytes) - 1);
}

void weak_store(struct block *b, const struct who *me, uintptr_t at, unsigned int bytes, uint64_t v)
{
	struct word *w = word_of(b, at);
	uint64_t mask = bits_of(bytes_of(at, bytes));

	if (me->in->mods & M_RELEASE) {
		weak_release(b, me->thread);
		flush_word(b, w);
		mem_store(at, bytes, v);
		w->stamp = 0;
		return;
	}
	w->value = (w->value & ~mask) | (v << 8 * (at & 7) & mask);
	w->epoch = b->epoch;
	w->thread = (uint16_t)me->thread;
	if (!w->dirty) {
		if (DF_VEC_ROOM(b->waiting, b->room_waiting, b->nr_waiting + 1))
			abort();
		b->waiting[b->nr_waiting++] = (struct waiting){at & ~(uintptr_t)7, w};
	}
	w->dirty |= bytes_of(at, bytes);
	if (ptx_draw(b) % 8 == 0)
		weak_step(b);
}

void weak_step(struct block *b)
{
	if (b->nr_waiting)
		drop(b, (uint32_t)(ptx_draw(b) % b->nr_waiting));
}

void weak_atomic(struct block *b, const struct who *me, uintptr_t at)
{
	struct word *w = word_of(b, at);

	if (me->in->mods & M_RELEASE)
		weak_release(b, me->thread);
	flush_word(b, w);
	w->stamp = 0;
}
