/*
 * The trace on disk, which is also the ring in memory: one file per process, mapped shared, so that
 * all records survive when the process is killed at any instant. Little-endian, fixed-width.
 *
 *   header (4,096 bytes) | communicator table | string table | ring of 64-byte records
 *
 * A record is valid if its `commit` is the low half of its index plus one. The writer stores 0
 * there before it changes the other fields of a slot, and the number last. 0 is never valid.
 */
#ifndef DF_TRACE_RECORD_FORMAT_H
#define DF_TRACE_RECORD_FORMAT_H

#include <stdint.h>

#define DF_TRACE_MAGIC	 0x6d69687366641a0aULL
#define DF_TRACE_VERSION 1

enum df_rec_type {
	DF_REC_NONE = 0,
#define DF_REC(id, name, comm, op, a, b, c) DF_REC_##id,
#include "trace/record/records.def"
#undef DF_REC
	DF_REC_NR
};

/*
 * Flags of an operation (OP_ISSUE). BY_NCCL: NCCL executes it. END_SEEN: its start and end are
 * recorded all the same.
 */
#define DF_OP_BY_NCCL  1u
#define DF_OP_END_SEEN 2u

/*
 * The executor of a job's operations: our daemon, or NCCL's own kernels on lanes. A lane is a queue
 * of one communicator's operations for NCCL (runtime/exec/nccl).
 */
enum df_executed_by {
	DF_BY_DAEMON,
	DF_BY_LANES, /* a communicator's operations run in their order of issue */
	/* a communicator's operations run in an order on which its ranks agree */
	DF_BY_AGREED_LANES
};

enum df_call {
	DF_CALL_NONE = 0,
#define DF_CALL(id, name, class) DF_CALL_##id,
#include "trace/record/calls.def"
#undef DF_CALL
	DF_CALL_NR
};

/* The state of a thread that is in no call of NCCL or CUDA, for HOST_AT records. */
enum df_host_at {
	DF_AT_UNKNOWN,
	DF_AT_RUNS,
	DF_AT_SLEEPS, /* for a time that it has set */
	DF_AT_LOCK,   /* waits for another thread of its process */
	DF_AT_SHARED, /* waits for memory that processes share */
	DF_AT_IO,     /* waits for a socket, pipe or file */
	DF_AT_CHILD,  /* waits for the end of a child */
	DF_AT_OTHER,
	DF_AT_GONE,  /* the thread has ended */
	DF_AT_POLLS, /* the thread polls until an object is done: enum df_polled */
	/*
	 * A state besides another one: the thread polls NCCL or CUDA for something that is not
	 * recorded, such as errors, or the end of a stream without operations. The record's `c` is
	 * 1 << enum df_polled of the function that it calls.
	 */
	DF_AT_ASKS,
	DF_AT_NR
};

/*
 * Packs the number of bytes that a copy reads into the higher bits of `b` of a STREAM_WORK record.
 * The address is in the higher bits of `a`. Returns 0 if the number is unknown or too large.
 */
static inline uint64_t df_rec_reads_bytes(uint64_t from, uint64_t to)
{
	return from < to && to - from < 1u << 28 && !(from >> 48) ? (to - from) << 36 : 0;
}

static inline uint64_t df_rec_reads_from(uint64_t from, uint64_t to)
{
	return df_rec_reads_bytes(from, to) ? from << 16 : 0;
}

/* The kind of wait of a thread in DF_AT_LOCK, in the bits of the record's `b` after the state. */
enum df_lock {
	DF_LOCK_ANY,	/* unknown: a condition, a semaphore, a lock of another kind */
	DF_LOCK_HELD,	/* a lock that another thread holds */
	DF_LOCK_SCRIPT, /* the interpreter's lock */
	DF_LOCK_JOIN,	/* the end of a thread */
	DF_LOCK_NR
};

/*
 * The object that a thread in DF_AT_POLLS polls. Its kind is in the bits of the record's `b` after
 * the state, its id in `c`. CALL: a call of NCCL that continues in the background (non-blocking
 * communicators), given by its serial.
 */
enum df_polled { DF_POLLED_STREAM, DF_POLLED_EVENT, DF_POLLED_CALL, DF_POLLED_NR };

/*
 * A result in CALL_EXIT: the function has returned, and the call continues in the background until
 * another CALL_EXIT.
 */
#define DF_RESULT_IN_PROGRESS 7

/*
 * Limit of objects that a thread polls in turn. There is a record for each, numbered by `op`;
 * further objects are ignored.
 */
#define DF_POLLS_MAX 4

/* Prefix of the names of our threads that run nothing of the application. */
#define DF_OUR_THREADS "dfshim-"
/*
 * Prefix of the names of our threads that do a part of a call for a waiting thread of the
 * application, whose id follows in decimal. They do nothing else.
 */
#define DF_PART_THREADS "dfshim:"
/*
 * Prefix of the names of the threads in which PyTorch computes gradients, while another thread
 * waits for them in backward().
 */
#define DF_AUTOGRAD_THREADS "pt_autograd_"

struct df_rec {
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	uint16_t type;	  /* enum df_rec_type */
	uint16_t device;  /* 0xffff if there is none */
	uint32_t thread;  /* tid */
	uint32_t comm;	  /* index in the communicator table + 1; 0 if there is none */
	int32_t rank;	  /* rank in that communicator; -1 if there is none */
	uint64_t op;
	uint64_t a, b, c;
	uint32_t site; /* hash of the call site; 0 if there is none */
	uint32_t commit;
};

_Static_assert(sizeof(struct df_rec) == 64, "a record is 64 bytes");

/*
 * The second part of an operation, in the slot after its OP_ISSUE. Both are appended together.
 * Readers return it as records OP_ARGS, OP_MATCH and OP_DEP with the head of the OP_ISSUE. Type,
 * communicator and commit have the same place as in every record.
 */
struct df_rec_rest {
	uint64_t send;
	uint16_t type;	  /* DF_REC_OP_REST */
	uint16_t matched; /* whether sig, inst and index are set */
	uint32_t group;
	uint32_t comm;
	int32_t peer; /* root or peer; -1 if there is none */
	uint64_t recv, sig, inst, index;
	uint32_t back; /* op minus the serial of the operation that it waits for; 0: none */
	uint32_t commit;
};

#define DF_SAME_PLACE(field)                                                                       \
	_Static_assert(__builtin_offsetof(struct df_rec, field) ==                                 \
			       __builtin_offsetof(struct df_rec_rest, field),                      \
		       #field " is where every record has it")
DF_SAME_PLACE(type);
DF_SAME_PLACE(comm);
DF_SAME_PLACE(commit);
_Static_assert(sizeof(struct df_rec_rest) == sizeof(struct df_rec), "one slot");

/*
 * A string of the table: this head, then `bytes` characters without a terminator, padded to a
 * multiple of 8. MARK records and the programs of operations name a string by its number, which is
 * its offset in the table plus one. SITE records name it by hash.
 */
struct df_trace_string {
	uint64_t hash; /* df_hash64() of the text */
	uint32_t bytes;
	uint32_t used; /* is 1 when the string is complete; stored last */
};

_Static_assert(sizeof(struct df_trace_string) == 16, "fixed size");

/* A communicator and a local rank. Several local ranks of one communicator have an entry each. */
struct df_trace_comm {
	uint64_t hash; /* commHash */
	int32_t nranks, rank;
	int32_t device;
	uint32_t used;	       /* is 1 when the entry is complete; stored last */
	uint64_t parent;       /* commHash of the parent; 0 if there is none */
	uint64_t drops;	       /* number of its records that were overwritten in the ring */
	uint64_t last_dropped; /* highest issue index among the overwritten records */
	uint64_t issued, done; /* numbers of operations; exact even if records were overwritten */
	char name[32];
	uint32_t kinds[8]; /* number of issued collectives by kind (kinds.def) */
};

_Static_assert(sizeof(struct df_trace_comm) == 128, "fixed size");

struct df_trace_header {
	uint64_t magic;
	uint32_t version, header_bytes;
	uint32_t rec_bytes, comm_bytes;
	uint64_t nr_recs; /* capacity of the ring, a power of two */
	uint32_t nr_comms, nr_string_bytes;
	uint64_t off_comms, off_strings, off_recs;
	uint64_t next; /* index of the next record; an atomic add to it appends one */
	uint32_t comms_used, strings_used;
	uint32_t pid;
	int32_t rank;	    /* rank in the job, from the environment; -1 if unknown */
	uint64_t host_hash; /* number of the node, as in COMM_MEMBER and PEER_DEAD */
	uint64_t boot_hash;
	uint64_t mono_ns, real_ns; /* the two clocks, read at the same time */
	uint32_t rules, mode;	   /* rules: 1 for NCCL's; mode: the value of DFSHIM_MODE */
	/* resources that limit the process by NCCL's rules; 0 means unlimited */
	uint32_t slots, queues;
	uint32_t closed; /* 0: the process has not exited normally; else its exit status plus 1 */
	uint32_t world;	 /* number of ranks of the job; 0 if unknown */
	/* records that were not written because another thread was still writing their slot */
	uint64_t lost;
	char host[64];
	char exe[128];
	char version_text[64];
	uint32_t told;	  /* the verdict that the process has printed, plus 1; 0 if none */
	uint64_t told_ns; /* when the verdict was printed, by CLOCK_REALTIME */
	/*
	 * In a reduced ring: offset of a table with the index in the full ring of each record,
	 * eight bytes each. Else 0.
	 */
	uint64_t off_numbers;
	char told_line[512]; /* the first line of that verdict */
	uint32_t executor;   /* enum df_executed_by, if rules and mode are 0 */
	/* number of the first device's multiprocessors that NCCL's kernels can use; 0 if unknown */
	uint32_t sms;
	/* inode of the pid namespace to which `pid` belongs; 0 if unknown */
	uint64_t pid_ns;
};

_Static_assert(sizeof(struct df_trace_header) <= 4096, "the header has one page");

/*
 * Decodes a root or peer. Records store it plus one, and 0 for none. A file may contain any value,
 * so the subtraction may wrap.
 */
static inline int32_t df_rec_peer(uint64_t bits)
{
	return (int32_t)((uint32_t)bits - 1);
}

#endif
