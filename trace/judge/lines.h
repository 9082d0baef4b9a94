/*
 * The sentences of verdicts: a growing text, and the functions that both files of sentences share.
 * Private to explain.c (cycles, remedy, fix) and culprit.c (verdicts with one culprit).
 */
#ifndef DF_TRACE_JUDGE_LINES_H
#define DF_TRACE_JUDGE_LINES_H

#include "trace/judge/result.h"

/* A text that grows in place and never overflows. */
struct df_line {
	char s[1024];
	size_t n;
};

void df_line_put(struct df_line *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "r0 -> r5 -> r0" over the ranks of the cycle. */
void df_line_path(struct df_check_result *r, struct df_line *b);
/* The thread number `which` of the cycle, or NULL. */
const struct df_node *df_line_thread(struct df_check_result *r, size_t which);
/* The rank of a THREAD node. */
const char *df_line_host(struct df_check_result *r, const struct df_node *n, char *buf,
			 size_t size);

void df_line_missing(struct df_check_result *r, struct df_line *b);
void df_line_crash(struct df_check_result *r, struct df_line *b);
void df_line_init(struct df_check_result *r, struct df_line *b);
/*
 * The trace of a process that exited inside the stuck ncclCommInitRank, and a rank of it; NULL if
 * there is none.
 */
const struct df_trc *df_left_init(const struct df_check_result *r, int *rank);
void df_line_gpu(struct df_check_result *r, struct df_line *b);
/* Needs r->link. */
void df_line_link(struct df_check_result *r, struct df_line *b);
/* Needs r->proxy. */
void df_line_proxy(struct df_check_result *r, struct df_line *b);
void df_line_stall(struct df_check_result *r, struct df_line *b);
void df_line_hosts(struct df_check_result *r, struct df_line *b);
/*
 * df_line_held() needs r->nr_held and says which other thread waits for a lock. df_line_others()
 * needs r->nr_others and names the others after another sentence.
 */
void df_line_held(struct df_check_result *r, struct df_line *b);
void df_line_others(struct df_check_result *r, struct df_line *b);
void df_line_unknown(struct df_check_result *r, struct df_line *b);
/*
 * Appends "; two threads of r1 use communicator A: ..." if that is true of a rank whose call
 * differs, or which has operations of both in the cycle. Returns whether it is.
 */
int df_line_two_threads(struct df_check_result *r, struct df_line *b);
void df_line_mismatch(struct df_check_result *r, struct df_line *b);

#endif
