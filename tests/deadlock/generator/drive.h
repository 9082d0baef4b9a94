/*
 * Execution of scripts: the plain client (script.c) under the preload on CPU memory, in a process
 * of its own. The one place of these tests where a set of rules becomes libraries and variables.
 * One thread.
 */
#ifndef DEADLOCK_DRIVE_H
#define DEADLOCK_DRIVE_H

#include <sys/types.h>

struct drive {
	int by_nccl; /* NCCL's rules, not ours */
	int devices, slots, queues;
	long timeout_ms;	  /* without progress, until the verdict */
	int goes_on;		  /* after the verdict; else it ends what is stuck */
	int trace_mb;		  /* of a ring */
	const char *trace;	  /* folder, or NULL */
	const char *release;	  /* NULL: as it is by itself */
	double timeout, still;	  /* s: options of the client; still 0: none */
	const char *script, *log; /* files */
};

/* Where the build is, and where files may be made. */
extern char build[400], scratch[400];

/* From $B and $T. */
void drive_init(void);

/* Starts the client. Does not return without one. */
pid_t drive_start(const struct drive *d);

/* s, of a clock that only goes forward */
double now(void);

#endif
