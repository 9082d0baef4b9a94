/*
 * The overlay: a tree of links between processes that all communicators share, and the frames that
 * travel on it. A process has at most one link up and DF_TREE_K links down. Messages are flooded:
 * every process passes them on over its other links and drops those that it has seen. So the tree's
 * shape affects only cost, never correctness, even during a repair. Everything is under the control
 * plane's lock.
 */
#ifndef DF_CTL_TREE_H
#define DF_CTL_TREE_H

#include "runtime/ctl/ctl_int.h"

#define DF_TREE_K 8

/* links down that may be used: DF_TREE_K; tests that want deep trees use fewer */
extern int df_tree_k;

void df_tree_init(void);
void df_tree_forget_all(void);

/* Returns the root of this process's part of the overlay. */
uint64_t df_tree_root(void);

/* Whether the process has died or exited. */
int df_tree_is_dead(uint64_t proc);
/*
 * Whether this process is looking for a place in the overlay. Until it has one, or knows that there
 * is none, it cannot reach some of the other processes.
 */
int df_tree_looking(void);
/*
 * Called after our goodbye has been flooded: a process that asks us for a place from now on gets
 * the goodbye's contents.
 */
void df_tree_leave(uint64_t status, const void *words, size_t bytes);
/*
 * Whether a neighbour has not answered our goodbye, or input has not been read. This process does
 * not exit before.
 */
int df_tree_unheard(void);
/*
 * Whether waiting longer may help: this process, or a process of this machine that has to answer
 * and is not stopped, may only lack a processor.
 */
int df_tree_answer_is_slow(void);
/* Answers the goodbyes of neighbours that may exit now. Call it whenever that may have changed. */
void df_tree_answer(void);
/* Queues another death() if the process has ended. */
void df_tree_tell_again(uint64_t proc);
/*
 * Called when a process has ended, as noticed here or as reported by another process: passes the
 * news on and fails the communicators of that process. words: data that it left.
 */
void df_tree_death(uint64_t proc, int in_order, const void *words, size_t bytes);

/* The message that a merge cannot reach the part of the overlay that it needs. */
struct df_unreached {
	uint64_t token;
	int32_t error, pad;
	char text[240];
};

struct df_link;

/*
 * Called when the parent has not answered in time: looks for another place, unless the parent only
 * lacks a processor.
 */
void df_tree_doubted(void);
/* Gives up the link to this parent, because the two are on a cycle. Looks for another place. */
void df_tree_cut(uint64_t parent);
/* Informs the transports. Called without the lock. */
void df_tree_tell_death(uint64_t proc);

/* Sends on all tree links but `except`. Returns the number of links. */
unsigned df_tree_send_all(const struct df_link *except, unsigned type, const void *a,
			  size_t a_bytes, const void *b, size_t b_bytes);
/*
 * Sends on the link to this neighbour, unless that is `except`. Returns 0 if there is no such
 * link.
 */
unsigned df_tree_send_to(uint64_t proc, const struct df_link *except, unsigned type, const void *a,
			 size_t a_bytes);

#endif
