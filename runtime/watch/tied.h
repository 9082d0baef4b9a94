/*
 * Which processes can be part of one cycle with this one: those that share a communicator with it,
 * those that share one with them, and so on, as known from the last question (snapshot.h). For the
 * watchdog's thread.
 */
#ifndef DF_RUNTIME_WATCH_TIED_H
#define DF_RUNTIME_WATCH_TIED_H

#include <stdint.h>

/* A set of processes. */
struct df_procs {
	uint64_t *v;
	uint32_t nr, cap;
};

/* Returns 1 if proc was added, 0 if it was in the set or there is no memory. */
int df_procs_add(struct df_procs *p, uint64_t proc);
/* Adds the living processes that share a communicator with this one, without this one. */
void df_tied_peers(struct df_procs *p);
/* Keeps the processes that were asked. Takes over the memory. */
void df_tied_keep(const struct df_procs *p);

/*
 * The process that has to look for cycles: the one with the lowest process id among those known to
 * be tied to this one.
 */
uint64_t df_tied_leader(void);

/* The living processes that share a communicator with this one. The caller frees the array. */
uint64_t *df_tied_processes(uint32_t *nr);
/* Announces to all processes tied to this one that the hang has been reported. */
void df_tied_tell(void);

#endif
