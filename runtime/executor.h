/*
 * The border between the order layer (runtime/order, runtime/watch), which decides what waits for
 * what, and the executor, which moves the bytes. The order layer calls nothing of an executor but
 * this table (scripts/check_calls.sh).
 *
 * A *point* is a word and a value. It is reached when the word holds the value or a higher one. The
 * end of an operation is a point, and so is a position on a stream (struct df_mark). Words never
 * decrease and are never freed. A thread waits for a point by reading its word and calling pass(),
 * or by wait(); a stream waits for it by df_backend->stream_wait().
 *
 * Results are 0 or -errno unless said; the caller logs. Any thread may call any function. A
 * function whose section or comment says "dev->lock" is called with the lock of that device held,
 * one that says "any lock" with any locks held: neither blocks. All others are called with no lock
 * held.
 */
#ifndef DF_RUNTIME_EXECUTOR_H
#define DF_RUNTIME_EXECUTOR_H

#include <stddef.h>
#include <stdint.h>
#include "kernels/abi.h"
#include "runtime/base/lock.h"

struct df_cal;
struct df_coll;
struct df_comm;
struct df_dev;
struct df_flights;
struct df_lane_op;
struct df_member;
struct df_mstream;
struct df_op;

/* Calls with equal signatures are the same collective. Hashed as bytes, so there is no padding. */
struct df_sig {
	uint64_t count;
	uint32_t kind, type, redop;
	int32_t root;	  /* root or peer; -1: none */
	uint32_t id;	  /* identifier of the native API */
	uint32_t no_data; /* whether the call moves no data (df_backend.skips_data) */
};

/*
 * A word that a stream writes when it reaches a point; its value increases. Guarded by a lock of
 * its owner.
 */
struct df_mark {
	uint64_t *word;	  /* NULL: none yet */
	uint64_t seq;	  /* the last value that was enqueued; also read without the lock */
	uint32_t writing; /* number of threads that are enqueueing a write now */
	/* several threads did so at a time: the order of their writes is unknown */
	uint8_t mixed;
};

/* An earlier operation that must end before this one starts. */
struct df_before {
	struct df_kwait wait;
	uint64_t op; /* serial */
};

/* One operation on its way from the order layer to the executor. */
struct df_launch {
	/* The operation; set before prepare(). */
	const struct df_op *op;
	struct df_comm *comm;
	struct df_dev *dev;
	const struct df_sig *sig;
	uint64_t serial, group; /* group: of the NCCL group, or equal to serial */
	int in_place, stream_priority;
	uint32_t shown; /* from shown() */
	/*
	 * The points that the operation waits for; set before place(). `after` are the ends of
	 * earlier operations, `ready` is its position on its stream (addr NULL: none). `behind` are
	 * operations of its stream (NULL: none); it waits for those with `at` <= `fenced`.
	 */
	struct df_before *after;
	uint32_t nr_after;
	struct df_kwait ready;
	const struct df_flights *behind;
	uint64_t fenced;
	/*
	 * A replay of a graph: the position that the communicator's latest operation waited for,
	 * the end of the gate's previous replay, and the graph's gate.
	 */
	int replay;
	struct df_kwait latest, previous;
	struct df_kgate *gate;
	/* Set by prepare(). Operations of one queue end in their order; NULL: it is in no queue. */
	const void *queue;
	struct df_coll *coll;	    /* the daemon's */
	struct df_lane_op *on_lane; /* the lanes' */
	/*
	 * Set by place(): the point that is its end; for the trace: signature, number among its
	 * equals, program, protocol.
	 */
	const uint64_t *done;
	uint64_t value, key, number;
	uint64_t opens; /* df_replayed.opens, of a replay */
	uint32_t program;
	uint8_t proto;
	struct df_kinst *inst; /* the daemon's */
};

struct df_executor {
	/* -- the process and its communicators -- */

	/*
	 * At the start of the process, once its machine and df_rt.devs are known. On an error the
	 * reason is in df_rt.reason.
	 */
	int (*setup)(void);
	/*
	 * Before the communicator meets its other ranks: fills in what this rank reports of
	 * itself. Blocks. On an error this rank cannot execute, for the reason in df_rt.reason.
	 */
	int (*open)(struct df_comm *comm, int nranks, struct df_member *me);
	/*
	 * For a rank that calls split: fills in cal and avoid, as open() does. comm NULL: the rank
	 * will be in no child.
	 */
	void (*terms)(const struct df_comm *comm, int nranks, struct df_cal *cal, uint32_t *avoid);
	/*
	 * All ranks call it when their members are known: makes what executes the communicator.
	 * parent: of a child, else NULL. rows: of its ranks, from terms(); NULL: those of the
	 * members. Blocks.
	 */
	int (*meet)(struct df_comm *comm, const struct df_comm *parent, const struct df_cal *rows);
	/* After meet(), before the first operation. */
	void (*start)(struct df_comm *comm);
	/* Counts operations that have ended (df_comm.retired, df_exec.retired). dev->lock. */
	void (*retire)(struct df_dev *dev);
	/*
	 * The communicator's state has been set, so no operation is added, and end() follows soon:
	 * begins what end() waits for. dev->lock.
	 */
	void (*condemn)(struct df_comm *comm);
	/*
	 * Ends the communicator's unfinished operations, with undefined data. No operation is
	 * added. Bounded; of several communicators, all condemned before, as for one.
	 */
	void (*end)(struct df_comm *comm);
	/* Frees what executes the communicator, which has no unfinished operation. Bounded. */
	void (*forget)(struct df_comm *comm);
	/* A message DF_MSG_EXECUTOR of another process; on the control thread. */
	void (*heard)(const void *data, size_t bytes);
	/*
	 * Before the process ends: waits, for a bounded time, until other processes no longer need
	 * this one. living: also for communicators that were not destroyed.
	 */
	void (*linger)(int living);

	/* -- one operation; dev->lock -- */

	/*
	 * Finds what executes the operation. After success launch() or drop() follows, after an
	 * error neither.
	 */
	int (*prepare)(struct df_launch *l);
	/* Gives the operation its end, for which others can wait from here on. -ENOMEM. */
	int (*place)(struct df_launch *l);
	/* After place(): the operation starts when all its points are reached. Cannot fail. */
	void (*launch)(struct df_launch *l);
	/* Instead of launch(), when order or place() has failed: releases what prepare() took. */
	void (*drop)(struct df_launch *l);

	/* -- around the operations of a group, in this order -- */

	/* df_launch.shown of an operation with these buffers. May call the driver. */
	uint32_t (*shown)(const struct df_comm *comm, const void *in, const void *out,
			  uint64_t bytes);
	/*
	 * Before dev->lock is taken to launch: waits, for a bounded time, for memory that launching
	 * needs.
	 */
	void (*reserve)(void);
	/*
	 * After dev->lock has been released. bytes: of the group's only operation, UINT64_MAX if it
	 * has several or none. This thread may begin to execute a small one. Bounded.
	 */
	void (*first_turns)(struct df_dev *dev, uint64_t bytes);
	/* After the group: makes sure that a thread or a GPU executes it. */
	void (*submitted)(void);

	/* -- points -- */

	/*
	 * Prepares a mark for streams like `on`; on NULL: no operation ever waits for the mark. Any
	 * lock. -ENOMEM.
	 */
	int (*mark_init)(struct df_mark *m, const struct df_mstream *on);
	/*
	 * Makes the stream's current position the mark's next point, *value. lock: the mark's; held
	 * at the call and at the return, released in between, since the driver may block.
	 */
	int (*mark)(struct df_mutex *lock, struct df_mark *m, struct df_mstream *on,
		    uint64_t *value);
	/*
	 * At most this many streams of a device may wait at a time, because each keeps a hardware
	 * queue, and the executor needs the rest; 0: any number. Any lock.
	 */
	uint32_t (*waiting_streams)(void);
	/*
	 * One more stream of the device is about to wait than waiting_streams() allows. Returns 1
	 * if it may: then the executor launches nothing on the device until df_waits_crowded() is
	 * 0. Returns 0 if the executor may have to launch. Bounded; no lock is held.
	 */
	int (*crowd)(int device);
	/*
	 * Adds the ends of all unfinished operations of the device to the set. dev->lock. -ENOMEM.
	 */
	int (*in_flight)(struct df_dev *dev, struct df_flights *set);

	/* -- progress -- */

	/*
	 * Looks once for progress, on the device first if that is >= 0. Returns 1 if something
	 * moved, else 0.
	 */
	int (*pass)(int device);
	/* Returns when ready(arg) is not 0; the caller helps to execute meanwhile. */
	void (*wait)(struct df_dev *dev, int (*ready)(void *arg), void *arg);
	/*
	 * A number that changes when an operation moves on the device; dev NULL: on any device of
	 * the process. Any lock.
	 */
	uint64_t (*progress)(const struct df_dev *dev);
	/* Threads in wait() ask ready() again, in all processes of the node. Any lock. */
	void (*wake)(void);
	/*
	 * Records calls of the network that do not return. Called every pause_ns; now_ns:
	 * df_now_ns().
	 */
	void (*note_held)(uint64_t now_ns, uint64_t pause_ns);
};

/* The executor of this process: the daemon until df_executor_choose() (runtime/exec/choose.c). */
extern const struct df_executor *df_executor;

/*
 * Sets df_executor: NCCL's kernels on lanes, or the daemon. Once, at the start of the process.
 * Returns what the trace says of it (enum df_executed_by).
 */
unsigned df_executor_choose(int by_lanes);

#endif
