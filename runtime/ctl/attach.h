/*
 * How this process gets a link to a parent in the overlay. Callers hold the control plane's lock.
 */
#ifndef DF_RUNTIME_CTL_ATTACH_H
#define DF_RUNTIME_CTL_ATTACH_H

#include <stdint.h>

struct df_member;
struct hop;
struct tree_merge;

uint64_t df_tree_timers(uint64_t now);

/*
 * Joins this process's part of the overlay with that of `target`. When they are one part,
 * df_join_merged() is called with token. May be repeated.
 */
void df_tree_merge(const struct df_member *target, uint64_t token);
void df_attach_merge(const struct tree_merge *m);

/*
 * Called when our parent has ended or said goodbye: collects the processes to ask for a place, from
 * what the parent had sent. df_attach_repair() must follow.
 */
void df_attach_candidates(const struct hop *path, int nr_path, const struct hop *siblings,
			  int nr_siblings, int in_order);
void df_attach_repair(void);

#endif
