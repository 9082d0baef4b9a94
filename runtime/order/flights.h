/*
 * Operations in flight, by value: (collective, instance) and the bytes it touches; and sets of them.
 *
 * Completion needs no lock: an operation is done when the completion word of its collective has reached its value.
 * Such words are never freed and never decrease, so a stale df_flight reads "done". A set belongs to whoever holds it,
 * which guards it.
 */
#ifndef DF_RUNTIME_ORDER_FLIGHTS_H
#define DF_RUNTIME_ORDER_FLIGHTS_H

#include <stdint.h>

struct df_coll;

struct df_flight {
	const uint64_t *done; /* done when *done >= value */
	uint64_t value;
	uint64_t op;	      /* serial */
	struct df_coll *coll; /* identity only: may be gone once done */
	uint64_t group;	      /* serial of the NCCL group it was submitted with */
	uint64_t at;	      /* when it came into the set that it is in: counts up */
	uintptr_t in, in_end, out, out_end;
};

/* A set of operations in flight; finished ones are pruned as it grows. */
struct df_flights {
	struct df_flight *v;
	uint32_t nr, cap;
	uint32_t prune_at;
	uint64_t added; /* df_flight.at of the latest */
};

static inline int df_flight_done(const struct df_flight *f)
{
	/*
	 * ACQUIRE pairs with the RELEASE of done in dfk_finish() (kernels/task.inl): whoever sees the
	 * operation done also sees its results.
	 */
	return __atomic_load_n(f->done, __ATOMIC_ACQUIRE) >= f->value;
}

int df_flights_add(struct df_flights *s, const struct df_flight *f);
int df_flights_join(struct df_flights *s, const struct df_flights *from);
/* Those of them that came into `from` after `after` and not after `upto`. */
int df_flights_join_part(struct df_flights *s, const struct df_flights *from, uint64_t after,
			 uint64_t upto);
void df_flights_prune(struct df_flights *s);
void df_flights_free(struct df_flights *s);
/* 1 when all are done. */
int df_flights_done(const struct df_flights *s);

#endif
