/*
 * The queries of the application's threads: calls that ask without waiting. Any thread may call
 * this.
 */
#ifndef DF_RUNTIME_WATCH_POLLS_H
#define DF_RUNTIME_WATCH_POLLS_H

#include <stddef.h>
#include <stdint.h>
#include "trace/record/format.h"

/*
 * The calling thread queries an object. df_polls_answer() gives the result: 1 done, 0 not done, -1
 * an error.
 */
void df_polls_note(enum df_polled kind, uint64_t object);
/* The same for an object that nothing recorded would have to finish. */
void df_polls_ask(enum df_polled kind);
void df_polls_answer(int done);
/*
 * The objects that the thread has queried since then, at most DF_POLLS_MAX. Returns their number.
 */
size_t df_polls_of(uint32_t tid, uint64_t since_ns, uint32_t *kinds, uint64_t *objects);
/* With which functions the thread has queried anything since then: bits 1 << enum df_polled. */
unsigned df_polls_asked(uint32_t tid, uint64_t since_ns);
/* The calling thread enqueues work on a stream, issues an operation, or waits. */
void df_polls_act(void);
/*
 * How often a thread has done so; 0: never. Threads for which there was no room to count share one
 * count.
 */
uint64_t df_polls_acts(uint32_t tid);
/* The thread has ended. */
void df_polls_gone(uint32_t tid);

#endif
