/*
 * One process of a job over nodes, limited to the control plane: joins, gathers, reports what it
 * sees. For t_control.sh.
 *
 * node FIRST COUNT NRANKS FILE [MODE]
 *
 * Serves ranks FIRST to FIRST + COUNT - 1 of NRANKS, each in a thread. The id is in FILE, which
 * rank 0 writes; with NCCL_COMM_ID there is no FILE. MODE: die (after the first gather, without a
 * message), stay (waits for the death of others), stop (stops itself; the test continues it), hold
 * (waits until FILE.go exists). The last line is "ok" or "failed: reason". Exits with 0 or 1.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "runtime/base/time.h"
#include "runtime/ctl/ctl.h"
#include "runtime/dfshim.h"

#define RANKS_MAX 64
#define ROUNDS	  20

static unsigned char ids[1][128];
static const char *mode = "";
static char go[512]; /* FILE.go */
static int first, nranks, result[RANKS_MAX];

static void get_id(const char *file)
{
	const char *address = getenv("NCCL_COMM_ID");
	char tmp[512];
	FILE *f;

	if (address) {
		if (df_id_from_address(address, ids[0]))
			exit(1);
		return;
	}
	if (!first) {
		if (df_id_create(ids[0]))
			exit(1);
		snprintf(tmp, sizeof(tmp), "%s.tmp", file);
		f = fopen(tmp, "w");
		if (!f || fwrite(ids[0], sizeof(ids[0]), 1, f) != 1 || fclose(f) ||
		    rename(tmp, file))
			exit(1);
		return;
	}
	while (!(f = fopen(file, "r")))
		usleep(10000);
	if (fread(ids[0], sizeof(ids[0]), 1, f) != 1)
		exit(1);
	fclose(f);
}

/* Gathers a value of each rank. Returns 0 if all values are right, else a negative errno. */
static int gather(struct df_ctl_comm *c, int rank, uint64_t round)
{
	uint64_t in[2] = {round, (uint64_t)rank}, out[2 * RANKS_MAX];
	int ret = df_ctl_allgather(c, in, sizeof(in), out, NULL), i;

	for (i = 0; !ret && i < nranks; i++)
		if (out[2 * i] != round || out[2 * i + 1] != (uint64_t)i)
			ret = -EBADMSG;
	return ret;
}

static int use(struct df_ctl_comm *c, int rank)
{
	int round, ret;

	ret = gather(c, rank, 0);
	if (ret)
		return ret;
	if (!strcmp(mode, "die")) {
		usleep(200000);
		kill(getpid(), SIGKILL);
	}
	if (!strcmp(mode, "stop") && rank == first)
		kill(getpid(), SIGSTOP);
	while (!strcmp(mode, "hold") && access(go, F_OK))
		usleep(10000);
	for (round = 1; round < ROUNDS; round++) {
		ret = gather(c, rank, (uint64_t)round);
		if (ret)
			return ret;
		if (!strcmp(mode, "stay"))
			usleep(50000);
	}
	return 0;
}

static void *rank_main(void *arg)
{
	int *ret = arg, rank = (int)(ret - result);
	uint64_t begin = df_now_ns();
	struct df_ctl_comm *c;
	struct df_member me;

	*ret = df_ctl_self(&me);
	me.rank = rank;
	if (!*ret)
		*ret = df_ctl_join(1, ids, nranks, &me, NULL, NULL, &c);
	if (*ret) {
		printf("rank %d: not joined: %s after %.1f s\n", rank, strerror(-*ret),
		       (double)(df_now_ns() - begin) / 1e9);
		return NULL;
	}
	printf("rank %d: joined at %s\n", rank, me.tcp);
	fflush(stdout);
	*ret = use(c, rank);
	if (*ret)
		printf("rank %d: gather: %s after %.1f s\n", rank, strerror(-*ret),
		       (double)(df_now_ns() - begin) / 1e9);
	df_ctl_leave(c);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread[RANKS_MAX];
	int count, i, bad = 0;

	if (argc < 5)
		return 2;
	first = atoi(argv[1]);
	count = atoi(argv[2]);
	nranks = atoi(argv[3]);
	mode = argc > 5 ? argv[5] : "";
	snprintf(go, sizeof(go), "%s.go", argv[4]);
	get_id(argv[4]);
	for (i = first; i < first + count; i++)
		pthread_create(&thread[i], NULL, rank_main, &result[i]);
	for (i = first; i < first + count; i++) {
		pthread_join(thread[i], NULL);
		bad |= result[i] != 0;
	}
	df_ctl_goodbye(NULL, 0, UINT64_MAX);
	puts(bad ? "failed" : "ok");
	return bad;
}
