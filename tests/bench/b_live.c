/*
 * Measures the live verdict of mode trace with many simulated ranks. Each rank is a process, and
 * eight ranks share a node (a user of their own). Nodes are joined over TCP. Each process runs the
 * product's own control plane, watching thread and checker. Only CUDA and NCCL are left out: the
 * process writes the operations and calls of the rank to its trace as the hooks would write them.
 *
 *   mismatch   the last rank's AllReduce has another count
 *   cycle      even and odd ranks use two communicators in opposite orders, and wait in between
 *   dead       the last rank is killed before its call
 *   missing    the last rank does not make its call: the time-out decides
 *
 * `b_live RUNS KIND RANKS` prints a line for each run: "live KIND RANKS", the seconds from the
 * fault to the first question of the leader, and for each rank the seconds to the verdict.
 * scripts/eval_live.sh makes a table of these lines. Without arguments it prints the last rank's
 * time for 16 and 256 ranks. It needs the right to change its user, and ends with status 77 without
 * it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/futex.h"
#include "runtime/base/net/sockaddr.h"
#include "runtime/base/time.h"
#include "runtime/ctl/ctl.h"
#include "runtime/dfshim.h"
#include "runtime/record/record.h"
#include "runtime/recorded.h"
#include "trace/check.h"
#include "trace/record/names.h"
#include "trace/record/writer.h"

#define RANKS_MAX 4096
#define PER_NODE  8
#define OPS	  20
#define STREAM	  7
#define USER	  20000 /* of the first node's processes */

static struct shared {
	unsigned char id[2][DF_ID_BYTES];
	uint32_t ready, joined, told, failed;
	uint32_t begin, go; /* set by the parent */
	uint64_t fault_ns;  /* CLOCK_REALTIME */
	uint64_t asked_ns[RANKS_MAX], told_ns[RANKS_MAX];
	char line[512];
} * sh;

static const char *kind;
static int ranks, rank;
static int quiet; /* print only BENCH lines */

static uint64_t real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * DF_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void arrive(uint32_t *at)
{
	/* RELEASE pairs with the ACQUIRE in wait_for(). */
	__atomic_add_fetch(at, 1, __ATOMIC_RELEASE);
}

static void wait_for(const uint32_t *at, uint32_t count)
{
	/* ACQUIRE pairs with the RELEASE in arrive(). */
	while (__atomic_load_n(at, __ATOMIC_ACQUIRE) < count &&
	       !__atomic_load_n(&sh->failed, __ATOMIC_RELAXED))
		usleep(20000);
}

/* For the children, which must not use the processors during a wait. */
static void sleep_until(const uint32_t *set)
{
	/* ACQUIRE pairs with the RELEASE in arrive(). */
	while (!__atomic_load_n(set, __ATOMIC_ACQUIRE) &&
	       !__atomic_load_n(&sh->failed, __ATOMIC_RELAXED))
		df_futex_wait(set, 0, (int64_t)DF_NS_PER_S, 1);
}

static void wake_all(uint32_t *set)
{
	arrive(set);
	df_futex_wake(set, INT_MAX, 1);
}

static void fail(const char *what, int error)
{
	if (!__atomic_exchange_n(&sh->failed, 1, __ATOMIC_RELAXED))
		fprintf(stderr, "b_live: rank %d of %d: %s: %s\n", rank, ranks, what,
			strerror(-error));
}

static uint64_t op(uint32_t comm, uint64_t count)
{
	uint64_t serial = df_trace_serial();

	df_trace_op(&(struct df_trace_op){.op = serial,
					  .count = count,
					  .stream = STREAM,
					  .comm = comm,
					  .device = 0,
					  .rank = rank,
					  .peer = -1,
					  .kind = DF_KIND_ALLREDUCE,
					  .type = 7,
					  .flags = DF_OP_BY_NCCL | DF_OP_END_SEEN});
	df_trace(DF_REC_OP_START, 0, comm, rank, serial, 0, 0, 0, 0);
	return serial;
}

static void op_done(uint32_t comm, uint64_t serial)
{
	df_trace(DF_REC_OP_DONE, 0, comm, rank, serial, 0, 0, 0, 0);
	df_trace_comm_done(comm);
}

static uint32_t comm_new(int i)
{
	uint64_t hash = df_id_hash(sh->id[i]);
	uint32_t comm;

	df_record_join(hash, 1, (const unsigned char(*)[DF_ID_BYTES])sh->id[i], ranks, rank, 0);
	comm = df_trace_comm(hash, ranks, rank, 0, 0, i ? "second" : "first");
	df_record_made(hash, rank, comm, 0);
	df_trace(DF_REC_COMM_READY, 0, comm, rank, 0, hash, (uint64_t)ranks, 0, 0);
	return comm;
}

static int is_joining(int i)
{
	int missing;

	return df_ctl_missing(df_id_hash(sh->id[i]), &missing, 1) != -ENOENT;
}

/* Makes the rank's last call, which does not return. */
static void stand(const uint32_t comm[2])
{
	int last = rank == ranks - 1, cycle = !strcmp(kind, "cycle");

	if (last && !strcmp(kind, "dead"))
		raise(SIGKILL);
	if (last && !strcmp(kind, "missing"))
		return;
	op(comm[cycle ? rank % 2 : 0], last && !strcmp(kind, "mismatch") ? 500 : 1000);
	df_record_enter(DF_CALL_STREAM_SYNC, 0, -1, 0, STREAM, 0, 0);
	df_record_wake();
}

/* Returns the time at which this process was first asked for its trace after the fault, or 0. */
static uint64_t asked_at(uint64_t since)
{
	const struct df_trace_header *h = df_trace_ring();
	const struct df_rec *recs = (const void *)((const char *)h + h->off_recs);
	uint64_t first = 0;

	for (uint64_t i = 0; i < h->next && i < h->nr_recs; i++)
		if (recs[i].type == DF_REC_HOST_AT && recs[i].time_ns >= since &&
		    (!first || recs[i].time_ns < first))
			first = recs[i].time_ns;
	return first;
}

static int process(void)
{
	static const struct df_record_nccl nccl;
	FILE *log = freopen("/dev/null", "w", stderr);
	struct df_trace_config trace = {
		.mb = 1, .rank = rank, .world = ranks, .mode = DF_MODE_TRACE};
	uint64_t began, shift;
	uint32_t comm[2] = {0};
	int ret;

	/* The change of the user clears the signal. */
	if (!log || seteuid((uid_t)(USER + rank / PER_NODE)) || prctl(PR_SET_PDEATHSIG, SIGKILL))
		return 77;
	trace.host = df_addr_host_hash();
	ret = df_trace_open(&trace);
	if (!ret)
		ret = df_record_watch_start(&nccl);
	if (ret)
		fail("cannot start", ret);
	for (int i = 0; !rank && i < 2; i++) {
		/* A handle like NCCL's: a number, an address, and zeros behind them. */
		memset(sh->id[i], 0, DF_ID_BYTES);
		for (int k = 0; k < 40; k++)
			sh->id[i][k] = (unsigned char)(real_ns() >> (k % 4 * 8)) ^ (unsigned char)k;
		df_record_id(sh->id[i]);
	}
	df_trace(DF_REC_STREAM_CREATE, 0, 0, -1, 0, STREAM, 0, 0, 0);
	arrive(&sh->ready);
	sleep_until(&sh->begin);
	comm[0] = comm_new(0);
	if (!strcmp(kind, "cycle"))
		comm[1] = comm_new(1);
	for (int i = 0; i < OPS; i++)
		op_done(comm[0], op(comm[0], 1000));
	if (comm[1])
		op_done(comm[1], op(comm[1], 1000));
	while ((!df_record_peers() || is_joining(0) || is_joining(1)) &&
	       !__atomic_load_n(&sh->failed, __ATOMIC_RELAXED))
		usleep(50000);
	arrive(&sh->joined);
	sleep_until(&sh->go);
	began = df_now_ns();
	shift = real_ns() - began;
	stand(comm);
	while (!df_record_told() && !__atomic_load_n(&sh->failed, __ATOMIC_RELAXED))
		usleep(100000);
	sh->told_ns[rank] = df_trace_ring()->told_ns;
	sh->asked_ns[rank] = asked_at(began) ? asked_at(began) + shift : 0;
	if (!rank)
		snprintf(sh->line, sizeof(sh->line), "%s", df_trace_ring()->told_line);
	arrive(&sh->told);
	for (;;)
		pause(); /* an exit would be another event */
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int run(void)
{
	uint32_t live = (uint32_t)(ranks - !strcmp(kind, "dead"));
	static double told[RANKS_MAX];
	static pid_t pid[RANKS_MAX];
	double asked = 1e9, at;
	int bad, status = 0, n = 0;

	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		return 1;
	fflush(stdout);
	for (rank = 0; rank < ranks; rank++) {
		pid[rank] = fork();
		if (!pid[rank])
			_exit(process());
		if (pid[rank] < 0)
			fail("fork", -errno);
	}
	/* A process that ends this early has no right to change its user. */
	for (int i = 0; i < 50 && !waitpid(pid[0], &status, WNOHANG); i++)
		usleep(10000);
	if (status)
		__atomic_store_n(&sh->failed, 77, __ATOMIC_RELAXED);
	wait_for(&sh->ready, (uint32_t)ranks);
	wake_all(&sh->begin);
	wait_for(&sh->joined, (uint32_t)ranks);
	sh->fault_ns = real_ns();
	wake_all(&sh->go);
	wait_for(&sh->told, live);
	for (rank = 0; rank < ranks; rank++)
		if (pid[rank] > 0)
			kill(pid[rank], SIGKILL);
	for (rank = 0; rank < ranks; rank++)
		waitpid(pid[rank], NULL, 0);
	bad = (int)sh->failed;
	for (rank = 0; rank < ranks; rank++) {
		at = (double)(sh->asked_ns[rank] - sh->fault_ns) / 1e9;
		if (sh->asked_ns[rank] && at < asked)
			asked = at;
		if (sh->told_ns[rank])
			told[n++] = (double)(sh->told_ns[rank] - sh->fault_ns) / 1e9;
	}
	qsort(told, (size_t)n, sizeof(told[0]), by_value);
	if (!bad && quiet)
		printf("BENCH live.%s.%d %.2f s target <=5 %s\n", kind, ranks, told[n - 1],
		       told[n - 1] <= 5 ? "ok" : "MISS");
	else if (!bad)
		printf("live %s %d %.2f", kind, ranks, asked);
	for (int i = 0; i < n && !bad && !quiet; i++)
		printf(" %.2f", told[i]);
	if (!bad)
		printf("\n# %s\n" + quiet, sh->line);
	munmap(sh, sizeof(*sh));
	return bad;
}

int main(int argc, char **argv)
{
	static const char *const proved[] = {"mismatch", "cycle", "dead"};
	struct rlimit lim;
	int rc = 0;

	if (argc != 1 && (argc != 4 || atoi(argv[3]) < 2 || atoi(argv[3]) > RANKS_MAX)) {
		fprintf(stderr, "usage: b_live RUNS KIND RANKS\n");
		return 2;
	}
	getrlimit(RLIMIT_NOFILE, &lim);
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
	setenv("NCCL_SOCKET_IFNAME", "lo", 1);
	setenv("NCCL_RAS_ENABLE", "0", 1);
	unsetenv("DFSHIM_TRACE");
	for (size_t i = 0; argc == 1 && i < 2 * DF_ARRAY_LEN(proved) && !rc; i++) {
		quiet = 1;
		kind = proved[i / 2];
		ranks = i % 2 ? 256 : 16;
		rc = run();
	}
	for (int i = 0; argc > 1 && i < atoi(argv[1]) && !rc; i++) {
		kind = argv[2];
		ranks = atoi(argv[3]);
		rc = run();
	}
	return rc;
}
