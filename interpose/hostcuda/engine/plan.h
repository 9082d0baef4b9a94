/*
 * The parts of an executable graph. Private to graph_exec.c, which makes them, and graph_launch.c,
 * which executes them.
 */
#ifndef DF_INTERPOSE_HOSTCUDA_ENGINE_PLAN_H
#define DF_INTERPOSE_HOSTCUDA_ENGINE_PLAN_H

#include "interpose/hostcuda/engine/graph.h"

/*
 * Counts the launches in which the predecessors of a step are done. Executors still read it after
 * the graph was destroyed (struct df_arrival), so it is never freed. The next step that gets it
 * continues counting.
 */
struct df_hready {
	uint64_t value; /* atomic */
	struct df_hready *next;
};

struct df_hstep {
	struct df_hop op;
	struct df_hcoll *coll;
	struct df_hevent *event;
	uint64_t event_id;
	int event_wait;
	struct df_hnode *node; /* the step's node ... */
	uint64_t node_id;      /* ... if the node still has this number */
	enum cudaGraphNodeType type;
	int device, disabled, has_next;
	size_t *deps, nr_deps, lane;
	df_hpoint end; /* the step's end in the current launch */
	/* of a collective; and its value before the plan's first launch */
	struct df_hready *ready;
	uint64_t before;
	struct df_replayed turn; /* the turn of the step's collective in the current launch */
};

struct df_hplan {
	struct df_hstep *steps;
	size_t nr, cap;
	struct df_hstream **lanes; /* lanes[0] is not used: it is the launching stream */
	size_t nr_lanes;
	struct df_hheld *held;
	size_t nr_held;
	uint32_t refs; /* references: the handle's, and one for each launch in progress; atomic */
	uint64_t nr_launches;
	int bare; /* whether it has only collectives, and no step waits for its end */
	size_t nr_disabled;
};

struct df_hexec {
	struct df_hslot slot;
	struct df_hplan *plan;
	df_hpoint last; /* end of the latest launch */
	unsigned long long flags;
};

#endif
