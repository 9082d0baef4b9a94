/*
 * What an operation must come after.
 */
#ifndef DF_RUNTIME_ORDER_ORDER_H
#define DF_RUNTIME_ORDER_ORDER_H

#include <stdint.h>
#include "kernels/abi.h"
#include "runtime/order/flights.h"

struct df_comm;
struct df_flight;
struct df_flights;
struct df_op;
struct df_stream;

/* Of a communicator; under the lock of its device. */
struct df_order_comm {
	struct df_flights pending; /* for the implicit order of one communicator over streams */
	/*
	 * Where its latest operation was put: what that one came after, the next one comes after too,
	 * whatever its stream.
	 */
	struct {
		struct df_stream *stream; /* NULL: none yet, or it is gone */
		uint64_t at;		  /* that was the end of stream->pending */
		uint64_t *ready;	  /* the stream's work before it is done when this word */
		uint64_t value;		  /* has this value */
		uint8_t replayed;	  /* replays of graphs since */
	} latest;
};

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
/*
 * Puts a stream behind what its next operation of the communicator comes after. 1: it was made to wait for a word.
 * dev->lock held, dropped meanwhile.
 */
int df_order_inherit(struct df_comm *comm, struct df_stream *s);
/* The operation f has been put there; ready: the word that was written for it, if any. dev->lock */
void df_order_issued(struct df_comm *comm, struct df_stream *s, const struct df_kwait *ready);
/* The stream goes: communicators keep what it knows. */
void df_order_stream_gone(struct df_stream *s);
/* Streams of one group and communicator wait for each other: before the group, and after it. The same lock. */
int df_order_meet(struct df_stream *main, struct df_stream *other);
int df_order_part(struct df_comm *comm, struct df_stream *main, struct df_stream *other);

#endif
