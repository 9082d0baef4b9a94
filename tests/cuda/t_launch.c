/*
 * The decisions when to launch the daemon's kernel and when to ask it to quit
 * (runtime/device/cuda/launch.c). A simulated device and application do random things; some cases
 * are tested by name.
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

	/* Without work nothing happens. Work launches one kernel. */
	ck_assert_int_eq(step(&l, (struct df_launch_in){.now_ns = 1}), DF_LAUNCH_NOTHING);
	ck_assert_int_eq(step(&l, (struct df_launch_in){.now_ns = 2, .outstanding = 1}),
			 DF_LAUNCH_LAUNCH);
	ck_assert_int_eq(step(&l, (struct df_launch_in){.now_ns = 3, .outstanding = 1}),
			 DF_LAUNCH_NOTHING);
	/* The kernel quit without progress: it is launched again, but not at once. */
	ck_assert_int_eq(
		step(&l, (struct df_launch_in){.now_ns = 4, .outstanding = 1, .exited = 1}),
		DF_LAUNCH_NOTHING);
	/* After progress elsewhere it is launched at once. */
	ck_assert_int_eq(
		step(&l, (struct df_launch_in){.now_ns = 5, .outstanding = 1, .progress = 1}),
		DF_LAUNCH_LAUNCH);
	/*
	 * During a quiet time the kernel is asked to quit once. It keeps quitting when the quiet
	 * time ends, and is then launched again at once.
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

/* The kernel has as many blocks as are needed: it grows at once, and shrinks after some time. */
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
	/* A smaller need for a short time, several times, changes nothing. */
	in.exited = 0;
	for (int i = 0; i < 10; i++) {
		in.now_ns += DF_LAUNCH_NARROW_NS / 3;
		in.width = i % 3 == 2 ? 4 : 2;
		in.slices++;
		ck_assert_int_eq(step(&l, in), DF_LAUNCH_NOTHING);
	}
	/*
	 * A smaller need that lasts makes it shrink, also with pauses between operations. A pause
	 * alone does not.
	 */
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
 * Without progress, one block can wait as well as many. On progress all blocks are launched again.
 * Without progress all blocks are launched in turn with one, because only the others may see that
 * they can continue.
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
	/* From now on each kernel quits by itself without progress. */
	in.progress = l.progress;
	for (i = 0; i < 8; i++) {
		while (step(&l, in) != DF_LAUNCH_LAUNCH)
			in.now_ns += DF_LAUNCH_BACKOFF_MIN;
		wide += l.width == 4;
	}
	ck_assert_int_eq(wide, 4);
	/* No operation is left to wait for. */
	in.outstanding = 0;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_NOTHING);
	in.outstanding = 1;
	in.now_ns += DF_LAUNCH_BACKOFF_MAX;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_LAUNCH);
	ck_assert_uint_eq(l.width, 4);
}
END_TEST

/*
 * Soon nothing can be launched: a kernel with all blocks takes the place of this one, and stays as
 * it is while nothing moves and few blocks have work. Afterwards it is launched as before.
 */
START_TEST(stays)
{
	struct df_launch l = {0};
	struct df_launch_in in = {.now_ns = 1, .outstanding = 1, .width = 1};

	ck_assert_int_eq(step(&l, in), DF_LAUNCH_LAUNCH);
	in.stay = 1;
	in.width = 4;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_ASK);
	in.exited = 1;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_LAUNCH);
	ck_assert_uint_eq(l.width, 4);
	ck_assert_int_eq(l.stays, 1);
	in.exited = 0;
	for (int i = 0; i < 10; i++) {
		in.now_ns += DF_LAUNCH_WIDEN_NS;
		ck_assert_int_eq(step(&l, in), DF_LAUNCH_NOTHING);
	}
	in.stay = 0;
	in.width = 1;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_ASK);
	in.exited = 1;
	ck_assert_int_eq(step(&l, in), DF_LAUNCH_LAUNCH);
	ck_assert_uint_eq(l.width, 1);
	ck_assert_int_eq(l.stays, 0);
}
END_TEST

/*
 * The single block does not quit by itself, and only the other blocks can do what it waits for. All
 * blocks must be launched nevertheless.
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
 * A quiet time that never ends: the kernel is launched again after a bound, and is not asked to
 * quit again.
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
		/* Progress elsewhere does not shorten the back-off after failures. */
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
 * A device that runs a kernel from its launch until it is asked to quit or quits by itself, and an
 * application that acts at random. Always: at most one kernel; no launch without work; and at the
 * end, with work and no more changes, the kernel runs.
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
		/* The launch happens at the latest after the longest back-off. */
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
	return DF_TESTS("launch", {named}, {widths}, {only_waits}, {stays}, {waits_for_others},
			{quiet_is_bounded}, {failures}, {random_device});
}
