/*
 * Which processes can be part of one cycle with this one: those that share a communicator with it,
 * those that share one with them, and so on, as known from the last question (snapshot.h). For the
 * watchdog's thread.
 */
#ifndef DF_RUNTIME_WATCH_TIED_H
#define DF_RUNTIME_WATCH_TIED_H

#include <stddef.h>
#include <stdint.h>

/* A set of processes. */
struct df_procs {
	uint64_t *v;
	uint32_t nr, cap;
};

/* Returns 1 if proc was added, 0 if it was in the set or there is no memory. */
int df_procs_add(struct df_procs *p, uint64_t proc);
/*
 * In mode trace, NCCL makes the communicators: `add` adds the processes of those that the control
 * plane knows too.
 */
void df_tied_by(void (*add)(struct df_procs *p));
/*
 * Whether all processes of the overlay are tied, so that what concerns all of them is one message
 * to all. In mode trace they are: `add` adds those of communicators that have ended, too.
 */
int df_tied_all(void);
/* Adds the living processes that share a communicator with this one, without this one. */
void df_tied_peers(struct df_procs *p);
/* Adds the living processes that are known to be tied to this one. */
void df_tied_known(struct df_procs *p);
/* Keeps the processes that were asked. Takes over the memory. */
void df_tied_keep(const struct df_procs *p);

/*
 * The process that has to look for cycles: the one with the lowest process id among those known to
 * be tied to this one.
 */
uint64_t df_tied_leader(void);
/* The number of living processes tied to this one whose process id is lower. */
uint32_t df_tied_before(void);

/* The living processes that share a communicator with this one. The caller frees the array. */
uint64_t *df_tied_processes(uint32_t *nr);
/*
 * Announces to all processes tied to this one that the hang has been reported. data: what
 * DF_MSG_TOLD carries, or NULL.
 */
void df_tied_tell(const void *data, size_t bytes);

#endif
