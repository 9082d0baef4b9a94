/*
 * Finds where a hang was ended because a process gave up. The records before that are the evidence.
 * The records after it are consequences, unless the job made communicators again.
 */
#include <stdlib.h>
#include "trace/read/load.h"
#include "trace/record/names.h"

/* Whether the record, after a hang was noticed, shows that this process or a peer gave up. */
static int broken_off(const struct df_rec *rec)
{
	return rec->type == DF_REC_PEER_DEAD || (rec->type == DF_REC_PROC_EXIT && rec->op) ||
	       (rec->type == DF_REC_CALL_ENTER && rec->a == DF_CALL_COMM_ABORT) ||
	       (rec->type == DF_REC_CALL_EXIT && rec->b &&
		df_call_class((uint32_t)rec->a) == DF_CLASS_NCCL);
}

/*
 * Returns the index of the last later record that makes a communicator; 0: none. If there is one,
 * the job continued after the hang.
 */
static uint64_t last_new_comm(const struct df_reader *r)
{
	struct df_reader rest = *r;
	const struct df_rec *rec;
	uint64_t index, last = 0;

	/* Use another buffer, so that the caller's pass is not disturbed. */
	rest.own = NULL;
	rest.buf_first = rest.buf_end = rest.at;
	while ((rec = df_reader_next(&rest, &index)))
		if (rec->type == DF_REC_COMM_INIT || rec->type == DF_REC_COMM_READY)
			last = index;
	free(rest.own);
	return last;
}

/* The record's communicator has ended: marks its unfinished operations as aborted. */
static void over(struct df_load *l, const struct df_rec *rec)
{
	for (size_t i = 0; i < l->nr_ops; i++) {
		struct df_lop *op = &l->ops[i];

		if (op->state >= DF_OP_FINISHED || op->comm != rec->comm)
			continue;
		op->state = DF_OP_ABORTED;
		op->done_ns = rec->time_ns;
		l->nr_open--;
	}
	for (size_t i = 0; i < l->nr_notes; i++)
		if (l->notes[i].rec.type == DF_REC_STALL)
			l->notes[i].rec.type = DF_REC_NONE;
}

int df_load_breaks_off(struct df_load *l, const struct df_reader *r, const struct df_rec *rec,
		       uint64_t index, enum df_still still, uint64_t *new_comm)
{
	/*
	 * On an overloaded machine a process may never record the hang that it is part of. But its
	 * threads were examined when another process did.
	 */
	int late = l->until_ns && rec->time_ns > l->until_ns;

	if (!late && rec->type != DF_REC_COMM_ABORT && !(l->nr_open && still && broken_off(rec)))
		return 0;
	/* Needs a pass over the rest of the trace, so only after a process gave up, and once. */
	if (*new_comm == DF_NO_REC)
		*new_comm = last_new_comm(r);
	if (index >= *new_comm)
		return late || l->nr_open || still == DF_STILL_STALL;
	if (rec->type == DF_REC_COMM_ABORT)
		over(l, rec);
	return 0;
}
