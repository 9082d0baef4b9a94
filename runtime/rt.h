/*
 * The inside of the runtime: its objects and who guards them. Private to runtime/.
 *
 *   df_rt        the process: backend, devices, engine, settings
 *   df_dev       one device: its daemon (blocks, rings), the streams that carry collectives, what is
 *                in flight. Guarded by df_dev.lock, which is never held across a call that can block.
 *   df_comm      a communicator's local rank
 *   df_coll      a registered signature of a communicator: its program, connectors and instances
 *   df_flight    an operation in flight, by value: (collective, instance) and the bytes it touches
 *
 * Completion needs no lock: an operation is done when the completion word of its collective has reached
 * its value. Completion words are never freed and never decrease, so a stale df_flight reads "done".
 */
#ifndef DF_RUNTIME_RT_H
#define DF_RUNTIME_RT_H

#include <pthread.h>
#include <stdint.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include "kernels/abi.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/ctl/ctl.h"
#include "runtime/dfshim.h"
#include "trace/record/format.h"
#include "runtime/program/file/algofile.h"
#include "runtime/program/build/cost.h"
#include "runtime/transport/bell.h"
#include "runtime/transport/transport.h"
#include "runtime/backend.h"

/* ---- operations in flight -------------------------------------------------------------------------- */

struct df_flight {
	const uint64_t *done; /* done when *done >= value */
	uint64_t value;
	uint64_t op;	      /* serial */
	struct df_coll *coll; /* identity only: may be gone once done */
	uint64_t group;	      /* serial of the NCCL group it was submitted with */
	uint64_t at;	      /* when it came into the set that it is in: counts up */
	uintptr_t in, in_end, out, out_end;
};

/* A set of operations in flight; finished ones are pruned as it grows. */
struct df_flights {
	struct df_flight *v;
	uint32_t nr, cap;
	uint32_t prune_at;
	uint64_t added; /* df_flight.at of the latest */
};

static inline int df_flight_done(const struct df_flight *f)
{
	/*
	 * ACQUIRE pairs with the RELEASE of done in dfk_finish() (kernels/task.inl): whoever sees the
	 * operation done also sees its results.
	 */
	return __atomic_load_n(f->done, __ATOMIC_ACQUIRE) >= f->value;
}

int df_flights_add(struct df_flights *s, const struct df_flight *f);
int df_flights_join(struct df_flights *s, const struct df_flights *from);
/* Those of them that came into `from` after `after` and not after `upto`. */
int df_flights_join_part(struct df_flights *s, const struct df_flights *from, uint64_t after,
			 uint64_t upto);
void df_flights_prune(struct df_flights *s);
void df_flights_free(struct df_flights *s);
/* 1 when all are done. */
int df_flights_done(const struct df_flights *s);

/* ---- collectives ------------------------------------------------------------------------------------ */

/* What makes two calls the same collective (design section 4.2); hashed as bytes, so no padding. */
struct df_sig {
	uint64_t count;
	uint32_t kind, type, redop;
	int32_t root; /* root or peer; -1 none */
	uint32_t id;  /* of the native API */
	uint32_t zero;
};

/* One end of a connector of a collective. */
struct df_cend {
	struct df_kconn *k;
	struct df_kctx *ctx; /* whose it is */
	struct df_conn *conn;
	struct df_peer *peer; /* owned by the communicator */
	const struct df_tl_ops *tl;
	uint64_t key;
	struct df_wire *wire; /* the emulated link it goes through, NULL none */
	uint64_t base; /* owner: the position at which the connector begins when it is made again */
	uint32_t nr_slots, slot_bytes;
	uint8_t owner, sends;
};

#define DF_PROBES 8
struct df_coll {
	struct df_kcoll k;
	struct df_sig sig;
	UT_hash_handle hh;
	struct df_comm *comm;
	struct df_dev *dev;
	struct df_list node;	/* dev->colls */
	struct df_list waiting; /* dev->connecting */
	struct df_program *prog;
	uint64_t key;	  /* hash of communicator and signature: what connectors are named by */
	uint64_t base;	  /* of the completion word when the collective was registered */
	uint64_t issued;  /* instances */
	uint64_t retired; /* instances whose completion the host has taken note of */
	struct df_kinst *oldest, *newest, *unretired;
	struct df_cend *ends;
	uint32_t nr_ends, nr_open;
	uint32_t parked; /* ends that were recycled or let go: connect before the next instance */
	uint32_t asked;	 /* a peer would like connectors back: when nothing is in flight */
	uint64_t in_bytes, out_bytes;
	/* Scratch that the machine does not have yet: no instance starts before the word has gone up. */
	uint64_t scratch_bytes;
	uint64_t *scratch_word, scratch_from;
	int no_scratch;
	struct df_algo_pick pick; /* algorithm, and what it was expected to take */
	struct {
		uint64_t seq, since;	/* instance being timed; since 0: none */
		uint64_t ns[DF_PROBES]; /* the last ones, in order of size */
		uint32_t nr;
	} probe;
};

/* ---- devices ----------------------------------------------------------------------------------------- */

/* Submissions that found their ring full, in order. */
struct df_overflow {
	struct df_sqe *v;
	uint32_t head, nr, cap;
};

struct df_dev {
	int index;
	struct df_mutex lock;
	struct df_exec exec;	      /* issued, retired: written under the lock, read without */
	struct df_overflow *overflow; /* one a block */
	uint32_t nr_overflow;	      /* blocks with entries in theirs; read without the lock */
	struct df_list streams;	      /* struct df_stream */
	struct df_list events;	      /* struct df_event */
	struct df_list colls;	      /* the one used last at the end */
	struct df_list connecting;    /* collectives with ends that are not connected */
	uint32_t nr_connecting;	      /* read without the lock */
	struct df_list held;	      /* struct df_unit: launches under the nccl rules */
	uint32_t nr_held, slots_used;
	uint64_t released, reordered, recycled; /* counters for DFSHIM_STATS */
	uint32_t asked;				/* df_bell.asked when we last looked */
	/*
	 * The legacy default stream, once something has been put on it. What it must not run ahead of, later work of
	 * blocking streams must not either: they take it over when something is put on them. legacy_added:
	 * how far its set goes, 0 while it is empty; read without the lock.
	 */
	struct df_stream *legacy;
	uint64_t legacy_added;
};

/* A stream that has carried a collective; hangs on df_stream_info.user. */
struct df_stream {
	struct df_list node;
	struct df_dev *dev;
	struct df_stream_info info;
	struct df_flights pending; /* what the stream must not run ahead of */
	uint64_t fenced;	   /* those up to here (df_flight.at) it waits for already */
	uint64_t met;		   /* the legacy stream has taken over those up to here */
	uint64_t
		legacy_seen; /* of the legacy stream's it has taken over those up to here; also read without the lock */
	uint64_t *ready;    /* the word that the stream writes when it has got somewhere */
	uint64_t ready_seq; /* its last value */
	uint32_t users;	    /* other threads that enqueue waits on it */
	/* A stream of our own that is behind this one and what it must not run ahead of: for times of events. */
	struct df_mstream *aside;
	uint64_t *aside_word; /* written behind each event */
	uint64_t aside_seq;
};

/* An event recorded behind operations in flight; hangs on df_event_info.user. */
struct df_event {
	struct df_list node;
	struct df_dev *dev;
	struct df_flights pending;
	uint64_t record; /* serial of the last record */
	/*
	 * An event of our own that is recorded when the operations are done, for its time; that has happened when the
	 * word has the value. word NULL: the application's event has the time.
	 */
	void *timed;
	uint64_t *word, value;
};

/* ---- communicators ------------------------------------------------------------------------------------ */

struct df_comm {
	struct df_list node; /* rt.comms */
	struct df_dev *dev;
	struct df_comm_config config;
	struct df_ctl_comm *ctl;
	const struct df_member *members;
	int nranks, rank;
	struct df_cost cost; /* what all ranks choose programs by */
	int nodes;
	struct df_layout
		*layout; /* of the ranks over them; NULL: one node, or equal ones in rows */
	uint64_t hash;
	uint32_t open; /* all the above is set for good: for threads that are not the owner's */
	struct {
		uint64_t id, since; /* hash of the id; when this rank came */
		int nranks, rank;
	} join;		/* while it joins by an id; under df_rt.lock */
	uint32_t stop;	/* ends blocking calls */
	int condemned;	/* to be ended with others: between the halves; guarded by df_rt.lock */
	uint32_t state; /* enum df_comm_state */
	int error;
	uint32_t trace; /* number in the trace's table */
	uint32_t blocks;
	uint32_t splits; /* children made of it */
	uint64_t family; /* of config.share: those with the same number end together; 0 none */
	uint64_t issued, retired; /* operations; under dev->lock, read without */
	uint64_t index;		  /* issue index of the next operation */
	struct df_coll *colls;	  /* uthash by sig */
	struct df_coll *last;	  /* the one looked up last */
	struct df_peer **peers;	  /* by rank; NULL until needed */
	const struct df_tl_ops **tls;
	struct df_flights pending; /* for the implicit order of one communicator over streams */
	uint32_t
		refs; /* its owner, and operations in graphs, which may be there longer: keep the memory */
	/*
	 * Where its latest operation was put: what that one came after, the next one comes after too,
	 * whatever its stream. See order.c.
	 */
	struct {
		struct df_stream *stream; /* NULL: none yet, or it is gone */
		uint64_t at;		  /* that was the end of stream->pending */
		uint64_t *ready;	  /* the stream's work before it is done when this word */
		uint64_t value;		  /* has this value */
		uint8_t replayed;	  /* replays of graphs since */
	} latest;
	uint64_t
		left_retired; /* operations retired when that was looked at, and when that number was new; the watchdog's */
	uint64_t left_since;
	uint64_t peer_left;   /* when a member's process ended in order; 0 none */
	uint32_t connected;   /* nccl rules: the host-blocking set-up has been done */
	struct df_unit *unit; /* nccl rules: the last launch, NULL when it has finished */
};

/* ---- the process ---------------------------------------------------------------------------------------- */

struct df_rt {
	int started; /* 0 no, 1 yes, -errno */
	int unable;  /* df_start_unable() has been called and did it */
	char reason[256];
	struct df_member self;
	int nr_devs;
	struct df_dev *devs;
	struct df_mutex lock; /* comms */
	struct df_list comms;
	int rules;     /* DF_RULES_* */
	int strict;    /* stream order */
	int host_work; /* host functions, or graphs that may hold some, were put on streams */
	struct df_execs execs;	     /* the devices as the machine sees them */
	uint32_t blocked;	     /* host threads inside a blocking call of ours */
	struct df_algo_table *algos; /* DFSHIM_ALGO; NULL none */
	struct df_tuner *tuner;	     /* DFSHIM_TUNER, NCCL_ALGO; NULL: the built-in choice */
	uint64_t settings;	     /* hash of what all ranks must have alike */
	uint32_t slots;		     /* of a connector */
	uint64_t conn_budget;	     /* DFSHIM_CONNECTOR_MB in bytes */
	uint32_t slot_bytes;
};

extern struct df_rt df_rt;

/* What the daemon looks at; raw: not zeroed. */
static inline void *df_kalloc(size_t bytes)
{
	return df_backend->shared_alloc(bytes, 1);
}

static inline void *df_kalloc_raw(size_t bytes)
{
	return df_backend->shared_alloc(bytes, 0);
}

static inline void df_kfree(void *p)
{
	df_backend->shared_free(p);
}

/* ---- between the files of runtime/ ------------------------------------------------------------------------ */

/* daemon.c: blocks and rings of a device. */
int df_dev_init(struct df_dev *dev, int index, uint32_t nr_blocks);
void df_sq_push(struct df_dev *dev, uint32_t block, const struct df_sqe *e); /* dev->lock */
void df_dev_needs(struct df_coll *coll, int more); /* an instance begins, or ends (-1); dev->lock */
void df_sq_flush(struct df_dev *dev);		   /* moves overflow into rings; dev->lock */
void df_sq_drop(struct df_dev *dev);		   /* forgets overflow of aborted ones; dev->lock */
void df_dev_retire(struct df_dev *dev);		   /* takes note of completions; dev->lock */
int df_dev_cq_pending(const struct df_dev *dev);

/* engine.c: who executes the blocks. */
void df_engine_start(void);
/* An operation of no more bytes is begun by the thread that submits it (first_turns()). */
#define DF_FIRST_TURNS_BYTES 4096
/* For struct df_hooks. */
int df_engine_chores(int device);
int df_engine_asked(int device);
/* Waits until ready(arg); drives the daemons meanwhile. call: what the trace and the watchdog see. */
void df_engine_wait(struct df_dev *dev, int (*ready)(void *arg), void *arg);
/* Returns when no thread executes an aborted collective of the device any more. */
void df_engine_purge(struct df_dev *dev);
uint64_t df_engine_progress(void);		    /* a number that changes when anything moves */
uint64_t df_dev_progress(const struct df_dev *dev); /* the same, of one device */

/* coll.c: the registry. All under dev->lock. */
int df_coll_get(struct df_comm *comm, const struct df_sig *sig, int in_place, struct df_coll **out);
struct df_kinst *df_coll_instance(struct df_coll *coll, uint32_t nr_waits);
/* One that has not been appended. */
void df_coll_instance_free(struct df_kinst *inst);
void df_coll_append(struct df_coll *coll, struct df_kinst *inst);
void df_coll_retire(struct df_coll *coll);
void df_coll_abort(struct df_coll *coll); /* marks it; see df_engine_purge() */
void df_coll_destroy(struct df_coll *coll);
/* Asks the machine for a program's scratch; -EAGAIN: not now. */
int df_coll_scratch(struct df_coll *coll);

/* connector.c */
int df_coll_connect(struct df_coll *coll); /* at registration; dev->lock */
/* 1: the peer sees what our block stores as it is stored; both sides come to the same. */
int df_conn_direct(const struct df_comm *comm, int rank);
int df_coll_reconnect(struct df_coll *coll); /* what has been parked; dev->lock */
void df_dev_connect(struct df_dev *dev);     /* tries again what is missing; dev->lock */
void df_coll_disconnect(struct df_coll *coll);
/* Instances have been retired: how far they got on connectors whose counters the host can't see. */
void df_coll_note(struct df_coll *coll);
void df_conn_reap(void); /* closes what a peer still used when we left */
/* At the end: until sends have been received, living: of communicators that were not destroyed too; bounded. */
void df_conn_linger(int living);

/* wire.c: links between the emulated nodes of the host backend. */
uint64_t df_wire_node(uint64_t host, int device); /* which node a device belongs to */
/* device: whose link out; slice_bytes: of a slice on average */
int df_wire_splice(struct df_cend *end, int device, uint64_t slice_bytes);
void df_wire_unsplice(struct df_cend *end); /* delivers what is under way; no-op without a wire */
int df_wire_pass(void);	  /* 1 something arrived, 0 there are some, -1 there are none */
int df_wire_busy(void);	  /* something is under way */
void df_wire_flush(void); /* delivers everything now */

/* recycle.c: connectors of idle collectives, under a budget. All under dev->lock. */
void df_conn_make_room(const struct df_coll *coll, uint64_t bytes); /* before it makes one */
void df_dev_asked(struct df_dev *dev);	   /* peers would like connectors back */
void df_coll_let_go(struct df_coll *coll); /* gives what is wanted, if it is idle */

/* stream.c: what the streams know; the hooks. */
extern const struct df_hooks df_stream_hooks;
/* The graph launch that the calling thread is in: its stream, and a serial that all its operations share. */
void df_stream_launching(uint64_t *stream, uint64_t *launch);
struct df_stream *df_stream_get(struct df_dev *dev,
				const struct df_stream_info *info); /* dev->lock */
/* Makes the stream wait now for everything it must not run ahead of. Takes dev->lock. */
void df_stream_fence(struct df_stream *s);
/*
 * Something is about to be put on the legacy default stream s: it takes over what the blocking streams must not
 * run ahead of. A second legacy stream of the device (of another context): -EINVAL. dev->lock
 */
int df_stream_meet(struct df_stream *s);
/* It is the one of its device that df_stream_meet() serves. Takes dev->lock. */
int df_stream_is_legacy(struct df_dev *dev, const struct df_stream_info *info);
/* The legacy stream's set has changed. dev->lock */
void df_stream_legacy_note(struct df_stream *s);
/* Under strict order instead: all streams that the legacy stream waits for are made to wait. Takes dev->lock. */
void df_stream_fence_blocking(struct df_dev *dev);
void df_stream_forget_comm(struct df_comm *comm);

/* frees.c: memory whose release is deferred. */
int df_free_defer(void *ptr, const struct df_mem_info *info); /* the hook: 1 deferred */
/* Waits, as long as anything moves, for what has been deferred; 0: that is nothing. Any device. */
int df_free_flush(int device);
/* Before addresses lose their memory: waits for operations of a debt that touch it. */
void df_free_unmap(int device, uintptr_t at, size_t bytes);
void df_frees_look(void); /* gives back what is not in use any more */
int df_dev_flights(struct df_dev *dev, struct df_flights *set); /* all in flight; dev->lock */

/* order.c: what an operation must come after. */
struct df_before {
	struct df_kwait wait;
	uint64_t op;
};
/* The bytes an operation reads and writes on this rank. */
void df_order_ranges(const struct df_op *op, struct df_flight *f);
/*
 * The earlier operations of the set, up to `upto`, that f must wait for. Returns how many there are; max of them
 * are stored.
 */
uint32_t df_order_conflicts(const struct df_flights *s, uint64_t upto, const struct df_flight *f,
			    struct df_before *out, uint32_t max);
/* Puts a stream behind what its next operation of the communicator comes after. dev->lock */
int df_order_inherit(struct df_comm *comm, struct df_stream *s);
/* The operation f has been put there; ready: the word that was written for it, if any. dev->lock */
void df_order_issued(struct df_comm *comm, struct df_stream *s, const struct df_kwait *ready);
/* The stream goes: communicators keep what it knows. */
void df_order_stream_gone(struct df_stream *s);
/* Streams of one group and communicator wait for each other: before the group, and after it. dev->lock */
int df_order_meet(struct df_stream *main, struct df_stream *other);
int df_order_part(struct df_comm *comm, struct df_stream *main, struct df_stream *other);

/* rules.c: NCCL's rules. A unit is what NCCL launches as one kernel: a group's part on one communicator. */
int df_rules_connect(const struct df_op *ops, size_t nr_ops); /* blocks */
/* Adds an operation to its communicator's open unit; it starts when gate is 1. dev->lock */
int df_rules_hold(struct df_comm *comm, struct df_kinst *inst, const struct df_kwait *ready,
		  const struct df_flight *f);
void df_rules_close(struct df_comm *comm);  /* the group is complete; dev->lock */
void df_rules_progress(struct df_dev *dev); /* dev->lock */
void df_rules_drop(struct df_comm *comm);   /* dev->lock */

/* release.c: waits of the host, and letting them go when they are part of a proved deadlock. */
struct df_host_wait {
	struct df_list node;
	struct df_dev *dev;
	int (*ready)(void *arg);
	void *arg;
	uint64_t call;		      /* serial of its CALL_ENTER */
	uint32_t what;		      /* enum df_call */
	const struct df_touch *touch; /* of a copy: what it touches; NULL: no copy, or not known */
	uint32_t released;
	uint32_t told; /* the watchdog looks at it */
	uint64_t since;
	/* the watchdog's: what it saw of the device, since when that is so; its looks */
	uint64_t moved, quiet, look, last_look, pause;
};
/* As df_engine_wait(); returns 1 if the wait was released before it was ready. */
int df_host_wait(struct df_dev *dev, uint32_t what, uint64_t call, int (*ready)(void *arg),
		 void *arg);
/* The same before a copy for which the host waits; touch NULL: never released. */
int df_host_wait_copy(struct df_dev *dev, uint64_t call, const struct df_touch *touch,
		      int (*ready)(void *arg), void *arg);
/*
 * 1: a wait has lasted suspiciously long since it was last looked at. *next: when to ask again; *age: for how long
 * nothing has moved around the oldest.
 */
int df_release_due(uint64_t now, uint64_t *next, uint64_t *age);
/* The host can see memory of this kind without a CUDA call that we would notice. */
int df_host_visible(uintptr_t at, uintptr_t end);
/* The waits that the policy allows to be released now: serials of their calls. */
uint32_t df_release_may(uint64_t *calls, uint32_t max);
/* Releases those of them that are still there and allowed; how many. line: what the checker says; may be NULL. */
unsigned df_release(const uint64_t *calls, uint32_t nr, const char *line);

/*
 * debt.c: operations that a released wait did not wait for, until they are done: the *debt* of their device. Whatever
 * could see the difference comes after them. Any thread; the devices' locks may be held.
 */
struct df_payer {
	int device;
	enum df_work kind;
	const struct df_touch *touch; /* NULL: not known */
};
int df_debt_any(void);
int df_debt_owe(struct df_dev *dev, const struct df_flights *set); /* -ENOMEM */
/* Adds to a set what such work has to come after; -ENOMEM. */
int df_debt_join(struct df_flights *set, const struct df_payer *who);
/* Up to max of them behind *at, which is 0 at first and moves on; 0: no more. */
uint32_t df_debt_next(uint64_t *at, const struct df_payer *who, struct df_flight *out,
		      uint32_t max);
/* As df_order_conflicts(), with the debts of all devices. */
uint32_t df_debt_conflicts(const struct df_flight *f, struct df_before *out, uint32_t max);
/* A copy that touches what an operation touches can't come before it. */
int df_touch_concerns(const struct df_touch *t, const struct df_flight *f);

/* hosts.c: records where the application's host threads are (HOST_AT); takes some milliseconds. */
void df_hosts_note(void);
/*
 * What is certain now of each of the application's threads (struct df_check_host, trace/check.h), sorted; to be freed.
 * -errno: nothing is.
 */
struct df_check_host;
int df_hosts_certain(struct df_check_host **out, uint32_t *nr);

/* polls.c: the calling thread has asked whether this is done; what it is told: 1 it is, 0 it is not, -1 an error. */
void df_polls_note(enum df_polled kind, uint64_t object);
/* So, but nobody knows of anything that it would have to wait for. */
void df_polls_ask(enum df_polled kind);
void df_polls_answer(int done);
/* What the thread has asked for since then, at most DF_POLLS_MAX. */
size_t df_polls_of(uint32_t tid, uint64_t since_ns, uint32_t *kinds, uint64_t *objects);
/* By which functions it has asked since then, for whatever: 1 << enum df_polled. */
unsigned df_polls_asked(uint32_t tid, uint64_t since_ns);
/* The thread has ended. */
void df_polls_gone(uint32_t tid);

/* calibrate.c: what things cost. Any thread. */
/* What this process knows, to be told to the others; measures at first. */
void df_cal_mine(struct df_cal *out, int nranks);
/* An operation by this algorithm took so many times what had been expected. */
void df_cal_note(uint32_t algo, double ratio);
/* Sets comm->cost from all ranks' rows; NULL: those of the member table. -ENOMEM. */
int df_cal_members(struct df_comm *comm, const struct df_cal *rows);

/* comm.c */
void df_comm_end(struct df_comm *comm, int error, int why); /* abort with a reason */
/* Its two halves: everybody can see it (0: it has ended before); then what waits for it goes on. */
int df_comm_condemn(struct df_comm *comm, int error, int why);
void df_comm_end_operations(struct df_comm *comm);
void df_comm_get(struct df_comm *comm);
void df_comm_put(struct df_comm *comm); /* the last one frees its memory */
/* Its members and its way to them may be looked at, from any thread. */
int df_comm_is_open(const struct df_comm *comm);

/* death.c: df_rt.lock not held. */
void df_comm_death(uint64_t proc, int in_order);
/* A device can't be used any more: its communicators end, soon. */
void df_comm_device_lost(int device);
/* The lowest rank of a process in an open communicator; -1: none. df_rt.lock held. */
int df_comm_rank_of(const struct df_comm *comm, uint64_t proc);

/* stats.c: counters, and sampled costs of which the median is reported. Any thread. */
enum df_sample { DF_SAMPLE_SQE, DF_SAMPLE_CQE, DF_SAMPLE_NR };
void df_stats_sample(enum df_sample what, uint64_t ns);
void df_stats_write(void);

/* words.c: completion words that outlive their users. */
uint64_t *df_word_get(void);
void df_word_put(uint64_t *word);
/* Of all words: another one says that a stream or a daemon has moved. Any thread, no lock. */
uint64_t df_words_sum(void);

/*
 * Blocking host calls, for trace and watchdog: enter returns the serial that exit takes. site: where the application makes
 * the call; 0: what df_call_about() has told.
 */
uint64_t df_call_enter(uint32_t call, int device, uint64_t object, uint64_t detail, uint32_t site);
/* As df_call_enter(), for a call that is collective over a communicator. */
uint64_t df_call_enter_comm(uint32_t call, const struct df_comm *comm, uint64_t detail,
			    uint32_t site);
void df_call_exit(uint64_t serial, uint32_t call, int device, uint64_t result);

#endif
