/*
 * Recording what NCCL executes (mode trace). record.c: streams and operations. record_start.c: the
 * start. record_graph.c: operations in CUDA graphs. record_watch.c: the thread that notices the
 * ends of operations, and explains why nothing ends. Private to runtime/; interpose/ uses dfshim.h.
 */
#ifndef DF_RUNTIME_RECORD_RECORD_H
#define DF_RUNTIME_RECORD_RECORD_H

#include <stddef.h>
#include <stdint.h>

struct df_backend;
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
 * Traces which operations have started and ended. Returns the number of changes; *left: operations
 * still open.
 */
unsigned df_record_poll(unsigned *open);

/* Increases with every call, start and end of an operation in this process. */
uint64_t df_record_progress(void);

/* An operation was put on a stream: wakes the watching thread. */
void df_record_wake(void);

/*
 * Starts the watching thread. Returns 0 or -errno: then ends are not recorded and hangs not
 * explained. nccl: as for df_record_start().
 */
int df_record_watch_start(const struct df_record_nccl *nccl);

#endif
