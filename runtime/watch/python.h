/*
 * Where the threads of a Python program are: the lines of its scripts, which no return address tells. Only while a hang is
 * looked into (hosts.c), and only in a process that has an interpreter.
 */
#ifndef DF_RUNTIME_WATCH_PYTHON_H
#define DF_RUNTIME_WATCH_PYTHON_H

#include <stdint.h>

/*
 * Begins to ask the interpreter, in a thread of its own: it needs the interpreter's lock, which a thread of the
 * application may hold for as long as it likes. Nothing happens without Python, with DFSHIM_PYTHON=0, or while an earlier
 * question has no answer yet.
 */
void df_python_ask(void);

/* The process has an interpreter that runs. Looked for once, with the process's first hang. */
int df_python_is_there(void);

/* Waits for the answer, no longer than so many nanoseconds. 1: there is one to this question. */
int df_python_wait(uint64_t ns);

/* After df_python_wait() said 0: a question has no answer yet, because a thread holds the interpreter's lock. */
int df_python_is_held(void);

/* The thread waits in a line of the application's own: not in what the language's library offers to wait with. */
int df_python_in_own_line(uint32_t tid);

/* The call site (df_trace_site_text()) of where the thread was; 0: not known. After df_python_wait() said 1. */
uint32_t df_python_site(uint32_t tid);

#endif
