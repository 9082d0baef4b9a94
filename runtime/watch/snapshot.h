/*
 * What the processes of a job tell each other about what is unfinished: for the verdict on a hang, and for the
 * proof that a wait has to be released (docs/release.md). Everything here belongs to the watchdog's thread,
 * but df_snapshot_message(), which takes messages on the control thread.
 *
 * A process that proves something *holds* those that it asks: they answer no other proof until it has told what it
 * came to, so that no two processes release the same circle. A hold ends by itself after a while.
 */
#ifndef DF_RUNTIME_WATCH_SNAPSHOT_H
#define DF_RUNTIME_WATCH_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>
#include "runtime/base/list.h"

#define DF_GATHER_NS (2 * DF_NS_PER_S) /* how long the others have to answer */

enum df_ask {
	DF_ASK_LOOK,  /* everything, for people */
	DF_ASK_PROOF, /* what a proof needs; holds the process */
	DF_ASK_AGAIN, /* the same once more; no image if nothing has been recorded since */
};

/* What one process says. */
struct df_snapshot {
	struct df_list node;
	uint64_t proc;
	int busy;  /* held by another */
	int same;  /* as the last time: no image */
	int fresh; /* of the last round; 0: has not answered */
	int lent;  /* the image is somebody else's */
	uint32_t
		stalled_ms; /* for so long it has had something unfinished, nothing has moved, and no verdict was told */
	void *image;
	size_t bytes;
	uint64_t *waits; /* serials of calls that may be released there now */
	uint32_t nr_waits;
	struct df_check_host *hosts; /* if they were asked for and are known */
	uint32_t nr_hosts;
};

/* A collection of them. Zeroed at first but for the list. */
struct df_snapshots {
	uint64_t epoch;
	struct df_list answers; /* struct df_snapshot, one a process; this one's first */
	unsigned nr_procs;	/* that were asked, this one included */
	int busy;		/* somebody is held by another */
	int all_same;		/* of the last round */
	int hosts;		/* set by the caller: ask also where host threads are */
};

/*
 * Asks all processes that can be part of one circle with this one: those that share a communicator with it, those that
 * share one with them, and so on. Returns when all have answered or DF_GATHER_NS are over; who has not is left
 * out. Other processes' questions are answered meanwhile. The second and later rounds ask the same processes.
 */
int df_snapshot_gather(struct df_snapshots *g, enum df_ask what);
/* Ends the holds that gathering took, and frees. */
void df_snapshot_done(struct df_snapshots *g);

/* Who is to look for circles: of the processes tied to this one, as far as it knows, the one with the smallest name. */
uint64_t df_tied_leader(void);

/* Answers what has come in; takes note of suspicions and releases. */
void df_snapshot_serve(void);
/* Whether another process suspects something since the last call. */
int df_snapshot_suspected(void);
void df_snapshot_suspect(uint64_t proc);
/* Releases waits of another process, as far as that process still is what was judged. likely: they are not proved. */
void df_snapshot_release(const struct df_snapshots *g, uint64_t proc, const uint64_t *calls,
			 uint32_t nr, int likely, const char *line);

/*
 * What this process leaves to the others when it exits: how far it has come (df_trace_left()). To be freed; NULL: nothing. Any
 * thread; before the trace is closed.
 */
void *df_snapshot_words(size_t *bytes);

/* The living processes that share a communicator with this one; to be freed. */
uint64_t *df_tied_processes(uint32_t *nr);
/* All processes tied to this one hear that the verdict on what stands still is told. */
void df_tied_tell(void);

/* watchdog.c: another process has told a verdict. end: NULL, or the DF_MSG_END by which it ends what is stuck. */
void df_watchdog_told(const void *end, size_t bytes);
/* watchdog.c: see struct df_snapshot. */
uint32_t df_watchdog_stalled_ms(void);

/* A number that changes when somebody should look. */
uint32_t df_snapshot_seen(void);
void df_snapshot_wait(uint32_t seen, int64_t timeout_ns);

/* What a look has found. */
struct df_proof_found {
	size_t nr; /* waits that were released */
	uint64_t
		mismatch; /* commHash: ranks of it have issued operations that never meet; 0 none */
	int settled;	  /* operations wait for one another: proved, and not found before */
	uint64_t
		again; /* when a cycle that is likely will have been the same for long enough; UINT64_MAX: none is */
};

/*
 * proof.c: looks for cycles and releases the waits that have to be. hosts: also where threads wait outside all calls, if
 * that matters. 0, or -EAGAIN: something moved, or another process is looking; or -errno.
 */
int df_prove_and_release(int hosts, struct df_proof_found *out);

#endif
