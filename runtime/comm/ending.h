/*
 * The one decision by which what is stuck ends on all ranks, in every process: a process that has told the verdict, or heard
 * that it is told, takes it and sends it as a DF_MSG_END; the others obey. With DFSHIM_TIMEOUT_ACTION=abort communicators end,
 * with exit the processes. All of it belongs to the watchdog's thread, unless a function says otherwise.
 */
#ifndef DF_RUNTIME_COMM_ENDING_H
#define DF_RUNTIME_COMM_ENDING_H

#include <stddef.h>
#include <stdint.h>

/* A DF_MSG_END. */
struct df_ending {
	uint64_t nr;
	uint64_t status;  /* the verdict's, with which processes exit */
	uint64_t at_once; /* they do so unless communicators are to end, and then never with 0 */
	uint64_t names[]; /* of communicators; none where only hosts hang, in calls */
};

/*
 * Ends every communicator with something unfinished, all its ranks, and those that are still being joined; but not what
 * the application begins as soon as its first call returns, after `seen`. A rank that has nothing unfinished would go
 * on, when its other wait ends, with peers that have gone. Or exits, with this status.
 */
void df_ending_decide(uint64_t seen, int status);

/*
 * Ranks of this communicator have issued operations that never meet. The processes of all its ranks exit with the
 * verdict's status; with DFSHIM_TIMEOUT_ACTION=abort the communicator ends instead, and they do not exit with 0.
 */
void df_ending_mismatch(uint64_t name);

/* What came from another process; NULL: its lengths make no sense. */
const struct df_ending *df_ending_read(const void *data, size_t bytes);
/* Ends the communicators it names, as far as they are here and not over. Or exits. */
void df_ending_obey(const struct df_ending *e);

/* A DF_MSG_END has arrived, on the control thread: the deaths that follow are its consequence. */
void df_ending_arrived(const void *data, size_t bytes);
/* This process is about to exit because of one. Any thread. */
int df_ending_exits(void);

#endif
