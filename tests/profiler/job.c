/*
 * One rank of a job of tests/profiler: job PLUGIN VERSION RANK WORLD WHAT. When nothing makes
 * progress any more, it prints "hangs" and waits to be killed.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "tests/profiler/nccl/nccl.h"

static int rank, world;

static void hang(void)
{
	puts("hangs");
	fflush(stdout);
	while (1)
		pause();
}

static void steps(struct fake_comm *c, int nr, int proxies)
{
	static const char *const funcs[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
					    "Reduce"};

	for (int i = 0; i < nr; i++)
		fake_coll(c, funcs[i % 5], 100 + (size_t)i, 0, proxies, NO_STALL, 0);
}

static void *of_thread(void *arg)
{
	steps(arg, 40, 1);
	fake_sync(arg);
	return NULL;
}

/*
 * Everything that NCCL reports: communicators, groups, threads, graphs, the network, and operations
 * without events.
 */
static void all(int version)
{
	struct fake_comm *a = fake_comm(0xa, "world", world, rank), *b, *t;
	pthread_t thread;

	b = fake_comm(0xb0 + (uint64_t)rank / 2, "half", world / 2, rank % 2);
	t = fake_comm(0xc, "thread", world, rank);
	pthread_create(&thread, NULL, of_thread, t);
	steps(a, 20, 1);
	steps(b, 20, 0);
	for (int i = 0; i < 5; i++) {
		fake_two(a, b);
		fake_exchange(a, (rank + 1) % world, (rank + world - 1) % world, 7, 0);
	}
	fake_exchange(b, rank % 2, rank % 2, 3, 0);
	if (version >= 5) {
		fake_coll(a, "AllReduce", 8, 0, 0, NO_STALL, 1);
		for (int i = 0; i < 3; i++)
			fake_replay(a, "AllReduce", 8);
		for (int i = 0; i < 300; i++)
			fake_coll(a, "AllGather", 8, 0, 0, NO_KERNEL, 0);
	}
	steps(a, 3, 0);
	pthread_join(thread, NULL);
	fake_sync(a);
	fake_sync(b);
	fake_destroy(t);
	fake_destroy(b);
	fake_destroy(a);
}

/* Messages of one call, of a graph, and in a group. */
static void groups(void)
{
	struct fake_comm *c = fake_comm(0xa, "world", world, rank);
	int to = (rank + 1) % world, from = (rank + world - 1) % world;

	fake_alltoall(c, 5);
	fake_exchange(c, to, from, 6, 0);
	fake_exchange(c, to, from, 7, 1);
	fake_replay_exchange(c, to, from, 7);
	fake_replay_exchange(c, to, from, 7);
	fake_sync(c);
	fake_destroy(c);
}

/*
 * Captures many calls, which must not need more memory than a few; then makes a call outside
 * graphs. Returns 1 if the memory grew.
 */
static int capture(void)
{
	struct fake_comm *c = fake_comm(0xa, "world", world, rank);
	struct rusage some, all;

	for (int i = 0; i < 240000; i++) {
		fake_coll(c, "AllReduce", 8, 0, 0, NO_STALL, 1);
		if (i == 20000)
			getrusage(RUSAGE_SELF, &some);
	}
	getrusage(RUSAGE_SELF, &all);
	steps(c, 1, 0);
	fake_replay(c, "AllReduce", 8);
	fake_sync(c);
	fake_destroy(c);
	printf("%ld MB more\n", (all.ru_maxrss - some.ru_maxrss) >> 10);
	return all.ru_maxrss - some.ru_maxrss < 8 << 10 ? 0 : 1;
}

/*
 * Aborts a communicator while its proxies wait. Afterwards the process works without NCCL for a
 * while.
 */
static void aborted(void)
{
	struct fake_comm *c = fake_comm(0xa, "world", world, rank);

	fake_coll(c, "AllReduce", 8, 0, 1, STALL_SEND_NET, 0);
	fake_sync(c);
	fake_abort(c);
	usleep(3000 * (useconds_t)atoi(getenv("DFSHIM_TIMEOUT_MS")));
}

int main(int argc, char **argv)
{
	int version = argc > 5 ? atoi(argv[2]) : 0;
	const char *what = argc > 5 ? argv[5] : "";
	struct fake_comm *c;

	if (argc < 6 || !fake_load(argv[1], version))
		return 3;
	rank = atoi(argv[3]);
	world = atoi(argv[4]);
	if (!strcmp(what, "all")) {
		all(version);
		return 0;
	}
	if (!strcmp(what, "capture"))
		return capture();
	if (!strcmp(what, "groups") || !strcmp(what, "aborted")) {
		(!strcmp(what, "groups") ? groups : aborted)();
		return 0;
	}
	c = fake_comm(0xa, "world", world, rank);
	if (!strcmp(what, "connect")) {
		if (rank != 1) {
			puts("hangs");
			fflush(stdout);
			fake_coll(c, "AllReduce", 8, 0, 0, STALL_CONNECT, 0);
		}
		hang();
	}
	steps(c, 5, 1);
	fake_sync(c);
	/*
	 * Rank 1 makes no call, sends nothing, receives nothing, or has a kernel that does nothing.
	 */
	if (!strcmp(what, "missing") && rank != 1)
		fake_coll(c, "AllReduce", 8, 0, version < 3,
			  version < 3 ? STALL_RECV_NET : STALL_KERNEL, 0);
	else if (!strcmp(what, "late"))
		fake_coll(c, "AllReduce", 8, 0, 0, STALL_LATE, 0);
	else if (!strcmp(what, "again"))
		fake_coll(c, "AllReduce", 8, 0, 1, rank == 2 ? STALL_RECV_AGAIN : STALL_KERNEL, 0);
	else if (!strcmp(what, "send"))
		fake_coll(c, "AllReduce", 8, 0, 1, rank == 1 ? STALL_SEND_NET : STALL_RECV_NET, 0);
	else if (!strcmp(what, "lost"))
		fake_coll(c, "AllReduce", 8, 0, 1, rank == 2 ? STALL_RECV_NET : STALL_KERNEL, 0);
	else if (!strcmp(what, "kernel"))
		fake_coll(c, "AllReduce", 8, 0, 1, rank == 1 ? STALL_SEND_GPU : STALL_RECV_NET, 0);
	if (strcmp(what, "again"))
		fake_sync(c);
	hang();
}
