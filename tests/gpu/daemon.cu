/*
 * What the daemon's own steps cost on this GPU, each timed where it happens: the kernel's functions are included here
 * and called by one thread, over memory placed as the backend places it (pinned). Medians over many rounds, ns.
 *
 *   sqe       taking in one submission (dfk_sq_drain with one entry)      timed on the device
 *   cqe       writing one completion (dfk_cq_push)                        timed on the device
 *   context   turning to another collective and back (dfk_switch)         timed on the device
 *   empty     a turn that finds nothing                                   timed on the device
 *   relaunch  from the host's launch to the kernel's first instruction, seen by the host
 *   copy      what a plain device-to-device copy reaches, GB/s of bytes read and written
 *
 * Prints "daemon: NAME VALUE".
 */
#include "kernels/port.h"
#include "kernels/abi.h"
#include "kernels/reduce.h"
#include "kernels/daemon.inl"
#include "tests/gpu/litmus.h"

#define ROUNDS 400

enum { SQE, CQE, CONTEXT, EMPTY, NR };

struct setup {
	struct df_kdaemon d;
	struct df_kblock blk;
	struct df_kcoll coll[2];
	struct df_kctx ctx[2];
	struct df_kinst inst[2];
	uint64_t done[2];
	uint64_t ns[NR][ROUNDS];
	uint64_t go, ack; /* host: entry n is in the ring; device: it has been taken */
};

static __device__ inline uint64_t cycles(void)
{
	uint64_t t;

	asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
	return t;
}

__global__ void steps(struct setup *s)
{
	struct df_kblock *blk = &s->blk;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t t;

		/* The host has put one submission into the ring. */
		if (!dev_until(&s->go, (uint64_t)i + 1))
			return;
		t = cycles();
		dfk_sq_drain(&s->d, blk, 1);
		s->ns[SQE][i] = cycles() - t;
		t = cycles();
		dfk_sq_drain(&s->d, blk, 1);
		s->ns[EMPTY][i] = cycles() - t;
		t = cycles();
		dfk_switch(&s->d, blk, &s->ctx[1]);
		dfk_switch(&s->d, blk, &s->ctx[0]);
		s->ns[CONTEXT][i] = (cycles() - t) / 2;
		t = cycles();
		dfk_cq_push(blk, DF_CQE_DONE, &s->ctx[0]);
		s->ns[CQE][i] = cycles() - t;
		dfk_queue_remove(blk, &s->ctx[0]);
		dev_put(&s->ack, (uint64_t)i + 1);
	}
}

__global__ void hello(uint64_t *up, uint64_t value)
{
	dev_put(up, value);
}

static void *pinned(size_t bytes)
{
	void *p;

	MUST(cudaHostAlloc(&p, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
	memset(p, 0, bytes);
	return p;
}

static double mid(const uint64_t *v, double per_ns)
{
	std::vector<double> d;

	for (int i = ROUNDS / 10; i < ROUNDS; i++)
		d.push_back((double)v[i] / per_ns);
	return median(d);
}

int main()
{
	static const char *const names[NR] = {"sqe", "cqe", "context", "empty"};
	struct setup *s;
	struct df_cqe *cq;
	struct df_sqe *sq;
	struct word *w;
	cudaStream_t stream;
	std::vector<double> times;
	int khz = 0, least, greatest;
	const size_t bytes = 512u << 20;
	void *from, *to;
	cudaEvent_t a, b;

	litmus_start("daemon", 100);
	MUST(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
	MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	MUST(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
	s = (struct setup *)pinned(sizeof(*s));
	sq = (struct df_sqe *)pinned(1024 * sizeof(*sq));
	cq = (struct df_cqe *)pinned(4096 * sizeof(*cq));
	w = words(1);
	s->d.blocks = &s->blk;
	s->d.nr_blocks = 1;
	s->blk.sq.slots = sq;
	s->blk.sq.mask = 1023;
	s->blk.cq.slots = cq;
	s->blk.cq.mask = 4095;
	for (int i = 0; i < 2; i++) {
		s->coll[i].ctx = &s->ctx[i];
		s->coll[i].done = &s->done[i];
		s->ctx[i].coll = &s->coll[i];
		s->ctx[i].cur = &s->inst[i];
		s->ctx[i].nr_inst = 1;
	}
	steps<<<1, 1, 0, stream>>>(s);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		sq[i & 1023] = {&s->ctx[0], &s->inst[0]};
		__atomic_store_n(&s->blk.sq.tail, (uint32_t)i + 1, __ATOMIC_RELEASE);
		__atomic_store_n(&s->go, i + 1, __ATOMIC_RELEASE);
		for (uint64_t end = now_ns() + LIMIT_NS; __atomic_load_n(&s->ack, __ATOMIC_ACQUIRE) < i + 1;)
			if (now_ns() > end) {
				printf("the kernel does not answer\n");
				return 1;
			}
		__atomic_store_n(&s->blk.cq.head, s->blk.cq.tail, __ATOMIC_RELEASE);
	}
	MUST(cudaStreamSynchronize(stream));
	for (int k = 0; k < NR; k++)
		printf("daemon: %s %.1f\n", names[k], mid(s->ns[k], khz / 1e6));

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t t;

		MUST(cudaStreamSynchronize(stream));
		t = now_ns();
		hello<<<1, 512, 0, stream>>>(&w[0].v, (uint64_t)i + 1);
		if (!until(&w[0], (uint64_t)i + 1, LIMIT_NS))
			return 1;
		times.push_back((double)(now_ns() - t));
	}
	printf("daemon: relaunch %.1f\n", median(times));

	MUST(cudaMalloc(&from, bytes));
	MUST(cudaMalloc(&to, bytes));
	MUST(cudaMemset(from, 1, bytes));
	MUST(cudaEventCreate(&a));
	MUST(cudaEventCreate(&b));
	times.clear();
	for (int i = 0; i < 23; i++) {
		float ms;

		MUST(cudaEventRecord(a, stream));
		MUST(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
		MUST(cudaEventRecord(b, stream));
		MUST(cudaStreamSynchronize(stream));
		MUST(cudaEventElapsedTime(&ms, a, b));
		if (i >= 3)
			times.push_back(2.0 * bytes / ms / 1e6);
	}
	printf("daemon: copy %.1f\n", median(times));
	return 0;
}
