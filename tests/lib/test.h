/* Seed and runner of all Check programs. */
#ifndef DF_TEST_H
#define DF_TEST_H

#include <check.h>
#include <stdint.h>
#include "runtime/base/err.h"

/*
 * Returns $SEED, or a new seed for each process. The first call prints the seed, so make it before
 * any fork.
 */
uint64_t df_test_seed(void);

/*
 * Returns $SLOW, which tests/run.sh sets in a build with a sanitizer, else 1. Samples shrink and
 * time-outs grow by this factor.
 */
int df_test_slow(void);

/* Compiles the locale into $T and selects it. Returns 0, or -1 if this machine cannot do that. */
int df_test_locale(const char *name);

/* Tables of tests leave out members that they do not need. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

struct df_test {
	const TTest *test;
	int times;  /* the end of the values of _i, which run from `from` on; 0 means 1 */
	int from;   /* the first value of _i */
	int signal; /* the signal that must end the test, or 0 */
	/*
	 * In an entry without a test: functions to run before and after each test of the later
	 * entries.
	 */
	void (*before)(void), (*after)(void);
};

/*
 * Runs the tests as a suite. Returns main()'s exit status. The limit of each test is that of one
 * command ($LIMIT, which tests/run.sh sets, else 100 s). No test measures time; the limit only
 * names a test that hangs.
 */
int df_tests(const char *name, const struct df_test *tests, unsigned nr);

#define DF_TESTS(name, ...)                                                                        \
	df_tests(name, (const struct df_test[]){__VA_ARGS__},                                      \
		 sizeof((const struct df_test[]){__VA_ARGS__}) / sizeof(struct df_test))

#endif
