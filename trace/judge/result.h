/*
 * A verdict with its reasons, as plain data and text: df_check_run() makes it, print.c and the
 * tools show it. Private to the judge and the tools. It holds a reference to its set, which
 * therefore exists as long as the result.
 */
#ifndef DF_TRACE_JUDGE_RESULT_H
#define DF_TRACE_JUDGE_RESULT_H

#include "trace/graph/graph.h"

/* The ending of a counted noun. */
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

/* One rank's call, where calls do not agree. */
struct df_side {
	struct df_lop op;
	uint64_t sig;
	uint32_t trace;
	uint32_t entry;
	int rank; /* as shown to users */
};

/* A thread that could issue what a cycle lacks, although it is not part of the cycle. */
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
	enum df_world world; /* in which the nodes are stuck */
	int stale;
	uint64_t quiet_ns; /* time since the last progress */
	uint64_t since_ns; /* age of the oldest stuck operation */
	/*
	 * With a remedy: the edge to an operation that the job still needs and a rank has not
	 * issued; or DF_NONE.
	 */
	uint32_t to_come;
	uint32_t *comp; /* of stuck nodes */
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
	int has_unknown_members; /* of a communicator that the cycle waits for */
	struct df_side *sides;	 /* MISMATCH */
	size_t nr_sides, cap_sides;
	/* The communicator's rank that lacks the root, if only its own side is known; else -1. */
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
	uint32_t div_trace[2];
	uint64_t div_rec[2];
	uint32_t div_site[2];
	int div_rank[2];
	char **notes;
	size_t nr_notes, cap_notes;
};

/* explain.c: fills in steps, line, fix, divergence and notes. Returns 0 or -ENOMEM. */
int df_explain(struct df_check_result *r);
/* Compacts the edges of a cycle into steps. */
int df_explain_steps(struct df_check_result *r, const uint32_t *edges, size_t nr, int closed);
/* evidence.c: finds the first divergence and other observations. */
void df_explain_divergence(struct df_check_result *r);
/* evidence.c: notes the traces that were not judged. */
void df_explain_ignored(struct df_check_result *r);

/*
 * mismatch.c: finds calls that do not agree among the stuck ones. Returns 1 if there are: root is
 * the instance, and the sides are filled in; else 0 or -ENOMEM. df_mismatch_sides() fills in the
 * sides of any MISMATCH.
 */
int df_mismatch_find(struct df_check_result *r);
/*
 * The same where nothing seems to be stuck: a message whose ends disagree and one of which has
 * finished.
 */
int df_mismatch_unseen(struct df_check_result *r);
/*
 * Finds the first place in which ranks issued different collectives, in a cycle or where a rank
 * waits for one that has left. The same results.
 */
int df_mismatch_places(struct df_check_result *r);
int df_mismatch_sides(struct df_check_result *r);

/*
 * room.c: finds two operations of NCCL that do not end although all ranks reached them, in opposite
 * orders. Returns 1 if there are, and makes them the involved operations; else 0 or -ENOMEM.
 */
int df_no_room(struct df_check_result *r);
/*
 * room.c: the root is an operation of NCCL that seems to run on all its ranks or to wait for
 * nothing. Where threads share hardware queues, the records do not show which operation is the
 * first in a queue. If a possible order explains why such a root is stuck, that order is assumed
 * from now on, and the graph is reduced with it. Returns 1 if there is one; else 0 or -ENOMEM.
 */
int df_suppose_firsts(struct df_check_result *r);

/* others.c: finds threads outside of the cycle that could issue what one of its ranks lacks. */
void df_others_find(struct df_check_result *r);
/* Whether ranks have issued operations of the cycle in different orders; if all are issued. */
int df_orders_differ(const struct df_check_result *r);
/* Whether the operations that a rank has in the cycle access the same bytes, on every rank. */
int df_orders_overlap(const struct df_check_result *r);
const struct df_lthread *df_other_thread(const struct df_check_result *r, size_t which);

/*
 * broken_link.c: if a broken link explains the verdict, makes it the verdict. The second function
 * adds its notes.
 */
void df_link_judge(struct df_check_result *r);
void df_explain_link(struct df_check_result *r);

/*
 * stalled_proxy.c: if a proxy of NCCL that does not move explains the verdict, makes it the
 * verdict. The second function adds its notes.
 */
void df_proxy_judge(struct df_check_result *r);
void df_explain_proxy(struct df_check_result *r);

/* culprit.c: how the process of the awaited rank has ended, as df_dead.in_order. */
int df_exit_of(const struct df_check_result *r);

/* say.c: short texts, written into buf, which is returned. */
const char *df_say_op(const struct df_check_set *set, const struct df_uop *u, char *buf,
		      size_t size);
const char *df_say_rank(const struct df_check_set *set, const struct df_uop *u, char *buf,
			size_t size);
const char *df_say_member(const struct df_check_set *set, uint32_t gcomm, int rank, char *buf,
			  size_t size);
/* "exited normally", "exited with status 1". */
const char *df_say_exit(int in_order, char *buf, size_t size);
/*
 * The job's rank that a thread (0: any) with this device (-1: any) serves; -1 if none or several.
 */
int df_say_world(const struct df_check_set *set, const struct df_trc *t, int device, uint32_t tid);
/* The rank of a node's thread, work or slot; in a process with several ranks, by device. */
const char *df_say_host(const struct df_graph *g, uint32_t node, char *buf, size_t size);
const char *df_say_node(const struct df_graph *g, uint32_t node, char *buf, size_t size);
/* Its frame after `skip` others. */
const char *df_say_site(struct df_check_set *set, uint32_t trace, uint32_t site, unsigned skip,
			char *buf, size_t size);
/*
 * Compares calls of a script that are shown side by side; start with {0}. Where they differ, their
 * first `shared` lines are the same, as in a helper that all of them use, so they are not shown.
 * first and differ serve the comparison.
 */
struct df_say_lines {
	const char *first;
	unsigned shared, differ;
};
void df_say_compare(struct df_say_lines *l, struct df_check_set *set, uint32_t trace,
		    uint32_t site);
/* All its frames, or "" if none are known. Valid as long as the set. */
const char *df_say_frames(struct df_check_set *set, uint32_t trace, uint32_t site);
/* A string of a trace by its hash. Returns 0 if it is unknown. */
int df_say_string(const struct df_check_set *set, uint32_t trace, uint64_t hash, char *buf,
		  size_t size);
/* The site of the call that a record belongs to; 0 if unknown. */
uint32_t df_say_site_of(const struct df_check_set *set, uint32_t trace, uint64_t rec);
/*
 * Its innermost frames, at most `max`: "a <- b <- c"; for a script's call its lines. Returns their
 * number; 0 for a site that the ring has lost.
 */
unsigned df_say_stack(struct df_check_set *set, uint32_t trace, uint32_t site, unsigned max,
		      char *buf, size_t size);
/* Whether the thread's place in its script is known and it has recorded nothing since. */
int df_say_has_script(const struct df_trc *trc, const struct df_lthread *t);
/* The innermost line of the main thread's script; 0 if unknown. */
int df_say_script(struct df_check_set *set, uint32_t trace, char *buf, size_t size);
const char *df_say_sig(const struct df_lop *op, char *buf, size_t size);
const char *df_say_thread(const struct df_check_set *set, uint32_t trace, uint32_t tid, char *buf,
			  size_t size);
double df_say_ago(const struct df_check_set *set, uint32_t trace, uint64_t time_ns);

/* printf into memory from malloc(). Returns NULL if there is no memory. */
char *df_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void df_note(struct df_check_result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
