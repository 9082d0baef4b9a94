/*
 * A program that uses dfccl.h alone. `ranks` threads register collectives of all kinds in different
 * orders, among them pairs with equal arguments, and run them in a different order in every round.
 * Results must be exact. Arguments: ranks, rounds, seed.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "interpose/dfccl.h"

#define NR_COLLS  24
#define MAX_RANKS 16
#define CHECK(call)                                                                                \
	do {                                                                                       \
		int err_ = (call);                                                                 \
		if (err_) {                                                                        \
			printf("%s: %d, %s\n", #call, err_, dfcclErrorString(err_));               \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* Functions of the CUDA runtime on the CPU, in libdfhost.so. */
int cudaMalloc(void **ptr, size_t bytes);
int cudaSetDevice(int device);

static int nranks, rounds;
static unsigned seed;
static dfcclUniqueId uid;

struct rank {
	int rank, called[NR_COLLS], bad;
	float *send[NR_COLLS], *recv[NR_COLLS];
	dfcclContext_t context;
	pthread_t thread;
};

static size_t count_of(int id)
{
	/* Numbers 0 and 5, 1 and 6, ... have equal arguments within each ten. */
	return (size_t)(id % 5) * 1000 + 7 + (size_t)(id / 10) * 20000;
}

static float input(int rank, int round, int id, size_t i)
{
	return (float)((rank + 1) * ((int)i % 13) + round % 7 + id);
}

static void over(int id, int result, void *arg)
{
	struct rank *r = arg;

	if (result)
		r->bad++;
	r->called[id]++;
}

static void reg(struct rank *r, int id)
{
	size_t n = count_of(id);

	switch (id % 5) {
	case 0:
		CHECK(dfcclRegisterAllReduce(r->context, id, n, dfcclFloat32, dfcclSum, id % 3));
		break;
	case 1:
		CHECK(dfcclRegisterReduce(r->context, id, n, dfcclFloat32, dfcclMax, id % nranks,
					  0));
		break;
	case 2:
		CHECK(dfcclRegisterBroadcast(r->context, id, n, dfcclFloat32, id % nranks, 0));
		break;
	case 3:
		CHECK(dfcclRegisterAllGather(r->context, id, n, dfcclFloat32, 0));
		break;
	default:
		CHECK(dfcclRegisterReduceScatter(r->context, id, n, dfcclFloat32, dfcclSum, 0));
	}
}

static void start(struct rank *r, int id)
{
	static int (*const runs[])(dfcclContext_t, int, const void *, void *, dfcclCallback_t,
				   void *) = {dfcclRunAllReduce, dfcclRunReduce, dfcclRunBroadcast,
					      dfcclRunAllGather, dfcclRunReduceScatter};

	CHECK(runs[id % 5](r->context, id, r->send[id], r->recv[id], over, r));
}

static int wrong(struct rank *r, int round, int id)
{
	size_t n = count_of(id), i, m = id % 5 == 3 ? n * (size_t)nranks : n;
	int k, root = id % nranks;

	if (id % 5 == 1 && r->rank != root)
		return 0;
	for (i = 0; i < m; i++) {
		float want = 0;

		switch (id % 5) {
		case 0:
			for (k = 0; k < nranks; k++)
				want += input(k, round, id, i);
			break;
		case 1:
			want = input(nranks - 1, round, id, i);
			break;
		case 2:
			want = input(root, round, id, i);
			break;
		case 3:
			want = input((int)(i / n), round, id, i % n);
			break;
		default:
			for (k = 0; k < nranks; k++)
				want += input(k, round, id, i + n * (size_t)r->rank);
		}
		if (r->recv[id][i] != want) {
			printf("rank %d, collective %d, round %d, element %zu: %g, not %g\n",
			       r->rank, id, round, i, (double)r->recv[id][i], (double)want);
			return 1;
		}
	}
	return 0;
}

static void *body(void *arg)
{
	struct rank *r = arg;
	unsigned state = seed * 977 + (unsigned)r->rank;
	int order[NR_COLLS], round, id, i, j, t;
	size_t n, k;

	cudaSetDevice(r->rank);
	CHECK(dfcclInit(&r->context, nranks, uid, r->rank, r->rank));
	for (i = 0; i < NR_COLLS; i++)
		order[i] = i;
	for (round = -1; round < rounds; round++) {
		for (i = NR_COLLS - 1; i > 0; i--) {
			j = rand_r(&state) % (i + 1);
			t = order[i];
			order[i] = order[j];
			order[j] = t;
		}
		for (i = 0; i < NR_COLLS; i++) {
			id = order[i];
			n = count_of(id) * (size_t)nranks;
			if (round < 0) {
				reg(r, id);
				if (cudaMalloc((void **)&r->send[id], n * 4) ||
				    cudaMalloc((void **)&r->recv[id], n * 4))
					exit(1);
				continue;
			}
			for (k = 0; k < n; k++)
				r->send[id][k] = input(r->rank, round, id, k);
			start(r, id);
		}
		if (round < 0)
			continue;
		CHECK(dfcclWait(r->context));
		for (id = 0; id < NR_COLLS; id++)
			r->bad += wrong(r, round, id) + (r->called[id] != round + 1);
	}
	CHECK(dfcclDestroy(r->context));
	return NULL;
}

int main(int argc, char **argv)
{
	static struct rank ranks[MAX_RANKS];
	int i, bad = 0;

	nranks = argc > 1 ? atoi(argv[1]) : 4;
	rounds = argc > 2 ? atoi(argv[2]) : 5;
	seed = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
	if (nranks < 1 || nranks > MAX_RANKS)
		return 2;
	CHECK(dfcclGetUniqueId(&uid));
	for (i = 0; i < nranks; i++) {
		ranks[i].rank = i;
		pthread_create(&ranks[i].thread, NULL, body, &ranks[i]);
	}
	for (i = 0; i < nranks; i++) {
		pthread_join(ranks[i].thread, NULL);
		bad += ranks[i].bad;
	}
	printf("%d ranks, %d rounds of %d collectives in disorder, %d bad\n", nranks, rounds,
	       NR_COLLS, bad);
	return bad != 0;
}
