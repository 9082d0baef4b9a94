/*
 * Operations that a released wait did not wait for, until they are done: the *debt* of their device. Whatever could see
 * the difference comes after them. Any thread; the devices' locks may be held.
 */
#ifndef DF_RUNTIME_ORDER_DEBT_H
#define DF_RUNTIME_ORDER_DEBT_H

#include <stdint.h>
#include "runtime/backend.h"

struct df_before;
struct df_dev;
struct df_flight;
struct df_flights;

struct df_payer {
	int device;
	enum df_work kind;
	const struct df_touch *touch; /* NULL: not known */
};
int df_debt_any(void);
/* How many of them are unfinished. */
uint32_t df_debt_count(void);
/* The operations of this completion word end without a result. */
void df_debt_end(const uint64_t *done);
/* Some of a debt have ended so. */
int df_debt_broken(void);
int df_debt_owe(struct df_dev *dev, const struct df_flights *set); /* -ENOMEM */
/* Adds to a set what such work has to come after; -ENOMEM. */
int df_debt_join(struct df_flights *set, const struct df_payer *who);
/* Up to max of them behind *at, which is 0 at first and moves on; 0: no more. */
uint32_t df_debt_next(uint64_t *at, const struct df_payer *who, struct df_flight *out,
		      uint32_t max);
/* As df_order_conflicts(), with the debts of all devices. */
uint32_t df_debt_conflicts(const struct df_flight *f, struct df_before *out, uint32_t max);
/* A copy that touches what an operation touches can't come before it. */
int df_touch_concerns(const struct df_touch *t, const struct df_flight *f);

#endif
