/*
 * Measures the data path on this CPU: gigabytes of result per second with one thread, for slices of
 * 256 KiB (a slot), beside memcpy() and the plain loop that a C programmer would write. `b_reduce
 * [GLOB]` runs the figures whose names match.
 */
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/reduce.h"

#define BYTES  (256u << 10)
#define ROUNDS 15

static const char *glob = "*";
static uint8_t *buf[4];

static double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* The peers are the compiler's code for the obvious loops. */
static __attribute__((noinline)) void plain_copy(void)
{
	memcpy(buf[0], buf[2], BYTES);
}

static __attribute__((noinline)) void plain_copy2(void)
{
	memcpy(buf[0], buf[2], BYTES);
	memcpy(buf[1], buf[2], BYTES);
}

static __attribute__((noinline, optimize("O3"))) void plain_f32(void)
{
	float *d = (float *)buf[0];
	const float *a = (const float *)buf[2], *b = (const float *)buf[3];

	for (size_t i = 0; i < BYTES / 4; i++)
		d[i] = a[i] + b[i];
}

static inline float from_bf16(uint16_t v)
{
	uint32_t u = (uint32_t)v << 16;
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static __attribute__((noinline, optimize("O3"))) void plain_bf16(void)
{
	uint16_t *d = (uint16_t *)buf[0];
	const uint16_t *a = (const uint16_t *)buf[2], *b = (const uint16_t *)buf[3];

	for (size_t i = 0; i < BYTES / 2; i++) {
		float f = from_bf16(a[i]) + from_bf16(b[i]);
		uint32_t u;

		memcpy(&u, &f, 4);
		d[i] = f != f ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
	}
}

static struct dfk_move move;

static void ours(void)
{
	dfk_move(&move);
}

/* Returns the best of some rounds, because other work of the machine only slows a round. */
static double gbs(void (*fn)(void), double bytes)
{
	double best = 0;

	for (int r = 0; r < ROUNDS; r++) {
		int n = 0;
		double t = now_ns(), ns;

		do {
			fn();
			n++;
			ns = now_ns() - t;
		} while (ns < 4e6);
		if (bytes * n / ns > best)
			best = bytes * n / ns;
	}
	return best;
}

struct figure {
	const char *name;
	uint32_t type, redop;
	bool reduce, two;
	const char *peer;
	void (*peer_fn)(void);
	double target; /* ratio to the peer */
};

static const struct figure figures[] = {
	{"reduce_copy", DF_FLOAT32, DF_SUM, false, false, "memcpy", plain_copy, 0.9},
	{"reduce_copy_two", DF_FLOAT32, DF_SUM, false, true, "two_memcpy", plain_copy2, 0.9},
	{"reduce_f32_sum", DF_FLOAT32, DF_SUM, true, false, "plain_loop", plain_f32, 1},
	{"reduce_f32_sum_two", DF_FLOAT32, DF_SUM, true, true, NULL, NULL, 0},
	{"reduce_f32_max", DF_FLOAT32, DF_MAX, true, false, NULL, NULL, 0},
	{"reduce_f64_sum", DF_FLOAT64, DF_SUM, true, false, NULL, NULL, 0},
	{"reduce_bf16_sum", DF_BFLOAT16, DF_SUM, true, false, "plain_loop", plain_bf16, 1},
	{"reduce_f16_sum", DF_FLOAT16, DF_SUM, true, false, NULL, NULL, 0},
	{"reduce_e4m3_sum", DF_FLOAT8E4M3, DF_SUM, true, false, NULL, NULL, 0},
	{"reduce_e5m2_sum", DF_FLOAT8E5M2, DF_SUM, true, false, NULL, NULL, 0},
	{"reduce_i32_sum", DF_INT32, DF_SUM, true, false, NULL, NULL, 0},
	{"reduce_i64_max", DF_INT64, DF_MAX, true, false, NULL, NULL, 0},
	{"reduce_i8_prod", DF_INT8, DF_PROD, true, false, NULL, NULL, 0},
	{"reduce_i32_avg", DF_INT32, DF_SUMPOSTDIV, true, false, NULL, NULL, 0},
	{"reduce_bf16_avg", DF_BFLOAT16, DF_PREMULSUM, true, false, NULL, NULL, 0},
};

static void run(const struct figure *f)
{
	double v, peer;

	move = (struct dfk_move){.dst = buf[0],
				 .dst2 = f->two ? buf[1] : NULL,
				 .a = buf[2],
				 .b = f->reduce ? buf[3] : NULL,
				 .elems = BYTES / dfk_type_bytes(f->type),
				 .type = f->type,
				 .redop = f->redop,
				 .arg = f->redop == DF_SUMPOSTDIV ? 7 : 0x3e80,
				 .pre_a = 1,
				 .pre_b = 1,
				 .post = 1};
	v = gbs(ours, BYTES);
	printf("BENCH %s %.1f GB/s", f->name, v);
	if (!f->peer) {
		printf(" target >=1 %s\n", v >= 1 ? "ok" : "MISS");
		return;
	}
	peer = gbs(f->peer_fn, BYTES);
	printf(" peer %s %.1f ratio %.2f target >=%.1f %s\n", f->peer, peer, v / peer, f->target,
	       v / peer >= f->target ? "ok" : "MISS");
}

int main(int argc, char **argv)
{
	if (argc > 1)
		glob = argv[1];
	for (int k = 0; k < 4; k++) {
		buf[k] = aligned_alloc(4096, BYTES);
		if (!buf[k]) {
			fprintf(stderr, "b_reduce: no memory\n");
			return 1;
		}
		/* The bytes are ordinary numbers in every format. */
		for (size_t i = 0; i < BYTES; i++)
			buf[k][i] = (uint8_t)(i & 1 ? 0x3c + (size_t)k : i * 7);
	}
	fprintf(stderr, "b_reduce: instructions: %s\n", dfk_path_name());
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		if (!fnmatch(glob, figures[i].name, 0))
			run(&figures[i]);
	/* Five elements are less than a cache line: this is the cost of a call by itself. */
	if (!fnmatch(glob, "reduce_small", 0)) {
		double t = now_ns(), ns;

		move = (struct dfk_move){
			.dst = buf[0], .a = buf[2], .b = buf[3], .elems = 5, .type = DF_FLOAT32};
		for (int i = 0; i < 1000000; i++)
			dfk_move(&move);
		ns = (now_ns() - t) / 1e6;
		printf("BENCH reduce_small %.1f ns target <=100 %s\n", ns,
		       ns <= 100 ? "ok" : "MISS");
	}
	return 0;
}
