/*
 * `dfshim algo bench` in two halves: the command, which starts jobs and draws conclusions, and one rank of a job,
 * which measures. They share what is measured: the programs that could serve a call, "candidates".
 *
 * Candidates are compared within one job, call by call in turns. Which one serves a call is said by a tuner file
 * with a row for each: they differ in a few elements of the count, which change places between jobs.
 */
#ifndef DF_TRACE_CLI_ALGO_ALGO_BENCH_H
#define DF_TRACE_CLI_ALGO_ALGO_BENCH_H

#include "trace/cli/algo/cmd_algo.h"

#define DF_BENCH_SIZES 64
#define DF_BENCH_KINDS (DF_COLL_ALLTOALL + 1)
#define DF_BENCH_CANDS 64

struct df_bench_cand {
	enum df_algo algo; /* AUTO: the runtime's own choice */
	uint32_t blocks;
	int again; /* the same as the one before: what differs between them is noise */
};

struct df_bench {
	const struct df_algo_args *args;
	uint32_t kinds; /* bits */
	uint64_t size[DF_BENCH_SIZES];
	int nr_sizes;
};

/* Fills b->kinds and b->size from the command line; 2: wrong usage, said. */
int df_bench_parse(struct df_bench *b);
/* The call with about this many bytes in its larger buffer, of floats, that candidate c has in this turn. */
struct df_prog_req df_bench_request(const struct df_bench *b, int kind, int size, int c, int nr,
				    uint64_t turn);
/* The candidates for a collective, the own choice twice at the end; how many. */
int df_bench_cands(const struct df_bench *b, int kind, struct df_bench_cand *cand);

/* One rank of a job; leaves DIR/times.RANK: "KIND SIZE CANDIDATE ROUND NS" a line. The exit status. */
int df_bench_worker(const struct df_bench *b, const char *dir);

#endif
