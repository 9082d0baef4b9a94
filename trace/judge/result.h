/*
 * A verdict with its reasons, as plain data and text. df_check_run() makes it; print.c and the
 * tools show it. Private to the judge and the tools. A result holds a reference to its set, so the
 * set exists as long as the result.
 */
#ifndef DF_TRACE_JUDGE_RESULT_H
#define DF_TRACE_JUDGE_RESULT_H

#include "trace/graph/graph.h"

/* Returns the ending of a noun after the number nr. */
#define DF_PLURAL(nr) ((nr) == 1 ? "" : "s")

enum df_confidence { DF_C_PROVED, DF_C_LIKELY, DF_C_POSSIBLE };

/* One step "from waits for to" of the cycle or the chain. */
struct df_step {
	uint32_t from, to; /* nodes */
	uint32_t kinds;	   /* bits of enum df_edge_kind: the edges between the two nodes */
	uint32_t trace;	   /* trace of the evidence, or DF_NONE */
	uint64_t rec;	   /* record of the evidence, or DF_NO_REC */
	int cut;	   /* whether the named remedy would remove this wait */
	char *text;
};

/* The call of one rank, for calls that do not agree. */
struct df_side {
	struct df_lop op;
	uint64_t sig;
	uint32_t trace;
	uint32_t entry;
	int rank; /* rank in the numbering that users see */
};

/*
 * A thread that could issue an operation that the cycle lacks, although it is not part of the
 * cycle.
 */
struct df_other {
	/* the NEXT node of the operation; index in the threads of that node's trace */
	uint32_t next, thread;
};

#define DF_OTHERS 4 /* number of threads kept */

struct df_check_result {
	struct df_check_set *set;
	struct df_graph g;
	enum df_verdict verdict;
	/* for SLOW, and if `killed`: the verdict if the job was not merely slow */
	enum df_verdict otherwise;
	int killed; /* UNKNOWN, because the processes were killed before a wait was suspicious */
	char qualifier[32]; /* "explicit", "init", "hazard" ...; may be empty */
	enum df_confidence confidence;
	uint8_t partial; /* only a part of the data was judged: df_set_is_partial() */
	/* the weakest rule change with which the job proceeds; 0 if there is none */
	enum df_world remedy;
	/*
	 * there is no remedy, but the job proceeds under dfshim if its small messages are
	 * buffered
	 */
	uint8_t if_buffered;
	enum df_world world; /* the rules by which the nodes are stuck */
	int stale;
	int aged;	   /* only old waits count, because a part of the job goes on */
	uint64_t quiet_ns; /* time since the last progress */
	/*
	 * The edge to an operation that the job still needs with the remedy and that a rank has not
	 * issued; or DF_NONE.
	 */
	uint32_t to_come;
	uint32_t *comp; /* component of each stuck node */
	uint32_t root;	/* node of the root cause, or DF_NONE */
	uint32_t root_comp;
	size_t nr_roots;
	struct df_step *steps;
	size_t nr_steps;
	int is_cycle;
	uint32_t *involved; /* operations of the cycle, without repetition */
	size_t nr_involved;
	struct df_other others[DF_OTHERS];
	/*
	 * nr_held of these threads wait for a lock that another thread holds; they are listed
	 * first.
	 */
	size_t nr_others, nr_held;
	/* the cycle waits for a communicator whose missing members are unknown */
	int has_unknown_members;
	struct df_side *sides; /* for MISMATCH */
	size_t nr_sides, cap_sides;
	/* If a rank has issued an unknown call in place of the root: this rank. Else -1. */
	int lacks;
	int is_left; /* the rank that should issue the missing operation has left */
	/* For NET_STALL and SLOW: the broken link, an element of the set. NULL if none is known. */
	const struct df_broken_link *link;
	/*
	 * For NET_STALL and NCCL_INTERNAL: the proxy, an element of the set. NULL if no proxy
	 * explains it.
	 */
	const struct df_stalled_proxy *proxy;
	uint32_t proxy_trace;
	/* for MISMATCH without a root: the communicator of the operation, which completed */
	uint32_t completed_gcomm;
	uint64_t completed_index;
	size_t stuck_ops, stuck_insts, stuck_comms, stuck_ranks;
	char *line, *remedy_text, *fix, *divergence;
	char *alike; /* the last call that both ranks of the divergence issued alike; or NULL */
	/* the statements of the program that decide which of the two calls a rank makes; or NULL */
	char *decided;
	uint32_t div_trace[2];
	uint64_t div_rec[2];
	uint32_t div_site[2];
	int div_rank[2];
	/* with `divergence`: the two ranks as entries, and their last call alike (0: unknown) */
	uint32_t part_entry[2], alike_site[2];
	char **notes;
	size_t nr_notes, cap_notes;
};

#endif
