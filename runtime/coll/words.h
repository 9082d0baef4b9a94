/*
 * Words that count progress and outlive their users: completion words, and the marks that streams
 * write. Any thread; only marks need a lock of the caller.
 */
#ifndef DF_RUNTIME_COLL_WORDS_H
#define DF_RUNTIME_COLL_WORDS_H

#include <stdint.h>
#include "runtime/executor.h"

uint64_t *df_word_get(void);
void df_word_put(uint64_t *word);
/*
 * Returns the sum of all words: it changes when a stream or a daemon makes progress. Any thread, no
 * lock.
 */
uint64_t df_words_sum(void);

/*
 * df_word_near() returns the word's copy in the memory of a device, which that device's blocks
 * poll; NULL: they poll the word itself. A writer writes the copy first. df_word_here() returns the
 * word to which a copy belongs, for the host to read; any other address is returned unchanged.
 */
uint64_t *df_word_near(const uint64_t *word);
const uint64_t *df_word_here(const uint64_t *addr);

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
