/*
 * Makes traces for tests: runs a program of the model and records it as the runtime would, with one
 * image for each rank. Reads programs from text.
 *
 * The text of a program consists of the lines "prog NAME LABEL [VERDICT] [cap=n] [one_queue]
 * [launchq=n] [buffered]", "comm R,R,...", "op RANK THREAD STEP ...", "end".
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

/*
 * Reads the next program. Returns 1, or 0 at the end of the file. A syntax error ends the process.
 */
int tb_read(FILE *in, struct tb_prog *out);

struct tb_image {
	struct df_trace_header *h;
	size_t bytes, cap_recs;
	uint64_t clock;
	uint64_t serial; /* of the last tb_issue() */
};

/*
 * tb_open() opens a file of tests/trace; the caller calls fclose(). tb_random() opens a pipe from
 * programs.py with random programs; the caller calls pclose().
 */
FILE *tb_open(const char *name);
FILE *tb_random(uint64_t seed, int nr);

/* Makes an empty trace with room for `nr_recs` records. tb_image_fini() frees it. */
void tb_image_init(struct tb_image *im, int rank, int world, size_t nr_recs);
void tb_image_fini(struct tb_image *im);
void tb_images_fini(struct tb_image *im, int nr);
/*
 * tb_at() returns record i, which must still be in the ring. tb_comm_at() returns an entry of the
 * communicator table; the first is 1.
 */
struct df_rec *tb_at(const struct tb_image *im, uint64_t i);
struct df_trace_comm *tb_comm_at(const struct tb_image *im, uint32_t comm);
struct df_rec *tb_rec(struct tb_image *im, enum df_rec_type type, uint64_t op, uint64_t a,
		      uint64_t b, uint64_t c);
uint32_t tb_comm(struct tb_image *im, uint64_t hash, int nranks, int rank, int device);
/*
 * Records one issued operation of a communicator whose local rank is `rank`. Returns the
 * operation's serial.
 */
uint64_t tb_issue(struct tb_image *im, uint32_t comm, int rank, int kind, uint64_t count, int peer,
		  uint64_t index);
/* Records that the operation has started (DF_REC_OP_START) or ended (DF_REC_OP_DONE). */
struct df_rec *tb_op(struct tb_image *im, uint32_t comm, enum df_rec_type type, uint64_t serial);
/* Adds a text to the table of strings. Returns its hash. */
uint64_t tb_string(struct tb_image *im, const char *text);
/* Records a call site that has a single frame. */
void tb_site(struct tb_image *im, uint32_t site, const char *frame);
/* Records that there was no progress for `ms` milliseconds. */
void tb_quiet(struct tb_image *im, uint64_t ms);

struct tb_opts {
	uint32_t rules; /* stored in the header; 0 means 1 */
	int crash;	/* a process that exits has crashed, and its peers have recorded this */
	/* time without progress at the end, recorded as STALL; 0 means 60,000, -1 none */
	int quiet_ms;
};

/* Runs the program by NCCL's rules and fills images[0..nr_ranks). Returns 1 if the program hung. */
int tb_run(const struct df_mprog *p, const struct tb_opts *opts, struct tb_image *images);

/* Judges the images of a program. Free the result before the set. */
struct df_check_result *tb_check(const struct tb_image *images, int nr, struct df_check_set **set);
/* Returns the printed verdict as text or JSON. The caller frees it. */
char *tb_printed(const struct df_check_result *r, int json);

#endif
