/*
 * The low-latency protocols: slots whose words themselves show whether they are valid, as in NCCL's
 * LL and LL128. With Simple, the sender fills a slot and then increments a counter, so the receiver
 * waits for two cache lines in sequence, and on a GPU the sender waits for a fence. Here data and
 * flag arrive together.
 *
 *   LL     words of eight bytes, stored and loaded whole: four of data, four of flag
 *   LL128  lines of DFK_LINE words: data, and in the last word the flag, released after them
 *
 * The flag is the lap: the number of times that the positions have passed the slots. They are
 * computed from df_kctx.k, which never decreases, so nothing is ever reset, and data of an earlier
 * lap is not mistaken for this lap's. A connector is zeroed at first, and no flag is zero. The lap
 * of a line has 64 bits. That of a word has 31: a word that no slice used for 2^31 laps would look
 * valid again, so on every DFK_SWEEP-th lap all words of the slot are written. On every rank a
 * slice has as many bytes as its tile, whatever part of it is in a buffer.
 *
 * A slice is taken only when it is complete: dfk_words_get() copies it to the block's stage and
 * returns whether it was complete; if not, nothing has changed. So a preempted slice is neither
 * consumed nor reduced in part.
 *
 * Slots are returned as in Simple, but head is published only every df_kconn.credit slices, so that
 * the receiver does not check for sleepers after every slice. There are at least twice as many
 * slots as the program needs.
 */

#define DFK_LINE_DATA ((DFK_LINE - 1) * 8)
#define DFK_SWEEP     (1u << 20)

typedef uint32_t __attribute__((may_alias)) dfk_u32;
typedef uint64_t __attribute__((may_alias)) dfk_u64;

/* Data that a block has taken out of a slot, or will put into one. */
struct dfk_stage {
	/* Moved in units of 16 bytes if the other operands are aligned to them. */
	uint64_t in[DF_WORDS_BYTES / 8 + DFK_LINE] __attribute__((aligned(16)));
	uint64_t out[DF_WORDS_BYTES / 8 + DFK_LINE] __attribute__((aligned(16)));
};

/* One slot, with the words of one slice. */
struct dfk_words {
	uint64_t *at;
	uint64_t lap; /* from 0 */
	uint32_t nr;  /* units: words or lines, at least 1 */
	uint32_t lines;
};

/* Bytes of a slice: the tiles of all its chunks, as stored in a slot. */
DFK uint32_t dfk_slice_bytes(const struct df_kcoll *c, uint32_t cnt, uint64_t loop)
{
	uint64_t start = loop * c->tile_elems,
		 len = c->chunk_elems > start ? c->chunk_elems - start : 0;

	if (len > c->tile_elems)
		len = c->tile_elems;
	return (uint32_t)(((cnt - 1) * c->tile_elems + len) * c->elem_bytes);
}

DFK void dfk_words_of(struct dfk_words *w, const struct df_kconn *k, uint64_t pos, uint32_t bytes)
{
	w->at = (uint64_t *)(void *)(k->slots + pos % k->nr_slots * k->slot_bytes);
	w->lap = pos / k->nr_slots;
	w->lines = k->proto == DF_PROTO_LL128;
	w->nr = w->lines ? (bytes + DFK_LINE_DATA - 1) / DFK_LINE_DATA : (bytes + 3) / 4;
	if (!w->nr)
		w->nr = 1;
}

DFK uint32_t dfk_word_flag(uint64_t lap)
{
	return (uint32_t)lap | 0x80000000u;
}

/* Thread 0: whether the slice may be complete. Its last unit is written last. */
DFK int dfk_words_look(const struct dfk_words *w)
{
	if (w->lines)
		/* RELAXED: dfk_words_get() decides. */
		return dfk_load_relaxed_sys(&w->at[(uint64_t)w->nr * DFK_LINE - 1]) == w->lap + 1;
	return (uint32_t)(dfk_load_relaxed_sys(&w->at[w->nr - 1]) >> 32) == dfk_word_flag(w->lap);
}

/* All threads: copies out of the slot. Returns 0 if a part has not arrived yet. */
DFK int dfk_words_get(const struct dfk_words *w, uint64_t *stage)
{
	uint32_t i, j;

	if (w->lines) {
		for (i = (uint32_t)DFK_TID; i < w->nr; i += DFK_NTHREADS) {
			const uint64_t *line = w->at + (uint64_t)i * DFK_LINE;
			dfk_u64 *to = (dfk_u64 *)stage + (uint64_t)i * (DFK_LINE - 1);

			/*
			 * ACQUIRE pairs with the RELEASE of the line's flag in dfk_words_put():
			 * without it, the words before it could be read before they are written.
			 */
			if (dfk_load_acquire_sys(&line[DFK_LINE - 1]) != w->lap + 1)
				return 0;
			for (j = 0; j < DFK_LINE - 1; j++)
				to[j] = dfk_load_flagged_sys(&line[j]);
		}
	} else {
		for (i = (uint32_t)DFK_TID; i < w->nr; i += DFK_NTHREADS) {
			/* RELAXED: data and flag are one word. */
			uint64_t v = dfk_load_relaxed_sys(&w->at[i]);

			if ((uint32_t)(v >> 32) != dfk_word_flag(w->lap))
				return 0;
			((dfk_u32 *)stage)[i] = (uint32_t)v;
		}
	}
	return 1;
}

/* All threads: copies into the slot. */
DFK void dfk_words_put(const struct dfk_words *w, const uint64_t *stage, uint32_t slot_bytes)
{
	uint32_t i, j;

	if (w->lines) {
		for (i = (uint32_t)DFK_TID; i < w->nr; i += DFK_NTHREADS) {
			uint64_t *line = w->at + (uint64_t)i * DFK_LINE;
			const dfk_u64 *from = (const dfk_u64 *)stage + (uint64_t)i * (DFK_LINE - 1);

			for (j = 0; j < DFK_LINE - 1; j++)
				dfk_store_flagged_sys(&line[j], (uint64_t)from[j]);
			/*
			 * RELEASE pairs with the ACQUIRE in dfk_words_get(): a thread that sees the
			 * flag sees the line.
			 */
			dfk_store_release_sys(&line[DFK_LINE - 1], w->lap + 1);
		}
	} else {
		uint64_t flag = (uint64_t)dfk_word_flag(w->lap) << 32;

		if (w->lap % DFK_SWEEP == 0)
			for (i = w->nr + (uint32_t)DFK_TID; i < slot_bytes / 8; i += DFK_NTHREADS)
				dfk_store_relaxed_sys(&w->at[i], flag);
		/* RELAXED: data and flag are one word. */
		for (i = (uint32_t)DFK_TID; i < w->nr; i += DFK_NTHREADS)
			dfk_store_relaxed_sys(&w->at[i], flag | ((const dfk_u32 *)stage)[i]);
	}
}
