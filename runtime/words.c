/*
 * Completion words. A word counts the instances of one collective; streams, host threads and dependent
 * operations may look at it long after the collective is gone. So words are never freed and never
 * decrease: the next collective that gets the word starts counting where the last one ended. One cache line
 * each, because different cores poll neighbours. Any thread; one lock.
 */
#include <stdlib.h>
#include "runtime/rt.h"

#define WORDS_PER_SLAB 512

struct line {
	uint64_t value;
	struct line *next;
	uint64_t pad[6];
};

static struct df_mutex words_lock = DF_MUTEX_INIT(DF_RANK_LEAF, "words");
static struct line *words_free;

uint64_t *df_word_get(void)
{
	struct line *l;
	size_t i;

	df_mutex_lock(&words_lock);
	if (!words_free) {
		struct line *slab = df_kalloc(WORDS_PER_SLAB * sizeof(*slab));

		for (i = 0; slab && i < WORDS_PER_SLAB; i++) {
			slab[i].value = 0;
			slab[i].next = words_free;
			words_free = &slab[i];
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
