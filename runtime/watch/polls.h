/*
 * What the application's threads have asked for without waiting (queries), and by which functions. Any thread.
 */
#ifndef DF_RUNTIME_WATCH_POLLS_H
#define DF_RUNTIME_WATCH_POLLS_H

#include <stddef.h>
#include <stdint.h>
#include "trace/record/format.h"

/* The calling thread has asked whether this is done; what it is told: 1 it is, 0 it is not, -1 an error. */
void df_polls_note(enum df_polled kind, uint64_t object);
/* So, but nobody knows of anything that it would have to wait for. */
void df_polls_ask(enum df_polled kind);
void df_polls_answer(int done);
/* What the thread has asked for since then, at most DF_POLLS_MAX. */
size_t df_polls_of(uint32_t tid, uint64_t since_ns, uint32_t *kinds, uint64_t *objects);
/* By which functions it has asked since then, for whatever: 1 << enum df_polled. */
unsigned df_polls_asked(uint32_t tid, uint64_t since_ns);
/* The calling thread puts work on a stream, issues an operation, or waits. */
void df_polls_act(void);
/* How many times a thread has done so; 0: never. At least 1 if there was no room to count. */
uint64_t df_polls_acts(uint32_t tid);
/* The thread has ended. */
void df_polls_gone(uint32_t tid);

#endif
