/*
 * Writes the trace, inside the application: always on, lock-free, a few tens of nanoseconds for a
 * record. df_trace_open() maps the ring: a file under DFSHIM_TRACE, or anonymous memory. df_trace()
 * appends. Before df_trace_open() and after df_trace_close(), records are discarded.
 *
 * Any thread may call all functions at any time. df_trace() may be called in any context, even with
 * locks held. It never blocks. It neither allocates nor makes a system call, except at a thread's
 * first record (the thread's id is cached; the clock is the vDSO's).
 */
#ifndef DF_TRACE_RECORD_WRITER_H
#define DF_TRACE_RECORD_WRITER_H

#include <stdint.h>
#include <stddef.h>
#include "trace/record/format.h"

struct df_trace_config {
	const char *dir; /* a pattern for df_env_expand(); NULL if the ring is in memory only */
	long mb;
	int rank, world; /* rank in the job (-1 if unknown) and size of the job (0 if unknown) */
	uint64_t host;	 /* number of the node, as in COMM_MEMBER and PEER_DEAD */
	uint32_t rules, mode, executor, slots, queues, sms;
};

/*
 * Records two clocks, read at the same time. The last such record of each trace aligns the traces
 * of nodes, whose clocks drift.
 */
void df_trace_clocks(void);

/*
 * Maps and starts the ring. Returns 0 or -errno. After a failure records are discarded and the job
 * continues.
 */
int df_trace_open(const struct df_trace_config *config);
/* Marks in the file that the process has exited normally. Called by the library's destructor. */
void df_trace_close(void);

/* Records the calling thread's name, if it has recorded nothing yet. */
void df_trace_enter(void);
/*
 * Appends a record. `comm` is from df_trace_comm(), or 0 for none. `rank` and `device` are -1 for
 * none.
 */
void df_trace(enum df_rec_type type, int device, uint32_t comm, int rank, uint64_t op, uint64_t a,
	      uint64_t b, uint64_t c, uint32_t site);

/* An issued operation. */
struct df_trace_op {
	uint64_t op, count, stream;
	const void *send, *recv;
	uint32_t comm, group, site;
	uint32_t program; /* number of the program's name (df_trace_text()); 0 if there is none */
	int device, rank;
	int32_t peer; /* root or peer; -1 if there is none */
	uint8_t kind, type, redop, flags, proto;
	/* whether dfshim matched the operation; if so, the next three fields are set */
	uint8_t matched;
	uint64_t sig, inst, index;
	/* an operation that it waits for because their buffers overlap; 0 if there is none */
	uint64_t after;
};

/* Appends the operation, in two slots at once, and counts it in its communicator. */
void df_trace_op(const struct df_trace_op *op);

/*
 * Between these two calls all records of the calling thread get the same time. For actions with
 * several records: reading the clock costs as much as appending. Does not nest.
 */
void df_trace_hold_time(void);
void df_trace_let_time(void);
/*
 * Returns the time that a record of the calling thread would have now, in nanoseconds of the
 * monotonic clock. Any thread.
 */
uint64_t df_trace_time(void);

/*
 * Adds a communicator of this process to the table. Returns its number for df_trace(), or 0 if the
 * table is full.
 */
uint32_t df_trace_comm(uint64_t hash, int nranks, int rank, int device, uint64_t parent,
		       const char *name);
/*
 * Counts a finished operation of the communicator, as df_trace_op() counts issued ones. These
 * counts are exact.
 */
void df_trace_comm_done(uint32_t comm);

/* Counts of one kind of operation on a communicator. They are exact. */
struct df_trace_count {
	const char *name; /* the communicator's name, cut to the table's size; "" if it has none */
	uint64_t issued, bytes;
	uint64_t done; /* finished operations, of all kinds */
};
/* Stores the counts for `kind` (enum df_kind). Returns 0 if there is no such communicator. */
int df_trace_comm_count(uint32_t comm, uint32_t kind, struct df_trace_count *out);

/*
 * Lists threads of the application that have recorded something and have not been reported as
 * ended.
 */
size_t df_trace_threads(uint32_t *tids, size_t max);
void df_trace_thread_gone(uint32_t tid);
/*
 * Whether df_trace_threads() can list this thread and the kernel, when the thread ends, clears the
 * word at this address and wakes the threads that wait there (pthread_join()).
 */
int df_trace_thread_ends_at(uint32_t tid, uint64_t word);

/*
 * Returns a serial that is unique in the process, from 1 on. It is used for calls, operations, work
 * and event records.
 */
uint64_t df_trace_serial(void);

/*
 * Adds a string to the table (for MARK records and programs). Returns its number, or 0 if the table
 * is full or not open.
 */
uint32_t df_trace_text(const char *text);

/* Records that this process has printed a verdict (enum df_verdict), whose first line is `line`. */
void df_trace_told(uint32_t verdict, const char *line);

/*
 * Returns the ring of this process, header first, for the live checker. Returns NULL if it is not
 * open.
 */
const struct df_trace_header *df_trace_ring(void);
uint64_t df_trace_ring_bytes(void);

/* Identifies this boot of the machine; 0: not known. */
uint64_t df_trace_boot_hash(void);

/* Returns the path of the file, or "" if the ring is in memory. */
const char *df_trace_path(void);

#endif
