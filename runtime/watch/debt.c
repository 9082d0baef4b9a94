/*
 * Skipped operations. When a wait is released (runtime/watch/release.c), the application continues
 * although operations are in flight on the device. Until they are done, work that is issued later
 * must follow those that it could see to be unfinished. That depends on its kind:
 *
 * copy, collective touches known bytes: follows the operations of any device that touch the
 *                      same bytes, since devices can read each other's memory
 *   host function, touch no device memory, but let the host see how far the stream is:
 *   memory operation follow all skipped operations of their own device
 *   kernel may touch anything its device can reach: follows all of those devices
 *   anything else follows all skipped operations of all devices
 *
 * The watchdog's thread adds operations; every thread that enqueues work on a stream asks.
 */
#include <errno.h>
#include <stdlib.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/lock.h"
#include "runtime/comm/flights.h"
#include "runtime/comm/process.h"
#include "runtime/watch/debt.h"
#include "runtime/devs.h"
#include "runtime/executor.h"

static struct {
	struct df_mutex lock;
	struct df_flights *of; /* by device; NULL until the first release */
	uint32_t nr;	       /* number of operations of all devices; read without the lock */
	int broken;	       /* whether an operation ended without a result; atomic */
} debt = {.lock = DF_MUTEX_INIT(DF_RANK_LEAF, "skipped")};

/*
 * in a position of df_debt_next(): df_flight.at is in the lower bits, the device in the higher
 * bits
 */
#define AT_BITS 48

int df_debt_any(void)
{
	/*
	 * ACQUIRE pairs with the RELEASE in prune(): without it a thread that sees the release
	 * could miss operations that it skipped.
	 */
	return df_unlikely(__atomic_load_n(&debt.nr, __ATOMIC_ACQUIRE) != 0);
}

/* Drops finished operations. The caller holds the lock. */
static void prune(void)
{
	uint32_t nr = 0;

	for (int d = 0; debt.of && d < df_rt.nr_devs; d++) {
		df_flights_prune(&debt.of[d]);
		nr += debt.of[d].nr;
	}
	/* RELEASE pairs with the ACQUIRE in df_debt_any(), which says why. */
	__atomic_store_n(&debt.nr, nr, __ATOMIC_RELEASE);
}

uint32_t df_debt_count(void)
{
	uint32_t nr = 0;

	if (!df_debt_any())
		return 0;
	df_mutex_lock(&debt.lock);
	prune();
	nr = debt.nr;
	df_mutex_unlock(&debt.lock);
	return nr;
}

void df_debt_end(const uint64_t *done)
{
	if (!df_debt_any())
		return;
	df_mutex_lock(&debt.lock);
	for (int d = 0; debt.of && d < df_rt.nr_devs; d++)
		for (uint32_t i = 0; i < debt.of[d].nr; i++)
			if (debt.of[d].v[i].done == done && !df_flight_done(&debt.of[d].v[i]))
				__atomic_store_n(&debt.broken, 1, __ATOMIC_RELAXED);
	df_mutex_unlock(&debt.lock);
}

int df_debt_broken(void)
{
	return __atomic_load_n(&debt.broken, __ATOMIC_RELAXED);
}

int df_debt_owe(struct df_dev *dev, const struct df_flights *set)
{
	int ret = 0;

	df_mutex_lock(&debt.lock);
	if (!debt.of)
		debt.of = calloc((size_t)df_rt.nr_devs, sizeof(*debt.of));
	ret = debt.of ? df_flights_join(&debt.of[dev->index], set) : -ENOMEM;
	prune();
	df_mutex_unlock(&debt.lock);
	return ret;
}

static int can_tell(const struct df_payer *who, int device, const struct df_flight *f)
{
	/*
	 * Under other policies the released wait may also have left behind work whose bytes are
	 * unknown.
	 */
	if (who->touch && (device != who->device || df_env()->release == DF_RELEASE_SAFE))
		return df_touch_concerns(who->touch, f);
	if (device == who->device)
		return 1;
	if (who->kind == DF_WORK_KERNEL && df_backend->reaches)
		return df_backend->reaches(who->device, device);
	return who->kind != DF_WORK_HOSTFN && who->kind != DF_WORK_MEMOP;
}

uint32_t df_debt_next(uint64_t *at, const struct df_payer *who, struct df_flight *out, uint32_t max)
{
	uint32_t n = 0;

	df_mutex_lock(&debt.lock);
	for (uint64_t d = *at >> AT_BITS; debt.of && d < (uint64_t)df_rt.nr_devs; d++) {
		const struct df_flights *set = &debt.of[d];

		*at = DF_MAX(*at, d << AT_BITS);
		for (uint32_t i = 0; i < set->nr && n < max; i++) {
			if ((d << AT_BITS) + set->v[i].at <= *at)
				continue;
			*at = (d << AT_BITS) + set->v[i].at;
			if (can_tell(who, (int)d, &set->v[i]) && !df_flight_done(&set->v[i]))
				out[n++] = set->v[i];
		}
		if (n == max)
			break;
	}
	df_mutex_unlock(&debt.lock);
	return n;
}

int df_debt_join(struct df_flights *set, const struct df_payer *who)
{
	struct df_flight some[16];
	struct df_flights found = {.v = some};
	uint64_t at = 0;
	int ret = 0;

	df_mutex_lock(&debt.lock);
	prune();
	df_mutex_unlock(&debt.lock);
	while (!ret && (found.nr = df_debt_next(&at, who, some, DF_ARRAY_LEN(some))))
		ret = df_flights_join(set, &found);
	return ret;
}

uint32_t df_debt_conflicts(const struct df_flight *f, struct df_before *out, uint32_t max)
{
	uint32_t nr = 0;

	df_mutex_lock(&debt.lock);
	for (int d = 0; debt.of && d < df_rt.nr_devs; d++)
		nr += df_flights_conflicts(&debt.of[d], UINT64_MAX, f, out + DF_MIN(nr, max),
					   max - DF_MIN(nr, max));
	df_mutex_unlock(&debt.lock);
	return nr;
}
