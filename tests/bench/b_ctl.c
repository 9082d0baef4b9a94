/*
 * Measures the control plane with many simulated nodes. Each node is a process with a user of its
 * own. So no process takes another one for a neighbour, and all are joined over TCP, as nodes are.
 * All of them share this machine's processors, so a figure contains the work of all nodes.
 *
 *   ctl.rendezvous.N    the time from the moment at which all call df_ctl_join() until the last one
 *                       has returned
 *   ctl.verdict.N       one asks all for their traces, adds them up and has the verdict that a rank
 *                       is missing
 *   ctl.descriptors.N   the descriptors of the process that has most of them, once the rendezvous
 *                       is over
 *   ctl.greeting        the processor time that both ends of a connection need to prove themselves,
 *                       without the messages
 *   ctl.greeting.data   the same for the connection of a data socket, whose hello is longer
 *
 * `b_ctl [NODES...]`: 64 and 1024. It needs the right to change its user, and ends with status 77
 * without it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/time.h"
#include "runtime/ctl/ctl.h"
#include "runtime/ctl/link.h"
#include "runtime/dfshim.h"
#include "runtime/transport/net/socket/socket.h"
#include "trace/check.h"
#include "trace/record/names.h"
#include "trace/record/writer.h"

#define NODES_MAX 4096
#define MISSING	  5 /* the rank that lacks the last operation */
#define OPS	  100
#define USER	  20000 /* of the first node's process */

static struct shared {
	unsigned char id[1][128];
	uint32_t ready, go, joined, leave, failed;
	uint32_t descriptors[NODES_MAX];
	uint64_t joined_ns[NODES_MAX], verdict_ns;
	char line[512];
} * sh;

static struct df_member me;
static int nodes, rank;

/* The answers, on process 0. */
static struct df_check_set *answers;
static uint32_t nr_answers;

static void arrive(uint32_t *at, uint32_t want)
{
	/* RELEASE pairs with the ACQUIRE in wait_for(): the waiting process sees earlier writes. */
	__atomic_add_fetch(at, want, __ATOMIC_RELEASE);
}

static void wait_for(const uint32_t *at, uint32_t count)
{
	/* ACQUIRE pairs with the RELEASE in arrive(). */
	while (__atomic_load_n(at, __ATOMIC_ACQUIRE) < count &&
	       !__atomic_load_n(&sh->failed, __ATOMIC_RELAXED))
		usleep(5000);
}

static void fail(const char *what, int error)
{
	if (!__atomic_exchange_n(&sh->failed, 1, __ATOMIC_RELAXED))
		fprintf(stderr, "b_ctl: node %d of %d: %s: %s\n", rank, nodes, what,
			strerror(-error));
}

/* Runs on the control thread. */
static void message(uint64_t from, uint32_t kind, const void *data, size_t bytes)
{
	void *image;
	int ret;

	if (kind == DF_MSG_SNAPSHOT_ASK) {
		ret = df_trace_compact(df_trace_ring(), &image, &bytes);
		if (!ret)
			ret = df_ctl_send(NULL, from, DF_MSG_SNAPSHOT, image, bytes);
		if (ret)
			fail("no answer", ret);
		else
			free(image);
	} else if (kind == DF_MSG_SNAPSHOT) {
		ret = df_check_add_image(answers, data, bytes, "answer");
		if (ret)
			fail("an answer", ret);
		arrive(&nr_answers, 1);
	}
}

/*
 * Writes a rank's trace of a job: its members, finished operations, and one that is not finished.
 */
static void record(const struct df_member *members)
{
	uint32_t comm = df_trace_comm(0xabc, nodes, rank, 0, 0, "world");
	int i;

	for (i = 0; i < nodes; i++)
		df_trace(DF_REC_COMM_MEMBER, 0, comm, rank, (uint64_t)i, members[i].host,
			 members[i].pid, 0, 0);
	for (i = 0; i < OPS - (rank == MISSING); i++) {
		df_trace_op(&(struct df_trace_op){.op = (uint64_t)i + 1,
						  .count = 1024,
						  .comm = comm,
						  .rank = rank,
						  .peer = -1,
						  .kind = DF_KIND_ALLREDUCE,
						  .type = 7,
						  .matched = 1,
						  .sig = 77,
						  .inst = (uint64_t)i,
						  .index = (uint64_t)i});
		df_trace(DF_REC_OP_START, 0, comm, rank, (uint64_t)i + 1, 0, 0, 0, 0);
		if (i + 1 < OPS) {
			df_trace(DF_REC_OP_DONE, 0, comm, rank, (uint64_t)i + 1, 0, 0, 0, 0);
			df_trace_comm_done(comm);
		}
	}
}

static void judge(const struct df_member *members)
{
	struct df_check_opts opts = {.now_ns = df_now_ns() + 60 * DF_NS_PER_S};
	struct df_check_result *r;
	uint64_t begin = df_now_ns();
	void *image;
	size_t bytes;
	int i, ret;

	for (i = 1; i < nodes; i++)
		df_ctl_send(NULL, members[i].proc, DF_MSG_SNAPSHOT_ASK, "", 0);
	wait_for(&nr_answers, (uint32_t)nodes - 1);
	ret = df_trace_compact(df_trace_ring(), &image, &bytes);
	if (!ret)
		ret = df_check_add_image(answers, image, bytes, "own");
	if (!ret)
		ret = df_check_run(answers, &opts, &r);
	if (ret) {
		fail("no verdict", ret);
		return;
	}
	sh->verdict_ns = df_now_ns() - begin;
	snprintf(sh->line, sizeof(sh->line), "%s", df_check_line(r));
	if (df_check_verdict(r) != DF_V_MISSING || !strstr(sh->line, "r5"))
		fail(sh->line, -EBADMSG);
}

static uint32_t descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint32_t n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n - 3;
}

static int node(void)
{
	static const struct df_ctl_events events = {.message = message};
	static const struct df_trace_config trace = {.mb = 1, .rank = -1};
	struct df_ctl_comm *c;
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (seteuid((uid_t)(USER + rank)))
		return 77;
	answers = df_check_set_new();
	df_trace_open(&trace);
	df_ctl_set_events(&events);
	ret = df_ctl_self(&me);
	if (!ret && !rank)
		ret = df_id_create(sh->id[0]);
	if (ret)
		fail("cannot start", ret);
	me.rank = rank;
	arrive(&sh->ready, 1);
	wait_for(&sh->go, 1);
	ret = df_ctl_join(1, (const unsigned char(*)[128])sh->id, nodes, &me, NULL, &sh->failed,
			  &c);
	if (ret) {
		fail("cannot join", ret);
		return 1;
	}
	sh->joined_ns[rank] = df_now_ns();
	record(df_ctl_members(c));
	arrive(&sh->joined, 1);
	if (!rank) {
		wait_for(&sh->joined, (uint32_t)nodes);
		judge(df_ctl_members(c));
		arrive(&sh->leave, 1);
	}
	wait_for(&sh->leave, 1);
	sh->descriptors[rank] = descriptors();
	return 0;
}

static int run(int nr)
{
	pid_t pid[NODES_MAX];
	uint64_t begin, last = 0;
	uint32_t most = 0;
	int status, bad = 0;

	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		return 1;
	nodes = nr;
	for (rank = 0; rank < nr; rank++) {
		pid[rank] = fork();
		if (!pid[rank])
			_exit(node());
		if (pid[rank] < 0)
			fail("fork", -errno);
	}
	wait_for(&sh->ready, (uint32_t)nr);
	begin = df_now_ns();
	arrive(&sh->go, 1);
	for (rank = 0; rank < nr; rank++) {
		if (pid[rank] < 0 || waitpid(pid[rank], &status, 0) < 0)
			bad = 1;
		else if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			bad = 77;
		else if (status)
			bad = bad ? bad : 1;
		last = sh->joined_ns[rank] > last ? sh->joined_ns[rank] : last;
		most = sh->descriptors[rank] > most ? sh->descriptors[rank] : most;
	}
	if (!bad && !sh->failed) {
		printf("BENCH ctl.rendezvous.%d %.3f s target - ok\n", nr,
		       (double)(last - begin) / 1e9);
		printf("BENCH ctl.verdict.%d %.3f s target - ok\n", nr,
		       (double)sh->verdict_ns / 1e9);
		printf("BENCH ctl.descriptors.%d %u descriptors target <=32 %s\n", nr, most,
		       most <= 32 ? "ok" : "MISS");
		printf("# %s\n", sh->line);
	}
	bad = bad ? bad : (int)sh->failed;
	munmap(sh, sizeof(*sh));
	return bad;
}

/*
 * Returns the mean microseconds that both ends compute for one connection that begins with these
 * bytes. Returns a negative number if there are no random numbers.
 */
static double proofs_of(void *hello, size_t bytes, struct df_key *challenge, struct df_key *sum)
{
	enum { TIMES = 100, SIDES = 2 };
	const enum df_proof proofs[] = {DF_PROOF_ACCEPTS, DF_PROOF_CONNECTS, DF_PROOF_SESSION};
	struct df_key secret = {{1}}, theirs, proof;
	uint64_t begin = df_now_ns();
	size_t j;
	int i;

	for (i = 0; i < TIMES; i++) {
		if (df_key_make(challenge) || df_key_make(&theirs))
			return -1;
		for (j = 0; j < SIDES * DF_ARRAY_LEN(proofs); j++) {
			proof = df_auth_proof(&secret, proofs[j / SIDES], hello, bytes, &theirs);
			sum->bytes[j] ^= proof.bytes[j];
		}
	}
	return (double)(df_now_ns() - begin) / 1e3 / TIMES;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, size_t nr)
{
	qsort(v, nr, sizeof(*v), by_value);
	return v[nr / 2];
}

/*
 * Measures the two kinds of connections in turns. The ratio is the median of the ratios of
 * neighbours.
 */
static void greeting(void)
{
	enum { PAIRS = 201 };
	static double control[PAIRS], data[PAIRS], ratio[PAIRS];
	struct df_greet g = {.name = 1};
	struct hello h = {.magic = MAGIC};
	struct df_key sum = {0};
	double us;
	int i;

	for (i = 0; i < PAIRS; i++) {
		control[i] = proofs_of(&g, sizeof(g), &g.challenge, &sum);
		data[i] = proofs_of(&h, sizeof(h), &h.challenge, &sum);
		if (control[i] < 0 || data[i] < 0)
			return;
		ratio[i] = data[i] / control[i];
	}
	us = median(control, PAIRS);
	printf("BENCH ctl.greeting %.2f us target <=20 %s\n", us, us <= 20 ? "ok" : "MISS");
	printf("BENCH ctl.greeting.data %.2f us peer ctl.greeting %.2f ratio %.2f target <=20 %s\n",
	       median(data, PAIRS), us, median(ratio, PAIRS),
	       median(data, PAIRS) <= 20 ? "ok" : "MISS");
	/* The result is used, so that the compiler keeps the work. */
	fprintf(stderr, "%02x\n", sum.bytes[0]);
}

int main(int argc, char **argv)
{
	static const char *some[] = {"", "64", "1024"};
	char **v = argc > 1 ? argv : (char **)some;
	int n = argc > 1 ? argc : 3, i, rc = 0;
	struct rlimit lim;

	getrlimit(RLIMIT_NOFILE, &lim);
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
	setenv("NCCL_SOCKET_IFNAME", "lo", 1);
	greeting();
	for (i = 1; i < n && !rc; i++) {
		if (atoi(v[i]) < MISSING + 1 || atoi(v[i]) > NODES_MAX) {
			fprintf(stderr, "b_ctl: %s nodes: 6 to %d\n", v[i], NODES_MAX);
			return 2;
		}
		rc = run(atoi(v[i]));
		fflush(stdout);
	}
	if (rc == 77)
		fprintf(stderr, "b_ctl: no rights to change the user\n");
	return rc;
}
