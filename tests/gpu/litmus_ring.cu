/*
 * A ring from the CPU to a kernel and one back, with free-running indices, as in the daemon: is
 * every entry complete when the index that publishes it is seen?
 */
#include "tests/gpu/litmus.h"

#define SLOTS	64
#define ENTRIES 200000u

struct entry {
	uint64_t v[4];
};
struct ring {
	struct word tail, head;
	struct entry e[SLOTS];
};

__global__ void mirror(struct ring *sq, struct ring *cq, uint64_t *bad)
{
	uint64_t end = dev_now() + 4 * LIMIT_NS;

	for (uint64_t i = 0; i < ENTRIES; i++) {
		struct entry e;

		while (dev_get(&sq->tail.v) <= i)
			if (dev_now() > end)
				return;
		e = sq->e[i % SLOTS];
		dev_put(&sq->head.v, i + 1);
		for (int k = 0; k < 4; k++)
			if (e.v[k] != i * 4 + k)
				++*bad;
		while (i - dev_get(&cq->head.v) >= SLOTS)
			if (dev_now() > end)
				return;
		cq->e[i % SLOTS] = e;
		dev_put(&cq->tail.v, i + 1);
	}
}

int main()
{
	struct ring *r;
	uint64_t *bad, sent = 0, got = 0, torn = 0, end, t, torn_dev = 0;

	litmus_start("ring", 55);
	MUST(cudaHostAlloc(&r, 2 * sizeof(*r), cudaHostAllocMapped));
	memset(r, 0, 2 * sizeof(*r));
	MUST(cudaMalloc(&bad, 8));
	MUST(cudaMemset(bad, 0, 8));
	MUST(cudaDeviceSynchronize());
	mirror<<<1, 1>>>(&r[0], &r[1], bad);
	MUST(cudaGetLastError());
	t = now_ns();
	end = t + 3 * LIMIT_NS;
	while (got < ENTRIES && now_ns() < end) {
		while (sent < ENTRIES && sent - get(&r[0].head) < SLOTS) {
			for (int k = 0; k < 4; k++)
				r[0].e[sent % SLOTS].v[k] = sent * 4 + k;
			put(&r[0].tail, ++sent);
		}
		while (got < get(&r[1].tail)) {
			for (int k = 0; k < 4; k++)
				torn += r[1].e[got % SLOTS].v[k] != got * 4 + k;
			put(&r[1].head, ++got);
		}
	}
	t = now_ns() - t;
	MUST(cudaMemcpy(&torn_dev, bad, 8, cudaMemcpyDeviceToHost));
	result("\"test\":\"ring\",\"entries\":%llu,\"torn_on_device\":%llu,\"torn_on_host\":%llu,\"ns_each\":%.0f",
	       (unsigned long long)got, (unsigned long long)torn_dev, (unsigned long long)torn,
	       got ? (double)t / (double)got : -1.0);
	return got != ENTRIES || torn || torn_dev;
}
