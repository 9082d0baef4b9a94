/* The layout of ranks on nodes: see layout.h. No state. */
#include "runtime/program/layout.h"

#include <stdlib.h>

#include "runtime/base/err.h"
#include "runtime/base/hash.h"

#define MOST_FACTOR                                                                                \
	8 /* limit for the number of lanes: this multiple of the ranks of the largest node */

/*
 * Chooses the smallest number of lanes with which no rank owns more than 5/4 of an even share; if
 * there is none, the most even of the tried numbers.
 */
static void choose_lanes(struct df_layout *l)
{
	double least = 0;

	for (uint32_t k = 1; k <= MOST_FACTOR; k++) {
		uint32_t lanes = (uint32_t)l->most_ranks * k, most = 0;
		double worst = 0;

		for (int v = 0; v < l->nodes; v++) {
			uint32_t g = (uint32_t)df_layout_size(l, v), own = (lanes + g - 1) / g;
			double over = (double)own * g / lanes;

			most = DF_MAX(most, own);
			worst = DF_MAX(worst, over);
		}
		if (k == 1 || worst < least) {
			least = worst;
			l->lanes = lanes;
			l->most_lanes = most;
		}
		if (least <= 1.25)
			return;
	}
}

int df_layout_create(int nranks, const uint64_t *node, struct df_layout **out)
{
	struct df_layout *l = calloc(1, sizeof(*l));
	size_t n = (size_t)nranks;

	if (!l)
		return -ENOMEM;
	l->nranks = nranks;
	l->node = calloc(4 * n + 1, sizeof(int));
	if (!l->node) {
		free(l);
		return -ENOMEM;
	}
	l->local = l->node + n;
	l->order = l->local + n;
	l->first = l->order + n;
	l->hash = df_hash_u64(n, 0x6c61796fu);
	l->rows = l->equal = 1;
	for (int r = 0; r < nranks; r++) {
		int like = 0;

		while (node[like] != node[r])
			like++;
		l->node[r] = like < r ? l->node[like] : l->nodes++;
		l->local[r] = like < r ? l->first[l->node[r]] : 0;
		l->first[l->node[r]] = l->local[r] + 1; /* its size, until all ranks are counted */
		l->hash = df_hash_u64(l->hash, (uint64_t)l->node[r]);
		if (like < r && node[r - 1] != node[r])
			l->rows = 0;
	}
	for (int v = 0, at = 0, like = l->first[0]; v <= l->nodes; v++) {
		int size = v < l->nodes ? l->first[v] : 0;

		l->first[v] = at;
		at += size;
		l->most_ranks = DF_MAX(l->most_ranks, size);
		l->equal &= v == l->nodes || size == like;
	}
	for (int r = 0; r < nranks; r++)
		l->order[l->first[l->node[r]] + l->local[r]] = r;
	choose_lanes(l);
	*out = l;
	return 0;
}

int df_layout_create_equal(int nranks, int nodes, struct df_layout **out)
{
	uint64_t *node = malloc((size_t)nranks * sizeof(*node));
	int rc = -ENOMEM;

	for (int r = 0; node && r < nranks; r++)
		node[r] = (uint64_t)(r / (nranks / nodes));
	if (node)
		rc = df_layout_create(nranks, node, out);
	free(node);
	return rc;
}

void df_layout_free(struct df_layout *l)
{
	if (l)
		free(l->node);
	free(l);
}
