/*
 * Makes traces for tests: runs a program of the model and records it as the runtime would, one
 * image per rank; and reads programs from text.
 *
 * Text: "prog NAME LABEL [VERDICT] [cap=n] [one_queue] [launchq=n] [buffered]", "comm R,R,...",
 * "op RANK THREAD STEP ...", "end".
 */
#ifndef DF_TEST_TRACE_BUILD_H
#define DF_TEST_TRACE_BUILD_H

#include <stdio.h>
#include "trace/check.h"
#include "trace/predict/model.h"

struct tb_prog {
	char name[64], label[8], verdict[32];
	struct df_mprog p;
};

/* 1 read, 0 end of file; a syntax error ends the test. */
int tb_read(FILE *in, struct tb_prog *out);

struct tb_image {
	struct df_trace_header *h;
	size_t bytes, cap_recs;
	uint64_t clock;
	uint64_t serial; /* of the last tb_issue() */
};

/* Opens a text of programs: a file of tests/trace, or random ones (of programs.py). pclose() it. */
FILE *tb_open(const char *name);
FILE *tb_random(uint64_t seed, int nr);

/* An empty trace; records can be added while there is room. */
void tb_image_init(struct tb_image *im, int rank, int world, size_t nr_recs);
void tb_image_fini(struct tb_image *im);
void tb_images_fini(struct tb_image *im, int nr);
/* Record i, while it is in the ring; an entry of the table, from 1. */
struct df_rec *tb_at(const struct tb_image *im, uint64_t i);
struct df_trace_comm *tb_comm_at(const struct tb_image *im, uint32_t comm);
struct df_rec *tb_rec(struct tb_image *im, enum df_rec_type type, uint64_t op, uint64_t a,
		      uint64_t b, uint64_t c);
uint32_t tb_comm(struct tb_image *im, uint64_t hash, int nranks, int rank, int device);
/* The records of one issued operation of this communicator and rank in it; its serial. */
uint64_t tb_issue(struct tb_image *im, uint32_t comm, int rank, int kind, uint64_t count, int peer,
		  uint64_t index);
/* Records that the operation has started (OP_START) or ended (OP_DONE). */
struct df_rec *tb_op(struct tb_image *im, uint32_t comm, enum df_rec_type type, uint64_t serial);
/* Puts a text into the table of strings; returns its hash. */
uint64_t tb_string(struct tb_image *im, const char *text);
/* Records the only frame of a call site. */
void tb_site(struct tb_image *im, uint32_t site, const char *frame);
/* Records that nothing has made progress for `ms`. */
void tb_quiet(struct tb_image *im, uint64_t ms);

struct tb_opts {
	uint32_t rules; /* header.rules; 0 gives 1 */
	int crash;	/* EXIT is a crash that the peers noticed */
	int quiet_ms;	/* silence at the end, recorded as STALL; 0: 60,000, -1: none */
};

/* Runs the program by NCCL's rules and fills images[0..nr_ranks). Returns 1 if it hung. */
int tb_run(const struct df_mprog *p, const struct tb_opts *opts, struct tb_image *images);

/* All images of a program judged. The result must be freed before the set. */
struct df_check_result *tb_check(const struct tb_image *images, int nr, struct df_check_set **set);
/* Returns the printed verdict, as text or JSON; malloc'ed. */
char *tb_printed(const struct df_check_result *r, int json);

#endif
