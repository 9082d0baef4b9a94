/*
 * One loaded trace: its operations, the calls of its threads, and the order of the work on streams.
 * All code that judges, draws or exports traces uses it.
 *
 * A load can be reused for the next trace (df_load_trace() empties it first), so loading many needs
 * only the memory of one. Belongs to one thread.
 */
#ifndef DF_TRACE_READ_LOAD_H
#define DF_TRACE_READ_LOAD_H

#include <stdint.h>
#include "runtime/base/map.h"
#include "trace/read/reader.h"

enum df_op_state { DF_OP_ISSUED, DF_OP_STARTED, DF_OP_FINISHED, DF_OP_ABORTED };

#define DF_NO_REC UINT64_MAX

struct df_lop {
	uint64_t serial, count, stream, send, recv;
	uint64_t sig, inst; /* signature and instance, from OP_MATCH */
	uint64_t cindex;    /* issue index in the communicator, from OP_MATCH or counted */
	/* collectives: number in the communicator; P2P: number with this peer and direction */
	uint64_t index;
	uint64_t issue_ns, start_ns, done_ns;
	uint64_t rec, rec_start, rec_slot; /* record indices; or DF_NO_REC */
	uint32_t comm;			   /* local number, from 1 */
	uint32_t thread, site, group;
	uint32_t program;   /* index of its name among the strings; 0: unknown */
	int32_t rank, peer; /* peer: root or peer; -1: none */
	int32_t device;
	uint8_t kind, type, redop, flags;
	uint8_t state; /* enum df_op_state */
	uint8_t slot;  /* whether it has a slot: 0 unknown, 1 waits for one, 2 has one */
	uint8_t has_match;
	uint8_t has_index; /* cindex is its index: NCCL executes it, and the trace was reduced */
	uint8_t sends; /* a RECV of a message to itself, recorded with its send as one operation */
};

struct df_range {
	uint64_t from, to;
};

static inline int df_range_overlap(struct df_range a, struct df_range b)
{
	return a.from < b.to && b.from < a.to;
}

/* The memory that an operation of a communicator of this size reads and writes on its own rank. */
void df_load_buffers(const struct df_lop *op, uint64_t nranks, struct df_range *reads,
		     struct df_range *writes);

/* Whether NCCL executes it without records of its begin and end. */
static inline int df_lop_blind(const struct df_lop *op)
{
	return (op->flags & (DF_OP_BY_NCCL | DF_OP_END_SEEN)) == DF_OP_BY_NCCL;
}

struct df_lcall {
	uint64_t serial, object, detail, rec, enter_ns, exit_ns;
	uint32_t call, thread, comm, site;
	int32_t device, rank;
	uint8_t open, released;
	uint8_t background; /* its thread does not wait in it */
};

enum df_item_type { DF_ITEM_OP, DF_ITEM_WORK, DF_ITEM_FENCE, DF_ITEM_RECORD, DF_ITEM_WAIT };

/* WORK: a bit in its kind: it waits only for work on the same bytes. */
#define DF_WORK_EXACT 0x100

struct df_litem {
	uint64_t rec, stream, time_ns;
	uint64_t a; /* OP: index of the operation; WORK: serial; FENCE: operation; else event */
	uint64_t b; /* WORK: kind; RECORD, WAIT: serial of the record */
	uint64_t from, bytes; /* WORK: the memory that a copy reads; bytes 0: unknown */
	uint32_t type;	      /* enum df_item_type */
	uint32_t thread;
	int32_t device;
};

struct df_lthread {
	uint32_t tid;
	uint32_t nr_issued;
	int32_t device; /* the last device that it used; -1: none */
	uint64_t last_ns, last_rec;
	uint64_t in_group; /* serial of its current ncclGroupEnd; 0: none */
	uint64_t at_rec;   /* record of its last HOST_AT; the thread's own records are older */
	uint32_t at;	   /* enum df_host_at */
	uint32_t at_lock;  /* enum df_lock, for DF_AT_LOCK */
	uint32_t at_site;  /* where its script was then; 0: unknown */
	uint8_t is_ours;   /* it runs nothing of the application: its calls are background calls */
	uint8_t stranger;  /* it has called neither NCCL nor CUDA; known because it waits */
	/* it works for a call of this thread and issues nothing on its own; 0: none */
	uint32_t part_of;
	uint32_t asks; /* DF_AT_ASKS: bits 1 << enum df_polled */
	uint64_t asks_rec;
	uint32_t nr_polls; /* DF_AT_POLLS */
	uint32_t poll_kind[DF_POLLS_MAX];
	uint64_t poll[DF_POLLS_MAX];
	char name[16];
};

struct df_lstream {
	uint64_t id;
	int32_t device;
	uint32_t flags;		/* bits: 1 blocking, 2 legacy, 4 per-thread */
	uint64_t destroyed_rec; /* or DF_NO_REC */
};

/* A record about a communicator's life, or another rare record, unchanged. */
struct df_lnote {
	struct df_rec rec;
	uint64_t index;
};

#define DF_LCOMM_THREADS 8

/* The recorded facts about one of the process's communicators. */
struct df_lcomm {
	uint64_t nr_coll, nr_p2p;
	uint64_t last_ns;
	uint32_t threads[DF_LCOMM_THREADS]; /* that issued on it, or made it */
	uint32_t nr_threads, more_threads;  /* more_threads: some did not fit */
	/* bits 1 << index in threads: the thread issued on it */
	uint8_t issued;
};

struct df_load {
	struct df_trace_header h; /* with the last recorded pair of clocks */
	uint64_t began_ns; /* the header's first clock, also if the first records are overwritten */
	uint64_t first_ns, last_ns, last_rec;
	uint64_t last_progress_ns; /* the last start, end, issue, or return of a call */
	uint64_t nr_recs, nr_torn;
	/*
	 * The record at which a hang was ended because a process gave up (load_broken.c);
	 * DF_NO_REC: none. Only the records before it are evidence and are loaded.
	 */
	uint64_t cut_rec;
	uint64_t cut_ns;  /* time of that record, if this process gave up; else 0 */
	uint64_t nr_open; /* unfinished operations and open calls */
	/*
	 * Set by the caller, for all later loads: another process gave up at this time, so later
	 * records are consequences. 0: none.
	 */
	uint64_t until_ns;

	struct df_lop *ops;
	size_t nr_ops, cap_ops, nr_by_nccl;
	struct df_lcall *calls;
	size_t nr_calls, cap_calls;
	struct df_litem *items;
	size_t nr_items, cap_items;
	struct df_lthread *threads;
	size_t nr_threads, cap_threads;
	struct df_lstream *streams;
	size_t nr_streams, cap_streams;
	struct df_lnote *notes;
	size_t nr_notes, cap_notes;
	struct df_lcomm *comms; /* by local number - 1 */
	size_t nr_comms, cap_comms;

	/* private: serial -> operation or call */
	uint32_t *map;
	size_t map_size, map_used;
	/* private: by thread id, by stream: position + 1 in the arrays above */
	struct df_map threads_at, streams_at;
};

/* Whether the stream was destroyed before the record `before`. */
int df_load_stream_ended(const struct df_load *l, uint64_t id, uint64_t before);

void df_load_init(struct df_load *l);
void df_load_fini(struct df_load *l);

/* Reads all records. Returns 0 or -ENOMEM. */
int df_load_trace(struct df_load *l, struct df_reader *r);

/* Whether the ring has lost operations of a communicator (from 1), not just other records of it. */
int df_load_lost_ops(const struct df_load *l, const struct df_reader *r, uint32_t comm);
/*
 * Returns the number of collectives issued on the communicator, including those that the ring has
 * lost.
 */
uint64_t df_load_nr_coll(const struct df_trace_comm *c);
/*
 * Part of df_load_trace(). Sets the indices by which operations of different ranks match. Counts
 * the operations; the result is exact if the ring has lost none. Uses recorded indices if it has,
 * if the trace was reduced, and for communicators without messages, where both are equal.
 */
int df_load_indices(struct df_load *l, const struct df_reader *r);

/*
 * Evidence that nothing makes progress. LOOKED: a peer suspected a hang and had this process's
 * threads examined. STALL: this process recorded a hang.
 */
enum df_still { DF_STILL_NO, DF_STILL_LOOKED, DF_STILL_STALL };
/*
 * Part of df_load_trace() (load_broken.c). Returns 1 if a hang was ended here, so that this record
 * and all later ones are consequences. *new_comm: initially DF_NO_REC.
 */
int df_load_breaks_off(struct df_load *l, const struct df_reader *r, const struct df_rec *rec,
		       uint64_t index, enum df_still still, uint64_t *new_comm);

/*
 * Parts of df_load_trace() (load_hosts.c). df_load_host_at() and df_load_polled() load HOST_AT and
 * POLLED records; the latter returns 0 or -ENOMEM. df_load_part_of() returns the thread for whose
 * call a thread with this name works, or 0.
 */
void df_load_host_at(struct df_lthread *t, const struct df_rec *rec, uint64_t index);
int df_load_polled(struct df_load *l, const struct df_rec *rec, uint64_t index,
		   const struct df_lthread *t);
uint32_t df_load_part_of(const char *name);

/*
 * Reads an operation that its thread could not issue yet, because it waits in the call before.
 * Returns 1 and the operation, else 0.
 */
int df_load_intent(const struct df_load *l, const struct df_lnote *n, struct df_lop *out);
/* Reads the operation of an OP_INTENT, whether it was issued or not. */
void df_load_intended(const struct df_lnote *n, struct df_lop *out);
/* Returns the operation with this serial, or NULL. */
struct df_lop *df_load_op(const struct df_load *l, uint64_t serial);

/* Returns the call with this serial, or NULL. */
struct df_lcall *df_load_call(const struct df_load *l, uint64_t serial);

/* Returns a thread of the trace, or NULL. */
struct df_lthread *df_load_thread(const struct df_load *l, uint32_t tid);

#endif
