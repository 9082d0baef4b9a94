/*
 * Starts the plain client (script.c) on a file of scripts, in a process of its own with dfshim
 * preloaded, on the CPU backend. Only here does a set of rules become libraries and variables. Not
 * thread-safe.
 */
#ifndef DEADLOCK_DRIVE_H
#define DEADLOCK_DRIVE_H

#include <sys/types.h>

struct drive {
	int by_nccl; /* NCCL's rules instead of dfshim's */
	int devices, slots, queues;
	long timeout_ms; /* DFSHIM_TIMEOUT_MS */
	/* after the verdict the job goes on; otherwise dfshim ends what is stuck */
	int goes_on;
	int trace_mb;	     /* DFSHIM_TRACE_MB */
	const char *trace;   /* DFSHIM_TRACE, or NULL */
	const char *release; /* DFSHIM_RELEASE; NULL keeps the default */
	/* options of the client, in seconds; no --still if `still` is 0 */
	double timeout, still;
	const char *script, *log; /* paths */
};

/* The build folder, and the folder for temporary files. */
extern char build[400], scratch[400];

/* Sets `build` and `scratch` from $B and $T. */
void drive_init(void);

/* Starts the client and returns its process id. Exits with status 2 if this fails. */
pid_t drive_start(const struct drive *d);

/* Returns seconds of a monotonic clock. */
double now(void);

#endif
