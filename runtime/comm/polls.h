/*
 * The queries of the application's threads: calls that ask without waiting. Any thread may call
 * this.
 */
#ifndef DF_RUNTIME_COMM_POLLS_H
#define DF_RUNTIME_COMM_POLLS_H

#include <stddef.h>
#include <stdint.h>
#include "trace/record/format.h"

/*
 * The calling thread queries an object. Pass the result to df_polls_answer(): 1 done, 0 not done,
 * -1 an error.
 */
void df_polls_note(enum df_polled kind, uint64_t object);
/*
 * As df_polls_note(), for an object for which the trace has no work to finish: only the function is
 * remembered.
 */
void df_polls_ask(enum df_polled kind);
void df_polls_answer(int done);
/*
 * Returns the number of objects that the thread has queried since since_ns, at most DF_POLLS_MAX.
 */
size_t df_polls_of(uint32_t tid, uint64_t since_ns, uint32_t *kinds, uint64_t *objects);
/*
 * Returns the functions with which the thread has queried anything since then, as bits 1 << enum
 * df_polled.
 */
unsigned df_polls_asked(uint32_t tid, uint64_t since_ns);
/* Counts that the calling thread enqueues work on a stream, issues an operation, or waits. */
void df_polls_act(void);
/* Returns how often a thread has called df_polls_act(). Threads without a slot share one count. */
uint64_t df_polls_acts(uint32_t tid);
/* Frees the slot of a thread that has ended. */
void df_polls_gone(uint32_t tid);

#endif
