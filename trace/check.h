/*
 * The judge: from the records of all processes to a verdict. Used alike by the live watchdog and by the
 * CLI; knows neither CUDA nor NCCL; pure functions over memory.
 *
 * A set collects traces (files, or byte images of rings gathered from peers); df_check_run() builds the
 * execution graph and the wait-for graph, reduces it, and explains the residue. A set may lack ranks,
 * hold truncated or overwritten rings: the verdict then says with what confidence it stands.
 *
 * Thread-safety: a set and its results belong to one thread at a time. A result stays valid after its set
 * was freed.
 */
#ifndef DF_TRACE_CHECK_H
#define DF_TRACE_CHECK_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "trace/record/format.h"

/* Verdict words with their exit codes (contract: see interface of `dfshim check`). */
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
/* Of a process that is stopped because of it, so never 0: a rank that is too slow is as good as missing. */
int df_verdict_stop_exit(enum df_verdict v);

struct df_check_set;
struct df_check_result;

struct df_check_set *df_check_set_new(void);
void df_check_set_free(struct df_check_set *set);

/*
 * Adds one trace: an image in memory (copied), a ring while it is written (a copy, each record whole or invalid), a
 * file, or all trace files below a folder, of which those that can't be read are left out if there are others. -errno.
 */
int df_check_add_image(struct df_check_set *set, const void *image, size_t bytes, const char *name);
int df_check_add_ring(struct df_check_set *set, const struct df_trace_header *ring,
		      const char *name);
int df_check_add_file(struct df_check_set *set, const char *path);
int df_check_add_dir(struct df_check_set *set, const char *dir);

/*
 * What a host thread waits for outside all calls that are recorded, where that is certain. It is no record: it holds
 * as long as the same is seen again (stamp), and files outlive it.
 */
enum df_host_kind {
	DF_HOST_FREE,	 /* nothing is certain: it may do anything */
	DF_HOST_JOIN,	 /* until thread `whom` of its process ends */
	DF_HOST_BLOCKED, /* until another thread of its process wakes it */
	DF_HOST_SERVES,	 /* the same, by a thread that has used CUDA or NCCL */
};

struct df_check_host {
	uint32_t tid, whom;
	uint64_t kind;	/* enum df_host_kind */
	uint64_t stamp; /* how often it has been off the processor: the same while one wait lasts */
	uint64_t nr_calls; /* of CUDA and NCCL that put or issue something, or wait */
};

/*
 * All threads of the process of the trace that was added last, but for those that run nothing of the application. A
 * thread that is not among them has ended. 0, -EINVAL without a trace, -ENOMEM.
 */
int df_check_add_hosts(struct df_check_set *set, const struct df_check_host *hosts, size_t nr);

/* The trace's process lives: 1, it is gone: 0, or nobody can tell: -1. For df_check_opts.alive. */
int df_check_alive(const struct df_trace_header *h);
/*
 * How many living processes of the set come before this one, so that one of several speaks first. *told_ns: when any
 * of them last printed a verdict (CLOCK_REALTIME), 0 never.
 */
unsigned df_check_before(const struct df_check_set *set, const struct df_trace_header *me,
			 uint64_t *told_ns);
/*
 * Processes of the set that ended without saying so, of those whose records end after since_ns: their headers' host
 * and pid. Returns how many of at most `max`.
 */
size_t df_check_gone(const struct df_check_set *set, uint64_t since_ns, uint64_t *hosts,
		     uint32_t *pids, size_t max);

/* What the last failed df_check_add_* says: file and reason. */
const char *df_check_error(const struct df_check_set *set);

struct df_check_opts {
	uint64_t now_ns;   /* CLOCK_MONOTONIC of the analysis; 0: the last record's time */
	int live;	   /* the processes still run: unfinished is not yet stuck by itself */
	uint64_t stale_ns; /* silence from which on waiting is suspicious; 0: 5 s */
	int released;	   /* the wait of a SYNC is released, so what differs may still meet */
	/* 1 the process is alive, 0 it is gone, -1 can't tell. May be NULL. */
	int (*alive)(const struct df_trace_header *h);
};

int df_check_run(struct df_check_set *set, const struct df_check_opts *opts,
		 struct df_check_result **out);
void df_check_result_free(struct df_check_result *r);

enum df_verdict df_check_verdict(const struct df_check_result *r);
/* 1: it rests on a rank or a link that is gone, so what is unfinished will not finish. */
int df_check_is_over(const struct df_check_result *r);
/* The first line: verdict word, ": ", one sentence. */
const char *df_check_line(const struct df_check_result *r);
/* Whole text for people (first line as above), and, in tools only, JSON with stable keys: 0 or -ENOMEM. */
void df_check_print(const struct df_check_result *r, FILE *out);
int df_check_print_json(const struct df_check_result *r, FILE *out);
/* A part of the text: where the calls that do not return were made. Nothing where that is not known. */
void df_check_print_hosts(const struct df_check_result *r, FILE *out);
/*
 * What the set knows of its communicators, as NCCL's RAS reports it, in text or JSON, with the verdict at the end;
 * `asked` processes had `seconds` to answer. The traces have to be images.
 */
void df_check_print_ras(const struct df_check_result *r, FILE *out, int json, unsigned asked,
			double seconds);

/*
 * Which waits have to be released so that what is stuck goes on. A wait is a call in progress, or an operation that
 * need not wait for its turn on its stream.
 */
struct df_check_hold {
	uint32_t pid;
	uint64_t host_hash;
	uint64_t serial; /* of the call, or of the operation */
};

/* One wait that was chosen. */
struct df_check_chosen {
	size_t place; /* in `may` */
	uint64_t
		core; /* names the facts that its cycle rests on, with the threads that are not expected to call */
	uint64_t
		cycle; /* names the cycle by its communicators, ranks and call sites: the same in each iteration */
};

/*
 * Only what is stuck by proof counts: of a thread that is in no call, anything is expected, and so it is of one that is
 * released. Each wait that is chosen is part of a cycle that stays one whatever the others do once they are released,
 * and all that is stuck behind the chosen ones goes on. What would stay stuck in any case is not touched: operations
 * whose peers have exited, or have issued something else in their place.
 *
 * The facts that `core` names are stable but for the chosen waits: a set of traces that was collected after this one
 * and has the same core proves that they held together.
 */
struct df_check_cut {
	/* by the caller */
	const struct df_check_hold *may; /* the waits that may be released */
	size_t nr_may;
	int want_likely; /* if nothing is proved: what is stuck unless threads that are in no call go on */
	/* the result; chosen has room for nr_may */
	struct df_check_chosen *chosen;
	size_t nr;
	int likely;    /* the chosen ones are no more than that */
	int hosts;     /* more might be known with df_check_add_hosts() */
	uint64_t core; /* of all that is proved */
	uint64_t
		mismatch; /* commHash: proved that ranks of it have issued operations that never meet; 0 none */
	uint64_t
		settled; /* names operations that wait for one another whatever the threads do; 0 none */
};

/* 0 or -ENOMEM. */
int df_check_cut(struct df_check_set *set, const struct df_check_opts *opts,
		 struct df_check_cut *cut);

/*
 * Reduces a ring to what an analysis needs (unfinished operations, calls in progress, streams, tables),
 * as an image for df_check_add_image, to be sent to another process. malloc'ed; -errno.
 */
int df_trace_compact(const struct df_trace_header *ring, void **image, size_t *bytes);

/*
 * The last word of a process that exits, for the others to judge by when its trace is gone: how many operations of each
 * signature and with each peer it has finished on its communicators, the latest 512 of these. malloc'ed; -errno.
 */
struct df_left_row {
	uint64_t key, next;
};
int df_trace_left(const struct df_trace_header *ring, struct df_left_row **rows, size_t *nr);
/* The last word of one of the set's processes whose trace is not there. 0 or -ENOMEM. */
int df_check_add_left(struct df_check_set *set, const struct df_left_row *rows, size_t nr);

/*
 * What df_trace_compact() gives, for who looks again and again: each step costs what the ring has got since the last, and
 * the image lacks what only people need (call sites, texts). Zeroed at first; image, bytes and next (how many
 * records it knows of) are the caller's to read. -EAGAIN: a record is just being written, nothing changed.
 */
struct df_compact {
	void *image;
	size_t bytes;
	uint64_t next;
};
int df_trace_compact_step(struct df_compact *c, const struct df_trace_header *ring);
void df_trace_compact_fini(struct df_compact *c);

#endif
