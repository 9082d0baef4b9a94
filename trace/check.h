/*
 * The judge: from the records of all processes to a verdict. The live watchdog and the CLI both use
 * it. It knows neither CUDA nor NCCL: pure functions over memory.
 *
 * A set collects traces (files, or images of rings gathered from peers). df_check_run() builds the
 * execution graph and the wait-for graph, reduces it, and explains the residue. A set may lack
 * ranks, or hold truncated or overwritten rings; the verdict then states its confidence.
 *
 * Thread-safety: a set and its results belong to one thread at a time. A result stays valid after
 * its set was freed.
 */
#ifndef DF_TRACE_CHECK_H
#define DF_TRACE_CHECK_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "trace/record/format.h"

/* Verdict words with their exit codes (part of the interface of `dfshim check`). */
enum df_verdict {
	DF_V_OK = 0,
	DF_V_SLOW = 1,
	DF_V_ORDER = 10,
	DF_V_RESOURCE = 11,
	DF_V_SYNC = 12,
	DF_V_DATA = 13,
	DF_V_MISSING = 20,
	DF_V_MISMATCH = 21,
	DF_V_INIT = 22,
	DF_V_CRASH = 30,
	DF_V_GPU_STUCK = 31,
	DF_V_NET_STALL = 32,
	DF_V_NCCL_INTERNAL = 33,
	DF_V_HOST = 40,
	DF_V_UNKNOWN = 50
};

const char *df_verdict_word(enum df_verdict v);
int df_verdict_exit(enum df_verdict v); /* 0 for OK and SLOW */
/*
 * The exit code of a process that is stopped because of the verdict. Never 0: a rank that is too
 * slow counts as missing.
 */
int df_verdict_stop_exit(enum df_verdict v);

struct df_check_set;
struct df_check_result;

struct df_check_set *df_check_set_new(void);
void df_check_set_free(struct df_check_set *set);

/*
 * Add one trace: an image in memory (copied); a ring that is being written (copied, each record
 * whole or invalid); a file; or all trace files below a folder, where unreadable ones are skipped
 * if there are others. Return -errno on failure.
 */
int df_check_add_image(struct df_check_set *set, const void *image, size_t bytes, const char *name);
int df_check_add_ring(struct df_check_set *set, const struct df_trace_header *ring,
		      const char *name);
int df_check_add_file(struct df_check_set *set, const char *path);
int df_check_add_dir(struct df_check_set *set, const char *dir);

/*
 * The wait of a thread outside all recorded calls, if that is certain. It is not a record: it is
 * valid only while the same is seen again (stamp), and files are kept longer.
 */
enum df_host_kind {
	DF_HOST_FREE,	 /* nothing is certain: it may do anything */
	DF_HOST_JOIN,	 /* until thread `whom` of its process ends */
	DF_HOST_BLOCKED, /* until another thread of its process wakes it */
	DF_HOST_SERVES,	 /* the same, but that thread has used CUDA or NCCL */
};

struct df_check_host {
	uint32_t tid, whom;
	uint64_t kind;	   /* enum df_host_kind */
	uint64_t stamp;	   /* number of its context switches: the same while one wait lasts */
	uint64_t nr_calls; /* of CUDA and NCCL that enqueue, issue, or wait */
};

/*
 * Adds all threads of the process whose trace was added last, except those that run nothing of the
 * application. A thread that is not listed has ended. Fails with -EINVAL if there is no trace, or
 * -ENOMEM.
 */
int df_check_add_hosts(struct df_check_set *set, const struct df_check_host *hosts, size_t nr);

/* A number that changes when the process of the trace added last begins or ends anything. */
void df_check_add_progress(struct df_check_set *set, uint64_t progress);

/*
 * Returns 1 if the trace's process lives, 0 if it has ended, -1 if that is unknown. For
 * df_check_opts.alive.
 */
int df_check_alive(const struct df_trace_header *h);
/*
 * Returns the number of living processes of the set that precede this one, so that only one of them
 * prints first. *told_ns: when any of them last printed a verdict (CLOCK_REALTIME); 0: never.
 */
unsigned df_check_before(const struct df_check_set *set, const struct df_trace_header *me,
			 uint64_t *told_ns);
/*
 * Finds processes of the set that ended without recording it and whose records end after since_ns:
 * host and pid of their headers. Returns their number, at most `max`.
 */
size_t df_check_gone(const struct df_check_set *set, uint64_t since_ns, uint64_t *hosts,
		     uint32_t *pids, size_t max);

/* The file and the reason of the last failed df_check_add_*(). */
const char *df_check_error(const struct df_check_set *set);

#define DF_CHECK_STALE_NS 5000000000ULL
struct df_check_opts {
	uint64_t now_ns;   /* CLOCK_MONOTONIC of the analysis; 0: the last record's time */
	int live;	   /* the processes still run: an unfinished operation is not yet stuck */
	uint64_t stale_ns; /* a longer silence makes a wait suspicious; 0: DF_CHECK_STALE_NS */
	uint64_t aged_ns;  /* as does a longer wait, although others go on; 0: it does not */
	/* The wait of a SYNC is released, so operations that differ may still match. */
	int released;
	int open_end; /* the records end before the program: an ended thread may still act */
	int (*alive)(const struct df_trace_header *h); /* -1: unknown. May be NULL. */
};

int df_check_run(struct df_check_set *set, const struct df_check_opts *opts,
		 struct df_check_result **out);
void df_check_result_free(struct df_check_result *r);

enum df_verdict df_check_verdict(const struct df_check_result *r);
/* Whether the verdict rests on a dead rank or link, so that unfinished operations cannot finish. */
int df_check_is_over(const struct df_check_result *r);
/*
 * Whether the verdict is proved, and cannot change if the records that it rests on do not: a cycle,
 * calls that never meet, or a rank that has died or left, and unfinished operations that wait for
 * it.
 */
int df_check_is_settled(const struct df_check_result *r);
/*
 * Identifies the facts that the verdict rests on: the waits that are its cause, each by its call or
 * operation, and the progress of processes that may still act (df_check_add_progress()). If a
 * result on data that was collected later, after the first was complete, has the same facts, they
 * held together in between, whatever else has moved.
 */
uint64_t df_check_facts(const struct df_check_result *r);
/* The first line: verdict word, ": ", one sentence. */
const char *df_check_line(const struct df_check_result *r);
/*
 * Print the whole text for people (first line as above), or, in tools only, JSON with stable keys.
 * Return 0 or -ENOMEM.
 */
void df_check_print(const struct df_check_result *r, FILE *out);
int df_check_print_json(const struct df_check_result *r, FILE *out);
/*
 * Prints one part of the text: the call sites of the calls that do not return, where they are
 * known.
 */
void df_check_print_hosts(const struct df_check_result *r, FILE *out);
/*
 * Prints what the set knows of its communicators, as NCCL's RAS reports it, in text or JSON, with
 * the verdict at the end. `asked` processes had `seconds` to answer. The traces must be images.
 */
void df_check_print_ras(const struct df_check_result *r, FILE *out, int json, unsigned asked,
			double seconds);

/*
 * A wait that can be released so that stuck operations continue: a call in progress, or an
 * operation that need not wait for its turn on its stream.
 */
struct df_check_hold {
	uint32_t pid;
	uint64_t host_hash;
	uint64_t serial; /* of the call, or of the operation */
};

/* One wait that was chosen. */
struct df_check_chosen {
	size_t place; /* in `may` */
	/* Identifies the facts of its cycle, and the threads that are not expected to call. */
	uint64_t core;
	/* Identifies the cycle by communicators, ranks and call sites: equal in each iteration. */
	uint64_t cycle;
};

/*
 * Chooses the waits to release. Only proved waits count: a thread that is in no call, or that is
 * released, may do anything. Each chosen wait is part of a cycle that stays a cycle whatever the
 * other threads do once they are released. All that is stuck behind the chosen waits then
 * continues. Operations that would stay stuck in any case are not touched: their peers have exited,
 * or have issued another operation in their place.
 *
 * The facts that `core` identifies are stable except for the chosen waits: if a set of traces that
 * was collected later has the same core, the facts held together.
 */
struct df_check_cut {
	/* From the caller. */
	const struct df_check_hold *may; /* the waits that may be released */
	size_t nr_may;
	/*
	 * If nothing is proved: waits that are stuck unless threads that are in no call continue.
	 */
	int want_likely;
	/* The result. chosen has room for nr_may. */
	struct df_check_chosen *chosen;
	size_t nr;
	int likely;    /* the chosen waits are only likely */
	int hosts;     /* df_check_add_hosts() could show more */
	uint64_t core; /* of all that is proved */
	/* commHash whose ranks have provably issued operations that never match; 0: none. */
	uint64_t mismatch;
	/* Identifies operations that wait for one another whatever the threads do; 0: none. */
	uint64_t settled;
};

/* Returns 0 or -ENOMEM. */
int df_check_cut(struct df_check_set *set, const struct df_check_opts *opts,
		 struct df_check_cut *cut);

/*
 * Reduces a ring to what an analysis needs (unfinished operations, calls in progress, streams,
 * tables), as an image for df_check_add_image() in another process. The image is malloc'ed. Returns
 * -errno on failure.
 */
int df_trace_compact(const struct df_trace_header *ring, void **image, size_t *bytes);

/*
 * The last report of a process that exits, for the others to use when its trace has disappeared:
 * how many operations of each signature and with each peer it has finished on its communicators,
 * and sizes of messages; the latest 512 of them. malloc'ed. Returns -errno on failure.
 */
struct df_left_row {
	uint64_t key, next;
};
int df_trace_left(const struct df_trace_header *ring, struct df_left_row **rows, size_t *nr);
/* Adds such a report for a process of the set whose trace is missing. Returns 0 or -ENOMEM. */
int df_check_add_left(struct df_check_set *set, const struct df_left_row *rows, size_t nr);

/*
 * df_trace_compact() for repeated use: each step processes only the records since the last one, and
 * the image lacks what only people need (call sites, texts). Zeroed at first. The caller may read
 * image, bytes and next (number of records processed). Fails with -EAGAIN, changing nothing, if a
 * record is just being written.
 */
struct df_compact {
	void *image;
	size_t bytes;
	uint64_t next;
};
int df_trace_compact_step(struct df_compact *c, const struct df_trace_header *ring);

#endif
