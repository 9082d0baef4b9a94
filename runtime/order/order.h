/* The order among operations: which earlier work an operation must follow. */
#ifndef DF_RUNTIME_ORDER_ORDER_H
#define DF_RUNTIME_ORDER_ORDER_H

#include <stdint.h>
#include "kernels/abi.h"
#include "runtime/executor.h"
#include "runtime/comm/flights.h"

struct df_comm;
struct df_flight;
struct df_flights;
struct df_op;
struct df_stream;

/* The order state of a communicator. Guarded by its device's lock. */
struct df_order_comm {
	/* the communicator's operations in flight on all streams: NCCL orders them implicitly */
	struct df_flights pending;
	/*
	 * Where the communicator's latest operation was submitted. The next operation, on any
	 * stream, follows everything that the latest one followed.
	 */
	struct {
		/* NULL if there is no operation yet, or if the stream was destroyed */
		struct df_stream *stream;
		uint64_t at; /* end of stream->pending at that time */
		/*
		 * The stream's work before the operation is done once *ready has reached
		 * `value`.
		 */
		uint64_t *ready;
		uint64_t value; /* see `ready` */
		/* whether a graph has replayed an operation of the communicator since then */
		uint8_t replayed;
	} latest;
};

/* Sets the bytes that the operation reads and writes on this rank. */
void df_order_ranges(const struct df_op *op, struct df_flight *f);
/*
 * Orders the stream after everything that the communicator's next operation must follow. Returns 1
 * if the stream now waits for a word, 0 if that was not needed, or -errno. The caller holds
 * dev->lock, which is dropped meanwhile.
 */
int df_order_inherit(struct df_comm *comm, struct df_stream *s);
/*
 * Notes that the communicator's latest operation is on s, or that it was replayed (s is NULL).
 * `ready` is the word that the stream writes before the operation, or NULL. The caller holds
 * dev->lock.
 */
void df_order_issued(struct df_comm *comm, struct df_stream *s, const struct df_kwait *ready);
/* Called when a stream is destroyed: its communicators take over its order. */
void df_order_stream_gone(struct df_stream *s);
/*
 * For a group with several streams on one communicator. Before the group, df_order_meet() makes
 * `main` wait for `other`. After the group, df_order_part() makes `other` wait for `main`. Both
 * return 0 or -errno. The caller holds dev->lock, which is dropped meanwhile.
 */
int df_order_meet(struct df_stream *main, struct df_stream *other);
int df_order_part(struct df_comm *comm, struct df_stream *main, struct df_stream *other);

#endif
