/*
 * Words that say how far somebody has come, and outlive their users: completion words, and the marks that streams write.
 * Any thread, no lock of the caller's but for marks.
 */
#ifndef DF_RUNTIME_COLL_WORDS_H
#define DF_RUNTIME_COLL_WORDS_H

#include <stdint.h>
#include "runtime/base/lock.h"

struct df_mstream;

uint64_t *df_word_get(void);
void df_word_put(uint64_t *word);
/* Of all words: another one says that a stream or a daemon has moved. Any thread, no lock. */
uint64_t df_words_sum(void);

/*
 * A word's place in the memory of a device, where that device's blocks poll it; NULL: they poll the word itself. Whoever writes
 * the word writes it there first. df_word_here(): the word of such a place, or of itself, where the host looks.
 */
uint64_t *df_word_near(const uint64_t *word);
const uint64_t *df_word_here(const uint64_t *addr);

/* A word that a stream writes when it has got somewhere; it counts up. Guarded by a lock of its owner's. */
struct df_mark {
	uint64_t *word; /* NULL: none yet */
	uint64_t
		seq; /* its last value that was written, or is being written; also read without the lock */
	uint32_t writing; /* threads that put one of them on the stream now */
	uint8_t mixed;	  /* several did at a time: nobody knows in which order */
};

/* Gives the mark its word, near the device's blocks if a stream like `on` can write there. NULL: no block waits for it. -ENOMEM. */
int df_mark_init(struct df_mark *m, const struct df_mstream *on);
/*
 * Lets the stream write the mark's next value, *value, behind what is on it. lock: the mark's; held when this is called
 * and when it returns, and not meanwhile, since the driver may take as long as it likes.
 */
int df_word_mark(struct df_mutex *lock, struct df_mark *m, struct df_mstream *on, uint64_t *value);

#endif
