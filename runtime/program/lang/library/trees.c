/* Trees, recursive halving and doubling, all-pairs and the hierarchical AllReduce. */
#include "runtime/program/lang/library/library.h"

/* Phase 1: rank k collects and reduces chunk k. Phase 2: it distributes the result. */
void df_lib_allreduce_allpairs(struct df_lang *l, const struct df_shape *s)
{
	int n = s->nranks, buf = df_lang_buffer(l, "pairs");

	for (int k = 0; k < n; k++) {
		struct df_ref sum = CHUNK(l, k, DF_IN, (uint32_t)k, 1);

		for (int i = 1; i < n; i++)
			COPY(CHUNK(l, (k + i) % n, DF_IN, (uint32_t)k, 1), k, buf, (uint32_t)i - 1);
		for (int i = 1; i < n; i++)
			sum = REDUCE(sum, CHUNK(l, k, buf, (uint32_t)i - 1, 1));
		for (int i = 1; i < n; i++)
			COPY(sum, (k + i) % n, DF_OUT, (uint32_t)k);
	}
}

/* Halving: send the half that the partner keeps. Doubling: the reverse, with complete chunks. */
void df_lib_allreduce_recursive(struct df_lang *l, const struct df_shape *s)
{
	int n = s->nranks;

	if (n & (n - 1))
		REFUSE(l, "recursive halving needs a power of two ranks, not %d", n);
	for (int half = n / 2; half; half /= 2) {
		for (int r = 0; r < n; r++) {
			int peer = r ^ half;
			uint32_t at = (uint32_t)(peer / half * half);

			REDUCE(CHUNK(l, peer, DF_IN, at, (uint32_t)half),
			       CHUNK(l, r, DF_IN, at, (uint32_t)half));
		}
	}
	for (int half = 1; half < n; half *= 2) {
		for (int r = 0; r < n; r++) {
			uint32_t at = (uint32_t)(r / half * half);

			COPY(CHUNK(l, r, DF_OUT, at, (uint32_t)half), r ^ half, DF_OUT, at);
		}
	}
}

void df_lib_allgather_recursive(struct df_lang *l, const struct df_shape *s)
{
	int n = s->nranks;

	if (n & (n - 1))
		REFUSE(l, "recursive doubling needs a power of two ranks, not %d", n);
	for (int half = 1; half < n; half *= 2) {
		for (int r = 0; r < n; r++) {
			uint32_t at = (uint32_t)(r / half * half);

			COPY(CHUNK(l, r, DF_OUT, at, (uint32_t)half), r ^ half, DF_OUT, at);
		}
	}
}

/* Rank r + d is reduced into r for d = 1, 2, 4, ...; then the result is sent back. */
void df_lib_allreduce_binomial(struct df_lang *l, const struct df_shape *s)
{
	int n = s->nranks, d = 1;

	for (; d < n; d *= 2) {
		for (int r = 0; r + d < n; r += 2 * d)
			REDUCE(CHUNK(l, r, DF_IN, 0, 1), CHUNK(l, r + d, DF_IN, 0, 1));
	}
	for (d /= 2; d; d /= 2) {
		for (int r = 0; r + d < n; r += 2 * d)
			COPY(CHUNK(l, r, DF_OUT, 0, 1), r + d, DF_OUT, 0);
	}
}

/*
 * Tree t is a binary heap over the ranks, from the first or from the last on; each carries half of
 * the data.
 */
void df_lib_allreduce_double_tree(struct df_lang *l, const struct df_shape *s)
{
	int n = s->nranks;

	for (uint32_t t = 0; t < 2; t++) {
#define AT(v) (t ? n - 1 - (v) : (v))
		df_lang_channel(l, 2 * (int)t);
		for (int v = n - 1; v > 0; v--)
			REDUCE(CHUNK(l, AT((v - 1) / 2), DF_IN, t, 1),
			       CHUNK(l, AT(v), DF_IN, t, 1));
		df_lang_channel(l, 2 * (int)t + 1);
		for (int v = 1; v < n; v++)
			COPY(CHUNK(l, AT((v - 1) / 2), DF_OUT, t, 1), AT(v), DF_OUT, t);
#undef AT
	}
}

/*
 * Moves c (cnt chunks from `at` on) around the ring of ranks base, base + step, ..., reducing or
 * copying.
 */
static struct df_ref ring(struct df_lang *l, struct df_ref c, int base, int step, int n, int first,
			  int hops, int reduce)
{
	for (int i = 1; i <= hops; i++) {
		int r = base + (first + i) % n * step;

		c = reduce ? REDUCE(CHUNK(l, r, DF_IN, c.index, c.cnt), c)
			   : COPY(c, r, DF_OUT, c.index);
	}
	return c;
}

/* Per node, a ring over its ranks; rank g ends with chunks [g * nodes, (g + 1) * nodes). */
void df_lib_allreduce_hierarchical(struct df_lang *l, const struct df_shape *s)
{
	int g = s->gpus, n = s->nodes;

	for (int r = 0; r < n * g; r++) {
		int base = r / g * g, k = r % g;

		ring(l, CHUNK(l, base + (k + 1) % g, DF_IN, (uint32_t)(k * n), (uint32_t)n), base,
		     1, g, k + 1, g - 1, 1);
	}
	df_lang_channel(l, 1);
	for (int i = 0; i < g * n; i++) {
		int k = i / n, c = i % n;
		struct df_ref x = CHUNK(l, (c + 1) % n * g + k, DF_IN, (uint32_t)i, 1);

		x = ring(l, x, k, g, n, c + 1, n - 1, 1);
		ring(l, x, k, g, n, c, n - 1, 0);
	}
	df_lang_channel(l, 2);
	for (int r = 0; r < n * g; r++)
		ring(l, CHUNK(l, r, DF_OUT, (uint32_t)(r % g * n), (uint32_t)n), r / g * g, 1, g,
		     r % g, g - 1, 0);
}
