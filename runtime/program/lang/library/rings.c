/* Rings and pipelines, in the language of runtime/program/lang/lang.h. */
#include "runtime/program/lang/library/library.h"

/* Chunk c * n + k travels from rank k + 1 around to k, which completes it, and around again. */
void df_lib_allreduce_ring(struct df_lang *l, const struct df_shape *s)
{
	int n = s->nranks;

	for (int k = 0; k < n * s->channels; k++) {
		struct df_ref c = CHUNK(l, (k + 1) % n, DF_IN, (uint32_t)k, 1);

		df_lang_channel(l, k / n);
		for (int i = 2; i <= n; i++)
			c = REDUCE(CHUNK(l, (k + i) % n, DF_IN, (uint32_t)k, 1), c);
		for (int i = 1; i < n; i++)
			c = COPY(c, (k + i) % n, DF_OUT, (uint32_t)k);
	}
}

void df_lib_allgather_ring(struct df_lang *l, const struct df_shape *s)
{
	int n = s->nranks;

	for (int r = 0; r < n; r++) {
		struct df_ref c = CHUNK(l, r, DF_IN, 0, 1);

		for (int i = 1; i < n; i++)
			c = COPY(c, (r + i) % n, DF_OUT, (uint32_t)r);
	}
}

void df_lib_reducescatter_ring(struct df_lang *l, const struct df_shape *s)
{
	int n = s->nranks;

	for (int r = 0; r < n; r++) {
		struct df_ref c = CHUNK(l, (r + 1) % n, DF_IN, (uint32_t)r, 1);

		for (int i = 2; i <= n; i++)
			c = REDUCE(CHUNK(l, (r + i) % n, DF_IN, (uint32_t)r, 1), c);
	}
}

void df_lib_broadcast_chain(struct df_lang *l, const struct df_shape *s)
{
	struct df_ref c = CHUNK(l, s->root, DF_IN, 0, 1);

	for (int i = 1; i < s->nranks; i++)
		c = COPY(c, (s->root + i) % s->nranks, DF_OUT, 0);
}

void df_lib_reduce_chain(struct df_lang *l, const struct df_shape *s)
{
	struct df_ref c = CHUNK(l, (s->root + 1) % s->nranks, DF_IN, 0, 1);

	for (int i = 2; i <= s->nranks; i++)
		c = REDUCE(CHUNK(l, (s->root + i) % s->nranks, DF_IN, 0, 1), c);
}

/* Inside a node directly. Across a border, every rank of the node carries one chunk. */
void df_lib_alltonext(struct df_lang *l, const struct df_shape *s)
{
	int g = s->gpus, buf = df_lang_buffer(l, "border"), out = df_lang_buffer(l, "arrived");

	for (int r = 0; r + 1 < s->nranks; r++) {
		struct df_ref c = CHUNK(l, r, DF_IN, 0, (uint32_t)g);
		int here = r / g * g, there = here + g;

		for (uint32_t k = 0; k < (uint32_t)g; k++)
			df_lang_expect(l, r + 1, k, r, k);
		df_lang_channel(l, (r + 1) % g == 0);
		if ((r + 1) % g) {
			COPY(c, r + 1, DF_OUT, 0);
			continue;
		}
		for (int k = 0; k < g; k++) {
			struct df_ref p = COPY(PART(c, (uint32_t)k, 1), here + k, buf, 0);

			p = COPY(p, there + k, out, 0);
			COPY(p, r + 1, DF_OUT, (uint32_t)k);
		}
	}
}
