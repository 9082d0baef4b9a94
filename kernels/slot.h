/*
 * The host's side of a submission ring (struct df_sq_slot). One thread at a time may submit to a
 * block.
 */
#ifndef DFK_SLOT_H
#define DFK_SLOT_H

#include <string.h>
#include "kernels/abi.h"

#define DF_SQ_WORDS (sizeof(struct df_sq_slot) / 8)

/* The caller has seen that the slot at `tail` is free. gpu: a GPU executes the block. */
static inline void df_sq_put(struct df_ring *sq, const struct df_sqe *e, int gpu)
{
	uint32_t tail = sq->tail; /* only this side writes it: a plain load is enough */
	struct df_sq_slot *slot = (struct df_sq_slot *)sq->slots + (tail & sq->mask), s;
	uint64_t v[DF_SQ_WORDS], lap = DF_LAP(sq, tail) << 63;
	size_t i;

	if (gpu) {
		memset(&s, 0, sizeof(s));
		s.e = *e;
		if (e->inst)
			memcpy(s.fixed, &e->inst->in, DF_KINST_FIXED);
		memcpy(v, &s, sizeof(v));
		for (i = 0; i + 1 < DF_SQ_WORDS; i++) {
			v[DF_SQ_WORDS - 1] |= v[i] >> 63 << i;
			v[i] = v[i] << 1 >> 1 | lap;
		}
		v[i] |= lap;
		/* RELAXED: each word shows whether it is of this lap. */
		while (i)
			__atomic_store_n((uint64_t *)(void *)slot + i, v[i], __ATOMIC_RELAXED), i--;
		/*
		 * RELEASE pairs with the ACQUIRE of the slot in dfk_sq_get(): what the submission
		 * refers to is complete before a block on a GPU can see it.
		 */
		__atomic_store_n((uint64_t *)(void *)slot, v[0], __ATOMIC_RELEASE);
	} else {
		slot->e = *e;
	}
	/*
	 * RELEASE pairs with the ACQUIRE of tail in dfk_sq_drain(): the slot and what it refers to
	 * are complete before a block on CPU threads, or the host in its place, can see them.
	 */
	__atomic_store_n(&sq->tail, tail + 1, __ATOMIC_RELEASE);
}

#endif
