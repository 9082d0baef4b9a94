/*
 * Random programs of streams, events and both default streams, compared with an oracle of
 * happens-before: every operation has a list of operations that must finish before it starts.
 * Operations are fills of a flag, and host functions that read flags. The flags are plain memory,
 * so ThreadSanitizer also checks the visibility that CUDA promises.
 */
#include "tests/hostcuda/programs/cu.h"

#define MAX_OPS	    400
#define MAX_STREAMS 10
#define MAX_EVENTS  8

struct op {
	int nr_preds;
	int preds[MAX_STREAMS + 2 + MAX_EVENTS];
};

static struct op ops[MAX_OPS];
static int nr_ops;
static uint32_t *flags; /* pinned; flag i is 0x01010101 when operation i has finished */
static int wrong = -1;

static void look(void *arg)
{
	long i = (long)(intptr_t)arg;
	int p;

	for (p = 0; p < ops[i].nr_preds; p++)
		if (flags[ops[i].preds[p]] != 0x01010101)
			__atomic_store_n(&wrong, (int)i, __ATOMIC_RELAXED);
	flags[i] = 0x01010101;
}

static void needs(int op, int pred)
{
	if (pred >= 0)
		ops[op].preds[ops[op].nr_preds++] = pred;
}

struct stream {
	cudaStream_t s;
	int device, blocking, legacy, last;
	int waits[MAX_EVENTS], nr_waits; /* operations that the next one must wait for */
};

/*
 * Returns the number of the stream's next operation, and notes the operations that it must wait
 * for.
 */
static int op_new(const struct stream *st, int nr_streams, struct stream *s)
{
	int i = nr_ops++, k;

	needs(i, s->last);
	for (k = 0; k < nr_streams; k++)
		if (st[k].device == s->device && &st[k] != s &&
		    ((s->legacy && st[k].blocking) || (s->blocking && st[k].legacy)))
			needs(i, st[k].last);
	for (k = 0; k < s->nr_waits; k++)
		needs(i, s->waits[k]);
	s->nr_waits = 0;
	s->last = i;
	return i;
}

static void one_program(uint64_t *rng)
{
	struct stream st[MAX_STREAMS];
	cudaEvent_t ev[MAX_EVENTS];
	int recorded[MAX_EVENTS], ev_device[MAX_EVENTS];
	int nr_streams = 3 + (int)(next(rng) % (MAX_STREAMS - 3)), i, e, n;

	nr_ops = 0;
	memset(ops, 0, sizeof(ops));
	memset(flags, 0, MAX_OPS * sizeof(*flags));
	for (i = 0; i < nr_streams; i++) {
		st[i] = (struct stream){.device = (int)(next(rng) % 2), .last = -1};
		CU(cudaSetDevice(st[i].device));
		if (i < 2) { /* at most one legacy stream for each device */
			st[i].device = i;
			st[i].legacy = 1;
			st[i].s = i ? cudaStreamLegacy : NULL;
		} else if (i == 2) {
			st[i].blocking = 1;
			st[i].s = cudaStreamPerThread;
		} else if (next(rng) % 2) {
			st[i].blocking = 1;
			CU(cudaStreamCreate(&st[i].s));
		} else {
			CU(cudaStreamCreateWithFlags(&st[i].s, cudaStreamNonBlocking));
		}
	}
	for (e = 0; e < MAX_EVENTS; e++) {
		ev_device[e] = e % 2;
		recorded[e] = -2;
		CU(cudaSetDevice(ev_device[e]));
		CU(cudaEventCreateWithFlags(&ev[e], e & 2 ? cudaEventDisableTiming : 0));
	}
	n = 20 + (int)(next(rng) % (MAX_OPS - 20));
	while (nr_ops < n) {
		struct stream *s = &st[next(rng) % (unsigned)nr_streams];

		CU(cudaSetDevice(s->device));
		e = (int)(next(rng) % MAX_EVENTS);
		switch (next(rng) % 6) {
		case 0: /* records only an operation with a known number */
			if (ev_device[e] != s->device)
				break;
			/*
			 * A record on the legacy stream waits for all blocking streams. The host
			 * function before the record gives this position a number.
			 */
			i = op_new(st, nr_streams, s);
			CU(cudaLaunchHostFunc(s->s, look, (void *)(intptr_t)i));
			CU(cudaEventRecord(ev[e], s->s));
			recorded[e] = i;
			break;
		case 1:
			if (recorded[e] < 0 || s->nr_waits == MAX_EVENTS)
				break;
			CU(cudaStreamWaitEvent(s->s, ev[e], 0));
			s->waits[s->nr_waits++] = recorded[e];
			break;
		case 2:
			if (next(rng) % 8)
				break;
			CU(cudaStreamSynchronize(s->s));
			if (s->last >= 0)
				CHECK(flags[s->last] == 0x01010101);
			break;
		default:
			i = op_new(st, nr_streams, s);
			if (next(rng) % 2)
				CU(cudaMemsetAsync(&flags[i], 1, sizeof(flags[i]), s->s));
			else
				CU(cudaLaunchHostFunc(s->s, look, (void *)(intptr_t)i));
		}
	}
	for (i = 0; i < 2; i++) {
		CU(cudaSetDevice(i));
		CU(cudaDeviceSynchronize());
	}
	for (i = 0; i < nr_ops; i++)
		CHECK(flags[i] == 0x01010101);
	CHECK(__atomic_load_n(&wrong, __ATOMIC_RELAXED) == -1);
	for (i = 3; i < nr_streams; i++)
		CU(cudaStreamDestroy(st[i].s));
	for (e = 0; e < MAX_EVENTS; e++)
		CU(cudaEventDestroy(ev[e]));
}

int main(int argc, char **argv)
{
	uint64_t rng = seed();
	int i, n = argc > 1 ? atoi(argv[1]) : 60;

	CU(cudaMallocHost((void **)&flags, MAX_OPS * sizeof(*flags)));
	for (i = 0; i < n; i++)
		one_program(&rng);
	CU(cudaFreeHost(flags));
	return 0;
}
