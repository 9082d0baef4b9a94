/*
 * Words that count progress and outlive their users: completion words, and the marks that streams
 * write. Any thread; only marks need a lock of the caller.
 */
#ifndef DF_RUNTIME_COLL_WORDS_H
#define DF_RUNTIME_COLL_WORDS_H

#include <stdint.h>
#include "runtime/base/lock.h"

struct df_mstream;

uint64_t *df_word_get(void);
void df_word_put(uint64_t *word);
/*
 * Returns the sum of all words: it changes when a stream or a daemon makes progress. Any thread, no
 * lock.
 */
uint64_t df_words_sum(void);

/*
 * df_word_near(): the word's copy in the memory of a device, where that device's blocks poll it;
 * NULL: they poll the word itself. A writer writes the copy first. df_word_here(): the word of such
 * a copy, which the host reads; the address itself if it is no copy.
 */
uint64_t *df_word_near(const uint64_t *word);
const uint64_t *df_word_here(const uint64_t *addr);

/*
 * A word that a stream writes when it reaches a point; its value increases. Guarded by a lock of
 * its owner.
 */
struct df_mark {
	uint64_t *word;	  /* NULL: none yet */
	uint64_t seq;	  /* the last value that was enqueued; also read without the lock */
	uint32_t writing; /* number of threads that are enqueueing a write now */
	/* several threads did so at a time: the order of their writes is unknown */
	uint8_t mixed;
};

/*
 * Gives the mark its word, near the device's blocks if a stream like `on` can write there. on NULL:
 * no block waits for it. Returns 0 or -ENOMEM.
 */
int df_mark_init(struct df_mark *m, const struct df_mstream *on);
/*
 * Enqueues the write of the mark's next value, *value, on the stream. lock: the mark's lock; held
 * on entry and return, but not in between, since the driver may take long.
 */
int df_word_mark(struct df_mutex *lock, struct df_mark *m, struct df_mstream *on, uint64_t *value);

#endif
