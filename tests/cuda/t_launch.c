/*
 * When the daemon's kernel is launched and asked to leave (runtime/device/cuda/launch.c), against a
 * device and an application that do random things: what must always hold, and the cases with a
 * name.
 */
#include <stdio.h>
#include <stdlib.h>
#include "runtime/base/rng.h"
#include "runtime/device/cuda/launch.h"
#include "tests/lib/test.h"

static enum df_launch_act step(struct df_launch *l, struct df_launch_in in)
{
	uint64_t sleep_ns;

	return df_launch_step(l, &in, &sleep_ns);
}

START_TEST(named)
{
	struct df_launch l = {0};

	/* Nothing to do, nothing happens; work brings the kernel, and only one. */
	ck_assert_int_eq(step(&l, (struct df_launch_in){.now_ns = 1}), DF_LAUNCH_NOTHING);
	ck_assert_int_eq(step(&l, (struct df_launch_in){.now_ns = 2, .outstanding = 1}),
			 DF_LAUNCH_LAUNCH);
	ck_assert_int_eq(step(&l, (struct df_launch_in){.now_ns = 3, .outstanding = 1}),
			 DF_LAUNCH_NOTHING);
	/* It left without having moved anything: it is launched again, but not at once. */
	ck_assert_int_eq(
		step(&l, (struct df_launch_in){.now_ns = 4, .outstanding = 1, .exited = 1}),
		DF_LAUNCH_NOTHING);
	/* Something has moved since: at once. */
	ck_assert_int_eq(
		step(&l, (struct df_launch_in){.now_ns = 5, .outstanding = 1, .progress = 1}),
		DF_LAUNCH_LAUNCH);
	/*
	 * A quiet time: asked to leave, all of it, also when the quiet time is over; then it is
	 * launched again at once.
	 */
	ck_assert_int_eq(step(&l, (struct df_launch_in){.now_ns = 6, .outstanding = 1, .quiet = 1}),
			 DF_LAUNCH_ASK);
	ck_assert_int_eq(step(&l, (struct df_launch_in){.now_ns = 7, .outstanding = 1}),
			 DF_LAUNCH_NOTHING);
	ck_assert_int_eq(step(&l, (struct df_launch_in){.now_ns = 8, .outstanding = 1, .quiet = 1}),
			 DF_LAUNCH_NOTHING);
	ck_assert_int_eq(step(&l,
			      (struct df_launch_in){
				      .now_ns = 9, .outstanding = 1, .progress = 1, .exited = 1}),
			 DF_LAUNCH_LAUNCH);
}
END_TEST

/* As many blocks as are needed: more at once, fewer after some time. */
START_TEST(widths)
{
	struct df_launch l = {0};
	struct df_launch_in in = {.now_ns = 1, .outstanding = 1, .width = 1};
	uint64_t asked;

	ck_assert_int_eq(step(&l, in), DF_LAUNCH_LAUNCH);
	ck_assert_uint_eq(l.width, 1);
	in.width = 4;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_ASK);
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_NOTHING);
	in.exited = 1;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_LAUNCH);
	ck_assert_uint_eq(l.width, 4);
	/* Less for a short time, several times. */
	in.exited = 0;
	for (int i = 0; i < 10; i++) {
		in.now_ns += DF_LAUNCH_NARROW_NS / 3;
		in.width = i % 3 == 2 ? 4 : 2;
		in.slices++;
		ck_assert_int_eq(step(&l, in), DF_LAUNCH_NOTHING);
	}
	/* And for good, with times between operations; nothing to be done is no reason. */
	in.width = 2;
	for (asked = 0; !asked; in.now_ns += DF_LAUNCH_NARROW_NS / 20) {
		in.width = in.width ? 0 : 2;
		in.slices++;
		asked = step(&l, in) == DF_LAUNCH_ASK ? in.now_ns : 0;
		ck_assert(!asked || in.width);
		ck_assert_uint_lt(in.now_ns, 10 * DF_LAUNCH_NARROW_NS);
	}
	in.exited = 1;
	in.width = 2;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_LAUNCH);
	ck_assert_uint_eq(l.width, 2);
}
END_TEST

/*
 * Nothing moves: one block waits as well as many. When it moves all are launched again; when it
 * does not, the others look in turn, since there may be progress that only they see.
 */
START_TEST(only_waits)
{
	struct df_launch l = {0};
	struct df_launch_in in = {.now_ns = 1, .outstanding = 1, .width = 4, .slices = 7};
	int i, wide = 0;

	ck_assert_int_eq(step(&l, in), DF_LAUNCH_LAUNCH);
	ck_assert_uint_eq(l.width, 4);
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_NOTHING);
	in.now_ns += DF_LAUNCH_NARROW_NS;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_ASK);
	in.exited = 1;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_LAUNCH);
	ck_assert_uint_eq(l.width, 1);
	in.exited = 0;
	in.now_ns += 2 * DF_LAUNCH_NARROW_NS;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_NOTHING);
	in.slices++;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_ASK);
	in.exited = 1;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_LAUNCH);
	ck_assert_uint_eq(l.width, 4);
	/* From now on each leaves by itself without having moved anything. */
	in.progress = l.progress;
	for (i = 0; i < 8; i++) {
		while (step(&l, in) != DF_LAUNCH_LAUNCH)
			in.now_ns += DF_LAUNCH_BACKOFF_MIN;
		wide += l.width == 4;
	}
	ck_assert_int_eq(wide, 4);
	/* Nothing is left to be waited for. */
	in.outstanding = 0;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_NOTHING);
	in.outstanding = 1;
	in.now_ns += DF_LAUNCH_BACKOFF_MAX;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_LAUNCH);
	ck_assert_uint_eq(l.width, 4);
}
END_TEST

/*
 * The one block does not leave by itself, and only the others can do what it waits for: they are
 * launched again all the same.
 */
START_TEST(waits_for_others)
{
	struct df_launch l = {0};
	struct df_launch_in in = {.now_ns = 1, .outstanding = 1, .width = 2};
	int wide = 0, on = 0;

	while (wide < 3 && in.now_ns < 10 * DF_LAUNCH_WIDEN_NS) {
		in.now_ns += DF_LAUNCH_BACKOFF_MIN;
		in.exited = !on;
		switch (step(&l, in)) {
		case DF_LAUNCH_LAUNCH:
			wide += l.width == 2;
			on = 1;
			break;
		case DF_LAUNCH_ASK:
			on = 0;
			break;
		default:
			break;
		}
	}
	ck_assert_int_eq(wide, 3);
}
END_TEST

/*
 * A quiet time that never ends: the kernel is launched again all the same, and is not asked to
 * leave again.
 */
START_TEST(quiet_is_bounded)
{
	struct df_launch l = {0};
	uint64_t now;
	int launched = 0, asked = 0;

	for (now = 1; now < 3 * DF_LAUNCH_QUIET_NS; now += 10000) {
		enum df_launch_act a = step(
			&l, (struct df_launch_in){.now_ns = now, .outstanding = 1, .quiet = 1});

		launched += a == DF_LAUNCH_LAUNCH;
		asked += a == DF_LAUNCH_ASK;
		if (now < DF_LAUNCH_QUIET_NS)
			ck_assert_int_eq(launched, 0);
	}
	ck_assert_int_eq(launched, 1);
	ck_assert_int_eq(asked, 0);
}
END_TEST

START_TEST(failures)
{
	struct df_launch l = {0};
	uint64_t now = 1, tries = 0;

	while (l.state != DF_LAUNCH_DEAD && now < 100000000000ull) {
		/* Progress elsewhere does not make it try faster. */
		if (step(&l,
			 (struct df_launch_in){.now_ns = now, .outstanding = 1, .progress = now}) ==
		    DF_LAUNCH_LAUNCH) {
			df_launch_failed(&l, now, 0);
			tries++;
		}
		now += 10000;
	}
	ck_assert_uint_eq(tries, DF_LAUNCH_FAILURES);
	ck_assert_uint_gt(now, 100000000);
	ck_assert_uint_eq(l.launches, 0);
}
END_TEST

/*
 * A device that runs a kernel after a launch until it is asked to leave or leaves by itself, and a
 * host at random. Always: at most one kernel; none launched without work; and at the end, left
 * alone with work, it runs.
 */
START_TEST(random_device)
{
	struct df_rng rng;
	int i, run;

	df_rng_init(&rng, df_test_seed());
	for (run = 0; run < 200; run++) {
		struct df_launch l = {0};
		uint64_t now = 1, progress = 0;
		int on = 0, quit = 0, quiet = 0, outstanding = 0;
		uint32_t width = 0;

		for (i = 0; i < 2000; i++) {
			int last = i > 1500;
			struct df_launch_in in;

			now += df_rng_below(&rng, 200000);
			if (last) {
				quiet = 0;
				outstanding = 1;
			} else {
				if (!df_rng_below(&rng, 10))
					quiet = !quiet;
				if (!df_rng_below(&rng, 10))
					outstanding = !outstanding;
				if (!df_rng_below(&rng, 5))
					width = (uint32_t)df_rng_below(&rng, 5);
			}
			if (on && (quit || !df_rng_below(&rng, last ? 50 : 5)))
				on = 0;
			if (on)
				progress += df_rng_below(&rng, 2);
			in = (struct df_launch_in){.now_ns = now,
						   .progress = progress,
						   .outstanding = outstanding,
						   .exited = !on,
						   .width = width,
						   .slices = progress,
						   .quiet = quiet};
			switch (step(&l, in)) {
			case DF_LAUNCH_LAUNCH:
				ck_assert(!on);
				ck_assert(outstanding);
				ck_assert(l.width == 1 || l.width == width);
				on = 1;
				quit = 0;
				break;
			case DF_LAUNCH_ASK:
				ck_assert(quiet || (width && (width != l.width || l.narrow)));
				quit = 1;
				break;
			default:
				break;
			}
		}
		/* At the latest after the longest back-off. */
		for (i = 0; i < 1000 && !on; i++) {
			now += 100000;
			on = step(&l, (struct df_launch_in){.now_ns = now,
							    .progress = progress,
							    .outstanding = 1,
							    .width = width,
							    .exited = 1}) == DF_LAUNCH_LAUNCH;
		}
		ck_assert(on);
	}
}
END_TEST

int main(void)
{
	return DF_TESTS("launch", {named}, {widths}, {only_waits}, {waits_for_others},
			{quiet_is_bounded}, {failures}, {random_device});
}
