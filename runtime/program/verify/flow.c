/*
 * Finds how many slots a network of programs needs: executes one loop with counters instead of
 * values. A thread runs until it blocks, and the event that it waits for wakes it, so the cost is
 * linear in the transfers. Pure functions.
 */
#include <stdlib.h>

#include "runtime/base/err.h"
#include "runtime/program/program_names.h"
#include "runtime/program/verify/verify.h"
#include "runtime/program/verify/wiring.h"

#define NONE UINT32_MAX

struct flow {
	const struct df_pgraph *g;
	uint32_t per_transfer, slots;
	uint32_t *pc, *part;		 /* by thread */
	uint32_t *fill;			 /* by connection */
	uint32_t *wait_send, *wait_recv; /* by connection: the thread that waits for it */
	uint32_t *dep_head, *dep_next;	 /* threads that wait for a step of this thread */
	uint32_t *ready;
	uint32_t nr_ready, done;
	uint32_t *order, nr_order; /* threads in the order of their steps, or NULL */
};

static uint32_t transfers(const struct flow *f, const struct df_inst *in)
{
	const struct df_op_info *op = &df_op_info[in->op];

	if (!f->per_transfer || (!op->sends && !op->recvs))
		return 1;
	return (in->cnt + f->per_transfer - 1) / f->per_transfer;
}

static void wake(struct flow *f, uint32_t *waiter)
{
	if (*waiter != NONE)
		f->ready[f->nr_ready++] = *waiter;
	*waiter = NONE;
}

/* Executes thread t until it blocks. */
static void run(struct flow *f, uint32_t t)
{
	const struct df_pgraph *g = f->g;
	const struct df_gthread *th = &g->thread[t];
	const struct df_program *p = g->progs[th->rank];

	while (f->pc[t] < th->nr_inst) {
		const struct df_inst *in = &th->inst[f->pc[t]];
		const struct df_op_info *op = &df_op_info[in->op];

		for (uint32_t d = 0; !f->part[t] && d < in->nr_deps; d++) {
			const struct df_dep *dep = df_prog_dep(p, in->first_dep + d);
			uint32_t o = g->first_thread[th->rank] + dep->block;

			if (f->pc[o] <= dep->inst) {
				f->dep_next[t] = f->dep_head[o];
				f->dep_head[o] = t;
				return;
			}
		}
		if (op->recvs && !f->fill[th->recv[in->recv_conn]]) {
			f->wait_recv[th->recv[in->recv_conn]] = t;
			return;
		}
		if (op->sends && f->fill[th->send[in->send_conn]] >= f->slots) {
			f->wait_send[th->send[in->send_conn]] = t;
			return;
		}
		if (op->recvs) {
			f->fill[th->recv[in->recv_conn]]--;
			wake(f, &f->wait_send[th->recv[in->recv_conn]]);
		}
		if (op->sends) {
			f->fill[th->send[in->send_conn]]++;
			wake(f, &f->wait_recv[th->send[in->send_conn]]);
		}
		if (++f->part[t] < transfers(f, in))
			continue;
		f->part[t] = 0;
		f->pc[t]++;
		if (f->order)
			f->order[f->nr_order++] = t;
		for (uint32_t w = f->dep_head[t]; w != NONE; w = f->dep_next[w])
			f->ready[f->nr_ready++] = w;
		f->dep_head[t] = NONE;
	}
	f->done++;
}

static int flow_run(const struct df_pgraph *g, uint32_t per_transfer, uint32_t slots,
		    uint32_t *order, uint32_t *nr_order)
{
	uint32_t n = g->nr_threads, c = g->nr_conns;
	uint32_t *mem = malloc((5ull * n + 3ull * c + 1) * sizeof(*mem));
	struct flow f = {.g = g, .per_transfer = per_transfer, .slots = slots, .order = order};
	int ok;

	if (!mem)
		return -ENOMEM;
	f.pc = mem;
	f.part = f.pc + n;
	f.dep_head = f.part + n;
	f.dep_next = f.dep_head + n;
	/* A thread waits for one event, so it is in this list at most once. */
	f.ready = f.dep_next + n;
	f.fill = f.ready + n;
	f.wait_send = f.fill + c;
	f.wait_recv = f.wait_send + c;
	for (uint32_t i = 0; i < n; i++) {
		f.pc[i] = f.part[i] = 0;
		f.dep_head[i] = NONE;
		f.ready[i] = i;
	}
	for (uint32_t i = 0; i < c; i++) {
		f.fill[i] = 0;
		f.wait_send[i] = f.wait_recv[i] = NONE;
	}
	f.nr_ready = n;
	while (f.nr_ready)
		run(&f, f.ready[--f.nr_ready]);
	ok = f.done == n;
	if (nr_order)
		*nr_order = f.nr_order;
	free(mem);
	return ok;
}

static int flow_graph_ok(const struct df_pgraph *g, uint32_t per_transfer, uint32_t slots)
{
	return flow_run(g, per_transfer, slots, NULL, NULL);
}

int df_pgraph_order(const struct df_pgraph *g, uint32_t *order, uint32_t *nr_order)
{
	return flow_run(g, 0, UINT32_MAX, order, nr_order);
}

int64_t df_flow_min_slots(struct df_program *const *progs, int nranks, uint32_t per_transfer)
{
	uint32_t lo = 0, hi = 1; /* lo fails; hi is to be tested */
	struct df_pgraph g;
	int rc = df_pgraph_init(&g, progs, nranks, NULL, NULL);

	if (rc)
		return rc;
	for (; (rc = flow_graph_ok(&g, per_transfer, hi)) == 0; hi *= 2) {
		lo = hi;
		if (hi >= DF_MAX_SLOTS) {
			df_pgraph_fini(&g);
			return 0;
		}
	}
	while (rc >= 0 && hi - lo > 1) {
		uint32_t mid = (lo + hi) / 2;

		rc = flow_graph_ok(&g, per_transfer, mid);
		if (rc > 0)
			hi = mid;
		else
			lo = mid;
	}
	df_pgraph_fini(&g);
	return rc < 0 ? rc : (int64_t)hi;
}

/* MSCCL's protocols (NCCL 2.12 buffers): bytes of one transfer, and transfers in flight. */
static const struct {
	uint32_t bytes, slots;
} protos[DF_PROTO_NR] = {
	[DF_PROTO_ANY] = {2 << 20, 2},
	[DF_PROTO_SIMPLE] = {2 << 20, 2},
	[DF_PROTO_LL] = {32 << 10, 8},
	[DF_PROTO_LL128] = {576000, 8},
};

uint64_t df_flow_msccl_max_bytes(struct df_program *const *progs, int nranks, uint32_t total_chunks,
				 enum df_proto proto)
{
	uint32_t hi = 71; /* the most chunks that MSCCL packs into a transfer */
	struct df_pgraph g;

	if (df_pgraph_init(&g, progs, nranks, NULL, NULL))
		return UINT64_MAX;
	if (flow_graph_ok(&g, 1, protos[proto].slots) > 0) {
		df_pgraph_fini(&g);
		return 0;
	}
	if (flow_graph_ok(&g, hi, protos[proto].slots) <= 0) {
		df_pgraph_fini(&g);
		return UINT64_MAX;
	}
	/*
	 * Because of rounding, a larger number may deadlock where a smaller one does not. So find
	 * the smallest number from which on all complete.
	 */
	while (hi > 2 && flow_graph_ok(&g, hi - 1, protos[proto].slots) > 0)
		hi--;
	df_pgraph_fini(&g);
	return (uint64_t)total_chunks * (protos[proto].bytes / hi);
}
