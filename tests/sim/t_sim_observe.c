/*
 * A recorded job becomes a workload. The test writes the traces itself, with one process a rank, so
 * groups, counts, and rates of disorder and synchronisation are known.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "trace/record/names.h"
#include "trace/sim/sim_observe.h"
#include "trace/sim/sim_rng.h"
#include "trace/record/writer.h"

#define NR_RANKS 4
#define NR_WORLD 60 /* number of collectives of all ranks */
#define NR_PAIR	 40 /* number of collectives of ranks 0 and 1, and of ranks 2 and 3 */

static char dir[64];

static void issue(uint32_t comm, int rank, int what)
{
	/* Counts differ, so that each collective has its own signature, except for every eighth. */
	df_trace(DF_REC_OP_ISSUE, 0, comm, rank, df_trace_serial(), DF_KIND_ALLREDUCE | 7 << 8,
		 (uint64_t)(what % 8 ? 100 + what : 5), 0, 0);
}

/*
 * A rank with both communicators. In each communicator `swaps` neighbours are exchanged, and
 * `syncs` synchronisations are between the collectives.
 */
static void rank_main(int rank, int swaps, int syncs)
{
	struct df_trace_config cfg = {.dir = dir, .mb = 1, .rank = rank, .world = NR_RANKS};
	uint32_t world, pair;

	if (df_trace_open(&cfg))
		_exit(3);
	/* The start-up before the first collective does not count. */
	df_trace(DF_REC_CALL_ENTER, 0, 0, -1, 1, DF_CALL_DEVICE_SYNC, 0, 0, 0);
	world = df_trace_comm(0x1111, NR_RANKS, rank, 0, 0, "world");
	pair = df_trace_comm(0x2222 + (uint64_t)(rank / 2), 2, rank % 2, 0, 0x1111, "pair");
	for (int i = 0; i < NR_WORLD; i++) {
		int swap = i % 8 == 1 && i / 8 < swaps;

		if (swap)
			issue(world, rank, i + 1);
		issue(world, rank, i);
		if (swap)
			i++;
		if (i < NR_PAIR)
			issue(pair, rank % 2, i);
		if (swap && i - 1 < NR_PAIR)
			issue(pair, rank % 2, i - 1);
		if (i % 10 == 5 && i / 10 < syncs) {
			df_trace(DF_REC_CALL_ENTER, 0, 0, -1, 9,
				 i % 20 == 5 ? DF_CALL_FREE : DF_CALL_DEVICE_SYNC, 0, 0, 0);
			df_trace(DF_REC_CALL_ENTER, 0, 0, -1, 9, DF_CALL_STREAM_SYNC, 0, 0, 0);
		}
	}
	/* Messages, and operations after the last collective, do not count. */
	df_trace(DF_REC_OP_ISSUE, 0, world, rank, df_trace_serial(), DF_KIND_SEND, 1, 0, 0);
	df_trace(DF_REC_CALL_ENTER, 0, 0, -1, 1, DF_CALL_DEVICE_SYNC, 0, 0, 0);
	df_trace_close();
	_exit(0);
}

static void record(int first_rank, int swaps, int syncs)
{
	snprintf(dir, sizeof(dir), "/tmp/t_sim_observe.XXXXXX");
	ck_assert(mkdtemp(dir) != NULL);
	for (int r = first_rank; r < NR_RANKS; r++) {
		int status;
		pid_t pid = fork();

		ck_assert_int_ge(pid, 0);
		if (!pid)
			rank_main(r, r == 1 ? swaps : 0, syncs);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
	}
}

static void forget(void)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	ck_assert_int_eq(system(cmd), 0);
}

START_TEST(counts_what_was_recorded)
{
	struct df_sim_observed o;
	char err[256] = "";

	record(0, 3, 2);
	ck_assert_msg(!df_sim_observe(&o, dir, err, sizeof(err)), "%s", err);
	ck_assert_int_eq(o.nr_traces, NR_RANKS);
	ck_assert_int_eq(o.load.nr_gpus, NR_RANKS);
	ck_assert_int_eq(o.load.nr_groups, 3);
	ck_assert_int_eq(o.nr_incomplete, 0);
	ck_assert_int_eq(o.nr_dropped, 0);
	ck_assert_int_eq(o.nr_issued, NR_RANKS * (NR_WORLD + NR_PAIR));
	ck_assert_int_eq(o.nr_sync, NR_RANKS * 2);
	/*
	 * Rank 1 exchanged 3 neighbours in the world and 3 in its pair. Only the earlier one of
	 * each counts as disorder.
	 */
	ck_assert_int_eq(o.nr_disorder, 6);
	for (int g = 0; g < 3; g++) {
		int n = o.load.start[g + 1] - o.load.start[g];
		const int *m = o.load.members + o.load.start[g];

		ck_assert_int_eq(o.load.nr_colls[g], n == NR_RANKS ? NR_WORLD : NR_PAIR);
		if (n == 2)
			ck_assert(m[1] == m[0] + 1 && m[0] % 2 == 0);
	}
	df_sim_workload_fini(&o.load);
	forget();
}
END_TEST

/*
 * A communicator for each collective, so that the ranks' orders differ only between communicators.
 */
static void crossed_main(int rank)
{
	struct df_trace_config cfg = {.dir = dir, .mb = 1, .rank = rank, .world = NR_RANKS};
	uint32_t comm[8];

	if (df_trace_open(&cfg))
		_exit(3);
	for (int c = 0; c < 8; c++)
		comm[c] = df_trace_comm(0x3333 + (uint64_t)c, NR_RANKS, rank, 0, 0, "one");
	for (int i = 0; i < 10; i++)
		for (int c = 0; c < 8; c++) {
			/* Rank 2 exchanges two neighbours in each of its ten iterations. */
			int k = rank == 2 && (c == 3 || c == 4) ? 7 - c : c;

			issue(comm[k], rank, k);
		}
	df_trace_close();
	_exit(0);
}

START_TEST(disorder_between_communicators)
{
	struct df_sim_observed o;
	char err[256] = "";

	snprintf(dir, sizeof(dir), "/tmp/t_sim_observe.XXXXXX");
	ck_assert(mkdtemp(dir) != NULL);
	for (int r = 0; r < NR_RANKS; r++) {
		int status;
		pid_t pid = fork();

		ck_assert_int_ge(pid, 0);
		if (!pid)
			crossed_main(r);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
	}
	ck_assert_msg(!df_sim_observe(&o, dir, err, sizeof(err)), "%s", err);
	ck_assert_int_eq(o.load.nr_groups, 8);
	ck_assert_int_eq(o.nr_issued, 4 * 80);
	ck_assert_int_eq(o.nr_disorder, 10);
	df_sim_workload_fini(&o.load);
	forget();
}
END_TEST

START_TEST(order_alone_is_no_disorder)
{
	struct df_sim_observed o;
	char err[256] = "";

	record(0, 0, 0);
	ck_assert(!df_sim_observe(&o, dir, err, sizeof(err)));
	ck_assert_int_eq(o.nr_disorder, 0);
	ck_assert_int_eq(o.nr_sync, 0);
	df_sim_workload_fini(&o.load);
	forget();
}
END_TEST

START_TEST(missing_ranks_are_noticed)
{
	struct df_sim_observed o;
	char err[256] = "";

	record(1, 0, 1);
	ck_assert(!df_sim_observe(&o, dir, err, sizeof(err)));
	ck_assert_int_eq(o.load.nr_gpus, 3);
	ck_assert_int_eq(o.nr_incomplete, 2); /* the world, and rank 1's pair */
	df_sim_workload_fini(&o.load);
	forget();
}
END_TEST

START_TEST(bad_input_is_named)
{
	struct df_sim_observed o;
	char err[256] = "", path[128];
	FILE *f;

	ck_assert(df_sim_observe(&o, "/nonexistent", err, sizeof(err)));
	ck_assert(strstr(err, "/nonexistent: "));
	snprintf(dir, sizeof(dir), "/tmp/t_sim_observe.XXXXXX");
	ck_assert(mkdtemp(dir) != NULL);
	ck_assert(df_sim_observe(&o, dir, err, sizeof(err)));
	ck_assert(strstr(err, "no trace files"));
	snprintf(path, sizeof(path), "%s/x.dft", dir);
	f = fopen(path, "w");
	fputs("not a trace", f);
	fclose(f);
	ck_assert(df_sim_observe(&o, dir, err, sizeof(err)));
	ck_assert_msg(strstr(err, "x.dft: "), "%s", err);
	forget();
}
END_TEST

/* Scaling: the largest groups grow, the others are repeated, nothing is lost. */
START_TEST(scaled_workloads)
{
	struct df_sim_workload w, big;

	ck_assert(!df_sim_workload_init(&w, 3, 6));
	memcpy(w.members, (int[]){0, 1, 2, 0, 1, 2}, 6 * sizeof(int));
	memcpy(w.start, (int[]){0, 3, 5, 6}, 4 * sizeof(int));
	memcpy(w.nr_colls, (int[]){7, 5, 3}, 3 * sizeof(int));
	w.nr_gpus = 3;
	ck_assert(!df_sim_workload_scale(&big, &w, 10));
	ck_assert_int_eq(big.nr_gpus, 30);
	ck_assert_int_eq(big.nr_groups, 21);
	ck_assert_int_eq(big.start[1], 30);
	ck_assert_int_eq(big.nr_colls[0], 7);
	for (int i = 0; i < 30; i++)
		ck_assert_int_eq(big.members[i], i);
	ck_assert_int_eq(big.members[big.start[1]], 0);
	ck_assert_int_eq(big.members[big.start[2]], 3);
	ck_assert(df_sim_workload_events(&big) == 10 * df_sim_workload_events(&w));
	df_sim_workload_fini(&big);
	ck_assert(df_sim_workload_scale(&big, &w, 1000000));
	df_sim_workload_fini(&w);
}
END_TEST

int main(void)
{
	return DF_TESTS("sim observe", {counts_what_was_recorded}, {disorder_between_communicators},
			{order_alone_is_no_disorder}, {missing_ranks_are_noticed},
			{bad_input_is_named}, {scaled_workloads});
}
