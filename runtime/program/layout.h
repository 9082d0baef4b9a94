/*
 * Which rank is on which node: any number of nodes of any size, their ranks in any order. Programs over nodes are
 * made of it (build_hier.c), and the cost model knows by it what crosses.
 *
 * What such programs share out evenly over the ranks of every node, they cut into `lanes`: a rank owns the lanes
 * from df_layout_lane(l, node, local) to that of the next one. With nodes of one size each rank owns one.
 *
 * Immutable once made; any thread.
 */
#ifndef DF_PROGRAM_LAYOUT_H
#define DF_PROGRAM_LAYOUT_H

#include <stdint.h>

struct df_layout {
	int nranks, nodes;
	int rows;		    /* the ranks of each node have numbers in a row */
	int equal;		    /* all nodes have the same size */
	int most_ranks;		    /* of a node */
	uint32_t lanes, most_lanes; /* all; the most that one rank owns */
	uint64_t hash;
	int *node, *local; /* by rank */
	int *first;	   /* by node, and one more: where it begins in order[] */
	int *order;	   /* ranks by node, in a node by number */
};

/* node[r]: any number that ranks of one node have in common. -ENOMEM. */
int df_layout_create(int nranks, const uint64_t *node, struct df_layout **out);
/* `nodes` of equal size, in rows. */
int df_layout_create_equal(int nranks, int nodes, struct df_layout **out);
void df_layout_free(struct df_layout *l);

static inline int df_layout_size(const struct df_layout *l, int node)
{
	return l->first[node + 1] - l->first[node];
}

static inline int df_layout_at(const struct df_layout *l, int node, int local)
{
	return l->order[l->first[node] + local];
}

/* The first lane of a rank; of local = size: the end. */
static inline uint32_t df_layout_lane(const struct df_layout *l, int node, int local)
{
	uint32_t g = (uint32_t)df_layout_size(l, node);

	return ((uint32_t)local * l->lanes + g - 1) / g;
}

/* The local rank that owns a lane. */
static inline int df_layout_owner(const struct df_layout *l, int node, uint32_t lane)
{
	return (int)(lane * (uint32_t)df_layout_size(l, node) / l->lanes);
}

#endif
