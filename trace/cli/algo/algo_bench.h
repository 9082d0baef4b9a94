/*
 * The two halves of `dfshim algo bench`: the command, which starts jobs and evaluates them, and a
 * rank of a job, which measures. They share the candidates: the programs that could serve a call.
 *
 * Candidates are compared in one job, call by call in turns. A tuner file with a row for each says
 * which one serves a call: their counts differ by a few elements, which are exchanged between jobs.
 */
#ifndef DF_TRACE_CLI_ALGO_ALGO_BENCH_H
#define DF_TRACE_CLI_ALGO_ALGO_BENCH_H

#include "trace/cli/algo/algo.h"

#define DF_BENCH_SIZES 64
#define DF_BENCH_KINDS (DF_COLL_ALLTOALL + 1)
#define DF_BENCH_CANDS 64

struct df_bench_cand {
	enum df_algo algo; /* AUTO: the runtime's own choice */
	uint32_t blocks;
	int again; /* a repetition of the candidate before: their difference is noise */
};

struct df_bench {
	const struct df_algo_args *args;
	uint32_t kinds; /* bits */
	uint64_t size[DF_BENCH_SIZES];
	int nr_sizes;
};

/*
 * Returns the call of candidate c in this turn, of floats, with about this many bytes in its larger
 * buffer.
 */
struct df_prog_req df_bench_request(const struct df_bench *b, int kind, int size, int c, int nr,
				    uint64_t turn);
/*
 * Stores the candidates for a collective, with the own choice twice at the end. Returns their
 * number.
 */
int df_bench_cands(const struct df_bench *b, int kind, struct df_bench_cand *cand);

/*
 * One rank of a job. Writes DIR/times.RANK with lines "KIND SIZE CANDIDATE ROUND NS". Returns the
 * exit status.
 */
int df_bench_worker(const struct df_bench *b, const char *dir);

#endif
