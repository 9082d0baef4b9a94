/*
 * What the judge keeps of each trace, and the tables over all of them. Private to the judge and to the
 * tools that draw its graph.
 *
 * Of finished operations only what the comparison between ranks needs is kept (struct df_inst_seen);
 * unfinished ones, calls in progress and what lies behind them on streams are kept whole.
 */
#ifndef DF_TRACE_READ_SET_H
#define DF_TRACE_READ_SET_H

#include "trace/check.h"
#include "trace/read/broken_link.h"
#include "trace/read/left.h"
#include "trace/read/stacks.h"

#define DF_NONE UINT32_MAX

enum df_fate { DF_ALIVE, DF_EXITED, DF_DEAD };

/* One local communicator entry of one trace. */
struct df_trc_comm {
	uint32_t trace, local; /* local number, from 1 */
	uint32_t gcomm;
	int32_t rank, device;
	int32_t party;		     /* of its trace: entries of one rank have the same (party.c) */
	int32_t world;		     /* the rank by which people know it */
	uint64_t next_coll, nr_coll; /* the next index that the trace shows; all issued */
	uint64_t destroyed_rec;	     /* COMM_DESTROY, or COMM_ABORT by the program; DF_NO_REC */
	uint64_t failed_rec;	     /* last OP_FAILED */
	uint64_t lost_open; /* unfinished operations whose records the ring has overwritten */
	uint64_t drops;	    /* records that the ring has overwritten */
	uint64_t last_ns;
	uint32_t threads[DF_LCOMM_THREADS], nr_threads, more_threads;
	uint32_t issuers[DF_LCOMM_THREADS], nr_issuers; /* those of them that issued on it */
	int used, has_places; /* the rank has issued something; indices are places among nr_coll */
	struct {
		uint64_t index, rec;
		int32_t peer;
		uint8_t kind;
	} last; /* where it is used: the rank's last operation on it that the trace shows */
};

/* Host and process of a rank, from COMM_MEMBER: known even where the trace is missing. Each rank tells of all. */
struct df_trc_member {
	uint64_t host_hash;
	uint32_t pid; /* 0: nobody has told */
	int32_t device;
};

struct df_gcomm {
	uint64_t hash, parent;
	int32_t nranks;
	char label[40];
	int32_t named_by; /* the rank whose word the label is */
	uint32_t first_entry,
		nr_entries; /* in df_check_set.sorted, by rank; none: of an earlier run alone */
	uint64_t mismatch;  /* first index at which ranks' collectives differ; UINT64_MAX: none */
	struct df_seen_row *rows; /* what the ranks put in which place, as they appeared */
	size_t nr_rows, cap_rows;
	uint32_t *row_map, last_row; /* rows by their numbers; the one that was asked for last */
	size_t row_map_size;
	struct df_trc_member *members; /* by rank */
	uint32_t nr_members;
};

/* One of the ranks' signatures of one collective, to compare the others with. */
struct df_inst_seen {
	uint64_t sig;
	uint64_t nr;
};

/*
 * Collectives next to each other. Only rows that something is in exist: an index is whatever a file says, and
 * what it costs is the record that says it.
 */
#define DF_SEEN_ROW 16
struct df_seen_row {
	uint64_t number; /* index / DF_SEEN_ROW */
	struct df_inst_seen at[DF_SEEN_ROW];
};

struct df_dead {
	uint64_t comm_hash, host_hash, time_ns, rec;
	uint32_t pid, trace;
	int32_t rank;
	int in_order; /* it ended by itself: one more than its status */
	int signal;   /* of which it died; 0: not known */
	int late;     /* seen after a standstill: it may have been ended because of that */
};

struct df_seen_key {
	uint64_t key, next;
};

struct df_trc {
	struct df_trace_header h;
	char *name, *path; /* file name for people; to read records again, NULL: image */
	void *image;
	size_t image_bytes;
	char label[24]; /* "r3" */
	int32_t order;	/* its lowest rank, by which it is sorted; -1 none */
	uint64_t began_ns, first_ns, last_ns, last_progress_ns, nr_recs, nr_torn, nr_ops, nr_done,
		nr_finished;
	int64_t skew_ns;		    /* to add to this trace's clock */
	uint64_t dead_ns, cut_ns, until_ns; /* the last two: as in struct df_load */
	enum df_fate fate;
	uint32_t first_entry, nr_entries; /* in df_check_set.entries */
	size_t first_op, nr_uops;	  /* in df_check_set.ops */
	struct df_lthread *threads;
	size_t nr_threads;
	struct df_lcall *calls; /* in progress, in order of entering */
	size_t nr_calls;
	struct df_check_host *hosts; /* NULL: not known */
	size_t nr_hosts;
	uint32_t any_host; /* node: one of them goes on; only where they are known */
	struct df_lstream *streams;
	size_t nr_streams;
	struct df_litem
		*items; /* from the first unfinished operation on; OP: index in df_check_set.ops */
	size_t nr_items;
	struct df_litem before; /* the last WORK before them; type OP: none */
	struct df_lnote
		*notes; /* OP_DEP, OP_BEHIND of unfinished operations; COMM_INIT; failures */
	size_t nr_notes, cap_notes;
	struct df_seen_key *seen; /* how many of each signature or pair were issued */
	size_t seen_size, seen_used;
	uint64_t stall_ms, stall_rec, stall_ns;
	uint64_t nr_lost; /* unfinished operations whose records were overwritten */
	uint8_t is_short; /* the file ends before the last record that was written */
	uint8_t is_guess; /* which of its operations meet which is not certain */
	uint8_t dropped;  /* ignored: an older run */
	uint8_t cut;	  /* judged as it was when its communicators were aborted */
};

struct df_uop {
	struct df_lop l;
	uint32_t trace, gcomm, entry;
	uint64_t bytes;	      /* of the message: count * size of the type */
	uint64_t sig;	      /* compared between ranks */
	uint32_t next;	      /* of the same instance */
	uint32_t start, done; /* nodes */
};

struct df_check_set {
	struct df_trc *traces;
	size_t nr_traces, cap_traces;
	size_t nr_dropped; /* of them */
	struct df_uop *ops;
	size_t nr_ops, cap_ops;
	struct df_trc_comm *entries;
	size_t nr_entries, cap_entries;
	uint32_t *sorted; /* entries by communicator and rank */
	struct df_gcomm *gcomms;
	size_t nr_gcomms, cap_gcomms, gcomm_map_size;
	uint32_t *gcomm_map;
	size_t nr_members; /* of all communicators, places that nobody told of among them */
	struct df_dead *dead;
	struct df_broken_link *links; /* by trace */
	struct df_lefts left;	      /* words of processes that have exited */
	size_t nr_dead, cap_dead, nr_links, cap_links;
	uint64_t nr_recs, nr_torn, nr_issued, nr_finished;
	struct df_load load;	 /* reused for each trace */
	struct df_stacks stacks; /* df_say_stack() has found, by trace */
	char error[256];
	uint64_t now_ns; /* of the analysis */
	int sealed;
	int polls_are_free; /* a host that polls may go on at any time */
	int proof;	    /* what is found is acted on: nothing may be taken for likely */
	int refs;	    /* the caller's and each result's */
};

static inline int df_uop_same_rank(const struct df_check_set *set, const struct df_uop *a,
				   const struct df_uop *b)
{
	return a->trace == b->trace && set->entries[a->entry].party == set->entries[b->entry].party;
}

/* Executes by NCCL's rules: issue order per stream and communicator. */
static inline int df_trc_nccl(const struct df_trc *t)
{
	return t->h.rules == 1 || t->h.mode == 1;
}

/*
 * Something is not there that could tell otherwise: ranks without a trace, files that were cut off, unfinished
 * operations that the ring has lost. Once it is sealed.
 */
int df_set_is_partial(const struct df_check_set *set);
/* Sorts entries, names ranks and communicators, finds fates. Once, before the graph. */
int df_set_seal(struct df_check_set *set, const struct df_check_opts *opts);
/* Parts of df_set_seal(), before ranks have their names; 0 or -ENOMEM. All in an order that does not depend on that of adding. */
int df_set_order(struct df_check_set *set);
/* df_check_add_image() without the copy: malloc'ed, and the set's from now on, also on failure. NULL: -ENOMEM. */
int df_set_take_image(struct df_check_set *set, void *image, size_t bytes, const char *name);
/* Once more, as all was then, on the first trace's clock. */
int df_set_until(struct df_check_set *set, uint64_t at_ns);

/* The entry of a rank in a communicator, or NULL: no trace of it. */
struct df_trc_comm *df_set_entry(const struct df_check_set *set, uint32_t gcomm, int rank);
const struct df_trc_member *df_set_member(const struct df_check_set *set, uint32_t gcomm, int rank);
/* What others saw of the end of the rank's process; NULL: nothing. */
const struct df_dead *df_set_dead(const struct df_check_set *set, uint32_t gcomm, int rank);

/* party.c, once the entries are sorted; does a thread issue on it, or has it made it? */
void df_set_parties(struct df_check_set *set);
int df_entry_uses(const struct df_trc_comm *e, uint32_t tid);
/* That of the same rank with its last operation; NULL: it has issued nothing. */
const struct df_trc_comm *df_entry_last(const struct df_check_set *set,
					const struct df_trc_comm *e);
/* The thread has issued for the rank: on this communicator, or on others if the rank has issued nothing on this one. */
int df_entry_issues(const struct df_check_set *set, const struct df_trc_comm *e,
		    const struct df_lthread *th);
/*
 * All threads by which the rank has issued something on the communicator (or elsewhere, if nothing on this one) were seen to
 * have ended; of a rank that has issued nothing in a process with a thread for each, its thread.
 */
int df_entry_has_ended(const struct df_check_set *set, const struct df_trc_comm *e);
/* The rank has issued nothing, and who made its communicators is not its thread: other ranks of the process have their own. */
int df_entry_has_no_thread(const struct df_check_set *set, const struct df_trc_comm *e);
/* It has issued for other ranks of its process, and never for this one. */
int df_entry_is_foreign(const struct df_check_set *set, const struct df_trc_comm *e, uint32_t tid);

/* While traces are added (tally.c). The communicator's number, DF_NONE without memory. */
uint32_t df_set_gcomm(struct df_check_set *set, const struct df_trace_comm *c);
/* A rank's process is there. 0 or -ENOMEM. */
int df_set_put_member(struct df_check_set *set, uint32_t gcomm, uint64_t rank,
		      const struct df_trc_member *m);
/* One operation against what other ranks put in the same place; finished ones too. 0 or -ENOMEM. */
int df_set_compare(struct df_check_set *set, uint32_t gcomm, const struct df_lop *op);
/* The first communicator with a mismatch, DF_NONE: there is none. */
uint32_t df_set_first_mismatch(const struct df_check_set *set);
/* `next` operations with this key have been issued. 0 or -ENOMEM. */
int df_trc_saw(struct df_trc *t, uint64_t key, uint64_t next);

/* Threads that were seen waiting outside all calls that are recorded: as if that were a call. Room for them is there. */
void df_trc_keep_outside(struct df_trc *t);
/* What is certain of a thread; NULL: it has ended. Only where t->hosts. */
const struct df_check_host *df_trc_host(const struct df_trc *t, uint32_t tid);

/* What is compared between ranks of one operation. */
uint64_t df_op_signature(const struct df_lop *op);
/* How many operations with this key a trace has issued. */
uint64_t df_trc_seen(const struct df_trc *t, uint64_t key);
uint64_t df_seen_key(uint32_t local, const struct df_lop *op, int nccl);
/* The kept operation of a trace with this serial, or NULL. */
struct df_uop *df_trc_op(const struct df_check_set *set, const struct df_trc *t, uint64_t serial);
/* The index of a record as people know it: that in the process's file, also where only a reduced ring is here. */
uint64_t df_trc_number(const struct df_trc *t, uint64_t rec);

#endif
