/*
 * The data structures that the host side (runtime/) and the daemon (the rest of kernels/) share, in
 * memory that both can address. Compiled by gcc, clang and nvcc; no libc beyond the freestanding
 * headers. A pointer in these structures is valid on both sides (unified addressing on a GPU).
 *
 * The life of one instance: the host fills a df_kinst, links it to the previous instance of its
 * collective, and pushes one df_sqe to every block that takes part. The block appends the
 * collective's context to its task queue and executes the program slice by slice. The last block
 * stores df_kcoll.done and writes a df_cqe.
 *
 * The only dynamic state of a task is df_kctx.k, a counter of executed slices that never decreases.
 * The instance, loop, instruction, offsets and FIFO positions are computed from it. So preempting
 * is to return without an increment, resuming restores nothing, and quitting is safe.
 */
#ifndef DFK_ABI_H
#define DFK_ABI_H

#include <stddef.h>
#include <stdint.h>

#define DF_ABI_VERSION 2

/* ---- programs ------------------------------------------------------------------------------- */

enum df_opcode {
#define DF_OP(id, text, xml, recvs, sends, src, dst, reduces) DF_OP_##id,
#include "kernels/opcodes.def"
#undef DF_OP
	DF_OP_NR
};

enum df_buf { DF_BUF_IN = 0, DF_BUF_OUT = 1, DF_BUF_SCRATCH = 2 };

/* NCCL's values (nccl.h, ncclDataType_t and ncclRedOp_t). */
enum df_type {
	DF_INT8,
	DF_UINT8,
	DF_INT32,
	DF_UINT32,
	DF_INT64,
	DF_UINT64,
	DF_FLOAT16,
	DF_FLOAT32,
	DF_FLOAT64,
	DF_BFLOAT16,
	DF_FLOAT8E4M3,
	DF_FLOAT8E5M2,
	DF_NR_TYPES
};
/*
 * PREMULSUM: every rank's input is multiplied by its own scalar (low bytes of df_kinst.redop_arg,
 * in the data type) before the sum. The host lowers AVG as NCCL does: floating types to PREMULSUM
 * with 1/nranks rounded to the type, integers to SUMPOSTDIV (redop_arg = nranks; truncates).
 */
enum df_redop { DF_SUM, DF_PROD, DF_MAX, DF_MIN, DF_PREMULSUM, DF_SUMPOSTDIV, DF_NR_REDOPS };

#define DF_NO_CONN 0xffffu

enum df_inst_flag {
	DF_INST_RAW_SRC = 1, /* the source operand is this rank's unchanged input: premultiply it */
	DF_INST_RAW_DST = 2, /* the same for the second operand, the destination (REDUCE) */
	DF_INST_FINAL = 4,   /* the result is the whole reduction: postprocess it */
	DF_INST_STAYS = 8,   /* its data stays in place until received (runtime/program/stays.c) */
	DF_INST_KNOWN = 16,  /* and its block ends by receiving a result of all ranks */
};

/* Another block of the same rank must have finished this instruction in the same loop. */
struct df_dep {
	uint32_t block, inst; /* of this rank's program */
};

/*
 * One instruction: 32 bytes. Chunks are counted in the buffer; `cnt` consecutive chunks move as one
 * slice. REDUCE: destination = source op destination. RECV_REDUCE_*: received op source.
 */
struct df_inst {
	uint8_t op;		  /* enum df_opcode */
	uint8_t src_buf, dst_buf; /* enum df_buf */
	uint8_t flags;		  /* enum df_inst_flag */
	uint16_t send_conn;	  /* index in the block's send connections, or DF_NO_CONN */
	uint16_t recv_conn;
	uint32_t src, dst; /* first chunk */
	uint16_t cnt;	   /* chunks, >= 1 */
	uint16_t nr_deps;
	uint32_t first_dep; /* index in the program's dependencies */
	uint32_t send_ord;  /* slices that this loop sends on the connection before it */
	uint32_t recv_ord;
};

/* A connection is (source rank, destination rank, channel), used by one block on either side. */
struct df_conn_spec {
	int32_t peer;	   /* rank in the communicator */
	uint32_t channel;  /* distinguishes connections of one pair in one direction */
	uint32_t per_loop; /* slices that one loop sends on it */
};

struct df_prog_block {
	uint32_t first_inst, nr_inst;
	uint32_t first_send, nr_send, first_recv, nr_recv; /* in the program's connections */
};

/*
 * The program of one rank, position-independent: `bytes` bytes, with tables at offsets from its
 * start. The unit "count" is that of the NCCL call: every count elements of a buffer are divided
 * into `chunks` chunks of ceil(count/chunks) elements (the last may be short or empty). Chunk i of
 * the input or output is part j = i % chunks of block b = i / chunks. Scratch chunks have the full
 * length.
 */
struct df_program {
	uint32_t version; /* DF_ABI_VERSION */
	uint32_t bytes;
	int32_t nranks, rank;
	uint32_t chunks, in_chunks, out_chunks, scratch_chunks; /* chunks: per count */
	uint32_t max_cnt;					/* largest cnt of any instruction */
	uint32_t min_slots; /* fewest slots without a deadlock of its own; 0: unknown */
	uint64_t max_bytes; /* largest permitted count * size of the type; 0: no limit */
	uint32_t nr_blocks, nr_inst, nr_deps, nr_conns;
	uint32_t off_blocks, off_inst, off_deps, off_conns;
	uint64_t hash; /* of the program of all ranks; equal on every rank */
	char name[48];
};

#ifdef __CUDACC__
#define DF_BOTH __host__ __device__
#else
#define DF_BOTH
#endif

static inline DF_BOTH const struct df_prog_block *df_prog_block(const struct df_program *p,
								uint32_t b)
{
	return (const struct df_prog_block *)((const char *)p + p->off_blocks) + b;
}
static inline DF_BOTH const struct df_inst *df_prog_inst(const struct df_program *p, uint32_t i)
{
	return (const struct df_inst *)((const char *)p + p->off_inst) + i;
}
static inline DF_BOTH const struct df_dep *df_prog_dep(const struct df_program *p, uint32_t i)
{
	return (const struct df_dep *)((const char *)p + p->off_deps) + i;
}
static inline DF_BOTH const struct df_conn_spec *df_prog_conn(const struct df_program *p,
							      uint32_t i)
{
	return (const struct df_conn_spec *)((const char *)p + p->off_conns) + i;
}

/* ---- connectors ----------------------------------------------------------------------------- */

/* How slices travel: in slots with a counter (Simple, ANY) or as words (kernels/words.inl). */
enum df_proto { DF_PROTO_ANY, DF_PROTO_SIMPLE, DF_PROTO_LL, DF_PROTO_LL128, DF_PROTO_NR };

/* The largest slice of the low-latency protocols: a block keeps two of them in its stage. */
#define DF_WORDS_BYTES 4096
#define DF_CONN_REFS   16 /* the most slots of a connector whose slices may go by reference */
#define DF_LAND_ASKED  (1ull << 63) /* in refs of a receiver: where to write the slice */

/*
 * The shared part of a connector, in its owner's arena; the slots follow at DF_CONN_SLOTS.
 * Positions count slices since the registration of the collective; they do not wrap in practice.
 */
struct df_conn_hdr {
	uint64_t tail; /* slices sent: written by the sender, polled by the receiver (Simple) */
	uint64_t pad0[7];
	uint64_t head; /* slices consumed: written by the receiver, polled by the sender */
	uint64_t pad1[7];
	uint64_t refs[DF_CONN_REFS]; /* by slot, see df_kconn.refs */
	uint64_t wanted;	     /* the owner requests it back: see runtime/coll/recycle.c */
	uint64_t key;		     /* identifies the connector */
	uint32_t nr_slots, slot_bytes;
	uint64_t withdrawn; /* whether the memory that refs name must not be accessed any more */
};
#define DF_CONN_SLOTS 320

/*
 * A connector in the memory of a GPU: in host memory, this follows its header instead of the slots.
 * That header's counters only show what the host has processed. At `offset` in the GPU's memory
 * there is another header, of which the blocks use tail, head and refs, and after it the slots.
 */
struct df_conn_far {
	uint64_t ready; /* released by the owner's block: its counters are set */
	uint64_t chunk; /* index of the piece of the owner's GPU memory in its process */
	uint64_t chunk_bytes, offset;
	uint64_t addr;	    /* of the connector in the owner's process */
	uint8_t handle[64]; /* opens the chunk in another process (CUipcMemHandle) */
};

/* Wakes a sleeping process: its futex word, in memory that its peers map. */
struct df_bell {
	uint32_t sleepers; /* > 0: a thread sleeps; ring after publishing */
	uint32_t seq;	   /* futex word, incremented by every ring */
	uint32_t asked;	   /* counts the connectors that peers request back */
	int32_t fd;	   /* > 0: an eventfd, for a sleeper that also waits for descriptors */
	uint32_t pad[12];
};

/* WITHDRAWN: CONNECTED, but memory named by the sender must not be read (runtime/coll/byref.c). */
enum df_kconn_state { DF_KCONN_OPEN, DF_KCONN_CONNECTED, DF_KCONN_WITHDRAWN = 3 };

/* One end of a connector, as a block uses it. The host fills it and then releases `state`. */
struct df_kconn {
	uint32_t state; /* enum df_kconn_state */
	uint32_t nr_slots, slot_bytes, per_loop;
	uint16_t proto;	 /* enum df_proto; the same at both ends */
	uint16_t lands;	 /* whether refs receive addresses to write to (network, CPU threads) */
	uint32_t credit; /* low-latency protocols: number of slices between writes of head */
	uint64_t *tail, *head;
	uint8_t *slots;
	uint64_t *refs; /* by slot: the address of a slice that was not copied, or 0; or NULL */
	struct df_bell *bell; /* of the peer's process; NULL if the peer polls */
	uint64_t seen;	      /* the peer's counter when last read; the block's own */
	uint64_t peer;	      /* identifies the other end's owner: equal within one daemon */
	/* Not NULL: the block sets tail and head to base, then state, then releases 1 here. */
	uint64_t *fresh;
	uint64_t base;
};

/* ---- collectives, instances, contexts ------------------------------------------------------- */

/* *addr >= value must hold before an instance may access the user's buffers. */
struct df_kwait {
	const uint64_t *addr;
	uint64_t value;
};

#define DF_INST_WAITS 4

/*
 * Synchronizes a captured collective with its graph. A replay writes 1 to `arrived`, waits for
 * `open`, and writes 0 to it. Replays run one after another, so a block that has seen `arrived` can
 * clear it.
 */
struct df_kgate {
	uint64_t arrived;
	uint64_t opened; /* df_replayed.opens of the last instance that set `open` */
	uint64_t issued, begun, lane, pad0[3]; /* struct df_lane_op */
	uint64_t open;
	uint64_t pad1[7];
};

struct df_kinst {
	/* These change while the instance runs; copies omit them (kernels/hot.inl). */
	struct df_kinst *next; /* released by the host when the next instance exists */
	uint32_t blocks_left;  /* decremented by every block that has finished */
	uint32_t cap_waits;
	const void *in;
	void *out;
	uint64_t seq;	     /* instance number in the collective, from 0 */
	uint64_t done_value; /* stored to df_kcoll.done when all blocks have finished it */
	uint64_t redop_arg;
	const uint64_t *redop_ptr; /* not NULL: the scalar is read there when the instance starts */
	uint64_t op;		   /* serial of the operation, for completions and the trace */
	struct df_kgate *gate;	   /* of a graph's replay; else NULL */
	uint32_t nr_waits : 30, shown : 2; /* shown: df_refs_shown() */
	int32_t priority;		   /* with df_policy.order; a higher number goes first */
	struct df_kwait *waits;		   /* own_waits, or a longer array */
	struct df_kwait own_waits[DF_INST_WAITS];
};

struct df_kcoll;

/*
 * The task of one block in one collective, written by that block only (others read k). On a GPU the
 * block may use a copy (kernels/hot.inl); lists and rings always name the original.
 */
struct df_kctx {
	uint64_t k; /* slices executed; released after each one if other blocks depend on it */
	struct df_kctx *home; /* in a copy: the original */
	struct df_kcoll *coll;
	struct df_kinst *cur; /* the running instance, or the last finished one; initially NULL */
	uint64_t announced;   /* instances announced by SQEs */
	uint64_t finished;    /* instances that this block has finished */
	struct df_kctx *next, *prev; /* task queue */
	uint64_t redop_arg;	     /* of the running instance */
	uint32_t queued;
	int32_t priority; /* the highest of the announced instances: they finish in order */
	uint32_t block;	  /* program block */
	uint32_t nr_inst, first_inst, nr_send, nr_recv; /* of the program block */
	uint32_t lead;	    /* whether it reports START for its collective */
	uint32_t ready;	    /* whether the waits of `cur` have been seen true */
	uint32_t loaded;    /* whether an attempt is in progress */
	uint32_t preempted; /* whether another task has made progress since this one did */
	uint32_t fresh;	    /* whether some of its connectors are fresh, see df_kconn */
	uint32_t since;	    /* df_kblock.queued when the task was queued */
	uint32_t served;    /* by priority: df_kblock.served when it last got its share */
	uint32_t told;	    /* whether START of the running instance has been reported */
	uint32_t moving;    /* whether a slice of it moves without the block's lock */
	int64_t spin;	    /* threshold of the current attempt */
	int64_t polls;	    /* polls since the last progress in this attempt */
	struct df_kconn *send, *recv;
};

/* The static context of a registered collective on one rank. */
struct df_kcoll {
	const struct df_program *prog;
	uint32_t type, redop, elem_bytes;
	uint64_t count;				  /* elements, as in the call */
	uint64_t chunk_elems;			  /* ceil(count / chunks) */
	uint64_t tile_elems;			  /* elements of one chunk moved per slice */
	uint64_t loops;				  /* ceil(chunk_elems / tile_elems), at least 1 */
	uint32_t chunks, nr_deps, scratch_chunks; /* of prog */
	uint32_t nr_blocks;			  /* blocks that have instructions */
	struct df_kctx *ctx;			  /* an array of prog->nr_blocks */
	uint64_t *done; /* completion word visible to the host; never decreases, even when reused */
	uint64_t id;	/* for the trace */
	/* These change later; a block may copy the fields before them (kernels/hot.inl). */
	uint8_t *scratch;
	uint32_t aborted; /* set by the host: do not access memory any more */
};

/* Sets the program of a collective, and the fields copied from it. */
static inline void df_kcoll_program(struct df_kcoll *c, const struct df_program *prog)
{
	c->prog = prog;
	c->chunks = prog->chunks;
	c->nr_deps = prog->nr_deps;
	c->scratch_chunks = prog->scratch_chunks;
}

/* Initializes the task of block b. conns: one per connection of the program. */
static inline void df_kctx_init(struct df_kctx *ctx, struct df_kcoll *c, struct df_kconn *conns,
				uint32_t b)
{
	const struct df_prog_block *pb = df_prog_block(c->prog, b);

	ctx->coll = c;
	ctx->block = b;
	ctx->first_inst = pb->first_inst;
	ctx->nr_inst = pb->nr_inst;
	ctx->nr_send = pb->nr_send;
	ctx->nr_recv = pb->nr_recv;
	ctx->send = &conns[pb->first_send];
	ctx->recv = &conns[pb->first_recv];
}

/* ---- rings ---------------------------------------------------------------------------------- */

struct df_sqe {
	struct df_kctx *ctx;   /* the task */
	struct df_kinst *inst; /* its next instance; NULL: check connectors, priorities */
};

/* Size of the part of an instance that is fixed after submission, from df_kinst.in. */
#define DF_KINST_FIXED (sizeof(struct df_kinst) - offsetof(struct df_kinst, in))

/*
 * A slot of a submission ring. For a GPU it also contains the instance's fixed part, and the
 * highest bit of each word is DF_LAP() of the slot. So a block reads all that it needs, and whether
 * it is complete, in one round trip across the bus. kernels/slot.h writes it.
 */
struct df_sq_slot {
	struct df_sqe e;
	uint64_t fixed[DF_KINST_FIXED / 8];
	uint64_t tops; /* the bits that the laps replace: bit i is that of word i */
};

enum df_cqe_kind { DF_CQE_DONE, DF_CQE_START, DF_CQE_PREEMPT, DF_CQE_RESUME };

/*
 * The lowest bits of `coll` and `value`, DF_LAP() of the slot, show whether they are valid, so
 * no fence is needed. The completion of an operation is valid only when the collective's word has
 * that value, too.
 */
struct df_cqe {
	uint64_t coll;	   /* address of the struct df_kcoll; from bit 1: enum df_cqe_kind */
	uint64_t value;	   /* from bit 1; DONE: df_kinst.done_value, else df_kinst.op */
	uint64_t k, block; /* PREEMPT, RESUME: slice counter, block; after a fence */
};

/* Free-running indices: the slot is index & mask. Each side has its own cache line. */
struct df_ring {
	uint32_t tail; /* written by the producer only; CQ of a GPU: when the block leaves */
	uint32_t pad0[15];
	uint32_t head; /* written by the consumer only */
	uint32_t pad1[15];
	uint32_t mask;
	uint32_t lost; /* CQ: there was no room for a completion: check all collectives */
	void *slots;
	uint64_t pad2[6];
};

/* 1 on every other lap of a ring, beginning with the first. */
#define DF_LAP(ring, index) ((uint64_t) !((index) & ((ring)->mask + 1)))

/* ---- the daemon ----------------------------------------------------------------------------- */

/* Scheduling constants (DFCCL section 4.3, "stickiness"), computed by runtime/daemon/sched.c. */
struct df_policy {
	int64_t front;	  /* threshold at the front of the queue, in polls */
	int64_t step;	  /* decrease per position */
	int64_t floor;	  /* the minimum */
	int64_t boost;	  /* factor after a successful primitive */
	int64_t max;	  /* the maximum */
	uint64_t quit_ns; /* time without progress before a block leaves; on a GPU */
	uint64_t gang;	  /* operations until the common order ends; 0: there is none */
	uint32_t order;	  /* 0 for FIFO, 1 for priority */
	uint32_t share;	  /* by priority: percent of the work that less urgent tasks get */
	uint32_t urgent;  /* by priority: threshold of an urgent task after its slices */
	/* Report START: 1 for operations that have to wait; 2 for all, with PREEMPT and RESUME. */
	uint32_t events;
	uint32_t let; /* CPU threads: slices from this size on move without the lock; 0: none */
};

struct df_kstats {
	uint64_t slices, operations, preemptions, context_loads, context_saves, quits, max_queue;
	uint64_t polls, refs; /* refs: slices sent by reference */
};

struct df_kblock {
	struct df_ring sq, cq;
	uint32_t lock; /* on CPU threads: 1 while a thread executes it; 2: others may sleep */
	uint32_t index;
	/* The task queue is a list through the contexts, so it cannot overflow. */
	struct df_kctx *first, *last;
	struct df_kctx *task;	   /* the one that has its turn */
	struct df_kctx *running;   /* the unfinished task that last made progress; or NULL */
	uint32_t pos;		   /* position of `task` */
	uint32_t nr_tasks, moving; /* moving: tasks with a slice that moves without the lock */
	uint32_t moved;		   /* progress in the current traversal */
	uint32_t queued;	   /* tasks ever queued */
	uint32_t gang;	 /* whether tasks are taken in the order that is common to all ranks */
	uint32_t stays;	 /* GPU: the block is on the device and has recently had work */
	uint32_t served; /* number of times that a task got its share */
	int64_t owed;	 /* by priority: bytes * percent still due to less urgent tasks */
	int64_t idle;	 /* traversals without progress */
	struct df_kstats stats;
};

struct df_kdaemon {
	uint32_t abi; /* DF_ABI_VERSION */
	uint32_t nr_blocks;
	uint32_t quit; /* by the host: leave as soon as possible; not cleared while a kernel runs */
	uint32_t device;
	struct df_policy policy;
	uint64_t self; /* df_kconn.peer of connectors whose other end belongs to this daemon too */
	struct df_kblock *blocks;
	/* GPU memory for further contexts: nr_lines of DF_LINE_BYTES per block; or NULL. */
	void *lines;
	uint32_t nr_lines;
	uint32_t leave; /* by a block: no block has work, so all leave; cleared before a launch */
};

#define DF_LINE_BYTES 2048
#define DF_LINES      64 /* a power of two */

/* The result of one turn of a block. */
enum df_turn {
	DF_TURN_PROGRESS, /* something made progress */
	DF_TURN_SPIN,	  /* tasks are queued, but none made progress at this poll */
	DF_TURN_EMPTY,	  /* no task is queued */
	DF_TURN_TAKEN,	  /* other threads move everything that can move */
};

#ifndef __CUDACC__
_Static_assert(sizeof(struct df_inst) == 32, "instruction size is part of the ABI");
_Static_assert(sizeof(struct df_conn_hdr) <= DF_CONN_SLOTS, "header overlaps the slots");
_Static_assert(sizeof(struct df_conn_far) <= 128, "a far connector's part is small");
_Static_assert(sizeof(struct df_bell) == 64, "a bell has its own line");
_Static_assert(sizeof(struct df_cqe) == 32, "CQE size is part of the ABI");
#endif

#endif
