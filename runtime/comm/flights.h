/*
 * Operations in flight, by value: the instance of a collective and the bytes that it touches; and
 * sets of them.
 *
 * No lock is needed to see that an operation is done: the completion word of its collective has
 * reached its value. These words are never freed and never decrease, so an outdated df_flight reads
 * as done. A set is guarded by its owner.
 */
#ifndef DF_RUNTIME_COMM_FLIGHTS_H
#define DF_RUNTIME_COMM_FLIGHTS_H

#include <stdint.h>

struct df_before;
struct df_touch;

struct df_flight {
	const uint64_t *done; /* done when *done >= value */
	uint64_t value;
	uint64_t op;	/* serial */
	uint64_t group; /* serial of the NCCL group it was submitted with */
	uint64_t at;	/* its number within the set it is in, by order of arrival */
	/*
	 * Operations of one queue end in their order; NULL: it is in no queue. Only for comparison:
	 * may be freed once the operation is done.
	 */
	const void *queue;
	uintptr_t in, in_end, out, out_end;
};

/* A set of operations in flight. df_flights_add() drops finished ones when it grows. */
struct df_flights {
	struct df_flight *v;
	uint32_t nr, cap;
	uint32_t prune_at;
	uint64_t added; /* df_flight.at of the latest */
};

static inline int df_flight_done(const struct df_flight *f)
{
	/*
	 * ACQUIRE pairs with the RELEASE of done in dfk_finish() (kernels/task.inl): a thread that
	 * sees the operation done also sees its results.
	 */
	return __atomic_load_n(f->done, __ATOMIC_ACQUIRE) >= f->value;
}

int df_flights_add(struct df_flights *s, const struct df_flight *f);
int df_flights_join(struct df_flights *s, const struct df_flights *from);
/* Joins the operations of `from` whose df_flight.at is above `after` and at most `upto`. */
int df_flights_join_part(struct df_flights *s, const struct df_flights *from, uint64_t after,
			 uint64_t upto);
void df_flights_prune(struct df_flights *s);
void df_flights_free(struct df_flights *s);
/* Whether all of them are done. */
int df_flights_done(const struct df_flights *s);

/* Whether work that touches t must wait for f: both touch the same bytes, and one writes them. */
int df_touch_concerns(const struct df_touch *t, const struct df_flight *f);
/*
 * Finds the earlier operations of the set, up to df_flight.at == upto, that f must wait for.
 * Returns their number and stores at most max of them.
 */
uint32_t df_flights_conflicts(const struct df_flights *s, uint64_t upto, const struct df_flight *f,
			      struct df_before *out, uint32_t max);

#endif
