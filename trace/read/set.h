/*
 * The data that the judge keeps of each trace, and tables over all traces. Private to the judge and
 * to the tools that draw its graph. It keeps unfinished operations, calls in progress, and later
 * work on streams. For finished operations it keeps only what is compared between ranks (struct
 * df_inst_seen).
 */
#ifndef DF_TRACE_READ_SET_H
#define DF_TRACE_READ_SET_H

#include "trace/check.h"
#include "trace/read/broken_link.h"
#include "trace/read/kin.h"
#include "trace/read/left.h"
#include "trace/read/stalled_proxy.h"
#include "trace/read/stacks.h"
#include "trace/silent.h"

#define DF_NONE UINT32_MAX

enum df_fate { DF_ALIVE, DF_EXITED, DF_DEAD };

/* One communicator of one trace. */
struct df_trc_comm {
	uint32_t trace, local; /* local: local number, from 1 */
	uint32_t gcomm;
	int32_t rank, device;
	int32_t party; /* in its trace: the same for the entries of one rank (party.c) */
	int32_t world; /* the rank as shown to users */
	/* collectives: the index after the last one in the trace; the number issued */
	uint64_t next_coll, nr_coll;
	uint64_t destroyed_rec; /* COMM_DESTROY, or COMM_ABORT by the program; or DF_NO_REC */
	uint64_t failed_rec;	/* last OP_FAILED */
	uint64_t lost_open;	/* unfinished operations whose records are overwritten */
	uint64_t drops;		/* overwritten records */
	uint64_t last_ns;
	uint32_t threads[DF_LCOMM_THREADS], nr_threads, more_threads;
	uint32_t issuers[DF_LCOMM_THREADS], nr_issuers; /* the threads that issued on it */
	int used, has_places; /* has_places: indices are places among nr_coll */
	struct {
		uint64_t index, rec;
		int32_t peer;
		uint8_t kind;
	} last; /* if used: the rank's last recorded operation on it */
	/* the last finished collective before the first unfinished one; its serial is 0: none */
	struct df_lop finished;
	int has_unfinished;
};

/* Host and process of a rank, from COMM_MEMBER records of any rank. */
struct df_trc_member {
	uint64_t host_hash;
	uint32_t pid; /* 0: unknown */
	int32_t device;
};

struct df_gcomm {
	uint64_t hash, parent;
	int32_t nranks;
	char label[40];
	int32_t named_by;		  /* the rank that named it */
	uint32_t first_entry, nr_entries; /* in df_check_set.sorted, by rank */
	uint64_t mismatch;	  /* first index where collectives differ; UINT64_MAX: none */
	struct df_seen_row *rows; /* collectives by place, in the order of appearance */
	size_t nr_rows, cap_rows;
	struct df_map rows_at;	       /* by number: index in rows, plus 1 */
	size_t last_row;	       /* the last one used */
	struct df_trc_member *members; /* by rank */
	uint32_t nr_members;
	struct df_kin *kin; /* by rank */
	uint32_t nr_kin;
};

/* One place in the order of a communicator's collectives. */
struct df_inst_seen {
	uint64_t sig; /* signature of the first rank's; those of other ranks are compared with it */
	uint64_t nr;  /* number of ranks seen */
};

/* 16 consecutive places. Only rows with an entry exist, because an index may be any number. */
#define DF_SEEN_ROW 16
struct df_seen_row {
	uint64_t number; /* index / DF_SEEN_ROW */
	struct df_inst_seen at[DF_SEEN_ROW];
};

struct df_dead {
	uint64_t comm_hash, host_hash, time_ns, rec;
	uint32_t pid, trace;
	int32_t rank;
	int in_order; /* exited normally: its exit status plus one */
	int signal;   /* that ended it; 0: unknown */
	int late;     /* seen after a hang, which may be the reason */
};

struct df_trc {
	struct df_trace_header h;
	/* file name for users; path to read records again, NULL: read from image */
	char *name, *path;
	void *image;
	size_t image_bytes;
	char label[24]; /* "r3" */
	int32_t order;	/* lowest rank of the process, the sort key; -1: none */
	uint64_t began_ns, first_ns, last_ns, last_progress_ns, nr_recs, nr_torn, nr_ops,
		nr_finished;
	uint64_t progress;	   /* df_check_add_progress() */
	int64_t skew_ns;	   /* added to this trace's clock */
	uint64_t cut_ns, until_ns; /* as in struct df_load */
	enum df_fate fate;
	uint32_t first_entry, nr_entries; /* in df_check_set.entries */
	size_t first_op, nr_uops;	  /* in df_check_set.ops */
	struct df_lthread *threads;
	size_t nr_threads;
	struct df_lcall *calls; /* in progress, by time of entry */
	size_t nr_calls;
	struct df_check_host *hosts; /* NULL: unknown */
	size_t nr_hosts;
	uint32_t any_host; /* graph node that proceeds if one of `hosts` does */
	struct df_lstream *streams;
	size_t nr_streams;
	/* Items from the first unfinished operation on. OP: index in the set's ops. */
	struct df_litem *items;
	size_t nr_items;
	struct df_litem before; /* the last WORK before them; type OP: none */
	/*
	 * OP_DEP and OP_BEHIND of unfinished operations; COMM_INIT; failures; some other rare
	 * records.
	 */
	struct df_lnote *notes;
	size_t nr_notes, cap_notes;
	struct df_stalled_proxy *proxies;
	size_t nr_proxies, cap_proxies;
	uint32_t proxy_batch;	     /* number of the batch of PROXY records in `proxies` */
	struct df_map seen;	     /* number issued, by signature or pair (df_seen_key()) */
	uint64_t stall_ms, stall_ns; /* the last STALL record; 0: none */
	uint64_t nr_lost;	     /* unfinished operations whose records are overwritten */
	uint8_t is_short;	     /* the file ends before the last written record */
	uint8_t is_guess;	     /* it is uncertain which operations meet */
	uint8_t dropped;	     /* ignored: an older run */
	uint8_t cut;		     /* judged in its state when its communicators were aborted */
};

struct df_uop {
	struct df_lop l;
	uint32_t trace, gcomm, entry;
	uint64_t bytes;	      /* of the message: count * size of the type */
	uint64_t sig;	      /* compared between ranks */
	uint32_t next;	      /* next operation of the same instance; or DF_NONE */
	uint32_t start, done; /* nodes */
};

struct df_check_set {
	struct df_trc *traces;
	size_t nr_traces, cap_traces;
	size_t nr_dropped; /* how many of these are dropped */
	struct df_uop *ops;
	size_t nr_ops, cap_ops;
	struct df_trc_comm *entries;
	size_t nr_entries, cap_entries;
	uint32_t *sorted; /* entries by communicator and rank */
	struct df_gcomm *gcomms;
	size_t nr_gcomms, cap_gcomms;
	struct df_map gcomms_at; /* by hash: index in gcomms, plus 1 */
	size_t nr_members;	 /* of all communicators, including ranks of unknown place */
	struct df_dead *dead;
	struct df_broken_link *links; /* by trace */
	struct df_lefts left;	      /* reports of exited processes */
	struct df_check_silent *silent;
	size_t nr_dead, cap_dead, nr_links, cap_links, nr_silent, cap_silent;
	uint64_t nr_recs, nr_torn, nr_issued, nr_finished;
	struct df_load load;	 /* reused for each trace */
	struct df_stacks stacks; /* found by df_say_stack(), by trace */
	char error[256];
	uint64_t now_ns; /* time of the analysis */
	int killed;	 /* all processes have ended, and one of them did not record that */
	int sealed;
	int polls_are_free; /* a thread that polls may proceed at any time */
	int proof;	    /* the result leads to actions: assume nothing that is only likely */
	int refs;	    /* references: the caller's and each result's */
};

static inline int df_uop_same_rank(const struct df_check_set *set, const struct df_uop *a,
				   const struct df_uop *b)
{
	return a->trace == b->trace && set->entries[a->entry].party == set->entries[b->entry].party;
}

static inline int df_trc_nccl(const struct df_trc *t)
{
	return df_header_nccl(&t->h);
}
static inline int df_trc_places(const struct df_trc *t)
{
	return df_header_places(&t->h);
}
/*
 * Whether data is missing that could change the verdict: traces, ends of files, or overwritten
 * unfinished operations. For a sealed set.
 */
int df_set_is_partial(const struct df_check_set *set);
/* Whether the traces of all ranks of the communicator are there, and complete. */
int df_set_is_whole(const struct df_check_set *set, uint32_t gcomm);
/* Sorts entries, names ranks and communicators, finds fates. Once, before the graph. */
int df_set_seal(struct df_check_set *set, const struct df_check_opts *opts);
/* Part of df_set_seal(): sorts by content, not by order of addition. Returns 0 or -ENOMEM. */
int df_set_order(struct df_check_set *set);
/* Adds a trace from an image in memory, which it takes over. Returns 0 or a negative errno. */
int df_set_take_image(struct df_check_set *set, void *image, size_t bytes, const char *name);
/* Opens a trace's records for reading. Returns 0 or a negative errno. */
int df_set_open(const struct df_trc *t, struct df_reader *r);
/* Loads all traces again, only up to that time on the first trace's clock. */
int df_set_until(struct df_check_set *set, uint64_t at_ns);

/* The entry of a rank in a communicator, or NULL if it has no trace. */
struct df_trc_comm *df_set_entry(const struct df_check_set *set, uint32_t gcomm, int rank);
const struct df_trc_member *df_set_member(const struct df_check_set *set, uint32_t gcomm, int rank);
/* Returns the rank if its process lives and does not answer, or NULL. */
const struct df_check_silent *df_set_silent(const struct df_check_set *set, uint32_t gcomm,
					    int rank);
/* Returns the recorded end of the rank's process, or NULL. */
const struct df_dead *df_set_dead(const struct df_check_set *set, uint32_t gcomm, int rank);

/*
 * Used when traces are added (set_tally.c). Returns the number of the communicator, which it adds
 * if needed, or DF_NONE without memory.
 */
uint32_t df_set_gcomm(struct df_check_set *set, const struct df_trace_comm *c);
/* Stores where a rank's process is. Returns 0 or -ENOMEM. */
int df_set_put_member(struct df_check_set *set, uint32_t gcomm, uint64_t rank,
		      const struct df_trc_member *m);
/* Compares an operation with those of the other ranks in the same place. Returns 0 or -ENOMEM. */
int df_set_compare(struct df_check_set *set, uint32_t gcomm, const struct df_lop *op);
/* The first communicator with a mismatch, or DF_NONE. */
uint32_t df_set_first_mismatch(const struct df_check_set *set);
/* Stores that `next` operations with this key were issued. Returns 0 or -ENOMEM. */
int df_trc_saw(struct df_trc *t, uint64_t key, uint64_t next);

/* Hashes the properties of an operation that are compared between ranks. */
uint64_t df_op_signature(const struct df_lop *op);
/* The number of operations with this key that a trace has issued. */
uint64_t df_trc_seen(const struct df_trc *t, uint64_t key);
uint64_t df_seen_key(uint32_t local, const struct df_lop *op, int nccl);
/* Returns the kept operation of a trace with this serial, or NULL. */
struct df_uop *df_trc_op(const struct df_check_set *set, const struct df_trc *t, uint64_t serial);
/* The index of a record in the process's file, also if only a reduced ring is loaded. */
uint64_t df_trc_number(const struct df_trc *t, uint64_t rec);

#endif
