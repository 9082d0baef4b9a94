/* For all Check programs: a seed that is printed, and the table of tests that main() runs. */
#ifndef DF_TEST_H
#define DF_TEST_H

#include <check.h>
#include <stdint.h>
#include "runtime/base/err.h"

/* $SEED, or a new one each run; printed by the first call of the process, so before any fork. */
uint64_t df_test_seed(void);

/*
 * In a sanitizer's build the factor by which samples shrink and limits of time grow: $SLOW, which
 * tests/run.sh sets; else 1.
 */
int df_test_slow(void);

/* Makes the locale below $T and chooses it. Returns 0, or -1 if that cannot be done here. */
int df_test_locale(const char *name);

/* Tables of tests leave out what they do not need. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

struct df_test {
	const TTest *test;
	int times;  /* number of runs, with _i; 0: one */
	int from;   /* the first _i, where it is not 0; `times` is the last plus one then */
	int signal; /* that ends it; 0: it returns */
	/* In an entry without a test: what runs in front of and behind each test below it. */
	void (*before)(void), (*after)(void);
};

/*
 * Runs the tests as a suite. Each may take as long as one command of a test ($LIMIT, which
 * tests/run.sh sets; else 100 s): no test is about time, so the limit only names the one that
 * hangs. Returns main()'s exit status.
 */
int df_tests(const char *name, const struct df_test *tests, unsigned nr);

#define DF_TESTS(name, ...)                                                                        \
	df_tests(name, (const struct df_test[]){__VA_ARGS__},                                      \
		 sizeof((const struct df_test[]){__VA_ARGS__}) / sizeof(struct df_test))

#endif
