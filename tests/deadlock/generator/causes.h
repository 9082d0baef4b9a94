/*
 * The causes for which a program hangs, from the program alone: the model (trace/predict/model.h)
 * runs it to its standstill, and each wait there is exactly as the rules say: no trace and nothing
 * of the checker's graph has a part in it. Each cycle in that graph, and each wait for an event
 * that never happens, is a cause by itself, whatever else it waits for, and has a word that is
 * true of it:
 *
 *   MISSING   a rank's program does not have an operation that others have issued
 *   MISMATCH  two ranks have issued different things for one place
 *   RESOURCE  a cycle that more slots or queues would dissolve
 *   ORDER     one that dissolves if operations leave their order where no program can see it
 *   SYNC      one that dissolves if waits for the whole device, implicit or not, are no waits
 *   HOST      none of these, and threads that wait for one another are in it
 *   DATA      none of these; ORDER too, where operations alone close the cycle (the catalogue has
 *             both: SQ-02, PD-02)
 *
 * Where there are several causes each word is right: the checker chooses one. If a rank does not
 * have an operation the records only say that it has not issued it yet: so a cycle through the
 * waits of its threads, if they wait, is as true as that it is missing. The same holds for a
 * thread that waits for another outside of any call.
 */
#ifndef DEADLOCK_CAUSES_H
#define DEADLOCK_CAUSES_H

#include "label.h"
#include "trace/check.h"

uint64_t cs_bit(enum df_verdict v);

/*
 * The true words of a program, run by a schedule; 0 if it does not hang. res: where it stands. By
 * our rules the mode is SI or SE; `from` has the communicators that signatures make of each.
 */
uint64_t cs_words(const struct script *s, int ours, enum df_model_mode mode,
		  const struct df_model_schedule *schedule, struct model_map *map,
		  struct df_model_result *res);

#endif
