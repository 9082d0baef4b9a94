/*
 * Completion words. A word counts the instances of one collective; streams, host threads and dependent
 * operations may look at it long after the collective is gone. So words are never freed and never
 * decrease: the next collective that gets the word starts counting where the last one ended. One cache line
 * each, because different cores poll neighbours. Any thread; one lock.
 */
#include <stdlib.h>
#include "runtime/backend.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/coll/words.h"

#define WORDS_PER_SLAB 512

struct line {
	uint64_t value;
	struct line *next;
	uint64_t pad[6];
};

static struct df_mutex words_lock = DF_MUTEX_INIT(DF_RANK_LEAF, "words");
static struct line *words_free;
/* Slabs, never freed: a slab's first line names no word but the slab before it. */
static struct line *slabs;

uint64_t *df_word_get(void)
{
	struct line *l;
	size_t i;

	df_mutex_lock(&words_lock);
	if (!words_free) {
		struct line *slab = df_kalloc(WORDS_PER_SLAB * sizeof(*slab));

		for (i = 1; slab && i < WORDS_PER_SLAB; i++) {
			slab[i].value = 0;
			slab[i].next = words_free;
			words_free = &slab[i];
		}
		if (slab) {
			slab[0].next = slabs;
			/* RELEASE pairs with the ACQUIRE in df_words_sum(): the slab is filled, and linked, when it is seen. */
			__atomic_store_n(&slabs, slab, __ATOMIC_RELEASE);
		}
	}
	l = words_free;
	if (l)
		words_free = l->next;
	df_mutex_unlock(&words_lock);
	return l ? &l->value : NULL;
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
		ret = df_backend->stream_write(on, m->word, last);
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
	/* ACQUIRE pairs with the RELEASE in df_word_get(): see there. */
	const struct line *slab = __atomic_load_n(&slabs, __ATOMIC_ACQUIRE);
	uint64_t sum = 0;
	size_t i;

	for (; slab; slab = slab[0].next)
		for (i = 1; i < WORDS_PER_SLAB; i++)
			/* Relaxed: only whether it has changed. */
			sum += __atomic_load_n(&slab[i].value, __ATOMIC_RELAXED);
	return sum;
}
