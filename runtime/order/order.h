/* The order among operations: what an operation must follow. */
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
	/* its operations in flight, on whatever streams: NCCL orders them implicitly */
	struct df_flights pending;
	/*
	 * Where its latest operation was submitted. The next one, on any stream, follows all that
	 * this one followed.
	 */
	struct {
		struct df_stream *stream; /* NULL: none yet, or it was destroyed */
		uint64_t at;		  /* end of stream->pending at that time */
		/* the stream's work before the operation is done when *ready */
		uint64_t *ready;
		uint64_t value; /* has reached this value */
		/* whether a graph has replayed an operation of it since */
		uint8_t replayed;
	} latest;
};

/* Sets the bytes that the operation reads and writes on this rank. */
void df_order_ranges(const struct df_op *op, struct df_flight *f);
/*
 * Orders the stream after all that the communicator's next operation must follow. Returns 1 if the
 * stream now waits for a word, 0 if that was not needed, or -errno. dev->lock is held, and dropped
 * meanwhile.
 */
int df_order_inherit(struct df_comm *comm, struct df_stream *s);
/*
 * Notes that the communicator's latest operation is on s (NULL: it was replayed). ready: the word
 * that the stream writes before it, if any. dev->lock held.
 */
void df_order_issued(struct df_comm *comm, struct df_stream *s, const struct df_kwait *ready);
/* The stream is being destroyed: the communicators take over its order. */
void df_order_stream_gone(struct df_stream *s);
/*
 * For a group with several streams on one communicator. df_order_meet(): before the group, main
 * waits for other. df_order_part(): after it, other waits for main. dev->lock held, dropped
 * meanwhile.
 */
int df_order_meet(struct df_stream *main, struct df_stream *other);
int df_order_part(struct df_comm *comm, struct df_stream *main, struct df_stream *other);

#endif
