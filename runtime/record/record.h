/*
 * The inside of recording what NCCL executes (mode trace): record.c knows streams and operations, record_start.c how it begins,
 * record_graph.c what graphs hold of them, record_watch.c is the thread that sees them end and explains it when nothing does. Private to runtime/; interpose/ uses
 * dfshim.h.
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

/* Puts the recording hooks behind this backend, whose streams share so many hardware queues (0: not known). */
void df_record_behind(const struct df_backend *cu, int queues);

/* An operation is put on the stream; NULL: the stream can't be known. */
struct rstream *df_record_put_on(const struct df_stream_info *info);
/* Writes it down as issued. stream: as the records name it. */
void df_record_note(const struct df_record_call *c, uint64_t stream, uint64_t group, int seen,
		    struct df_record_op *op);

/* record_graph.c: becomes part of what the stream captures. */
void df_record_capture(const struct df_record_call *c, const struct df_stream_info *info);
/* Around the launch of a graph; what it holds is issued in between. */
void df_record_graph_begin(const struct df_stream_info *info);
void df_record_graph_end(const struct df_stream_info *info, int launched);

/* Looks which operations have begun and ended. Returns how many have changed; *open: how many are left. */
unsigned df_record_poll(unsigned *open);

/* Counts up with every call, operation and end in this process. */
uint64_t df_record_progress(void);

/* An operation was put on a stream: it is time to look. */
void df_record_wake(void);

/* 0, or -errno: there will be no ends and no verdict. nccl: as of df_record_start(). */
int df_record_watch_start(const struct df_record_nccl *nccl);

#endif
