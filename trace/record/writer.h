/*
 * The writing side of the trace, inside the application: always on, lock-free, a few tens of nanoseconds
 * a record. df_trace_open() maps the ring (a file under DFSHIM_TRACE, anonymous memory without);
 * df_trace() appends. Before df_trace_open() and after df_trace_close() a record goes nowhere.
 *
 * Thread-safety: all functions may be called by any thread at any time; df_trace() may be called in any
 * context, even with locks held: it never blocks, allocates or makes a system call (the thread's id is
 * cached; the clock is the vDSO's).
 */
#ifndef DF_TRACE_RECORD_WRITER_H
#define DF_TRACE_RECORD_WRITER_H

#include <stdint.h>
#include <stddef.h>
#include "trace/record/format.h"

struct df_trace_config {
	const char *dir; /* NULL: memory only */
	long mb;
	int rank, world; /* of the job; -1 and 0 unknown */
	uint64_t host;	 /* the node, by the same number as COMM_MEMBER and PEER_DEAD have it */
	uint32_t rules, mode, slots, queues;
};

/* A pair of clocks, taken together: the last one of each trace aligns the nodes, whose clocks drift. */
void df_trace_clocks(void);

/* Maps and starts the ring. 0 or -errno; on failure records go nowhere and the job goes on. */
int df_trace_open(const struct df_trace_config *config);
/* Marks the file as ended in order; for the library's destructor. */
void df_trace_close(void);

/* Appends one record. comm: from df_trace_comm(), 0 none. rank, device: -1 none. */
void df_trace(enum df_rec_type type, int device, uint32_t comm, int rank, uint64_t op, uint64_t a,
	      uint64_t b, uint64_t c, uint32_t site);

/* An operation as it is issued. */
struct df_trace_op {
	uint64_t op, count, stream;
	const void *send, *recv;
	uint32_t comm, group, site;
	uint32_t program; /* its name's number (df_trace_text()); 0 none */
	int device, rank;
	int32_t peer; /* root or peer; -1 none */
	uint8_t kind, type, redop, flags, proto;
	uint8_t matched; /* by our rules: the signature, its instance, the issue index in the communicator */
	uint64_t sig, inst, index;
	uint64_t after; /* an operation that it waits for because their buffers overlap; 0 none */
};

/* Appends it, in two slots at once, and counts it in its communicator. */
void df_trace_op(const struct df_trace_op *op);

/*
 * Between these two all records of the calling thread have one time: for the several records of one event,
 * because reading the clock costs as much as appending. Not nested.
 */
void df_trace_hold_time(void);
void df_trace_let_time(void);
/* The time that a record of the calling thread would have now, in nanoseconds of the monotonic clock. Any thread. */
uint64_t df_trace_time(void);

/* Enters a communicator of this process; returns its number for df_trace(), 0 if the table is full. */
uint32_t df_trace_comm(uint64_t hash, int nranks, int rank, int device, uint64_t parent,
		       const char *name);
/* Counts that stay exact: operations finished on it, as df_trace_op() counts those issued. */
void df_trace_comm_done(uint32_t comm);

/* Threads of the application that have recorded something and not been told gone. */
size_t df_trace_threads(uint32_t *tids, size_t max);
void df_trace_thread_gone(uint32_t tid);
/* It is one of them, and its end clears the word at this address and wakes who waits there (pthread_join()). */
int df_trace_thread_ends_at(uint32_t tid, uint64_t word);

/* A process-unique serial, from 1: for calls, operations, works, event records. */
uint64_t df_trace_serial(void);

/*
 * The hash of the caller's call site; with the first call of a site its stack is recorded too (SITE
 * records and module strings). pc: the return address of the hooked function.
 */
uint32_t df_trace_site(const void *pc);
/*
 * The same for a call into which a hook has been let from below, as all of CUDA's: the site is where the application, or
 * a library of it, called CUDA or NCCL. It may take the loader's lock, so none of ours is held. 0: not known.
 */
uint32_t df_trace_caller(void);
/*
 * The same of a stack that is known by its frames' texts, innermost first: a script's, say. 0: nowhere to put it. One
 * thread at a time, the one that notes where hosts are.
 */
uint32_t df_trace_site_text(const char *const *frames, size_t nr);

/* Enters a string (for MARK records, and programs); returns its number, 0 if the table is full or not open. */
uint32_t df_trace_text(const char *text);

/* This process has printed a verdict (enum df_verdict), whose first line is `line`. */
void df_trace_told(uint32_t verdict, const char *line);

/* The ring in this process, for the live checker: header in place; NULL when not open. */
const struct df_trace_header *df_trace_ring(void);
uint64_t df_trace_ring_bytes(void);

/* Where the file is; "" in memory. */
const char *df_trace_path(void);

#endif
