/*
 * The exchange between processes of what is unfinished in each of them: for the verdict on a hang,
 * and for the proof that a wait has to be released (docs/release.md). Everything here belongs to
 * the watchdog's thread, except df_snapshot_message(), which accepts messages on the control
 * thread.
 *
 * A question is confirmed on the control thread, which needs little processor time. So a process
 * that gets little of it differs from one that is stopped: a report waits for its answer.
 *
 * A process that attempts a proof *holds* the processes that it asks: they answer no other proof
 * until it has sent its result. So no two processes release waits of the same cycle. A hold expires
 * after a while.
 */
#ifndef DF_RUNTIME_WATCH_SNAPSHOT_H
#define DF_RUNTIME_WATCH_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>
#include "runtime/base/list.h"

/*
 * How long other processes have to answer. For a report, this is measured in this thread's own
 * time, without the time in which it got no processor.
 */
#define DF_GATHER_NS (2 * DF_NS_PER_S)
/*
 * For a report: how long to wait for the next answer while processes that have confirmed the
 * question have not answered.
 */
#define DF_SLOW_NS (5 * DF_NS_PER_S)

enum df_ask {
	DF_ASK_STALLED, /* only the time without progress; the control thread answers */
	DF_ASK_LOOK,	/* everything, for a report */
	DF_ASK_PROOF,	/* the input of a proof; holds the process */
	/* the input of a proof again; without an image if nothing was recorded since */
	DF_ASK_AGAIN,
};

/*
 * The thread that owns this state: the watchdog's, or in mode trace the thread that replaces it.
 * Set before any message arrives.
 */
struct df_snapshot_owner {
	uint64_t (*progress)(void);   /* a number that changes when operations begin or end */
	uint32_t (*stalled_ms)(void); /* the value for struct df_snapshot; for any thread */
	/* Called when another process has reported the hang: DF_MSG_TOLD or DF_MSG_END. */
	void (*told)(uint32_t kind, const void *data, size_t bytes);
	void (*wake)(void); /* wakes the thread where it does not wait here; may be NULL */
	/*
	 * Called while answers are awaited: does the thread's other work. Returns 1 to wait no
	 * longer.
	 */
	int (*meanwhile)(void);
};
void df_snapshot_owned_by(const struct df_snapshot_owner *owner);

/* The answer of one process. */
struct df_snapshot {
	struct df_list node;
	uint64_t proc;
	int busy;	     /* whether another process holds it */
	int same;	     /* nothing was recorded since the last answer, so there is no image */
	int fresh;	     /* whether it has answered in the last round */
	int heard;	     /* whether it has confirmed the last question */
	int lent;	     /* whether the image belongs to another owner */
	uint64_t progress;   /* progress() of that process when it answered */
	uint32_t stalled_ms; /* how long it has had unfinished work without progress or verdict */
	void *image;
	size_t bytes;
	uint64_t *waits; /* serials of calls whose waits may be released there now */
	uint32_t nr_waits;
	struct df_check_host *hosts; /* if requested and known */
	uint32_t nr_hosts;
};

/* A collection of answers. The caller zeroes it and initializes the list. */
struct df_snapshots {
	uint64_t epoch;
	struct df_list answers; /* struct df_snapshot, one per process; this process first */
	unsigned nr_procs;	/* number of processes that were asked, this one included */
	unsigned nr_fresh;	/* number of processes that have answered in the last round */
	int busy;		/* another process holds one of them */
	int all_same;		/* whether all answers of the last round have `same` */
	int hosts;		/* set by the caller: also ask where threads are */
	uint64_t news;		/* when a process was asked, confirmed or answered last */
};

/*
 * Asks all processes that can be part of one cycle with this one: those that share a communicator
 * with it, those that share one with them, and so on. Returns when all have answered, or after
 * DF_GATHER_NS without a new process, for a report after DF_SLOW_NS without news of those that have
 * confirmed; processes that have not answered are left out. Answers the questions of other
 * processes meanwhile. Later rounds ask the same processes. Returns 0 or -errno.
 */
int df_snapshot_gather(struct df_snapshots *g, enum df_ask what);
/*
 * Whether a living process has not even confirmed the question. *certain: and not because another
 * one does not pass it on: the process is a neighbour, or no silent process is one.
 */
int df_snapshot_is_silent(const struct df_snapshots *g, const struct df_snapshot *s, int *certain);
/*
 * Whether the report is the task of another process: one with a lower id that is known to be tied
 * to this one and has stood still for `ms`. The question costs no image, so that not every process
 * collects the images of all.
 */
int df_snapshot_defers(uint32_t ms);
/* Releases the hold on this process, and frees the answers. */
void df_snapshot_done(struct df_snapshots *g);

/*
 * Handles the messages that have arrived: answers questions, notes suspicions, executes releases.
 */
void df_snapshot_serve(void);
/*
 * Returns whether another process has suspected a hang since the last call: the longest standstill
 * that one of them has seen, in ms, plus 1; else 0.
 */
uint64_t df_snapshot_suspected(void);
void df_snapshot_suspect(uint64_t proc, uint32_t ms);
/* Lets another process do what df_watchdog_mismatch() does here. */
void df_snapshot_suspect_mismatch(uint64_t proc, uint64_t comm);
/* Returns when this process last answered a question of another process, or 0 if it never did. */
uint64_t df_snapshot_answered(void);
/*
 * Releases waits of another process, if that process still is in the state that was judged, and
 * ends the hold on it. `likely`: the waits are not proved to be part of a deadlock.
 */
void df_snapshot_release(const struct df_snapshots *g, uint64_t proc, const uint64_t *calls,
			 uint32_t nr, int likely, const char *line);

/*
 * Returns the data that this process sends to the others when it exits: the progress of its
 * operations (df_trace_left()). The caller frees it. Returns NULL if there is none. Any thread may
 * call this before the trace is closed.
 */
void *df_snapshot_words(size_t *bytes);

/* Accepts a message of another process, on the control thread. */
void df_snapshot_message(uint64_t from, uint32_t kind, const void *data, size_t bytes);

/* Wakes the watchdog. */
void df_snapshot_wake(void);
/*
 * A counter that changes when the watchdog should look. df_snapshot_wait() sleeps while the counter
 * still is `seen`.
 */
uint32_t df_snapshot_seen(void);
void df_snapshot_wait(uint32_t seen, int64_t timeout_ns);

#endif
