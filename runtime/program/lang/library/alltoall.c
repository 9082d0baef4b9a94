/*
 * AlltoAll: directly, and in two and three steps for machines where messages across nodes should be
 * few.
 */
#include <stdio.h>

#include "runtime/program/lang/library/library.h"

void df_lib_alltoall_direct(struct df_lang *l, const struct df_shape *s)
{
	for (int d = 0; d < s->nranks; d++) {
		for (int r = 0; r < s->nranks; r++) {
			int to = (r + d) % s->nranks;

			COPY(CHUNK(l, r, DF_IN, (uint32_t)to, 1), to, DF_OUT, (uint32_t)r);
		}
	}
}

static int named(struct df_lang *l, const char *what, int node)
{
	char name[32];

	snprintf(name, sizeof(name), "%s %d", what, node);
	return df_lang_buffer(l, name);
}

/*
 * The chunks of a node's ranks for remote rank (m, i) are collected at local rank i, which sends
 * them across in one message.
 */
void df_lib_alltoall_two_step(struct df_lang *l, const struct df_shape *s)
{
	int g = s->gpus, n = s->nodes;

	for (int a = 0; a < n; a++) {
		for (int b = 0; b < n; b++) {
			int buf = a == b ? DF_OUT : named(l, "to", b);

			for (int i = 0; i < g; i++) {
				df_lang_channel(l, 0);
				for (int j = 0; j < g; j++)
					COPY(CHUNK(l, a * g + j, DF_IN, (uint32_t)(b * g + i), 1),
					     a * g + i, buf, (uint32_t)(a == b ? a * g + j : j));
				df_lang_channel(l, 1);
				if (a != b)
					COPY(CHUNK(l, a * g + i, buf, 0, (uint32_t)g), b * g + i,
					     DF_OUT, (uint32_t)(a * g));
			}
		}
	}
}

/*
 * The chunks of node a for node b are collected at one rank of a (b modulo gpus), cross in one
 * message to rank (a modulo gpus) of b, and are distributed there.
 */
void df_lib_alltoall_three_step(struct df_lang *l, const struct df_shape *s)
{
	int g = s->gpus, n = s->nodes;

	for (int a = 0; a < n; a++) {
		for (int b = 0; b < n; b++) {
			int from = a * g + b % g, to = b * g + a % g;
			int buf = a == b ? DF_OUT : named(l, "to", b);

			df_lang_channel(l, 0);
			for (int i = 0, j = 0; i < g; i += ++j == g, j %= g)
				COPY(CHUNK(l, a * g + i, DF_IN, (uint32_t)(b * g + j), 1),
				     a == b ? b * g + j : from, buf,
				     (uint32_t)(a == b ? a * g + i : j * g + i));
			if (a == b)
				continue;
			df_lang_channel(l, 1);
			COPY(CHUNK(l, from, buf, 0, (uint32_t)(g * g)), to, named(l, "from", a), 0);
			df_lang_channel(l, 2);
			for (int j = 0; j < g; j++)
				COPY(CHUNK(l, to, named(l, "from", a), (uint32_t)(j * g),
					   (uint32_t)g),
				     b * g + j, DF_OUT, (uint32_t)(a * g));
		}
	}
}
