/*
 * Completion words. A word counts the instances of one collective; streams, host threads and dependent
 * operations may look at it long after the collective is gone. So words are never freed and never
 * decrease: the next collective that gets the word starts counting where the last one ended. One cache line
 * each, because different cores poll neighbours. Any thread; one lock.
 *
 * What streams alone write (marks) has a second place in the memory of the device, as far as its streams can write there: a
 * block that polls it does not cross the bus, and the host, which decides about launches by the sum of all words, reads the
 * first one. The stream writes the second place first, so a kernel that is launched because of the sum finds the word there
 * (tests/model/ready.pml). docs/kernels.md says why completion words have none.
 */
#include <errno.h>
#include <stdlib.h>
#include "runtime/backend.h"
#include "runtime/blocks.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/coll/words.h"

#define WORDS_PER_SLAB 512

struct line {
	uint64_t value;
	struct line *next;
	uint64_t *near; /* its second place; NULL: none */
	struct line
		*free; /* of a slab's first line: those of this slab, if they have a second place */
	uint64_t pad[4];
};
_Static_assert(WORDS_PER_SLAB * sizeof(struct line) == DF_NEAR_BYTES, "a slab is as long there");

static struct df_mutex words_lock = DF_MUTEX_INIT(DF_RANK_LEAF, "words");
static struct line *words_free;
/* Slabs, never freed: a slab's first line names no word but the slab before it. */
static struct line *slabs;

/* Under the lock, which is not held meanwhile: the driver may be asked for the memory. NULL: there is none. */
static struct line *slab_alloc(void)
{
	struct line *slab;

	df_mutex_unlock(&words_lock);
	slab = df_kalloc(WORDS_PER_SLAB * sizeof(*slab));
	df_mutex_lock(&words_lock);
	return slab;
}

/* Under the lock. near: where the slab lies a second time; NULL: nowhere. Its lines go to `to`. */
static void slab_add(struct line *slab, uint64_t *near, struct line **to)
{
	size_t i;

	for (i = 0; i < WORDS_PER_SLAB; i++) {
		slab[i].value = 0;
		slab[i].free = NULL;
		slab[i].near = near ? near + i * (sizeof(*slab) / sizeof(*near)) : NULL;
	}
	for (i = 1; i < WORDS_PER_SLAB; i++) {
		slab[i].next = *to;
		*to = &slab[i];
	}
	slab[0].next = slabs;
	/* RELEASE pairs with the ACQUIREs in df_words_sum() and df_word_here(): who sees the slab sees it filled and linked. */
	__atomic_store_n(&slabs, slab, __ATOMIC_RELEASE);
}

/* Under the lock. */
static struct line *slab_near(const uint64_t *near)
{
	struct line *slab = slabs;

	while (slab && slab[0].near != near)
		slab = slab[0].next;
	return slab;
}

static uint64_t *word_take(struct line **from)
{
	struct line *l = *from;

	if (!l)
		return NULL;
	*from = l->next;
	return &l->value;
}

uint64_t *df_word_get(void)
{
	struct line *slab;
	uint64_t *word;

	df_mutex_lock(&words_lock);
	while (!words_free && (slab = slab_alloc()) != NULL)
		slab_add(slab, NULL, &words_free);
	word = word_take(&words_free);
	df_mutex_unlock(&words_lock);
	return word;
}

int df_mark_init(struct df_mark *m, const struct df_mstream *on)
{
	uint64_t *near = df_blocks->near_words ? df_blocks->near_words(on) : NULL;
	struct line *slab, *fresh, *lines = NULL;

	m->word = NULL;
	if (near) {
		df_mutex_lock(&words_lock);
		slab = slab_near(near);
		if (!slab && (fresh = slab_alloc()) != NULL) {
			/* Another thread may have been faster: a place is one slab's only. */
			slab = slab_near(near);
			slab_add(fresh, slab ? NULL : near, slab ? &words_free : &lines);
			if (!slab) {
				slab = fresh;
				slab[0].free = lines;
			}
		}
		if (slab)
			m->word = word_take(&slab[0].free);
		df_mutex_unlock(&words_lock);
	}
	if (!m->word)
		m->word = df_word_get();
	if (!m->word)
		return -ENOMEM;
	/* Ours alone now; a word is used again with the value that it has. */
	m->seq = __atomic_load_n(m->word, __ATOMIC_RELAXED);
	return 0;
}

uint64_t *df_word_near(const uint64_t *word)
{
	return df_container_of((uint64_t *)(uintptr_t)word, struct line, value)->near;
}

const uint64_t *df_word_here(const uint64_t *addr)
{
	/* ACQUIRE pairs with the RELEASE in slab_add(): see there. */
	const struct line *slab = __atomic_load_n(&slabs, __ATOMIC_ACQUIRE);

	for (; slab; slab = slab[0].next)
		if (slab[0].near && (uintptr_t)addr - (uintptr_t)slab[0].near < DF_NEAR_BYTES)
			return &slab[((uintptr_t)addr - (uintptr_t)slab[0].near) / sizeof(*slab)]
					.value;
	return addr;
}

void df_word_put(uint64_t *word)
{
	struct line *l = df_container_of(word, struct line, value);

	df_mutex_lock(&words_lock);
	l->next = words_free;
	words_free = l;
	df_mutex_unlock(&words_lock);
}

int df_word_mark(struct df_mutex *lock, struct df_mark *m, struct df_mstream *on, uint64_t *value)
{
	uint64_t last = *value = m->seq + 1;
	int ret, again;

	/* RELAXED: who reads it without the lock takes whatever value was there a moment ago. */
	__atomic_store_n(&m->seq, last, __ATOMIC_RELAXED);
	m->mixed |= m->writing++ > 0;
	do {
		df_mutex_unlock(lock);
		ret = df_backend->stream_write(on, m->word, df_word_near(m->word), last);
		df_mutex_lock(lock);
		/*
		 * What several threads wrote lies on the stream in any order, and the word must not end below the highest of
		 * it: the last of them writes that once more. A higher value that comes early lets nobody go on too soon:
		 * whoever took it did so later, when the work that is waited for was on the stream.
		 */
		again = !ret && m->mixed && m->writing == 1;
		if (again) {
			m->mixed = 0;
			last = m->seq;
		}
	} while (again);
	m->writing--;
	return ret;
}

uint64_t df_words_sum(void)
{
	/* ACQUIRE pairs with the RELEASE in slab_add(): see there. */
	const struct line *slab = __atomic_load_n(&slabs, __ATOMIC_ACQUIRE);
	uint64_t sum = 0;
	size_t i;

	for (; slab; slab = slab[0].next)
		for (i = 1; i < WORDS_PER_SLAB; i++)
			/* Relaxed: only whether it has changed. */
			sum += __atomic_load_n(&slab[i].value, __ATOMIC_RELAXED);
	return sum;
}
