/*
 * A runtime for the tests of interpose/. It implements runtime/dfshim.h with communicators that
 * really meet inside this process, and records submissions instead of executing them. Tests can
 * make it fail.
 */
#ifndef DF_TEST_FAKE_RUNTIME_H
#define DF_TEST_FAKE_RUNTIME_H

#include <stdint.h>
#include "runtime/dfshim.h"

#define FAKE_OPS 4096

struct fake {
	/* Set by tests: */
	int start_err;
	int submit_err;	     /* returned by df_submit(), which then records nothing */
	int join_err_rank;   /* the rank whose join fails with -EPROTO; -1: none */
	int comm_err;	     /* df_comm_error() of every communicator */
	int finalize_blocks; /* df_comm_finalize() waits until the communicator is aborted */
	int nr_devices;
	int mem_unknown; /* df_mem_known() returns 0 */
	/* Results: */
	int nr_submits; /* number of calls of df_submit() */
	int nr_ops;
	struct df_op ops[FAKE_OPS];
	int nr_live;	/* number of communicators created and not destroyed */
	int nr_joining; /* number of threads inside a join */
	int nr_aborts, nr_revokes, nr_finalized;
	uint64_t done; /* operations up to this ticket are done */
};

extern struct fake fake;

/* Waits (bounded) until the counter has this value. Returns whether it has. */
int fake_wait(const int *counter, int value);

#endif
