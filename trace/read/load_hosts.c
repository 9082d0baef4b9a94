/*
 * Threads in a trace: where they were seen while nothing made progress, what they polled, and which
 * of them execute a part of another thread's call. Parts of df_load_trace().
 */
#include <stdlib.h>
#include <string.h>
#include "trace/read/load.h"
#include "trace/record/names.h"
#include "runtime/base/vec.h"

uint32_t df_load_part_of(const char *name)
{
	const size_t n = strlen(DF_PART_THREADS);

	return strncmp(name, DF_PART_THREADS, n) ? 0 : (uint32_t)strtoul(name + n, NULL, 10);
}

void df_load_host_at(struct df_lthread *t, const struct df_rec *rec, uint64_t index)
{
	uint32_t at = rec->b & 0xff, kind = (uint32_t)(rec->b >> 8);

	if (at >= DF_AT_NR || (at == DF_AT_POLLS && kind >= DF_POLLED_NR) ||
	    (at == DF_AT_LOCK && kind >= DF_LOCK_NR))
		return;
	if (at == DF_AT_ASKS) {
		t->asks = (uint32_t)rec->c & ((1u << DF_POLLED_NR) - 1);
		t->asks_rec = index;
		return;
	}
	if (at != DF_AT_POLLS || !rec->op || t->at != DF_AT_POLLS) {
		t->at = at;
		t->at_lock = at == DF_AT_LOCK ? kind : DF_LOCK_ANY;
		t->at_syscall = (uint32_t)rec->c;
		t->at_site = rec->site;
		t->at_rec = index;
		t->nr_polls = 0;
	}
	if (at == DF_AT_POLLS && t->nr_polls < DF_POLLS_MAX) {
		t->poll_kind[t->nr_polls] = kind;
		t->poll[t->nr_polls++] = rec->c;
	}
}

/* A polling loop that has ended counts as a wait that is over. */
int df_load_polled(struct df_load *l, const struct df_rec *rec, uint64_t index,
		   const struct df_lthread *t)
{
	struct df_lcall *c;

	if (rec->a > DF_POLLED_EVENT || l->nr_calls >= UINT32_MAX / 2)
		return 0;
	c = DF_VEC_PUSH(l->calls, l->nr_calls, l->cap_calls);
	if (!c)
		return -ENOMEM;
	*c = (struct df_lcall){
		.call = df_polled_call((uint32_t)rec->a),
		.object = rec->b,
		.rec = index,
		.enter_ns = rec->time_ns,
		.exit_ns = rec->time_ns,
		.thread = rec->thread,
		.rank = -1,
		.device = t->device,
	};
	return 0;
}
