/*
 * Records NCCL's operations in CUDA graphs (mode trace). A captured operation is noted beside the
 * graph (capture_nodes() of the backend puts nothing between the application's nodes). Each launch
 * of a graph with notes issues them anew on the launching stream, in the order of capture and as
 * one group, between two ticks around the launch. So only the start of the first and the end of the
 * last operation of a graph are noticed.
 *
 * A launch belongs to one thread. A note belongs to the graph and its copies; the last of them
 * frees it.
 */
#include <stdlib.h>
#include <string.h>
#include "runtime/backend.h"
#include "runtime/base/log.h"
#include "runtime/base/vec.h"
#include "runtime/dfshim.h"
#include "runtime/record/record.h"
#include "trace/record/writer.h"

static __thread struct {
	struct df_stream_info info;
	uint64_t group;
	struct rstream *on; /* NULL: no operation of the graph is issued yet */
	struct df_record_op *ops;
	size_t nr, cap;
} launch __attribute__((tls_model("initial-exec")));

static int note_launch(void *arg, const struct df_arrival *a, struct df_replayed *turn)
{
	static const uint64_t zero;
	struct df_record_op *op;

	(void)a;
	/* Nothing waits for a note. */
	*turn = (struct df_replayed){.done = &zero};
	op = DF_VEC_PUSH(launch.ops, launch.nr, launch.cap);
	if (!op)
		return 0;
	if (!launch.on)
		launch.on = df_record_put_on(&launch.info);
	memset(op, 0, sizeof(*op));
	df_record_note(arg, launch.info.id, launch.group, launch.on != NULL, op);
	op->on = launch.on;
	df_record_before(op, 1);
	return 0;
}

static const struct df_capture_ops note_ops = {.launch = note_launch, .destroy = free};

void df_record_capture(const struct df_record_call *c, const struct df_stream_info *info)
{
	struct df_record_call *note = malloc(sizeof(*note));
	void *arg;

	if (!note)
		return;
	*note = *c;
	arg = note;
	if (df_backend->capture_nodes(&info->stream, &note_ops, &arg, 1))
		df_warn_once("cannot note a captured NCCL operation: launches of its graph are "
			     "recorded without it");
}

void df_record_graph_begin(const struct df_stream_info *info)
{
	launch.info = *info;
	launch.group = df_trace_serial() & UINT32_MAX;
	launch.on = NULL;
	launch.nr = 0;
}

void df_record_graph_end(const struct df_stream_info *info, int launched)
{
	(void)info;
	if (!launch.nr)
		return;
	df_record_after(launch.ops, launch.nr, launched);
	/* Free it now, because nothing frees it when the thread ends. */
	free(launch.ops);
	launch.ops = NULL;
	launch.nr = launch.cap = 0;
}
