/* A trace as a timeline: the same events for Perfetto's JSON and for the report's own picture. */
#ifndef DF_TRACE_CLI_VIEW_TIMELINE_H
#define DF_TRACE_CLI_VIEW_TIMELINE_H

#include <stdio.h>
#include "trace/read/set.h"

/* One bar: an operation on a stream, or a call of a thread. */
struct df_bar_item {
	uint64_t begin_ns, end_ns; /* since the first record of all traces */
	int32_t rank;		   /* group of rows: index in procs */
	uint64_t track;		   /* stream or thread */
	/* number of the lane: overlapping bars of one track are in different lanes */
	uint32_t lane;
	uint8_t is_call, open, started, kind, type, redop;
	uint8_t intent; /* the operation was not issued; the thread waits before it */
	/* NCCL executes the operation, and its end is not seen, so the bar has no length */
	uint8_t unseen;
	uint32_t call, trace;
	uint64_t count, index, serial, rec;
	int32_t peer;
	const char *comm;    /* name, valid as long as the timeline */
	const char *program; /* name of the program, valid as long as the timeline; "" if unknown */
	const char *stack;   /* call site, valid as long as the timeline; "" if unknown */
	uint64_t comm_hash;
	int32_t comm_rank, nranks;
};

struct df_timeline {
	struct df_bar_item *bars;
	size_t nr_bars, cap_bars;
	struct {
		char name[96];
		int32_t rank;
		uint64_t pid;
	} * procs;
	size_t nr_procs, cap_procs;
	struct df_stacks stacks;
	char **names;
	size_t nr_names, cap_names;
	uint64_t first_ns, end_ns;
	size_t left_out;
};

/*
 * Reads these traces of a judged set; if `traces` is NULL, the first nr. Keeps at most `max` bars,
 * the latest of each trace. Returns 0 or -errno.
 */
int df_timeline_load(struct df_timeline *t, const struct df_check_set *set, const uint32_t *traces,
		     size_t nr, size_t max);
void df_timeline_fini(struct df_timeline *t);

#endif
