/*
 * Which entries of a trace belong to one rank, and which threads serve it. For a set whose entries
 * are sorted (df_set_order()).
 */
#ifndef DF_TRACE_READ_PARTY_H
#define DF_TRACE_READ_PARTY_H

#include "trace/read/set.h"

/* Numbers the entries of each trace: those of one rank get the same number. */
void df_set_parties(struct df_check_set *set);
/* Whether all entries of the process belong to one rank on one device. */
int df_trc_has_one_rank(const struct df_check_set *set, const struct df_trc *t);
/* Whether the thread made the entry or issued on it. */
int df_entry_uses(const struct df_trc_comm *e, uint32_t tid);
/* Returns the same rank's entry that has its last operation, or NULL. */
const struct df_trc_comm *df_entry_last(const struct df_check_set *set,
					const struct df_trc_comm *e);
/* Whether the thread issued for the rank: on this entry or, if it is unused, on its other ones. */
int df_entry_issues(const struct df_check_set *set, const struct df_trc_comm *e,
		    const struct df_lthread *th);
/*
 * Whether the rank's threads are known to have ended: all threads that issued for it
 * (df_entry_issues()). If it issued nothing, and each rank of the process has its own thread: that
 * thread.
 */
int df_entry_has_ended(const struct df_check_set *set, const struct df_trc_comm *e);
/*
 * Whether the rank has no thread: it has issued nothing, and the thread that created it also
 * created ranks that have threads of their own.
 */
int df_entry_has_no_thread(const struct df_check_set *set, const struct df_trc_comm *e);
/* Whether the thread has issued for other ranks of its process, and never for this one. */
int df_entry_is_foreign(const struct df_check_set *set, const struct df_trc_comm *e, uint32_t tid);

#endif
