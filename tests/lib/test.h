/* What Check programs share: a seed that is printed, and the end of main(). */
#ifndef DF_TEST_H
#define DF_TEST_H

#include <check.h>
#include <stdint.h>

/* $SEED, or a new one each run; printed by the first call of the process, so before any fork. */
uint64_t df_test_seed(void);

/*
 * In a sanitizer's build the factor by which samples shrink and limits of time grow: $SLOW, which tests/run.sh
 * sets; else 1.
 */
int df_test_slow(void);

/* Runs the suite (and frees it); the exit status of main(). */
int df_test_run(Suite *suite);

#endif
