/*
 * Threads in a trace: where they were seen while nothing made progress, what they polled, and which
 * of them execute a part of another thread's call. Parts of df_load_trace(). Also turns waits
 * outside of NCCL and CUDA into calls: likely waits from the trace, certain ones from
 * df_check_add_hosts().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "trace/read/load.h"
#include "trace/read/load_hosts.h"
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
		t->at_site = rec->site;
		t->at_rec = index;
		t->nr_polls = 0;
	}
	if (at == DF_AT_POLLS && t->nr_polls < DF_POLLS_MAX) {
		t->poll_kind[t->nr_polls] = kind;
		t->poll[t->nr_polls++] = rec->c;
	}
}

/* A polling loop that has ended becomes a call that has returned. */
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

static int is_in_call(const struct df_trc *t, uint32_t tid)
{
	for (size_t i = 0; i < t->nr_calls; i++)
		if (t->calls[i].thread == tid && !t->calls[i].background)
			return 1;
	return 0;
}

static void add_call(struct df_trc *t, const struct df_lthread *th, enum df_call call,
		     uint64_t object, uint64_t rec)
{
	t->calls[t->nr_calls++] = (struct df_lcall){.call = call,
						    .thread = th->tid,
						    .object = object,
						    .rec = rec,
						    .enter_ns = th->last_ns,
						    .device = th->device,
						    .rank = -1,
						    .open = 1};
}

void df_trc_keep_outside(struct df_trc *t)
{
	for (size_t i = 0; i < t->nr_threads; i++) {
		const struct df_lthread *th = &t->threads[i];

		if (th->stranger || is_in_call(t, th->tid))
			continue;
		for (uint32_t k = 0; th->at == DF_AT_POLLS && k < th->nr_polls; k++)
			add_call(t, th, df_polled_call(th->poll_kind[k]), th->poll[k],
				 th->at_rec + k);
		if (th->at >= DF_AT_LOCK && th->at <= DF_AT_IO)
			add_call(t, th, DF_CALL_OUTSIDE, th->at, th->at_rec);
	}
}

const struct df_check_host *df_trc_host(const struct df_trc *t, uint32_t tid)
{
	for (size_t i = 0; i < t->nr_hosts; i++)
		if (t->hosts[i].tid == tid)
			return &t->hosts[i];
	return NULL;
}

int df_trc_is_innermost(const struct df_trc *t, size_t i)
{
	for (size_t k = i + 1; k < t->nr_calls && !t->calls[i].background; k++)
		if (t->calls[k].thread == t->calls[i].thread && !t->calls[k].background)
			return 0;
	return 1;
}

const struct df_lthread *df_trc_thread(const struct df_trc *t, uint32_t tid)
{
	for (size_t i = 0; i < t->nr_threads; i++)
		if (t->threads[i].tid == tid)
			return &t->threads[i];
	return NULL;
}

int df_trc_has_gone(const struct df_trc *t, const struct df_lthread *th)
{
	return th->at == DF_AT_GONE || (t->hosts && !df_trc_host(t, th->tid));
}

int df_check_add_hosts(struct df_check_set *set, const struct df_check_host *hosts, size_t nr)
{
	struct df_trc *t = set->nr_traces ? &set->traces[set->nr_traces - 1] : NULL;
	struct df_lcall *calls;
	size_t n = 0;

	if (!t || set->sealed || t->hosts)
		return -EINVAL;
	calls = realloc(t->calls, (t->nr_calls + nr + 1) * sizeof(*calls));
	if (!calls)
		return -ENOMEM;
	t->calls = calls;
	t->hosts = malloc((nr + 1) * sizeof(*hosts));
	if (!t->hosts)
		return -ENOMEM;
	if (nr)
		memcpy(t->hosts, hosts, nr * sizeof(*hosts));
	t->nr_hosts = nr;
	/* The certain waits replace the likely ones. */
	for (size_t i = 0; i < t->nr_calls; i++)
		if (t->calls[i].call != DF_CALL_OUTSIDE)
			t->calls[n++] = t->calls[i];
	t->nr_calls = n;
	for (size_t i = 0; i < nr; i++) {
		struct df_lthread th = {.tid = hosts[i].tid, .device = -1, .last_ns = t->last_ns};

		if (hosts[i].kind != DF_HOST_FREE && !is_in_call(t, th.tid))
			add_call(t, &th, DF_CALL_OUTSIDE, DF_AT_LOCK, DF_NO_REC);
	}
	return 0;
}
