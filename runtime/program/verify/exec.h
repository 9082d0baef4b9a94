/*
 * The reference executor: executes all ranks' programs on real memory in one thread, with the
 * waiting rules of the daemon and a seeded schedule that preempts at any instruction. It is the
 * oracle of the tests, and `dfshim algo run` uses it. It shares no code with the daemon.
 */
#ifndef DF_RUNTIME_PROGRAM_VERIFY_EXEC_H
#define DF_RUNTIME_PROGRAM_VERIFY_EXEC_H

#include "runtime/program/verify/verify.h"

struct df_exec {
	struct df_program *const *progs;
	int nranks;
	uint64_t count;	      /* elements */
	uint64_t tile_elems;  /* of one chunk per slice; 0: whole chunks */
	uint32_t type;	      /* DF_UINT32, DF_FLOAT32 */
	uint32_t redop;	      /* enum df_redop */
	const uint64_t *args; /* by rank: scalar (bits) or divisor; NULL: 0 */
	uint32_t slots;
	uint32_t instances; /* run back to back over separate buffers; 0: one */
	uint64_t seed;
	/*
	 * Buffers, by instance * nranks + rank. For a call in place, in and out have the same
	 * address.
	 */
	void **in, **out;
	/* results */
	uint64_t slices, preemptions, ns; /* ns: of the execution alone */
};

/*
 * Fails with -EDEADLK if nothing can proceed, with the place in *err (may be NULL); with -ENOMEM;
 * with -EINVAL if the type is unknown; with -EPROTO if the programs do not fit together.
 */
int df_exec_run(struct df_exec *x, struct df_perr *err);

/* As df_exec_run(), with a thread for each rank instead of a seeded schedule. */
int df_exec_run_threads(struct df_exec *x, struct df_perr *err);

/*
 * Runs with random data and checks every output against the definition of the collective (or
 * `expect`). in_place: bit r is set if rank r calls in place. Fails with -EILSEQ and *err if a
 * result is wrong; otherwise as df_exec_run().
 */
struct df_exec_check {
	struct df_program *const *progs;
	enum df_coll_kind kind;
	int nranks, root;
	const struct df_expects *expect;
	uint64_t count, tile_elems, in_place, seed;
	uint32_t type, redop, slots, instances;
	int threads; /* df_exec_run_threads */
	/* results */
	uint64_t slices, preemptions, bytes, ns;
};
int df_exec_check(struct df_exec_check *c, struct df_perr *err);

#endif
