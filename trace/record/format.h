/*
 * The trace on disk, which is also the ring in memory: one file per process, mapped shared, so that a
 * process killed at any instant leaves everything it had appended. Little-endian, fixed-width.
 *
 *   header (4,096 bytes) | communicator table | string table | ring of 64-byte records
 *
 * A record is valid when its `commit` is the low half of its index plus one; the writer stores 0 there
 * before it touches the other fields of a slot, and the number last. 0 is never valid.
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

/* Flags of an operation (OP_ISSUE): NCCL executes it; whether its start and its end are seen all the same. */
#define DF_OP_BY_NCCL  1u
#define DF_OP_END_SEEN 2u

enum df_call {
	DF_CALL_NONE = 0,
#define DF_CALL(id, name, class) DF_CALL_##id,
#include "trace/record/calls.def"
#undef DF_CALL
	DF_CALL_NR
};

/* Where a host thread is that is in no call of NCCL or CUDA, from HOST_AT records. 0: not known. */
enum df_host_at {
	DF_AT_UNKNOWN,
	DF_AT_RUNS,
	DF_AT_SLEEPS, /* for a time */
	DF_AT_LOCK,   /* for another thread of its process */
	DF_AT_SHARED, /* for memory that processes share */
	DF_AT_IO,     /* for a socket, pipe or file */
	DF_AT_CHILD,  /* for the end of a child */
	DF_AT_OTHER,
	DF_AT_GONE,  /* it has ended */
	DF_AT_POLLS, /* asks again and again whether something is done: enum df_polled */
	/*
	 * Beside another of them: asks NCCL or CUDA again and again, but not for what is recorded, as for errors, or whether
	 * a stream without operations is done. The record's `c`: 1 << enum df_polled, of the function it calls.
	 */
	DF_AT_ASKS,
	DF_AT_NR
};

/*
 * What a copy reads, for a STREAM_WORK record: the address above the kind in `a`, the number of bytes above the flags in
 * `b`. 0 bytes: not known, or too many.
 */
static inline uint64_t df_rec_reads_bytes(uint64_t from, uint64_t to)
{
	return from < to && to - from < 1u << 28 && !(from >> 48) ? (to - from) << 36 : 0;
}

static inline uint64_t df_rec_reads_from(uint64_t from, uint64_t to)
{
	return df_rec_reads_bytes(from, to) ? from << 16 : 0;
}

/* For what a thread in DF_AT_LOCK waits: in the record's `b` above the place. */
enum df_lock {
	DF_LOCK_ANY,	/* not known: a condition, a semaphore, a lock of another kind */
	DF_LOCK_HELD,	/* a lock that another thread holds */
	DF_LOCK_SCRIPT, /* the interpreter's lock */
	DF_LOCK_JOIN,	/* the end of a thread */
	DF_LOCK_NR
};

/*
 * What a thread in DF_AT_POLLS asks for: in the record's `b` above the place, `c` being the object. CALL: a call of NCCL
 * that goes on in the background (non-blocking communicators), by its serial.
 */
enum df_polled { DF_POLLED_STREAM, DF_POLLED_EVENT, DF_POLLED_CALL, DF_POLLED_NR };

/* A result in CALL_EXIT: the thread is out of the call, which goes on without it until there is another CALL_EXIT. */
#define DF_RESULT_IN_PROGRESS 7

/* A thread that asks for several in turn has a record for each, numbered by `op`; more are not looked at. */
#define DF_POLLS_MAX 4

/* Names of threads that run nothing of the application begin so. */
#define DF_OUR_THREADS "dfshim-"
/*
 * So those of threads that do a part of a call for a thread of the application that waits in it, whose id follows in
 * decimal. They do nothing else.
 */
#define DF_PART_THREADS "dfshim:"

struct df_rec {
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	uint16_t type;	  /* enum df_rec_type */
	uint16_t device;  /* 0xffff none */
	uint32_t thread;  /* tid */
	uint32_t comm;	  /* index in the communicator table + 1; 0 none */
	int32_t rank;	  /* in that communicator; -1 none */
	uint64_t op;
	uint64_t a, b, c;
	uint32_t site; /* call site hash; 0 none */
	uint32_t commit;
};

_Static_assert(sizeof(struct df_rec) == 64, "a record is 64 bytes");

/*
 * What an operation has beside its OP_ISSUE, in the slot behind it: appended with it, and handed out by readers as the
 * records OP_ARGS, OP_MATCH and OP_DEP with the head of the OP_ISSUE. Type, communicator and commit stand where every
 * record has them.
 */
struct df_rec_rest {
	uint64_t send;
	uint16_t type;	  /* DF_REC_OP_REST */
	uint16_t matched; /* sig, inst and index are there */
	uint32_t group;
	uint32_t comm;
	int32_t peer; /* root or peer; -1 none */
	uint64_t recv, sig, inst, index;
	uint32_t back; /* it waits for the operation whose serial is so much smaller; 0 none */
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
 * A string of the table: this head, then `bytes` characters without a terminator, padded to 8. Its number
 * (in MARK records, and of an operation's program) is its offset in the table plus one; SITE records name it by hash.
 */
struct df_trace_string {
	uint64_t hash; /* df_hash64() of the text */
	uint32_t bytes;
	uint32_t used; /* stored last: 1 */
};

_Static_assert(sizeof(struct df_trace_string) == 16, "fixed size");

/* One communicator and local rank; several local ranks of one communicator have an entry each. */
struct df_trace_comm {
	uint64_t hash; /* commHash */
	int32_t nranks, rank;
	int32_t device;
	uint32_t used;	       /* stored last: 1 */
	uint64_t parent;       /* commHash of the parent, 0 */
	uint64_t drops;	       /* records of it overwritten in the ring */
	uint64_t last_dropped; /* highest issue index among them */
	uint64_t issued, done; /* operations, kept exact whatever the ring drops */
	char name[32];
	uint32_t kinds[8]; /* issued collectives by kind (kinds.def) */
};

_Static_assert(sizeof(struct df_trace_comm) == 128, "fixed size");

struct df_trace_header {
	uint64_t magic;
	uint32_t version, header_bytes;
	uint32_t rec_bytes, comm_bytes;
	uint64_t nr_recs; /* capacity of the ring, a power of two */
	uint32_t nr_comms, nr_string_bytes;
	uint64_t off_comms, off_strings, off_recs;
	uint64_t next; /* index of the next record: appended with one atomic add */
	uint32_t comms_used, strings_used;
	uint32_t pid;
	int32_t rank;	    /* of the job, from the environment; -1 unknown */
	uint64_t host_hash; /* the node, by the number that COMM_MEMBER and PEER_DEAD have */
	uint64_t boot_hash;
	uint64_t mono_ns, real_ns; /* a pair of clocks, taken together */
	uint32_t rules, mode;	   /* rules: 1 NCCL's; mode: as DFSHIM_MODE */
	uint32_t slots, queues;	   /* resources by NCCL's rules; 0 unlimited */
	uint32_t closed; /* 0: the process has not ended in order; else one more than its status */
	uint32_t world;	 /* ranks of the job, 0 unknown */
	uint64_t lost; /* records given up: their slot was still being written by another thread */
	char host[64];
	char exe[128];
	char version_text[64];
	uint32_t told;	  /* the verdict that the process has printed, plus one; 0 none */
	uint64_t told_ns; /* when: CLOCK_REALTIME */
	uint64_t
		off_numbers; /* of a reduced ring: eight bytes a record, its index in the ring; 0 none */
	char told_line[512]; /* the first line of that verdict */
};

_Static_assert(sizeof(struct df_trace_header) <= 4096, "the header has one page");

/* A root or peer as records have it: plus one, 0 none. Any value may stand in a file, so it wraps. */
static inline int32_t df_rec_peer(uint64_t bits)
{
	return (int32_t)((uint32_t)bits - 1);
}

#endif
