/*
 * Captures in progress. Private to capture.c, which begins, fills and ends them, and
 * capture_joining.c.
 */
#ifndef DF_INTERPOSE_HOSTCUDA_ENGINE_CAPTURE_H
#define DF_INTERPOSE_HOSTCUDA_ENGINE_CAPTURE_H

#include "interpose/hostcuda/engine/graph.h"

struct df_hcapture {
	struct df_list node; /* link in the list of captures */
	uint64_t id;
	enum cudaStreamCaptureMode mode;
	struct df_htls *thread; /* the thread whose stream began the capture */
	struct df_hgraph *graph;
	struct df_hstream *origin;
	struct df_list members; /* streams */
	/* whether the capture made the graph, instead of adding to one that it was given */
	int own_graph;
	int spoiled;
};

/* One lock guards all captures. */
struct df_hcaptures {
	struct df_mutex lock;
	struct df_list list;
	unsigned nr; /* atomic: length of the list */
};

extern struct df_hcaptures df_hcaptures;

/* Checked without the lock: programs that capture nothing pay one load. */
int df_hcapture_any(void);
/* The caller of these functions holds the lock. */
struct df_hcapture *df_hcapture_by_id(uint64_t id);
void df_hcapture_join(struct df_hcapture *c, struct df_hstream *s);
void df_hcapture_leave(struct df_hstream *s);
/* Adds a node after the stream's last captured nodes. */
cudaError_t df_hcapture_node(struct df_hstream *s, enum cudaGraphNodeType type,
			     struct df_hnode **out);
int df_hnodes_copy(struct df_hnodes *to, const struct df_hnodes *from); /* -ENOMEM */

/*
 * capture_joining.c; takes the lock. `spoil`: the call would disturb the captures, so it
 * invalidates them; else it only queries.
 */
cudaError_t df_hcapture_legacy(struct df_hstream *s, int spoil);

#endif
