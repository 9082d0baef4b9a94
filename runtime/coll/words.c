/*
 * Completion words. A word counts the finished instances of one collective. Streams, threads and
 * dependent operations may read it long after the collective is destroyed, so words are never freed
 * and never decrease: the next collective that gets the word continues counting. Each word has a
 * cache line of its own, because different cores poll neighbouring words. Any thread; one lock.
 *
 * A word that only streams write (a mark) has a copy in the memory of the device, if its streams
 * can write there. A block that polls the copy does not cross the bus; the host, which decides
 * about launches by the sum of all words, reads the word itself. The stream writes the copy first,
 * so a kernel that is launched because of the sum finds the new value there
 * (tests/model/ready.pml). docs/kernels.md says why completion words have no copy.
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
	uint64_t *near;	   /* its copy on the device; NULL: none */
	struct line *free; /* in a slab's first line: free lines of this slab, if it has copies */
	uint64_t pad[4];
};
_Static_assert(WORDS_PER_SLAB * sizeof(struct line) == DF_NEAR_BYTES, "a slab is as long there");

static struct df_mutex words_lock = DF_MUTEX_INIT(DF_RANK_LEAF, "words");
static struct line *words_free;
/* Slabs are never freed. A slab's first line holds no word; its `next` is the previous slab. */
static struct line *slabs;

/*
 * Called under the lock. Drops it while it allocates, because the allocation may call the driver.
 * Returns NULL without memory.
 */
static struct line *slab_alloc(void)
{
	struct line *slab;

	df_mutex_unlock(&words_lock);
	slab = df_kalloc(WORDS_PER_SLAB * sizeof(*slab));
	df_mutex_lock(&words_lock);
	return slab;
}

/*
 * Under the lock. near: where the slab's copy is; NULL: it has none. Adds its lines to the list
 * `to`.
 */
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
	/*
	 * RELEASE pairs with the ACQUIREs in df_words_sum() and df_word_here(): a thread that sees
	 * the slab sees it initialised and linked.
	 */
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
			/*
			 * Another thread may have been faster: each copy belongs to one slab only.
			 */
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
	/* Only ours now. A reused word continues from its present value. */
	m->seq = __atomic_load_n(m->word, __ATOMIC_RELAXED);
	return 0;
}

uint64_t *df_word_near(const uint64_t *word)
{
	return df_container_of((uint64_t *)(uintptr_t)word, struct line, value)->near;
}

const uint64_t *df_word_here(const uint64_t *addr)
{
	/* ACQUIRE pairs with the RELEASE in slab_add(), which says why. */
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

	/* RELAXED: readers without the lock accept an outdated value. */
	__atomic_store_n(&m->seq, last, __ATOMIC_RELAXED);
	m->mixed |= m->writing++ > 0;
	do {
		df_mutex_unlock(lock);
		ret = df_backend->stream_write(on, m->word, df_word_near(m->word), last);
		df_mutex_lock(lock);
		/*
		 * Several threads may put their writes on the stream in any order. The word must
		 * end with the highest value, so the last of these threads writes that once more.
		 * If 6 is written before 5, a waiter for 5 may continue at 6: the work that it
		 * awaits was on the stream when 5 was assigned, and 6 was assigned later.
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
	/* ACQUIRE pairs with the RELEASE in slab_add(), which says why. */
	const struct line *slab = __atomic_load_n(&slabs, __ATOMIC_ACQUIRE);
	uint64_t sum = 0;
	size_t i;

	for (; slab; slab = slab[0].next)
		for (i = 1; i < WORDS_PER_SLAB; i++)
			/* RELAXED: the caller only compares sums. */
			sum += __atomic_load_n(&slab[i].value, __ATOMIC_RELAXED);
	return sum;
}
