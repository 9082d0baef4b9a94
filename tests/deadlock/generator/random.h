/*
 * Random programs (random.c): made by random_make.c, executed by random_run.c, and how each has to
 * end by the model, which random_judge.c says. One thread.
 */
#ifndef DEADLOCK_RANDOM_H
#define DEADLOCK_RANDOM_H

#include "causes.h"
#include "drive.h"
#include <sys/types.h>

#define FINISH_MS 60000
#define HANG_MS	  40 /* without progress, times df_test_slow() */
#define SILENT_MS                                                                                  \
	300 /* the same where only threads wait for threads, for verdicts without a cause */
#define PATIENT_MS 3000 /* the same, for a second look at what was looked at too soon */
#define NR_BATCH   32
#define AT_RANKS   4
#define AT_THREADS 2

struct outcome {
	int ran, done, wrong, silent,
		at_known; /* silent: nothing is in flight that could be reported */
	int last; /* the process ended with it: those that were to follow have not been tried */
	enum df_verdict word;	   /* DF_V_OK and no line: none was given */
	char text[300], line[800]; /* the verdict's first line */
	char remedy[400];	   /* of the only cause that it names; else "" */
	int at[AT_RANKS]
	      /* of a program that was broken off: the step at which each thread stood */
	      [AT_THREADS];
};

struct batch {
	struct script *s[NR_BATCH];
	struct outcome *out[NR_BATCH];
	int nr, nccl, slots, queues, ms;
	/*
	 * after that the client ends a program by itself whose threads wait for one another; 0:
	 * never
	 */
	int silent_ms;
	pid_t pid;
	char file[500], log[520];
};

#define NR_SCHEDULES  64   /* that a program is labelled by where its end is a matter of time */
#define ALL_SCHEDULES 4096 /* before one that ended as none of those is called wrong */
#define SILENT	      (1ULL << 62) /* no verdict: only threads wait for one another */

enum want { W_DONE, W_HUNG, W_EITHER };

/* Where the threads stand when nothing moves any more. */
struct end {
	int at[AT_RANKS][AT_THREADS];
};

struct expect {
	enum want want;
	uint64_t words;		       /* set of verdicts, of which each is right if it hangs */
	int nr_ends, is_open;	       /* there may be more ends */
	struct end ends[NR_SCHEDULES]; /* those that the model has found */
};

struct label {
	char cls[4];	     /* by NCCL's matching */
	struct expect by[2]; /* [1] by NCCL's rules, [0] by ours */
};

extern const char *release_policy;

void generate(struct script *s, uint64_t seed);

/*
 * Starts the client on a batch of programs. The environment is this process's: nothing of ours runs
 * in it.
 */
void batch_start(struct batch *b);

/* The process has ended. */
void batch_end(struct batch *b, int status);

void label(const struct script *s, struct label *l, int schedules);

const char *words_of(uint64_t set);

/*
 * All threads stand where the model says that nothing can move. between: where it is a matter of
 * time who gets room the model may not have met this end; and by our rules some waits can have been
 * released and others not, so that the end lies between that without any release and that with all.
 */
int stands_at_an_end(const struct script *s, const struct expect *e, const struct outcome *o,
		     int between);

/* NULL: as it should be. */
const char *judge(const struct script *s, const struct label *l, int nccl, const struct outcome *o);

/* The same; where the end is a matter of time, by many more schedules before it is called wrong. */
const char *judge_at_length(const struct script *s, struct label *l, int nccl,
			    const struct outcome *o);

/* Takes away steps (a group as a whole) for as long as the program is still judged wrong. */
void minimise(struct script *s, int nccl, char *why, size_t len);

#endif
