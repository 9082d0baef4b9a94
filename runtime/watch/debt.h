/*
 * Skipped operations: those that were in flight when a wait of the application was released
 * (runtime/watch/release.c), until they are done. Later work that could notice that they are
 * unfinished is ordered after them. Any thread may call; a device's lock may be held.
 */
#ifndef DF_RUNTIME_WATCH_DEBT_H
#define DF_RUNTIME_WATCH_DEBT_H

#include <stdint.h>
#include "runtime/backend.h"

struct df_before;
struct df_dev;
struct df_flight;
struct df_flights;

struct df_payer {
	int device;
	enum df_work kind;
	const struct df_touch *touch; /* NULL if not known */
};
int df_debt_any(void);
/* Returns the number of skipped operations that are unfinished. */
uint32_t df_debt_count(void);
/*
 * Call when the operations of this completion word have ended without a result: notes that if some
 * of them are skipped.
 */
void df_debt_end(const uint64_t *done);
/* Whether a skipped operation has ended without a result. */
int df_debt_broken(void);
/*
 * Adds the operations of `set`, which are in flight on dev, to the skipped operations. Returns 0 or
 * -ENOMEM.
 */
int df_debt_owe(struct df_dev *dev, const struct df_flights *set);
/* Adds to set the skipped operations that work of this kind must follow. Returns 0 or -ENOMEM. */
int df_debt_join(struct df_flights *set, const struct df_payer *who);
/*
 * Stores up to `max` skipped operations that the work must follow. *at is the position: 0 before
 * the first call; each call advances it. Returns the number of operations, or 0 if there are no
 * more.
 */
uint32_t df_debt_next(uint64_t *at, const struct df_payer *who, struct df_flight *out,
		      uint32_t max);
/* As df_flights_conflicts(), over the skipped operations of all devices. */
uint32_t df_debt_conflicts(const struct df_flight *f, struct df_before *out, uint32_t max);

#endif
