/* The path of operations to the executor. Private to submit.c and submit_captured.c. */
#ifndef DF_RUNTIME_ORDER_SUBMIT_H
#define DF_RUNTIME_ORDER_SUBMIT_H

#include <stddef.h>
#include <stdint.h>
#include "runtime/backend.h"
#include "runtime/dfshim.h"
#include "runtime/executor.h"
#include "runtime/comm/flights.h"

#define DF_PREP_FEW 16

struct df_prep {
	struct df_stream_info si;
	struct df_sig sig;
	int in_place;
	int strict;	 /* strict order: the stream waits for the operation at once */
	int captured;	 /* the operation has become a node of a graph */
	uint64_t launch; /* serial of the graph launch that replays the operation; 0 if none does */
	int approached;	 /* whether its stream has been ordered with the rest of its group */
	int idle;	 /* whether the stream had no unfinished work */
	uint32_t shown;	 /* df_kinst.shown */
	/*
	 * The word that the operation's stream writes before it, or before an earlier operation of
	 * the group.
	 */
	struct df_kwait ready;
	struct df_stream *on; /* the stream that si names, once it has been looked up */
	struct df_stream
		/* the stream that the caller named, if the group is launched on another stream */
		*other;
	/*
	 * the operation that the stream must still be made to wait for; `done` is NULL if there is
	 * none
	 */
	struct df_flight late;
};

/*
 * When an operation of a replayed graph may start, and the graph's gate for it. The gate is the
 * word by which the graph waits for the operation's end; it is NULL if the backend polls for the
 * end. *opens becomes df_replayed.opens.
 */
struct df_replay {
	struct df_kwait ready, previous; /* `previous` is the end of the same node's last replay */
	struct df_kgate *gate;
	uint64_t *opens;
};

/*
 * Returns an array of nr_ops entries: `few` if that is large enough, else from malloc(). Returns
 * NULL if memory is short.
 */
struct df_prep *df_prep_alloc(struct df_prep *few, size_t nr_ops);
void df_submit_sig(const struct df_op *op, struct df_sig *sig);
/*
 * The first buffer that the operation reads, and the last that it writes. An operation with one
 * buffer uses that buffer for both.
 */
static inline const void *df_op_in(const struct df_op *op)
{
	return op->send ? op->send : op->recv;
}
static inline void *df_op_out(const struct df_op *op)
{
	return op->recv ? op->recv : (void *)(uintptr_t)op->send;
}
/*
 * Checks that the operation can be accepted and fills p. `si` is the stream, or NULL for the stream
 * that the operation names. Returns 0 or -errno.
 */
int df_submit_prepare(const struct df_op *op, struct df_prep *p, const struct df_stream_info *si);
/*
 * Submits one operation. `replay` is NULL unless a graph replays the operation. `alone` says that
 * it is the only operation of its group. Returns 0 or -errno. The caller holds dev->lock, which is
 * dropped while something is enqueued on the stream.
 */
int df_submit_issue(const struct df_op *op, struct df_prep *p, const struct df_replay *replay,
		    uint64_t group, int alone, struct df_flight *f);
/*
 * Submits all operations of a group, which are prepared. If `ret` is an error, only cleans up.
 * Returns 0 or -errno.
 */
int df_submit_all(const struct df_op *ops, struct df_prep *p, size_t nr_ops, int ret);
/*
 * submit_captured.c: captures ops[at] together with the group's operations on its stream and on its
 * communicator, and with those on the streams and communicators of these. Returns 0 or -errno.
 */
int df_submit_capture(const struct df_op *ops, struct df_prep *p, size_t at, size_t nr_ops);

#endif
