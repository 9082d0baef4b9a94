/*
 * Recording what NCCL executes (mode trace). record.c: streams and operations. launches.c: other
 * work on streams, by name. record_start.c: the start. record_graph.c: operations in CUDA graphs.
 * record_watch.c: the thread that notices the ends of operations, and explains why nothing ends.
 * Private to runtime/; interpose/ uses dfshim.h.
 */
#ifndef DF_RUNTIME_RECORD_RECORD_H
#define DF_RUNTIME_RECORD_RECORD_H

#include <stddef.h>
#include <stdint.h>

struct df_backend;
struct df_check_set;
struct df_record_call;
struct df_record_nccl;
struct df_record_op;
struct df_stream_info;
struct rstream;

/*
 * Installs the recording hooks in this backend. queues: number of hardware queues that its streams
 * share (0: not known).
 */
void df_record_behind(const struct df_backend *cu, int queues);

/*
 * An operation is being put on the stream. Returns the stream, or NULL if it cannot be remembered.
 */
struct rstream *df_record_put_on(const struct df_stream_info *info);
/*
 * Traces the operation as issued. stream: its id in the trace. seen: whether its end will be
 * noticed.
 */
void df_record_note(const struct df_record_call *c, uint64_t stream, uint64_t group, int seen,
		    struct df_record_op *op);

/* record_graph.c: the operation becomes part of the graph that the stream is capturing. */
void df_record_capture(const struct df_record_call *c, const struct df_stream_info *info);
/* Before and after the launch of a graph. The graph's operations are issued in between. */
void df_record_graph_begin(const struct df_stream_info *info);
void df_record_graph_end(const struct df_stream_info *info, int launched);

/*
 * Traces which operations have started and ended. Returns the number of changes. Sets *open to the
 * number of operations that have not ended.
 */
unsigned df_record_poll(unsigned *open);

/*
 * At a standstill: records the work that may be what streams wait for, by name (LAUNCH). Only for
 * the watching thread.
 */
void df_record_launches(void);

/*
 * At a standstill without an operation: if a thread waits for the device, warns with the names of
 * the kernels there. It is no verdict, because a long computation looks the same.
 */
void df_record_waits(uint64_t ms);

/*
 * Serial of the operation that has been unfinished longest; 0: none. If it stays the same while the
 * process makes progress, a part of the process may be stuck.
 */
uint64_t df_record_first(void);

/* Increases with every call, start and end of an operation in this process. */
uint64_t df_record_progress(void);

/* Whether the watching thread has to close the trace. For that thread. */
int df_record_stopping(void);

/* An operation was put on a stream: wakes the watching thread. */
void df_record_wake(void);

/* ---- the other processes (record_peers.c) ---- */

/* Whether the control plane has started here. */
int df_record_plane(void);
/* Whether this process is connected to others: all ranks of some communicator have joined. */
int df_record_peers(void);
/*
 * Whether this process, among those of its machine, prints what a process on `host` has reported:
 * one does, and none on that machine itself.
 */
int df_record_speaks_here(uint64_t host);
/* Adds the ranks of a process that has not answered (df_look_add_silent()). */
void df_record_add_silent(struct df_check_set *set, uint64_t proc, int certain);
/*
 * Writes the report INIT if a communicator that NCCL makes waits for ranks that have not joined.
 * Returns its length; 0: there is none.
 */
int df_record_missing(char *text, size_t size);
/* The process exits normally: informs the others (df_ctl_goodbye()). */
void df_record_goodbye(const void *words, size_t bytes, uint64_t until);

/* ---- the verdict of all (record_live.c); for the watching thread, unless said otherwise ---- */

/* Before messages can arrive. Any thread. */
void df_record_live(void);
/*
 * Answers the other processes, and judges if this process leads and a hang is suspected.
 * unfinished: whether anything is, here; quiet: ns since the last progress.
 */
void df_record_serve(int unfinished, uint64_t quiet);
/*
 * This process has something unfinished, and has made no progress for `ms`, or a part of it for
 * DF_PART_PATIENCE times the time-out.
 */
void df_record_suspect(uint64_t ms);
/*
 * Whether a verdict on this standstill is known; any thread. Then df_record_verdict() returns its
 * first line.
 */
int df_record_told(void);
const char *df_record_verdict(unsigned *verdict);
/* A process has died or left. Any thread. */
void df_record_lost(void);

/*
 * Starts the watching thread. Returns 0 or -errno: then ends are not recorded and hangs not
 * explained. nccl: as for df_record_start().
 */
int df_record_watch_start(const struct df_record_nccl *nccl);

#endif
