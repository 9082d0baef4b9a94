/*
 * libdfnccl.so: NCCL with its own rules, on the memory of libdfhost.so. It takes NCCL's place in
 * jobs that have to hang where NCCL's would: `dfshim run --rules nccl`, `replay`, tests. It does
 * not depend on dfshim, which records in front of it (mode trace) as for the real NCCL.
 *
 *   hn_comm.c    communicators: set-up, division, end
 *   hn_issue.c   operations and groups: from the call to the streams
 *   hn_engine.c  launches: the order of a communicator, the SMs of a device
 *   hn_step.c    one operation, one step at a time
 *   hn_query.c   queries; memory, operators of the user, texts
 *   hn_rest.c    functions that are refused by name
 *   hn_share.c   the memory that the ranks of a communicator share, and waits for other ranks
 *
 * Private to the library. Sizes are in bytes, results are NCCL's. Any thread may call a function
 * unless its comment says otherwise; comments at a communicator's fields say which threads may
 * access them.
 */
#ifndef DF_HOSTNCCL_HN_H
#define DF_HOSTNCCL_HN_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include "interpose/hostcuda/hostcuda.h"
#include "interpose/nccl/nccl_types.h"

#define DF_HN_CHUNK   (128u << 10) /* bytes of one rank in a chunk of a collective */
#define DF_HN_SLOT    (64u << 10)  /* bytes of a message in one slot */
#define DF_HN_SLOTS   8	   /* of a pair of ranks; a message that fits into them does not wait */
#define DF_HN_ROUNDS  4	   /* number of divisions of a communicator whose values are kept */
#define DF_HN_MAX     1024 /* maximum number of ranks */
#define DF_HN_CTAS    16   /* number of CTAs, if a communicator's configuration has none */
#define DF_HN_EXPORT  __attribute__((visibility("default")))
#define DF_HN_GET(p)  __atomic_load_n(p, __ATOMIC_RELAXED)
#define DF_HN_ENDLESS (1ull << 62) /* greater than the number of any launch */

/* Defines NCCL's name for its function pncclX. */
#define DF_HN_NAME(name)                                                                           \
	extern __typeof__(p##name) name __attribute__((alias("p" #name), visibility("default")))

/* Identifies the memory of a communicator: an open file of a process. Part of a ncclUniqueId. */
struct df_hn_id {
	uint64_t nonce; /* never 0 */
	int32_t pid, fd;
};

/* A rank's published state. */
struct df_hn_seat {
	/* Number of chunks of collectives that the rank has posted, and that it has taken. */
	uint64_t posted, taken;
	uint64_t signature[2]; /* signature of the collective of such a chunk */
	/* numbers of launches issued and finished; ENDLESS if they were dropped */
	uint64_t given, over;
	unsigned setting_up; /* number of its threads that wait for other ranks */
	int32_t device;
	uint64_t machine; /* network namespace, which stands for a machine */
	struct df_hn_division {
		uint64_t round; /* stored last */
		int32_t color, key;
		uint64_t named; /* the round of `child`, stored last */
		struct df_hn_id child;
	} divisions[DF_HN_ROUNDS];
} __attribute__((aligned(64)));

/* Messages from one rank to another. */
struct df_hn_pair {
	uint32_t ends; /* ends that have connected: bit 1 the sender, bit 2 the receiver */
	/* `posted` counts slots that were filled, `taken` slots that were read */
	uint64_t posted __attribute__((aligned(64)));
	uint64_t taken __attribute__((aligned(64)));
	uint64_t bytes[DF_HN_SLOTS]; /* bytes of the whole message */
	char data[DF_HN_SLOTS][DF_HN_SLOT];
};

/* The memory that the ranks of a communicator share. Initially zero. */
struct df_hn_share {
	uint64_t nonce;
	uint32_t arrived, connected;
	uint32_t stopped; /* the communicator has ended with an error, for all ranks */
	uint32_t closed;  /* the id's file was closed in the process that made it */
	uint64_t grown;	  /* number of ids made for communicators that grow from it, stored last */
	struct df_hn_id grown_id; /* the last one */
	struct df_hn_seat seats[];
};

/* A stream on which a communicator has put work. */
struct df_hn_lane {
	struct df_hn_lane *next;
	uint64_t stream; /* df_stream_info.id */
	uint64_t ready;	 /* the stream writes the number of launches that it has reached */
	uint64_t given;
};

struct df_hn_redop {
	int type;
	uint64_t scalar;
	const void *at; /* address of the scalar, read when the operation begins; or NULL */
};

struct df_hn_comm {
	uint64_t magic; /* DF_NCCL_COMM_MAGIC: the first word of NCCL's struct, too */
	struct df_hn_comm *next_comm;
	int nranks, rank, device, nonblocking;
	int ctas; /* CTAs of each launch */
	struct df_hn_share *share;
	size_t share_bytes;
	uint32_t error; /* ncclResult_t */
	uint32_t ended; /* whether it was destroyed or aborted */
	uint32_t revoked;
	int told;	      /* whether its stop was reported; guarded by the list's lock */
	uint32_t used;	      /* whether its connections are set up, or are being set up */
	unsigned in_progress; /* number of background calls whose work is not done */
	uint64_t nr_issued;   /* number of operations; for queries */
	uint64_t nr_rounds;   /* number of divisions; only one call at a time makes one */
	uint64_t nr_grown;    /* number of communicators that have grown from it */

	pthread_mutex_t lock; /* guards the fields below, and `given` in this rank's seat */
	struct df_hn_lane *lanes;
	struct df_hn_redop *redops;
	int nr_redops;

	uint64_t done; /* number of finished launches: streams wait for it */
	/* The fields below belong to the engine. */
	uint64_t turn; /* number of the launch that may start */
	uint64_t nr_chunks;
	uint64_t nr_colls, coll_turn;
	uint64_t *counts; /* by peer: messages issued and finished, to it and from it */
};

enum df_hn_kind {
	DF_HN_ALLREDUCE,
	DF_HN_REDUCE,
	DF_HN_BROADCAST,
	DF_HN_ALLGATHER,
	DF_HN_REDUCESCATTER,
	DF_HN_ALLTOALL,
	DF_HN_GATHER,
	DF_HN_SCATTER,
	DF_HN_SEND,
	DF_HN_RECV
};

struct df_hn_op {
	enum df_hn_kind kind;
	int type, redop, root; /* root, or peer of a message */
	const void *in;
	void *out;
	size_t count;
	struct df_hn_comm *comm;
	cudaStream_t stream;
	size_t bytes;
	int no_data;	 /* whether it moves no data (df_backend.skips_data) */
	uint32_t reduce; /* enum df_redop */
	uint64_t arg;
	const void *arg_at;
	/* The fields below belong to the engine. */
	uint64_t index; /* number among operations of its kind */
	uint64_t piece; /* the next chunk or slot to post or take */
	int posted, over;
};

static inline struct df_hn_seat *df_hn_seat(const struct df_hn_comm *c)
{
	return &c->share->seats[c->rank];
}

/* The operations that a group has on one communicator. NCCL executes them as one kernel. */
struct df_hn_launch {
	struct df_hn_launch *next;
	struct df_hn_comm *comm;
	uint64_t ticket;
	enum { DF_HN_QUEUED, DF_HN_REACHED, DF_HN_RUNS } state;
	int resident; /* number of CTAs that have an SM */
	int nr, nr_streams;
	struct df_hn_op *ops;
	struct df_hn_reach {
		const uint64_t *word;
		uint64_t value;
	} streams[]; /* reached when *word is at least `value` */
};

/* Returns libdfhost.so's functions, or NULL if it is not loaded, in which case nothing works. */
const struct df_backend *df_hn_cuda(void);

/* ---- hn_share.c ----------------------------------------------------------------------------- */

/* Makes a file for the memory of a communicator. */
ncclResult_t df_hn_id_make(struct df_hn_id *id);
/* Opens a communicator on that memory, for the calling thread's device; sets *out on success. */
ncclResult_t df_hn_open(const struct df_hn_id *id, int nranks, int rank, struct df_hn_comm **out);
/* Blocks until all ranks have opened the communicator. Then fails where NCCL's set-up would. */
ncclResult_t df_hn_meet(struct df_hn_comm *c, const struct df_hn_id *id);
/* Announces that this rank has connected (the communicator, when all have). Does not block. */
void df_hn_connect(struct df_hn_comm *c);
/* Returns ncclSuccess, or the error with which the communicator has ended. */
ncclResult_t df_hn_error(const struct df_hn_comm *c);
char *df_hn_stage(const struct df_hn_comm *c, int rank, uint64_t chunk);
struct df_hn_pair *df_hn_pair(const struct df_hn_comm *c, int from, int to);
/* Blocks until *word is at least `least`, or the communicator has an error. */
ncclResult_t df_hn_wait(struct df_hn_comm *c, const uint32_t *word, uint32_t least);
/* Sleeps for a moment, which grows from call to call. */
void df_hn_nap(unsigned *turns);
void df_hn_close(struct df_hn_comm *c);

/* ---- hn_comm.c ------------------------------------------------------------------------------ */

/* Checks an argument of the function. Returns NCCL's error if it is not a usable communicator. */
ncclResult_t df_hn_check(const void *comm, const char *function);
/* Reports stopped communicators. Called before their operations end and waiting calls return. */
void df_hn_tell_stopped(void);

/* ---- hn_engine.c ---------------------------------------------------------------------------- */

/* Takes ownership of the launch. */
void df_hn_submit(struct df_hn_launch *l);
/* Ends the communicator's launches with its error. Its operations access no memory afterwards. */
void df_hn_drop(struct df_hn_comm *c);
/* Calls fn with each communicator whose next launch waits for SMs. */
void df_hn_slot_waits(void (*fn)(struct ncclComm *comm));
/* No launch begins, proceeds or ends between these calls. */
void df_hn_engine_hold(void);
void df_hn_engine_go_on(void);

/* ---- hn_step.c: the engine's thread only ---------------------------------------------------- */

void df_hn_op_begin(struct df_hn_op *o);
/* Makes one attempt to proceed; never waits. Returns 1 if data was moved. */
int df_hn_op_step(struct df_hn_op *o);

/* ---- hn_issue.c ----------------------------------------------------------------------------- */

/* A call that waits for other ranks: it makes a communicator (by an id, a parent) or ends one. */
struct df_hn_job {
	ncclResult_t (*fn)(struct df_hn_job *j);
	struct df_hn_comm *comm; /* the parent, or NULL */
	struct df_hn_id id;
	int color, key, frees; /* frees: frees `comm`, and never runs in the background */
	uint8_t *without;      /* ranks that a shrink excludes */
	ncclComm_t *out;
	int nonblocking, ctas; /* of the child */
	ncclResult_t result;
	pthread_t thread;
};

/* Runs the job: at a group's end or now; in the background if the communicator is non-blocking. */
ncclResult_t df_hn_job_start(const struct df_hn_job *job);
#endif
