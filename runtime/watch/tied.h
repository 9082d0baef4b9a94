/*
 * Finds the processes that can be part of one cycle with this one (tied to it): those that share a
 * communicator with it, those that share one with these, and so on, as known from the last question
 * (snapshot.h). For the watchdog's thread.
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

/* Returns 1 if proc was added, or 0 if it was in the set or memory is short. */
int df_procs_add(struct df_procs *p, uint64_t proc);
/*
 * For mode trace, where NCCL makes the communicators: `add` adds the processes of those
 * communicators that the control plane knows.
 */
void df_tied_by(void (*add)(struct df_procs *p));
/*
 * Whether all processes of the overlay are tied, so that one message to all of them suffices. In
 * mode trace they are, because `add` also adds the processes of communicators that have ended.
 */
int df_tied_all(void);
/* Adds the living processes that share a communicator with this one, without this one. */
void df_tied_peers(struct df_procs *p);
/* Adds the living processes that are known to be tied to this one. */
void df_tied_known(struct df_procs *p);
/* Keeps the processes that were asked. Takes ownership of the memory. */
void df_tied_keep(const struct df_procs *p);

/*
 * Returns the process that has to look for cycles: the one with the lowest process id among those
 * known to be tied to this one.
 */
uint64_t df_tied_leader(void);
/* Returns the number of living processes tied to this one whose process id is lower. */
uint32_t df_tied_before(void);

/*
 * Returns the living processes that share a communicator with this one. The caller frees the
 * array.
 */
uint64_t *df_tied_processes(uint32_t *nr);
/*
 * Announces to all processes tied to this one that the hang has been reported. `data` is the body
 * of the DF_MSG_TOLD, or NULL.
 */
void df_tied_tell(const void *data, size_t bytes);

#endif
