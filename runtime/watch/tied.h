/*
 * Which processes can be part of one circle with this one: those that share a communicator with it, those that share
 * one with them, and so on, as far as is known from the last question (snapshot.h). For the watchdog's thread.
 */
#ifndef DF_RUNTIME_WATCH_TIED_H
#define DF_RUNTIME_WATCH_TIED_H

#include <stdint.h>

/* A set of processes. */
struct df_procs {
	uint64_t *v;
	uint32_t nr, cap;
};

/* 1: it is new; 0: it was in, or there is no memory. */
int df_procs_add(struct df_procs *p, uint64_t proc);
/* Those that live and share a communicator with us; not ourselves. */
void df_tied_peers(struct df_procs *p);
/* Those that were asked; takes the memory. */
void df_tied_keep(const struct df_procs *p);

#endif
