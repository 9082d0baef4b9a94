/* For the tests of communicators (t_comm*.c): NCCL's functions over the fake runtime. */
#ifndef DF_TESTS_INTERPOSE_COMM_TEST_H
#define DF_TESTS_INTERPOSE_COMM_TEST_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "interpose/nccl/nccl_api.h"
#include "runtime/base/rng.h"
#include "tests/interpose/fake_runtime.h"
#include "tests/lib/test.h"

#define OK(call) ck_assert_int_eq(call, ncclSuccess)
#define SAYS(text)                                                                                 \
	ck_assert_msg(strstr(ncclGetLastError(NULL), text) != NULL, "last error is: %s",           \
		      ncclGetLastError(NULL))

static inline void init_group(ncclComm_t *comms, int n)
{
	ncclUniqueId id;
	int i;

	OK(ncclGetUniqueId(&id));
	OK(ncclGroupStart());
	for (i = 0; i < n; i++)
		OK(ncclCommInitRank(&comms[i], n, id, i));
	OK(ncclGroupEnd());
}

#endif
