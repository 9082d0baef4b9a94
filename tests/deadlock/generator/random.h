/*
 * Random programs (random.c). random_make.c makes them, random_run.c executes them, and
 * random_judge.c derives from the model how each must end. Not thread-safe.
 */
#ifndef DEADLOCK_RANDOM_H
#define DEADLOCK_RANDOM_H

#include "causes.h"
#include "drive.h"
#include <sys/types.h>

#define FINISH_MS  60000
#define HANG_MS	   40	/* time-out of programs that should hang; df_test_slow() multiplies it */
#define SILENT_MS  300	/* the same if only threads wait for threads, so that no verdict follows */
#define PATIENT_MS 3000 /* the same for repetitions */
#define NR_BATCH   32
#define AT_RANKS   4
#define AT_THREADS 2

struct outcome {
	/* silent: all threads wait for one another, with nothing in flight that dfshim reports */
	int ran, done, wrong, silent, at_known;
	/* the process ended with this program, so the later ones of the batch were not tried */
	int last;
	enum df_verdict word;	   /* DF_V_OK and an empty `line` if there was no verdict */
	char text[300], line[800]; /* text: the client's reason; line: the verdict's first line */
	char remedy[400];	   /* remedy of a verdict with a single cause; else "" */
	/* the step of each thread when the program was broken off; valid if `at_known` is set */
	int at[AT_RANKS][AT_THREADS];
};

struct batch {
	struct script *s[NR_BATCH];
	struct outcome *out[NR_BATCH];
	int nr, nccl, slots, queues, ms;
	/*
	 * The client ends a program whose threads wait for one another after this time. 0 means
	 * never.
	 */
	int silent_ms;
	pid_t pid;
	char file[500], log[520];
};

#define NR_SCHEDULES  64   /* by which a program is labelled if its end depends on timing */
#define ALL_SCHEDULES 4096 /* tried before an end that no schedule reached is called wrong */
/* in a set of verdicts: no verdict is expected, because only threads wait for one another */
#define SILENT (1ULL << 62)

enum want { W_DONE, W_HUNG, W_EITHER };

/* The step of each thread when nothing can move any more. */
struct end {
	int at[AT_RANKS][AT_THREADS];
};

struct expect {
	enum want want;
	uint64_t words;		       /* set of verdicts that are right if the program hangs */
	int nr_ends, is_open;	       /* is_open: `ends` may be incomplete */
	struct end ends[NR_SCHEDULES]; /* the ends that the model found */
};

struct label {
	char cls[4];	     /* class of the program by NCCL's matching */
	struct expect by[2]; /* [1] by NCCL's rules, [0] by dfshim's */
};

extern const char *release_policy;

void generate(struct script *s, uint64_t seed);

/*
 * Starts the client on a batch of programs. Sets the variables in the environment of this process,
 * which loads nothing of dfshim.
 */
void batch_start(struct batch *b);

/* Reads the results of a batch whose process ended with `status`. */
void batch_end(struct batch *b, int status);

void label(const struct script *s, struct label *l, int schedules);

const char *words_of(uint64_t set);

/*
 * Whether all threads stopped at an end that the model found. With `between` other ends count too:
 * any end if timing decides the order, because the model may not have tried it; and by dfshim's
 * rules any end between the one without releases and the one with all releases, because only some
 * waits may have been released.
 */
int stands_at_an_end(const struct script *s, const struct expect *e, const struct outcome *o,
		     int between);

/* Returns the first thing that is wrong with an outcome, or NULL. */
const char *judge(const struct script *s, const struct label *l, int nccl, const struct outcome *o);

/*
 * As judge(). If a program whose end depends on timing seems wrong, labels it again by
 * ALL_SCHEDULES schedules before it decides.
 */
const char *judge_at_length(const struct script *s, struct label *l, int nccl,
			    const struct outcome *o);

/*
 * Removes steps (groups as a whole) while the program still fails in the same way. Stores the
 * result in `s` and the reason in `why`.
 */
void minimise(struct script *s, int nccl, char *why, size_t len);

#endif
