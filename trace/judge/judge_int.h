/*
 * Declares the steps that make a verdict, and its sentences: a growing text, and functions that
 * several files of this folder share. Private to this folder.
 */
#ifndef DF_TRACE_JUDGE_JUDGE_INT_H
#define DF_TRACE_JUDGE_JUDGE_INT_H

#include "trace/judge/result.h"

struct df_line;

/* explain.c: fills in steps, line, fix, divergence and notes. Returns 0 or -ENOMEM. */
int df_explain(struct df_check_result *r);
/*
 * Compacts the edges of a cycle into steps. `closed` says whether they form a cycle. Returns 0 or
 * -ENOMEM.
 */
int df_explain_steps(struct df_check_result *r, const uint32_t *edges, size_t nr, int closed);
/* evidence.c: finds the first divergence and other observations. */
void df_explain_divergence(struct df_check_result *r);
/* evidence.c: notes the traces that were not judged. */
void df_explain_ignored(struct df_check_result *r);

/*
 * mismatch.c: finds calls that do not agree among the stuck ones. If it finds some, returns 1,
 * makes their instance the root and fills in the sides. Else returns 0 or -ENOMEM.
 * df_mismatch_sides() fills in the sides of any MISMATCH.
 */
int df_mismatch_find(struct df_check_result *r);
/*
 * Does the same where nothing seems to be stuck: finds a message whose ends disagree and of which
 * one end has finished.
 */
int df_mismatch_unseen(struct df_check_result *r);
/*
 * Does the same for the first place in which ranks issued different collectives, in a cycle or
 * where a rank waits for a rank that has left.
 */
int df_mismatch_places(struct df_check_result *r);
int df_mismatch_sides(struct df_check_result *r);

/*
 * grounds.c: whether the verdict is a MISMATCH or a cycle, and all data of its communicators is
 * there. Other processes then do not matter.
 */
int df_cause_is_whole(const struct df_check_result *r);

/*
 * room.c: finds two operations of NCCL that do not end although all ranks reached them, in opposite
 * orders. If it finds some, returns 1 and makes them the involved operations. Else returns 0 or
 * -ENOMEM.
 */
int df_no_room(struct df_check_result *r);
/*
 * room.c: tries to explain a root that is an operation of NCCL and seems to run on all its ranks or
 * to wait for nothing. Where threads share hardware queues, the records do not show which operation
 * is the first in a queue. If a possible order explains why the root is stuck, assumes that order
 * and reduces the graph with it. Returns 1 if there is such an order, else 0 or -ENOMEM.
 */
int df_suppose_firsts(struct df_check_result *r);

/*
 * others.c: finds threads outside of the cycle that could issue an operation that the cycle
 * lacks.
 */
void df_others_find(struct df_check_result *r);
/*
 * Whether ranks have issued the operations of the cycle in different orders. Returns 0 unless all
 * of them were issued.
 */
int df_orders_differ(const struct df_check_result *r);
/* Whether on every rank the operations of the cycle access the same bytes. */
int df_orders_overlap(const struct df_check_result *r);
const struct df_lthread *df_other_thread(const struct df_check_result *r, size_t which);

/*
 * broken_link.c: if a broken link explains the verdict, df_link_judge() changes the verdict to
 * that. df_explain_link() adds notes.
 */
void df_link_judge(struct df_check_result *r);
void df_explain_link(struct df_check_result *r);

/*
 * stalled_proxy.c: if a proxy of NCCL that does not move explains the verdict, df_proxy_judge()
 * changes the verdict to that. df_explain_proxy() adds notes.
 */
void df_proxy_judge(struct df_check_result *r);
void df_explain_proxy(struct df_check_result *r);

/*
 * opaque.c: appends what was issued before an operation that has not started, and may not have
 * ended; returns 0 if it is not recorded. df_explain_launches() notes threads that wait for work
 * that is no operation.
 */
int df_line_launches(struct df_check_result *r, const struct df_uop *u, struct df_line *b);
void df_explain_launches(struct df_check_result *r);

/*
 * culprit.c: returns how the process of the awaited rank has ended, in the values of
 * df_dead.in_order.
 */
int df_exit_of(const struct df_check_result *r);
/* Makes CRASH the verdict, or explains INIT, if the end of a process is the reason. */
void df_judge_deaths(struct df_check_result *r);
void df_judge_init(struct df_check_result *r);

/* ---- sentences (explain.c, culprit.c and others) ---- */

/* A text to which functions append. Text that does not fit is cut off. */
struct df_line {
	char s[1024];
	size_t n;
};

void df_line_put(struct df_line *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends "r0 -> r5 -> r0": the ranks of the cycle. */
void df_line_path(struct df_check_result *r, struct df_line *b);
/* Returns the thread number `which` of the cycle, or NULL. */
const struct df_node *df_line_thread(struct df_check_result *r, size_t which);
/* Writes the rank of a THREAD node into buf and returns buf. */
const char *df_line_host(struct df_check_result *r, const struct df_node *n, char *buf,
			 size_t size);

void df_line_missing(struct df_check_result *r, struct df_line *b);
void df_line_crash(struct df_check_result *r, struct df_line *b);
void df_line_init(struct df_check_result *r, struct df_line *b);
void df_line_gpu(struct df_check_result *r, struct df_line *b);
/*
 * In an agreed order on lanes: whether the root is a message which its receiver receives before an
 * earlier one, which may be in NCCL's buffer. Then a message behind that one waits for its receive.
 */
int df_behind_message(const struct df_check_result *r);
void df_line_behind(struct df_check_result *r, struct df_line *b);
/* Requires r->link. */
void df_line_link(struct df_check_result *r, struct df_line *b);
/* Requires r->proxy. */
void df_line_proxy(struct df_check_result *r, struct df_line *b);
void df_line_stall(struct df_check_result *r, struct df_line *b);
void df_line_hosts(struct df_check_result *r, struct df_line *b);
/*
 * df_line_held() describes a thread that waits for a lock and requires r->nr_held. df_line_others()
 * appends the first other thread to a sentence and requires r->nr_others.
 */
void df_line_held(struct df_check_result *r, struct df_line *b);
void df_line_others(struct df_check_result *r, struct df_line *b);
void df_line_unknown(struct df_check_result *r, struct df_line *b);
/*
 * Appends "; two threads of r1 use communicator A: ..." if this holds for a rank whose call
 * differs, or for a rank that has operations of both threads in the cycle. Returns whether it does.
 */
int df_line_two_threads(struct df_check_result *r, struct df_line *b);
void df_line_mismatch(struct df_check_result *r, struct df_line *b);

#endif
