/*
 * Which rank is on which node: any number of nodes of any size, with their ranks in any order.
 * build_hier.c builds programs for it, and the cost model derives from it which traffic crosses
 * nodes.
 *
 * Such programs divide the data that the ranks of every node share evenly into `lanes`. A rank owns
 * the lanes from df_layout_lane(l, node, local) up to that of the next rank. If all nodes have the
 * same size, each rank owns one lane.
 *
 * Immutable once created, so any thread may use it.
 */
#ifndef DF_PROGRAM_LAYOUT_H
#define DF_PROGRAM_LAYOUT_H

#include <stdint.h>

struct df_layout {
	int nranks, nodes;
	int rows;		    /* the ranks of each node are consecutive */
	int equal;		    /* all nodes have the same size */
	int most_ranks;		    /* of the largest node */
	uint32_t lanes, most_lanes; /* in total; the most that one rank owns */
	uint64_t hash;
	int *node, *local; /* by rank */
	int *first;	   /* by node, plus one: its start in order[] */
	int *order;	   /* ranks by node, ascending within a node */
};

/* node[r]: any number that is the same for the ranks of a node only. May return -ENOMEM. */
int df_layout_create(int nranks, const uint64_t *node, struct df_layout **out);
/* `nodes` nodes of equal size with consecutive ranks. */
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

/* The first lane of a rank. With local = size it returns the end. */
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
