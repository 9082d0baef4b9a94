/*
 * The inside of recording what NCCL executes (mode trace): record.c knows streams and operations, record_watch.c
 * is the thread that sees them end and explains it when nothing does. Private to runtime/; interpose/ uses
 * dfshim.h.
 */
#ifndef DF_RUNTIME_RECORD_H
#define DF_RUNTIME_RECORD_H

#include <stdint.h>

/* Looks which operations have begun and ended. Returns how many have changed; *open: how many are left. */
unsigned df_record_poll(unsigned *open);

/* Counts up with every call, operation and end in this process. */
uint64_t df_record_progress(void);

/* An operation was put on a stream: it is time to look. */
void df_record_wake(void);

/* 0, or -errno: there will be no ends and no verdict. */
int df_record_watch_start(void);

#endif
