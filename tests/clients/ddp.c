/*
 * The communication of data-parallel training: a forward pass, then a backward pass whose buckets
 * are reduced as soon as they are ready, then a wait for all of them. Computation is sleep. As in
 * PyTorch, the first iteration has other buckets. The loss is reduced at the end of each iteration.
 * Checks the results. Rank 0 prints the median time of an iteration, without the first two.
 */
#include "client.h"

static const size_t sizes[] = {65536, 196608, 196608, 262144, 131072}; /* the output side first */
static const unsigned backward_ms[] = {4, 4, 4, 6, 14};
static const unsigned forward_ms = 16;

static int iterations = 12;
static double *times;

static void compute(unsigned ms)
{
	struct timespec t = {0, (long)ms * 1000000};

	nanosleep(&t, NULL);
}

/* Checks one value of each bucket, because all values are the same. */
static int check(const struct client_rank *me, const float *bucket, float want)
{
	float got;

	CUDA(cudaMemcpy(&got, bucket, sizeof(got), cudaMemcpyDeviceToHost));
	EXPECT(got == want, "rank %d: %g, not %g", me->rank, got, want);
	return 0;
}

static int iteration(struct client_rank *me, cudaStream_t s, float **buckets, float *loss, int i)
{
	float want = (float)me->nr_ranks;

	compute(forward_ms);
	for (size_t b = 0; b < ARRAY_LEN(sizes); b++) {
		float one = 1;

		compute(backward_ms[b]);
		CUDA(client_upload(buckets[b], &one, sizeof(one)));
		NCCL(ncclAllReduce(buckets[b], buckets[b], i ? sizes[b] : 1000 + b, ncclFloat,
				   ncclSum, me->comms[0], s));
	}
	if (client_wait(s, me->comms, 1))
		return -1;
	for (size_t b = 0; b < ARRAY_LEN(sizes); b++)
		if (check(me, buckets[b], want))
			return -1;
	CUDA(client_upload(loss, &want, sizeof(want)));
	NCCL(ncclAllReduce(loss, loss, 1, ncclFloat, ncclSum, me->comms[0], s));
	if (client_wait(s, me->comms, 1))
		return -1;
	return check(me, loss, want * want);
}

static int run(struct client_rank *me)
{
	float *buckets[ARRAY_LEN(sizes)], *loss;
	cudaStream_t s;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	for (size_t b = 0; b < ARRAY_LEN(sizes); b++)
		CUDA(cudaMalloc((void **)&buckets[b], sizes[b] * sizeof(float)));
	CUDA(cudaMalloc((void **)&loss, sizeof(float)));
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	for (int i = 0; i < iterations; i++) {
		double since = client_now();

		if (iteration(me, s, buckets, loss, i))
			return -1;
		if (i >= 2 && !me->rank)
			times[i - 2] = client_now() - since;
	}
	if (iterations > 2 && !me->rank) {
		qsort(times, (size_t)iterations - 2, sizeof(*times), client_by_value);
		printf("ddp: %.3f ms a step\n", times[(iterations - 2) / 2] * 1e3);
	}
	NCCL(ncclCommDestroy(me->comms[0]));
	me->comms[0] = NULL;
	CUDA(cudaFree(loss));
	for (size_t b = 0; b < ARRAY_LEN(sizes); b++)
		CUDA(cudaFree(buckets[b]));
	CUDA(cudaStreamDestroy(s));
	return 0;
}

int main(int argc, char **argv)
{
	const char *text = getenv("DDP_ITERATIONS");

	if (text)
		iterations = atoi(text);
	times = calloc((size_t)(iterations > 2 ? iterations : 2), sizeof(*times));
	if (!times)
		return EXIT_NCCL;
	return client_main(argc, argv, 2, 1,
			   "Reduces buckets as training does (DDP_ITERATIONS, default 12).", run);
}
