/*
 * libdfnccl.so: NCCL by its own rules, on the memory of libdfhost.so. A library of its own that stands where NCCL
 * stands, for jobs that are to hang where NCCL's would: `dfshim run --rules nccl`, `replay`, tests. It knows nothing
 * of dfshim, which records in front of it (mode trace) as it does in front of the real one.
 *
 *   hn_comm.c    communicators: set-up, division, end
 *   hn_issue.c   operations and groups: from the call to the streams
 *   hn_engine.c  launches: the order of a communicator, SMs of a device; one thread executes all of the process
 *   hn_step.c    one operation, a step at a time
 *   hn_query.c   what a communicator is asked; memory, operators of the user, texts
 *   hn_rest.c    what is refused by name
 *   hn_share.c   the memory that the ranks of a communicator share, and how the host waits for them
 *
 * Private to the library. Units: bytes. Results are NCCL's. Functions may be called by any thread unless said
 * otherwise; a communicator's fields say who may touch them.
 */
#ifndef DF_HOSTNCCL_HN_H
#define DF_HOSTNCCL_HN_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include "interpose/hostcuda/hostcuda.h"
#include "interpose/nccl/nccl_types.h"

#define DF_HN_CHUNK   (128u << 10) /* of a rank in a collective at a time */
#define DF_HN_SLOT    (64u << 10)  /* of a message at a time */
#define DF_HN_SLOTS   8	   /* slots of a pair of ranks: a message that fits waits for nobody */
#define DF_HN_ROUNDS  4	   /* divisions of a communicator that are remembered */
#define DF_HN_MAX     1024 /* ranks */
#define DF_HN_CTAS    16   /* of a communicator that does not say how many */
#define DF_HN_EXPORT  __attribute__((visibility("default")))
#define DF_HN_GET(p)  __atomic_load_n(p, __ATOMIC_RELAXED)
#define DF_HN_ENDLESS (1ull << 62) /* more than any launch's number */

/* A name of NCCL's for its function pncclX. */
#define DF_HN_NAME(name)                                                                           \
	extern __typeof__(p##name) name __attribute__((alias("p" #name), visibility("default")))

/* Where the memory of a communicator is: an open file of a process. In a ncclUniqueId, and told by a parent. */
struct df_hn_id {
	uint64_t nonce; /* never 0 */
	int32_t pid, fd;
};

/* What a rank tells the others. */
struct df_hn_seat {
	uint64_t posted,
		taken; /* chunks of collectives that it has brought, and that it is through with */
	uint64_t signature[2]; /* of the collective of such a chunk */
	uint64_t given, over;  /* launches; ENDLESS: they were dropped */
	unsigned setting_up;   /* threads that wait for the other ranks */
	int32_t device;
	struct df_hn_division {
		uint64_t round; /* stored last */
		int32_t color, key;
		uint64_t named; /* the round of `child`, stored last */
		struct df_hn_id child;
	} divisions[DF_HN_ROUNDS];
} __attribute__((aligned(64)));

/* From one rank to another. */
struct df_hn_pair {
	uint64_t posted __attribute__((aligned(64))); /* slots */
	uint64_t taken __attribute__((aligned(64)));
	uint64_t bytes[DF_HN_SLOTS]; /* of the whole message */
	char data[DF_HN_SLOTS][DF_HN_SLOT];
};

/* What the ranks of a communicator share: zero at first. */
struct df_hn_share {
	uint64_t nonce;
	uint32_t arrived, connected;
	uint32_t stopped; /* it has ended with an error, for all */
	uint32_t closed;  /* the file of the id is not needed any more */
	struct df_hn_seat seats[];
};

/* A stream on which a communicator has put something. */
struct df_hn_lane {
	struct df_hn_lane *next;
	uint64_t stream; /* df_stream_info.id */
	uint64_t ready;	 /* the stream writes it: so many launches are reached */
	uint64_t given;
};

struct df_hn_redop {
	int type;
	uint64_t scalar;
	const void *at; /* read when the operation begins; NULL: `scalar` */
};

struct df_hn_comm {
	uint64_t magic; /* what NCCL's begins with */
	struct df_hn_comm *next_comm;
	int nranks, rank, device, nonblocking;
	int ctas; /* of each of its launches */
	struct df_hn_share *share;
	size_t share_bytes;
	uint32_t error; /* ncclResult_t */
	uint32_t ended; /* destroyed or aborted */
	uint32_t revoked;
	int told;	      /* that it was stopped; under the list's lock */
	uint32_t used;	      /* its connections are set up, or being so */
	unsigned in_progress; /* calls that have come back, whose work is not done yet */
	uint64_t nr_issued;   /* operations; for who asked to be told */
	uint64_t nr_rounds;   /* divisions; by calls of the application, one at a time */

	pthread_mutex_t lock; /* of what follows, and of given in our seat */
	struct df_hn_lane *lanes;
	struct df_hn_redop *redops;
	int nr_redops;

	uint64_t done; /* launches that are over: streams wait for it */
	/* The engine's. */
	uint64_t turn; /* the launch that may start */
	uint64_t nr_chunks;
	uint64_t nr_colls, coll_turn;
	uint64_t *counts; /* of messages by peer: given and finished, to it and from it */
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
	int type, redop, root; /* root: or peer */
	const void *in;
	void *out;
	size_t count;
	struct df_hn_comm *comm;
	cudaStream_t stream;
	size_t bytes;
	uint32_t reduce; /* enum df_redop */
	uint64_t arg;
	const void *arg_at;
	/* The engine's. */
	uint64_t index; /* among its like */
	uint64_t piece; /* the next to bring or take */
	int posted, over;
};

static inline struct df_hn_seat *df_hn_seat(const struct df_hn_comm *c)
{
	return &c->share->seats[c->rank];
}

/* What a group puts on one communicator: NCCL's kernel. */
struct df_hn_launch {
	struct df_hn_launch *next;
	struct df_hn_comm *comm;
	uint64_t ticket;
	enum { DF_HN_QUEUED, DF_HN_REACHED, DF_HN_RUNS } state;
	int resident; /* CTAs that have an SM */
	int nr, nr_streams;
	struct df_hn_op *ops;
	struct df_hn_reach {
		const uint64_t *word;
		uint64_t value;
	} streams[]; /* when they have come to it */
};

/* CUDA on this memory; NULL: libdfhost.so is not loaded, and nothing can be done. */
const struct df_backend *df_hn_cuda(void);

/* ---- hn_share.c ---- */

/* A file for the memory of a communicator. */
ncclResult_t df_hn_id_make(struct df_hn_id *id);
/* A communicator on that memory, for the calling thread's device; *out on success. */
ncclResult_t df_hn_open(const struct df_hn_id *id, int nranks, int rank, struct df_hn_comm **out);
/* Blocks until all ranks have opened it; refuses what NCCL refuses then. */
ncclResult_t df_hn_meet(struct df_hn_comm *c, const struct df_hn_id *id);
/* ncclSuccess, or what it has ended with. */
ncclResult_t df_hn_error(const struct df_hn_comm *c);
char *df_hn_stage(const struct df_hn_comm *c, int rank, uint64_t chunk);
struct df_hn_pair *df_hn_pair(const struct df_hn_comm *c, int from, int to);
/* Blocks until *word is at least `least`, or the communicator has an error. */
ncclResult_t df_hn_wait(struct df_hn_comm *c, const uint32_t *word, uint32_t least);
/* A little, longer each time. */
void df_hn_nap(unsigned *turns);
void df_hn_close(struct df_hn_comm *c);

/* ---- hn_comm.c ---- */

/* An argument of the function is no communicator that can be used: NCCL's refusal. */
ncclResult_t df_hn_check(const void *comm, const char *function);
/* Before operations of communicators that were stopped end, and calls that wait, whoever has asked for that is told. */
void df_hn_tell_stopped(void);

/* ---- hn_engine.c ---- */

/* Takes the launch over. */
void df_hn_submit(struct df_hn_launch *l);
/* Ends what the communicator has, with its error; no operation of it touches memory after that. */
void df_hn_drop(struct df_hn_comm *c);
/* Calls fn with each communicator whose next launch waits for SMs. */
void df_hn_slot_waits(void (*fn)(struct ncclComm *comm));
/* No launch begins, goes on or ends in between. */
void df_hn_engine_hold(void);
void df_hn_engine_go_on(void);

/* ---- hn_step.c: the engine's thread only ---- */

void df_hn_op_begin(struct df_hn_op *o);
/* One attempt to go on; waits for nothing. 1: something moved. */
int df_hn_op_step(struct df_hn_op *o);

/* ---- hn_issue.c ---- */

/* A call that waits for other ranks: the set-up of a communicator, by an id or from its parent, or its end. */
struct df_hn_job {
	ncclResult_t (*fn)(struct df_hn_job *j);
	struct df_hn_comm *comm; /* the parent, if there is one */
	struct df_hn_id id;
	int color, key;
	uint8_t *without; /* ranks that a shrink leaves out */
	ncclComm_t *out;
	int nonblocking, ctas; /* of the child */
	ncclResult_t result;
	pthread_t thread;
};

/* In a group at its end, else now; without waiting for it if the communicator does not block. */
ncclResult_t df_hn_job_start(const struct df_hn_job *job);
#endif
