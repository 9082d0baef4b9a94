/* What Check programs share: a seed that is printed, and the end of main(). */
#ifndef DF_TEST_H
#define DF_TEST_H

#include <check.h>
#include <stdint.h>

/* $SEED, or a new one each run; printed by the first call of the process, so before any fork. */
uint64_t df_test_seed(void);

/* Runs the suite (and frees it); the exit status of main(). */
int df_test_run(Suite *suite);

#endif
