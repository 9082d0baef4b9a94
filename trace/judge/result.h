/*
 * A verdict with its reasons, as plain data and text: what df_check_run() makes, what print.c and the
 * tools show. Private to the judge and the tools. It holds a reference to its set, which so lives as long as the result.
 */
#ifndef DF_TRACE_JUDGE_RESULT_H
#define DF_TRACE_JUDGE_RESULT_H

#include "trace/graph/graph.h"

/* The ending of a noun that is counted. */
#define DF_PLURAL(nr) ((nr) == 1 ? "" : "s")

enum df_confidence { DF_C_PROVED, DF_C_LIKELY, DF_C_POSSIBLE };

/* One "who waits for whom" of the cycle or the chain. */
struct df_step {
	uint32_t from, to; /* nodes */
	uint32_t kinds;	   /* bits of enum df_edge_kind between them */
	uint32_t trace;	   /* evidence; DF_NONE */
	uint64_t rec;	   /* its record; DF_NO_REC */
	int cut;	   /* what the named remedy would take away */
	char *text;
};

/* One rank's call where calls do not agree. */
struct df_side {
	struct df_lop op;
	uint64_t sig;
	uint32_t trace;
	uint32_t entry;
	int rank; /* as people know it */
};

/* A thread that could issue what a cycle lacks, though the cycle does not go through it. */
struct df_other {
	uint32_t next, thread; /* node; index in the threads of its trace */
};

#define DF_OTHERS 4 /* that are kept */

struct df_check_result {
	struct df_check_set *set;
	struct df_graph g;
	enum df_verdict verdict;
	enum df_verdict otherwise; /* of SLOW: what it is if it is not only slow */
	char qualifier[32];	   /* "explicit", "init", "hazard" ...; may be empty */
	enum df_confidence confidence;
	uint8_t partial;      /* judged on a part of the data: df_set_is_partial() */
	enum df_world remedy; /* the mildest world in which the job goes on; 0 none */
	uint8_t if_buffered; /* none, but it goes on by our rules if its small messages are buffered */
	enum df_world world; /* of the residue */
	int stale;
	uint64_t quiet_ns; /* since the last progress */
	uint64_t since_ns; /* the oldest stuck operation's time */
	/* With a remedy: the edge to what the job still needs, and a rank has not issued; DF_NONE. */
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
	size_t nr_others,
		nr_held; /* of them, those in a lock that another thread holds: they are the first */
	struct df_side *sides; /* MISMATCH */
	size_t nr_sides, cap_sides;
	int lacks; /* the rank of the communicator that lacks the root, where only its own side is known; -1 */
	int is_left; /* what is missing was to come from a rank that has gone */
	const struct df_broken_link
		*link; /* NET_STALL, SLOW: of the set; NULL: no link is known to be broken */
	uint32_t completed_gcomm; /* MISMATCH without a root: it completed */
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

/* explain.c: fills steps, line, fix, divergence, notes. 0 or -ENOMEM. */
int df_explain(struct df_check_result *r);
/* The compacted steps of a cycle given as edges. */
int df_explain_steps(struct df_check_result *r, const uint32_t *edges, size_t nr, int closed);
/* evidence.c: first divergence, other observations. */
void df_explain_divergence(struct df_check_result *r);
/* The same file: traces that were not judged. */
void df_explain_ignored(struct df_check_result *r);

/*
 * mismatch.c: of what is stuck, calls that do not agree. 1 found: root is the instance, sides are filled;
 * 0 none, or -ENOMEM. df_mismatch_sides() fills the sides of any MISMATCH.
 */
int df_mismatch_find(struct df_check_result *r);
/* Where nothing is stuck as far as can be seen: a message whose ends disagree, one of which is over. */
int df_mismatch_unseen(struct df_check_result *r);
/*
 * Finds the first place in which ranks issued different collectives, in a cycle or where a rank
 * waits for one that has left. The same results.
 */
int df_mismatch_places(struct df_check_result *r);
int df_mismatch_sides(struct df_check_result *r);

/*
 * room.c: of what NCCL executes, two operations that do not end although all ranks came to them, in opposite orders. 1: so it
 * is, and they are what is involved; 0, or -ENOMEM.
 */
int df_no_room(struct df_check_result *r);
/*
 * The same file: the root is an operation of NCCL's that seems to run on all its ranks, or to wait for nothing. Where
 * threads share hardware queues, the records do not say which of the operations that may be the first in one it is: if a
 * possible order explains that such a root is stuck, that order is believed from now on, and the graph is reduced by it.
 * 1: so it is; 0, or -ENOMEM.
 */
int df_suppose_firsts(struct df_check_result *r);

/* others.c: of a cycle, threads that it does not go through and that could issue what a rank of it lacks. */
void df_others_find(struct df_check_result *r);
const struct df_lthread *df_other_thread(const struct df_check_result *r, size_t which);

/* broken_link.c: where a broken link explains what the verdict says, the verdict is about it. Its notes. */
void df_link_judge(struct df_check_result *r);
void df_explain_link(struct df_check_result *r);

/* culprit.c: how the process of the rank that is waited for has ended, as df_dead.in_order. */
int df_exit_of(const struct df_check_result *r);

/* say.c: short texts into buf, which is returned. */
const char *df_say_op(const struct df_check_set *set, const struct df_uop *u, char *buf,
		      size_t size);
const char *df_say_rank(const struct df_check_set *set, const struct df_uop *u, char *buf,
			size_t size);
const char *df_say_entry(const struct df_check_set *set, uint32_t entry, char *buf, size_t size);
const char *df_say_member(const struct df_check_set *set, uint32_t gcomm, int rank, char *buf,
			  size_t size);
/* "exited normally", "exited with status 1". */
const char *df_say_exit(int in_order, char *buf, size_t size);
/* The rank of the job that a thread (0: any) with this device (-1: any) serves; -1: none, or several. */
int df_say_world(const struct df_check_set *set, const struct df_trc *t, int device, uint32_t tid);
/* The rank whose thread, work or slot a node is; of a process with several, by device. */
const char *df_say_host(const struct df_graph *g, uint32_t node, char *buf, size_t size);
const char *df_say_node(const struct df_graph *g, uint32_t node, char *buf, size_t size);
/* Its frame behind `skip` others. */
const char *df_say_site(struct df_check_set *set, uint32_t trace, uint32_t site, unsigned skip,
			char *buf, size_t size);
/*
 * Calls of a script that stand side by side, compared one by one from {0} on: the first `shared` lines of those that differ are the
 * same, as of a helper through which they all go, and say nothing. first, differ: for the comparison.
 */
struct df_say_lines {
	const char *first;
	unsigned shared, differ;
};
void df_say_compare(struct df_say_lines *l, struct df_check_set *set, uint32_t trace,
		    uint32_t site);
/* All its frames; "": none are known. Valid as long as the set. */
const char *df_say_frames(struct df_check_set *set, uint32_t trace, uint32_t site);
/* Where the call was made that a record tells of; 0: not known. */
uint32_t df_say_site_of(const struct df_check_set *set, uint32_t trace, uint64_t rec);
/* Its innermost frames, at most `max`: "a <- b <- c"; of a script's call its lines. How many; none are known of a site that the ring has lost. */
unsigned df_say_stack(struct df_check_set *set, uint32_t trace, uint32_t site, unsigned max,
		      char *buf, size_t size);
/* The thread's place in its script is known, and it has recorded nothing since. */
int df_say_has_script(const struct df_trc *trc, const struct df_lthread *t);
/* The innermost line of the main thread's script; 0: not known. */
int df_say_script(struct df_check_set *set, uint32_t trace, char *buf, size_t size);
const char *df_say_sig(const struct df_lop *op, char *buf, size_t size);
const char *df_say_thread(const struct df_check_set *set, uint32_t trace, uint32_t tid, char *buf,
			  size_t size);
double df_say_ago(const struct df_check_set *set, uint32_t trace, uint64_t time_ns);

/* printf into malloc'ed memory; NULL without memory. */
char *df_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void df_note(struct df_check_result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
