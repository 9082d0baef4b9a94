/*
 * Finds where the threads of a Python program are, as lines of its scripts, which a return address
 * does not show. Used only while a hang is investigated (hosts.c), and only in a process that has
 * an interpreter.
 */
#ifndef DF_RUNTIME_WATCH_PYTHON_H
#define DF_RUNTIME_WATCH_PYTHON_H

#include <stdint.h>

/*
 * Begins to ask the interpreter. A thread of its own does that, because it needs the interpreter's
 * lock, which a thread of the application may hold for any time. Does nothing without Python, with
 * DFSHIM_PYTHON=0, or while an earlier question has no answer.
 */
void df_python_ask(void);

/*
 * Whether the process has a running interpreter. The search is made once, at the process's first
 * hang.
 */
int df_python_is_there(void);

/* Waits at most ns nanoseconds for the answer. Returns whether this question has one. */
int df_python_wait(uint64_t ns);

/*
 * After df_python_wait() returned 0: whether the question is still open, because a thread holds the
 * interpreter's lock.
 */
int df_python_is_held(void);

/*
 * Whether the thread waits in a line of the application, not in a waiting function of Python's
 * standard library.
 */
int df_python_in_own_line(uint32_t tid);

/*
 * Returns the call site (df_trace_site_text()) where the thread was, or 0 if it is unknown. Valid
 * after df_python_wait() returned 1.
 */
uint32_t df_python_site(uint32_t tid);

#endif
