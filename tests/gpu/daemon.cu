/*
 * The cost of the daemon's own steps on this GPU. The kernel's functions are included here and
 * called by one block, on memory placed as the backend places it: rings and originals are pinned,
 * lines are in GPU memory, the block's state is in shared memory. Medians over many rounds, in ns.
 *
 *   sqe       accepts one submission (dfk_sq_look with one entry); timed on the device
 *   cqe       writes one completion (dfk_cq_push); timed on the device
 *   context   saves a context to its line and loads another one from its line; timed on the device
 *   cold      loads a context from pinned memory; timed on the device
 *   empty     a turn without work; timed on the device
 *   relaunch  from the host's launch to the kernel's first instruction; timed on the host
 *   copy      GB/s of bytes read and written by a plain device-to-device copy
 *
 * Prints "daemon: NAME VALUE". daemon [BYTES]: size of the copy.
 */
#include "kernels/port.h"
#include "kernels/abi.h"
#include "kernels/slot.h"
#include "kernels/reduce.h"
#include "kernels/daemon.inl"
#include "tests/gpu/litmus.h"

#define ROUNDS 400

#define CTXS (DFK_WAYS + 1) /* used in turn, so none is ever found in shared memory */

enum { SQE, CQE, CONTEXT, COLD, EMPTY, NR };

struct setup {
	struct df_kdaemon d;
	struct df_kblock blk;
	struct df_kcoll coll[CTXS];
	struct df_kctx ctx[CTXS];
	struct df_kinst inst[CTXS];
	struct df_program prog;
	struct df_inst insts[1];
	uint64_t done[CTXS];
	uint64_t ns[NR][ROUNDS];
	/* go: the host has put entry n into the ring; ack: the device has accepted it */
	uint64_t go, ack;
};

static __device__ inline uint64_t cycles(void)
{
	uint64_t t;

	asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
	return t;
}

__global__ void steps(struct setup *s)
{
	__shared__ struct dfk_local local;
	__shared__ struct dfk_fetch fetch;
	__shared__ int stop;
	struct df_kblock *blk = &local.blk;
	uint64_t t = 0;

	dfk_block_enter(&local, &s->d, 0);
	for (int i = 0; i < ROUNDS; i++) {
		/* All threads take part, as in the daemon. Thread 0 reads the clock. */
		for (int c = 0; c < CTXS; c++) {
			if (DFK_TID == 0) {
				t = cycles();
				dfk_fetch_begin(blk, &s->ctx[c], &fetch);
				local.turns++;
			}
			dfk_sync();
			dfk_fetch(&fetch);
			dfk_sync();
			if (DFK_TID == 0) {
				t = cycles() - t;
				fetch.way->used = local.turns;
				/* the first contexts replace none, so nothing is saved */
				if (i == 0)
					for (int n = 0; n < ROUNDS; n++)
						s->ns[COLD][n] = t;
				else
					s->ns[CONTEXT][i] = t;
			}
			dfk_sync();
		}
		if (DFK_TID == 0) {
			/* The host has put one submission into the ring. */
			stop = !dev_until(&s->go, (uint64_t)i + 1);
			t = cycles();
		}
		/* The first warp looks twice, the second time at nothing. No plan was made. */
		for (int n = 0; n < 2; n++) {
			if (DFK_TID < DFK_LANES)
				dfk_sq_look(&local.d, blk, NULL);
			if (DFK_TID == 0) {
				s->ns[n ? EMPTY : SQE][i] = cycles() - t;
				t = cycles();
			}
		}
		if (DFK_TID == 0) {
			dfk_cq_push(blk, DF_CQE_DONE, dfk_at(blk, &s->ctx[CTXS - 1]));
			s->ns[CQE][i] = cycles() - t;
			/*
			 * Marks the operation as finished, so that the next one is loaded from its
			 * slot again.
			 */
			dfk_at(blk, &s->ctx[CTXS - 1])->finished++;
			dfk_queue_remove(blk, &s->ctx[CTXS - 1]);
			dev_put(&s->ack, (uint64_t)i + 1);
		}
		dfk_sync();
		if (stop)
			return;
	}
	dfk_block_leave(&local);
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

int main(int argc, char **argv)
{
	static const char *const names[NR] = {"sqe", "cqe", "context", "cold", "empty"};
	struct setup *s;
	struct df_cqe *cq;
	struct df_sq_slot *sq;
	struct word *w;
	cudaStream_t stream;
	std::vector<double> times;
	int khz = 0, least, greatest;
	const size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 0) : 512u << 20;
	void *from, *to;
	cudaEvent_t a, b;

	litmus_start("daemon", 100);
	MUST(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
	MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	MUST(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
	s = (struct setup *)pinned(sizeof(*s));
	sq = (struct df_sq_slot *)pinned(1024 * sizeof(*sq));
	cq = (struct df_cqe *)pinned(4096 * sizeof(*cq));
	w = words(1);
	s->d.blocks = &s->blk;
	s->d.nr_blocks = 1;
	s->blk.sq.slots = sq;
	s->blk.sq.mask = 1023;
	s->blk.cq.slots = cq;
	s->blk.cq.mask = 4095;
	s->prog.off_inst = offsetof(struct setup, insts) - offsetof(struct setup, prog);
	for (int i = 0; i < CTXS; i++) {
		s->coll[i].prog = &s->prog;
		s->coll[i].nr_blocks = 1;
		s->coll[i].ctx = &s->ctx[i];
		s->coll[i].done = &s->done[i];
		s->ctx[i].coll = &s->coll[i];
		s->ctx[i].cur = &s->inst[i];
		s->ctx[i].nr_inst = 1;
	}
	MUST(cudaMalloc(&s->d.lines, DF_LINES * DF_LINE_BYTES));
	s->d.nr_lines = DF_LINES;
	steps<<<1, 512, 0, stream>>>(s);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		df_sqe e = {&s->ctx[CTXS - 1], &s->inst[CTXS - 1]};

		df_sq_put(&s->blk.sq, &e, 1);
		__atomic_store_n(&s->go, i + 1, __ATOMIC_RELEASE);
		for (uint64_t end = now_ns() + LIMIT_NS;
		     __atomic_load_n(&s->ack, __ATOMIC_ACQUIRE) < i + 1;)
			if (now_ns() > end) {
				printf("the kernel does not answer\n");
				return 1;
			}
		__atomic_store_n(&s->blk.cq.head, (uint32_t)i + 1, __ATOMIC_RELEASE);
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
