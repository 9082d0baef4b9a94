/*
 * Completion words, which outlive their users. Any thread, no lock of the caller's.
 */
#ifndef DF_RUNTIME_COLL_WORDS_H
#define DF_RUNTIME_COLL_WORDS_H

#include <stdint.h>

uint64_t *df_word_get(void);
void df_word_put(uint64_t *word);
/* Of all words: another one says that a stream or a daemon has moved. Any thread, no lock. */
uint64_t df_words_sum(void);

#endif
