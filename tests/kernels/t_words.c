/*
 * Description: slots of flag-with-data words (kernels/words.inl), in more detail than the daemon's
 * turns allow. A slice's stores are applied one at a time, in any order that the protocol permits,
 * to slots that contain other slices and laps. The slice must not be taken before its last store,
 * and must then be what was sent. This is tested around the wrap of the flags and around the laps
 * on which all words are written. Then a sender and a receiver run in two threads, with slots and
 * credit as the daemon has them, for ThreadSanitizer: a line's words are plain, so it reports a
 * race unless their flag is released and acquired.
 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/port.h"
#include "kernels/abi.h"
#include "kernels/words.inl"
#include "runtime/base/rng.h"
#include "runtime/program/proto.h"
#include "tests/lib/test.h"

#define SLOT_MAX (2 * DF_WORDS_BYTES + 4096)

static uint64_t seed;

static void fill(uint64_t *stage, struct df_rng *r)
{
	for (uint32_t i = 0; i < DF_WORDS_BYTES / 8 + DFK_LINE; i++)
		stage[i] = df_rng_u64(r);
}

/*
 * Puts one slice into a copy of the slot, and then applies the changed words to the slot in random
 * order.
 */
static void one(struct dfk_words *w, uint32_t slot_bytes, uint32_t bytes, struct df_rng *r)
{
	static uint64_t copy[SLOT_MAX / 8], got[DF_WORDS_BYTES / 8 + DFK_LINE];
	static uint32_t order[SLOT_MAX / 8];
	static struct dfk_stage st;
	struct dfk_words c = *w;
	uint32_t n = 0, per = w->lines ? DFK_LINE : 1, need = w->nr * per, missing = 0, i;

	memcpy(copy, w->at, slot_bytes);
	c.at = copy;
	fill(st.out, r);
	dfk_words_put(&c, st.out, slot_bytes);
	for (i = 0; i < slot_bytes / 8; i++)
		if (copy[i] != w->at[i])
			order[n++] = i;
	/* Words are in any order; the flag of a line is last. */
	for (i = n; i > 1; i--) {
		uint32_t j = (uint32_t)df_rng_below(r, i), t = order[i - 1];

		order[i - 1] = order[j];
		order[j] = t;
	}
	for (i = 0; i < n; i++)
		missing += order[i] < need;
	for (int flags = 0; flags < 2; flags++) {
		for (i = 0; i < n; i++) {
			if (w->lines && (order[i] % DFK_LINE == DFK_LINE - 1) != flags)
				continue;
			if (!w->lines && flags)
				continue;
			if (missing && df_rng_below(r, 4) == 0)
				ck_assert_msg(!dfk_words_get(w, got),
					      "lap %llu: taken, though %u of %u words are missing "
					      "(SEED=%llu)",
					      (unsigned long long)w->lap, missing, need,
					      (unsigned long long)seed);
			w->at[order[i]] = copy[order[i]];
			missing -= order[i] < need;
		}
	}
	ck_assert_msg(dfk_words_look(w) && dfk_words_get(w, got), "lap %llu: not taken (SEED=%llu)",
		      (unsigned long long)w->lap, (unsigned long long)seed);
	ck_assert_msg(!memcmp(got, st.out, bytes), "lap %llu: not what was sent (SEED=%llu)",
		      (unsigned long long)w->lap, (unsigned long long)seed);
}

static void history(enum df_proto proto, uint64_t from, struct df_rng *r)
{
	static uint64_t slot[SLOT_MAX / 8];
	uint32_t most = 1 + (uint32_t)df_rng_below(r, df_rng_below(r, 4) ? 200 : DF_WORDS_BYTES);
	struct df_slots s = df_proto_slots(proto, most, 1, 1, 0, DFK_LINE);
	struct df_kconn k = {
		.nr_slots = 1, .slot_bytes = s.bytes, .proto = proto, .slots = (uint8_t *)slot};
	struct dfk_words w;

	ck_assert_uint_le(s.bytes, SLOT_MAX);
	/*
	 * A word that was last written at the previous sweep may hold the flag of any lap since
	 * then.
	 */
	memset(slot, 0, sizeof(slot));
	for (uint32_t i = 0; proto == DF_PROTO_LL && from > DFK_SWEEP && i < s.bytes / 8; i++)
		slot[i] = (uint64_t)dfk_word_flag(from - 1 - df_rng_below(r, DFK_SWEEP - 1)) << 32;
	/*
	 * The lap of a sweep writes all words, so before it they may hold flags even of later laps.
	 */
	for (uint32_t i = 0; proto == DF_PROTO_LL && from % DFK_SWEEP == 0 && i < s.bytes / 8; i++)
		slot[i] = (uint64_t)dfk_word_flag(from + 1 + df_rng_below(r, 4)) << 32;
	for (uint64_t lap = from; lap < from + 6; lap++) {
		uint32_t bytes = 1 + (uint32_t)df_rng_below(r, most);

		dfk_words_of(&w, &k, lap, bytes);
		ck_assert_uint_eq(w.lap, lap);
		one(&w, s.bytes, bytes, r);
	}
}

START_TEST(t_history)
{
	static const uint64_t laps[] = {0,
					1,
					DFK_SWEEP - 3,
					DFK_SWEEP,
					7ull * DFK_SWEEP,
					(1ull << 31) - 3,
					1ull << 31,
					(1ull << 32) - 3,
					1ull << 32,
					(1ull << 40) - 3};
	struct df_rng r;

	df_rng_init(&r, seed + (uint64_t)_i);
	for (unsigned i = 0; i < sizeof(laps) / sizeof(*laps); i++)
		for (int n = 0; n < 20; n++)
			history(DF_PROTO_LL + (enum df_proto)(n & 1), laps[i], &r);
}
END_TEST

/* ---- two threads ----------------------------------------------------------------------------- */

static struct {
	struct df_kconn k;
	struct df_slots s;
	uint64_t *slots, head, stop;
	uint64_t from, upto;
	uint32_t most;
} p;

static uint32_t bytes_of(uint64_t pos)
{
	return 1 + (uint32_t)((pos * 0x9e3779b97f4a7c15ull) >> 40) % p.most;
}

static uint64_t value(uint64_t pos, uint32_t i)
{
	return (pos + 1) * 0xd1342543de82ef95ull ^ i;
}

static void *sender(void *arg)
{
	static struct dfk_stage st;
	uint64_t seen = p.from, polls = 0;

	for (uint64_t pos = p.from; pos < p.upto; pos++) {
		uint32_t bytes = bytes_of(pos);
		struct dfk_words w;

		/* Waits for credit as dfk_task_poll() does. */
		while (pos - seen >= p.k.nr_slots && !dfk_load_relaxed_sys(&p.stop)) {
			seen = dfk_load_acquire_sys(&p.head);
			if (++polls % 64 == 0)
				sched_yield();
		}
		for (uint32_t i = 0; i < (bytes + 7) / 8; i++)
			st.out[i] = value(pos, i);
		dfk_words_of(&w, &p.k, pos, bytes);
		dfk_words_put(&w, st.out, p.k.slot_bytes);
	}
	return arg;
}

static void stress(enum df_proto proto, uint32_t most, uint64_t from, uint64_t nr)
{
	static struct dfk_stage st;
	uint64_t bad = 0, polls = 0;
	pthread_t t;

	p.most = most;
	p.s = df_proto_slots(proto, most, 1, 1, 0, DFK_LINE);
	p.s.nr = p.s.credit; /* the smallest number that works */
	p.slots = aligned_alloc(64, (size_t)p.s.nr * p.s.bytes);
	memset(p.slots, 0, (size_t)p.s.nr * p.s.bytes);
	p.k = (struct df_kconn){.nr_slots = p.s.nr,
				.slot_bytes = p.s.bytes,
				.proto = proto,
				.credit = p.s.credit,
				.slots = (uint8_t *)p.slots};
	p.from = p.head = from / p.s.nr * p.s.nr;
	p.upto = p.from + nr;
	p.stop = 0;
	ck_assert_int_eq(pthread_create(&t, NULL, sender, NULL), 0);
	for (uint64_t pos = p.from; pos < p.upto && !bad; pos++) {
		uint32_t bytes = bytes_of(pos), i;
		uint64_t last = 0, want;
		struct dfk_words w;

		dfk_words_of(&w, &p.k, pos, bytes);
		while (!dfk_words_look(&w) || !dfk_words_get(&w, st.in))
			if (++polls % 64 == 0)
				sched_yield();
		for (i = 0; i < bytes / 8; i++)
			bad += st.in[i] != value(pos, i);
		want = value(pos, i);
		memcpy(&last, &st.in[i], bytes % 8);
		bad += memcmp(&last, &want, bytes % 8) != 0;
		if ((pos + 1) % p.k.credit == 0)
			dfk_store_release_sys(&p.head, pos + 1);
	}
	dfk_store_relaxed_sys(&p.stop, (uint64_t)1);
	pthread_join(t, NULL);
	free(p.slots);
	ck_assert_msg(!bad, "%s, %u bytes: another slice's data", df_proto_name(proto), most);
}

START_TEST(t_threads)
{
	enum df_proto proto = DF_PROTO_LL + (enum df_proto)(_i & 1);

	stress(proto, 8, 0, 20000);
	stress(proto, 300, (uint64_t)DFK_SWEEP * 4 - 64, 5000);
	stress(proto, DF_WORDS_BYTES, ((1ull << 31) - 16) * 4, 500);
}
END_TEST

int main(void)
{
	seed = df_test_seed();
	return DF_TESTS("words", {t_history, 8}, {t_threads, 2});
}
