/*
 * The two halves of `dfshim algo bench`: the command, which starts jobs and evaluates them, and a
 * rank of a job, which measures. They share the candidates: the programs that could serve a call.
 *
 * Candidates are compared in one job, in which they take turns call by call. Each has calls of its
 * own count, which differs by a few elements, so that a row of a tuner file selects it. From job to
 * job the candidates exchange their counts.
 */
#ifndef DF_TRACE_CLI_ALGO_ALGO_BENCH_H
#define DF_TRACE_CLI_ALGO_ALGO_BENCH_H

#include "trace/cli/algo/algo.h"

#define DF_BENCH_SIZES 64
#define DF_BENCH_KINDS (DF_COLL_ALLTOALL + 1)
#define DF_BENCH_CANDS 64

struct df_bench_cand {
	enum df_algo algo; /* AUTO means the runtime's own choice */
	uint32_t blocks;
	/*
	 * whether it equals the previous candidate, so that the difference of their times is
	 * noise
	 */
	int again;
};

struct df_bench {
	const struct df_algo_args *args;
	uint32_t kinds; /* bits of enum df_coll_kind */
	uint64_t size[DF_BENCH_SIZES];
	int nr_sizes;
};

/*
 * Returns the call of candidate c of nr in this turn: floats, about b->size[size] bytes in the
 * larger buffer.
 */
struct df_prog_req df_bench_request(const struct df_bench *b, int kind, int size, int c, int nr,
				    uint64_t turn);
/*
 * Stores the candidates for a collective. The last two are both the runtime's own choice. Returns
 * their number.
 */
int df_bench_cands(const struct df_bench *b, int kind, struct df_bench_cand *cand);

/*
 * One rank of a job. Writes DIR/times.RANK with lines "KIND SIZE CANDIDATE ROUND NS". Returns the
 * exit status.
 */
int df_bench_worker(const struct df_bench *b, const char *dir);

#endif
