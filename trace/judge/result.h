/*
 * A verdict with its reasons, as plain data and text: df_check_run() makes it, print.c and the
 * tools show it. Private to the judge and the tools. It holds a reference to its set, which
 * therefore exists as long as the result.
 */
#ifndef DF_TRACE_JUDGE_RESULT_H
#define DF_TRACE_JUDGE_RESULT_H

#include "trace/graph/graph.h"

/* The ending of a noun after a number. */
#define DF_PLURAL(nr) ((nr) == 1 ? "" : "s")

enum df_confidence { DF_C_PROVED, DF_C_LIKELY, DF_C_POSSIBLE };

/* One step "from waits for to" of the cycle or the chain. */
struct df_step {
	uint32_t from, to; /* nodes */
	uint32_t kinds;	   /* bits of enum df_edge_kind between them */
	uint32_t trace;	   /* of the evidence; or DF_NONE */
	uint64_t rec;	   /* its record; or DF_NO_REC */
	int cut;	   /* whether the named remedy would remove this wait */
	char *text;
};

/* The call of one rank, where the ranks' calls do not agree. */
struct df_side {
	struct df_lop op;
	uint64_t sig;
	uint32_t trace;
	uint32_t entry;
	int rank; /* as shown to users */
};

/*
 * A thread that could issue an operation that the cycle lacks, although it is not part of the
 * cycle.
 */
struct df_other {
	uint32_t next, thread; /* node; index in the threads of its trace */
};

#define DF_OTHERS 4 /* number of threads kept */

struct df_check_result {
	struct df_check_set *set;
	struct df_graph g;
	enum df_verdict verdict;
	enum df_verdict otherwise; /* SLOW: the verdict if it is not only slow */
	char qualifier[32];	   /* "explicit", "init", "hazard" ...; may be empty */
	enum df_confidence confidence;
	uint8_t partial;      /* judged on a part of the data: df_set_is_partial() */
	enum df_world remedy; /* the weakest rule change with which the job proceeds; 0: none */
	uint8_t if_buffered; /* no remedy, but dfshim proceeds if its small messages are buffered */
	enum df_world world; /* the rules under which the nodes are stuck */
	int stale;
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
	/* nr_held: those in a lock that another thread holds; they are listed first. */
	size_t nr_others, nr_held;
	/* the cycle waits for a communicator whose missing members are unknown */
	int has_unknown_members;
	struct df_side *sides; /* MISMATCH */
	size_t nr_sides, cap_sides;
	/*
	 * The rank that has issued another call in place of the root, if that call is unknown; else
	 * -1.
	 */
	int lacks;
	int is_left; /* the rank that should issue the missing operation has left */
	/* NET_STALL, SLOW: of the set; NULL: no link is known to be broken. */
	const struct df_broken_link *link;
	/* NET_STALL, NCCL_INTERNAL: of the set; NULL: no proxy of NCCL explains it. */
	const struct df_stalled_proxy *proxy;
	uint32_t proxy_trace;
	uint32_t completed_gcomm; /* MISMATCH without a root: its operation completed */
	uint64_t completed_index;
	size_t stuck_ops, stuck_insts, stuck_comms, stuck_ranks;
	char *line, *remedy_text, *fix, *divergence;
	char *alike; /* the last call that both ranks of the divergence issued alike; or NULL */
	uint32_t div_trace[2];
	uint64_t div_rec[2];
	uint32_t div_site[2];
	int div_rank[2];
	char **notes;
	size_t nr_notes, cap_notes;
};

#endif
