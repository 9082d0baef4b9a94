/*
 * Ends everything that is stuck, on all ranks and in every process, by one decision. A process that
 * has reported the verdict, or learned that another process has, decides and sends a DF_MSG_END;
 * the others obey. With DFSHIM_TIMEOUT_ACTION=abort the communicators end, with exit the processes
 * do. All of it belongs to the watchdog's thread, unless a function says otherwise.
 */
#ifndef DF_RUNTIME_WATCH_ENDING_H
#define DF_RUNTIME_WATCH_ENDING_H

#include <stddef.h>
#include <stdint.h>

#define DF_ENDING_LINE 512

/* the contents of a DF_MSG_END */
struct df_ending {
	uint64_t nr;
	uint64_t status; /* the verdict's exit status */
	/*
	 * whether processes exit with the status; if communicators are to end instead, the
	 * processes only must not exit with 0
	 */
	uint64_t at_once;
	char line[DF_ENDING_LINE]; /* the verdict's first line; ends with 0 */
	uint64_t names[]; /* hashes of communicators; none if only threads hang, in calls */
};

/*
 * Ends every communicator with unfinished operations, on all its ranks, and those that are still
 * being joined; but not communicators that the application starts to join after `seen`, when its
 * first call has returned. Ranks with nothing unfinished are included: one would otherwise
 * continue, when its other wait ends, with peers that have ended. With DFSHIM_TIMEOUT_ACTION=exit
 * the processes exit instead, with this status. line: of the verdict.
 */
void df_ending_decide(uint64_t seen, int status, const char *line);

/*
 * Call when ranks of this communicator have issued operations that never match. The processes of
 * all its ranks exit with the verdict's status. With DFSHIM_TIMEOUT_ACTION=abort the communicator
 * ends instead, and the processes do not exit with 0. line: as above.
 */
void df_ending_mismatch(uint64_t name, const char *line);

/* Reads a message of another process. Returns NULL if its lengths are wrong. */
const struct df_ending *df_ending_read(const void *data, size_t bytes);
/* Ends the named communicators that are here and have not ended, or exits. */
void df_ending_obey(const struct df_ending *e);

/* Notes the time at which `nr` communicators have ended because of a report. */
void df_ending_done(int nr);
/*
 * Whether a hang that has lasted since then follows from communicators that ended here because of a
 * report: it began within the time-out, and the program has made no communicator meanwhile.
 */
int df_ending_explains(uint64_t since);

/*
 * Called on the control thread when a DF_MSG_END has arrived. The deaths that follow are its
 * consequence.
 */
void df_ending_arrived(const void *data, size_t bytes);
/* Whether this process is about to exit because of a DF_MSG_END. Any thread. */
int df_ending_exits(void);

#endif
