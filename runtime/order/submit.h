/*
 * Between submit.c and captured.c: operations on their way to the daemon. Private to them.
 */
#ifndef DF_RUNTIME_ORDER_SUBMIT_H
#define DF_RUNTIME_ORDER_SUBMIT_H

#include <stddef.h>
#include <stdint.h>
#include "runtime/backend.h"
#include "runtime/coll/coll.h"
#include "runtime/order/flights.h"
#include "runtime/dfshim.h"

#define DF_PREP_FEW 16

struct df_prep {
	struct df_stream_info si;
	struct df_sig sig;
	int in_place;
	int strict;	 /* the stream waits for it at once */
	int captured;	 /* it is a node of a graph already */
	uint64_t launch; /* of a graph, that replays it; 0 none */
	int approached;	 /* order.c has been asked for its group */
	int idle;	 /* nothing on the stream was unfinished */
	uint32_t shown;	 /* df_kinst.shown */
	/* The word that its stream writes for it, or for one before it of its group. */
	struct df_kwait ready;
	struct df_stream *on; /* the one that si names, once it has been looked up */
	struct df_stream
		*other; /* the stream that was asked for, when the group's launch is on another */
	struct df_flight
		late; /* what the stream has yet to be made to wait for; done NULL: nothing */
};

/* When an operation of a replayed graph may begin, and the graph's gate for it; NULL: the machine looks when it is done. */
struct df_replay {
	struct df_kwait ready;
	struct df_kgate *gate;
};

/* An array of so many; `few` if that is large enough. */
struct df_prep *df_prep_alloc(struct df_prep *few, size_t nr_ops);
void df_submit_sig(const struct df_op *op, struct df_sig *sig);
/* What the operation reads first and writes last; one buffer stands for both where there is only one. */
static inline const void *df_op_in(const struct df_op *op)
{
	return op->send ? op->send : op->recv;
}
static inline void *df_op_out(const struct df_op *op)
{
	return op->recv ? op->recv : (void *)(uintptr_t)op->send;
}
/* Can it be taken? si: the stream, NULL: the one that the operation names. */
int df_submit_prepare(const struct df_op *op, struct df_prep *p, const struct df_stream_info *si);
/*
 * replay: NULL: it is none. alone: its group is it. dev->lock held, dropped while the stream is given something.
 */
int df_submit_issue(const struct df_op *op, struct df_prep *p, const struct df_replay *replay,
		    uint64_t group, int alone, struct df_flight *f);
/* All operations of a group, each prepared, unless ret says that they can't be. */
int df_submit_all(const struct df_op *ops, struct df_prep *p, size_t nr_ops, int ret);
/* captured.c: captures ops[at] and all later operations of the group on the same stream. */
int df_submit_capture(const struct df_op *ops, struct df_prep *p, size_t at, size_t nr_ops);

#endif
