/*
 * One trace, digested: its operations, host calls, threads, and the order of what was put on streams.
 * The step between the reader and everything that judges, draws or exports.
 *
 * A load can be reused for the next trace (df_load_trace() empties it first), so that many traces cost
 * the memory of one. Belongs to one thread.
 */
#ifndef DF_TRACE_READ_LOAD_H
#define DF_TRACE_READ_LOAD_H

#include <stdint.h>
#include "trace/read/reader.h"

enum df_op_state { DF_OP_ISSUED, DF_OP_STARTED, DF_OP_FINISHED, DF_OP_ABORTED };

#define DF_NO_REC UINT64_MAX

struct df_lop {
	uint64_t serial, count, stream, send, recv;
	uint64_t sig, inst; /* signature and its instance, from OP_MATCH */
	uint64_t cindex;    /* issue index in the communicator, from OP_MATCH or counted */
	uint64_t index; /* collectives: among those of the communicator; P2P: same peer and way */
	uint64_t issue_ns, start_ns, done_ns;
	uint64_t rec, rec_start, rec_slot; /* record indices; DF_NO_REC */
	uint64_t nr_preempt;
	uint32_t comm; /* local number, from 1 */
	uint32_t thread, site, group;
	uint32_t program;   /* its name's number among the strings; 0 unknown */
	int32_t rank, peer; /* root or peer; -1 none */
	int32_t device;
	uint8_t kind, type, redop, flags;
	uint8_t state; /* enum df_op_state */
	uint8_t slot;  /* 0 nothing known, 1 waits for one, 2 has one */
	uint8_t has_match;
};

/* NCCL executes it and nobody sees when it begins and ends. */
static inline int df_lop_blind(const struct df_lop *op)
{
	return (op->flags & (DF_OP_BY_NCCL | DF_OP_END_SEEN)) == DF_OP_BY_NCCL;
}

struct df_lcall {
	uint64_t serial, object, detail, rec, enter_ns, exit_ns, result;
	uint32_t call, thread, comm, site;
	int32_t device, rank;
	uint8_t open, released;
	uint8_t background; /* it goes on without its thread */
};

enum df_item_type { DF_ITEM_OP, DF_ITEM_WORK, DF_ITEM_FENCE, DF_ITEM_RECORD, DF_ITEM_WAIT };

/* WORK, with its kind: it waits only for what touches its bytes. */
#define DF_WORK_EXACT 0x100

struct df_litem {
	uint64_t rec, stream, time_ns;
	uint64_t a;	      /* OP: index of the operation; WORK: serial; FENCE: op; else event */
	uint64_t b;	      /* WORK: kind; RECORD, WAIT: record's serial */
	uint64_t from, bytes; /* WORK: what a copy reads; 0 bytes: not known */
	uint32_t type;	      /* enum df_item_type */
	uint32_t thread;
	int32_t device;
};

struct df_lthread {
	uint32_t tid;
	uint32_t nr_issued;
	int32_t device; /* that it used last; -1 */
	uint64_t first_ns, last_ns, last_rec;
	uint64_t in_group; /* serial of the ncclGroupEnd that it is in; 0 none */
	uint64_t at_rec;   /* HOST_AT; what came from the thread itself was before it */
	uint32_t at;	   /* enum df_host_at */
	uint32_t at_lock;  /* enum df_lock: of DF_AT_LOCK */
	uint32_t at_syscall;
	uint32_t at_site; /* where its script was then; 0: not known */
	uint8_t is_ours;  /* it runs nothing of the application: its calls are in the background */
	uint8_t stranger; /* it has not called NCCL or CUDA: it is known because it waits */
	uint32_t part_of; /* it does a part of that thread's call, and issues nothing; 0 */
	uint32_t asks;	  /* DF_AT_ASKS: 1 << enum df_polled; its record */
	uint64_t asks_rec;
	uint32_t nr_polls; /* DF_AT_POLLS */
	uint32_t poll_kind[DF_POLLS_MAX];
	uint64_t poll[DF_POLLS_MAX];
	char name[16];
};

struct df_lstream {
	uint64_t id;
	int32_t device;
	uint32_t flags; /* 1 blocking, 2 legacy, 4 per-thread */
};

/* A record of the communicators' lives, or another rare one, kept as it is. */
struct df_lnote {
	struct df_rec rec;
	uint64_t index;
};

#define DF_LCOMM_THREADS 8

/* What the records say about one local communicator entry. */
struct df_lcomm {
	uint64_t nr_coll, nr_p2p;
	uint64_t last_rec, last_ns;
	uint32_t threads[DF_LCOMM_THREADS]; /* that issued on it, or made it */
	uint32_t nr_threads, more_threads;  /* more: there is no room for one */
	uint8_t issued;			    /* 1 << place in threads: it issued on it */
};

struct df_load {
	struct df_trace_header h; /* with the last pair of clocks that was recorded */
	uint64_t
		began_ns; /* the header's first clock, also where the first records have been overwritten */
	uint64_t first_ns, last_ns, last_rec;
	uint64_t last_progress_ns; /* last start, end, issue or return */
	uint64_t nr_recs, nr_torn;
	/*
	 * COMM_ABORT that ended what was unfinished, no communicator being made after it: a hang was broken
	 * off there. What came before is the evidence and is all that is loaded. DF_NO_REC: none.
	 */
	uint64_t cut_rec;
	uint64_t cut_ns;  /* of that record, where this process gave up; 0: others did, or nobody */
	uint64_t nr_open; /* unfinished operations and open calls */
	/*
	 * Set by the caller, for all loads that follow: another process gave up then, and what comes after is a consequence. 0: none.
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
};

void df_load_init(struct df_load *l);
void df_load_fini(struct df_load *l);

/* Reads all records. 0 or -ENOMEM. */
int df_load_trace(struct df_load *l, struct df_reader *r);

/* Has the ring lost operations of a communicator (from 1), and not only other records of it? */
int df_load_lost_ops(const struct df_load *l, const struct df_reader *r, uint32_t comm);
/* Collectives that were issued on it, whatever the ring has lost. */
uint64_t df_load_nr_coll(const struct df_trace_comm *c);
/*
 * Part of df_load_trace(). Indices among operations that can match each other. Where the ring lost records of a
 * communicator the recorded index is the only truth; otherwise counting is exact whatever the recorded one counts.
 */
int df_load_indices(struct df_load *l, const struct df_reader *r);

/* Since when nothing has moved: a peer suspected a standstill and had the hosts looked at; this process noted one itself. */
enum df_still { DF_STILL_NO, DF_STILL_LOOKED, DF_STILL_STALL };
/*
 * Part of df_load_trace() (broken.c). 1: this record and what follows are consequences of a hang that was broken off;
 * *new_comm: DF_NO_REC at first.
 */
int df_load_breaks_off(struct df_load *l, const struct df_reader *r, const struct df_rec *rec,
		       uint64_t index, enum df_still still, uint64_t *new_comm);

/* Parts of df_load_trace() (load_hosts.c): HOST_AT; POLLED, 0 or -ENOMEM; for which thread one of that name does a part, 0. */
void df_load_host_at(struct df_lthread *t, const struct df_rec *rec, uint64_t index);
int df_load_polled(struct df_load *l, const struct df_rec *rec, uint64_t index,
		   const struct df_lthread *t);
uint32_t df_load_part_of(const char *name);

/* An operation that its host could not issue, because it still waits in the call before: 1, and what it is. */
int df_load_intent(const struct df_load *l, const struct df_lnote *n, struct df_lop *out);
/* What an OP_INTENT says, whatever became of it. */
void df_load_intended(const struct df_lnote *n, struct df_lop *out);
/* The operation with this serial, or NULL. */
struct df_lop *df_load_op(const struct df_load *l, uint64_t serial);

/* The call with this serial, or NULL. */
struct df_lcall *df_load_call(const struct df_load *l, uint64_t serial);

/* A thread of the trace, or NULL. */
struct df_lthread *df_load_thread(const struct df_load *l, uint32_t tid);

#endif
