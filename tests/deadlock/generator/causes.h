/*
 * The causes for which a program hangs, from the program alone. The model (trace/predict/model.h)
 * executes the program until nothing can move. Then the waits follow from the rules; neither a
 * trace nor the checker's graph is used. Each cycle of waits, and each wait for an event that never
 * happens, is one cause, even if its members wait for other things too. Each cause has a verdict
 * word:
 *
 *   MISSING   a rank's program does not contain an operation that other ranks have issued
 *   MISMATCH  two ranks have issued different operations as the k-th of a communicator or pair
 *   RESOURCE  a cycle that more slots or queues would dissolve
 *   ORDER     a cycle that dissolves if operations may run out of order where no program can see it
 *   SYNC      a cycle that dissolves without the waits for the whole device, explicit or implicit
 *   HOST      none of these, and threads that wait for one another are in the cycle
 *   DATA      none of these. If the cycle consists of operations alone, ORDER is right too (the
 *             catalogue has both: SQ-02, PD-02)
 *
 * If there are several causes, each word is right, because the checker chooses one. If a program
 * does not contain an operation, the records say only that the rank has not issued it yet. So if
 * the rank's threads wait, a cycle through these waits is as right as MISSING. The same holds for a
 * thread that waits for another thread outside of any recorded call.
 */
#ifndef DEADLOCK_CAUSES_H
#define DEADLOCK_CAUSES_H

#include "label.h"
#include "trace/check.h"

uint64_t cs_bit(enum df_verdict v);

/*
 * Runs a program by a schedule. Returns the set of right verdict words, or 0 if the program does
 * not hang. Stores the state at the end in `res`. With `ours` the mode must be DF_MODEL_SI or
 * DF_MODEL_SE.
 */
uint64_t cs_words(const struct script *s, int ours, enum df_model_mode mode,
		  const struct df_model_schedule *schedule, struct model_map *map,
		  struct df_model_result *res);

#endif
