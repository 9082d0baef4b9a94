/*
 * NCCL's rules on the host backend: the control group. The daemon moves the data as
 * always; this file only decides when a launch may start, as NCCL and the GPU would:
 *
 *   - a launch is what a group puts on one communicator (NCCL fuses it into one kernel); it starts when all
 *     streams of the group have reached it and the communicator's last launch has finished;
 *   - it then needs one of DFSHIM_HOST_SLOTS resident slots of its device and keeps it to its end;
 *   - streams wait for it at once (strict order, runtime/order/submit.c), hardware queues are libdfhost.so's;
 *   - the first use of a communicator blocks the host until all its ranks have come (connection set-up).
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/base/env.h"
#include "runtime/base/list.h"
#include "runtime/coll/rules.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/daemon/dev.h"
#include "runtime/dfshim.h"
#include "runtime/order/flights.h"
#include "trace/record/writer.h"

enum unit_state { UNIT_OPEN, UNIT_QUEUED, UNIT_SLOT, UNIT_RUNS };

struct df_unit {
	struct df_list node; /* dev->held, in order of issue */
	struct df_comm *comm;
	struct df_unit
		*after; /* the communicator's launch before this one; NULL when it has finished */
	enum unit_state state;
	uint32_t nr, cap;
	struct unit_op {
		struct df_kinst *inst;
		struct df_kwait ready;
		struct df_flight flight;
	} * ops;
};

int df_rules_hold(struct df_comm *comm, struct df_kinst *inst, const struct df_kwait *ready,
		  const struct df_flight *f)
{
	struct df_dev *dev = comm->dev;
	struct df_unit *u = comm->unit;

	if (!u || u->state != UNIT_OPEN) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return -ENOMEM;
		u->comm = comm;
		u->after = comm->unit;
		comm->unit = u;
		df_list_add_tail(&dev->held, &u->node);
		__atomic_store_n(&dev->nr_held, dev->nr_held + 1, __ATOMIC_RELAXED);
	}
	if (u->nr == u->cap) {
		uint32_t cap = u->cap ? u->cap * 2 : 1;
		struct unit_op *v = realloc(u->ops, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		u->ops = v;
		u->cap = cap;
	}
	u->ops[u->nr].inst = inst;
	u->ops[u->nr].ready = *ready;
	u->ops[u->nr++].flight = *f;
	return 0;
}

void df_rules_close(struct df_comm *comm)
{
	if (comm->unit && comm->unit->state == UNIT_OPEN)
		comm->unit->state = UNIT_QUEUED;
}

static int reached(const struct df_unit *u)
{
	uint32_t i;

	if (u->after)
		return 0;
	for (i = 0; i < u->nr; i++)
		if (u->ops[i].ready.addr &&
		    /* ACQUIRE pairs with the stream's write of its ready word. */
		    __atomic_load_n(u->ops[i].ready.addr, __ATOMIC_ACQUIRE) < u->ops[i].ready.value)
			return 0;
	return 1;
}

static void note_slot(const struct df_unit *u, uint64_t got)
{
	uint32_t i;

	for (i = 0; i < u->nr; i++)
		df_trace(DF_REC_OP_SLOT, u->comm->dev->index, u->comm->trace, u->comm->rank,
			 u->ops[i].flight.op, got, (uint64_t)u->comm->dev->index, 0, 0);
}

static void unit_end(struct df_dev *dev, struct df_unit *u)
{
	struct df_unit *other;

	if (u->state == UNIT_RUNS)
		dev->slots_used--;
	df_list_each(other, &dev->held, node) if (other->after == u) other->after = NULL;
	if (u->comm->unit == u)
		u->comm->unit = NULL;
	df_list_del(&u->node);
	__atomic_store_n(&dev->nr_held, dev->nr_held - 1, __ATOMIC_RELAXED);
	free(u->ops);
	free(u);
}

void df_rules_progress(struct df_dev *dev)
{
	struct df_unit *u, *tmp;
	uint32_t i;

	df_list_each_safe(u, tmp, &dev->held, node)
	{
		if (u->state == UNIT_RUNS) {
			for (i = 0; i < u->nr && df_flight_done(&u->ops[i].flight); i++)
				;
			if (i == u->nr)
				unit_end(dev, u);
		}
	}
	df_list_each_safe(u, tmp, &dev->held, node)
	{
		if (u->state == UNIT_QUEUED && reached(u)) {
			u->state = UNIT_SLOT;
			note_slot(u, 0);
		}
		if (u->state != UNIT_SLOT || dev->slots_used >= (uint32_t)df_env()->host_slots)
			continue;
		dev->slots_used++;
		u->state = UNIT_RUNS;
		note_slot(u, 1);
		for (i = 0; i < u->nr; i++)
			/*
			 * RELEASE pairs with the ACQUIRE in dfk_instance_ready() (kernels/task.inl): what
			 * the streams did before is passed on with the right to start.
			 */
			__atomic_store_n(&u->ops[i].inst->gate, 1, __ATOMIC_RELEASE);
	}
}

void df_rules_drop(struct df_comm *comm)
{
	struct df_unit *u, *tmp;

	df_list_each_safe(u, tmp, &comm->dev->held, node) if (u->comm == comm)
		unit_end(comm->dev, u);
}

/* ---- connection set-up ----------------------------------------------------------------------------------- */

struct meeting {
	struct df_comm *comm;
	pthread_t thread;
	uint32_t site; /* of the operation that is its first */
	int ret;
};

static void *meet(void *arg)
{
	struct meeting *m = arg;
	struct df_comm *comm = m->comm;
	unsigned char mine = 1, *all = malloc((size_t)comm->nranks);

	m->ret = all ? df_ctl_allgather(comm->ctl, &mine, 1, all, &comm->stop) : -ENOMEM;
	free(all);
	return NULL;
}

/* What the host is about to issue, for who reads the trace of a set-up that never ends. */
static void note_intents(const struct df_op *ops, size_t nr_ops, uint64_t call)
{
	struct df_stream_info info;
	size_t i;

	for (i = 0; i < nr_ops; i++) {
		const struct df_comm *comm = ops[i].comm;

		if (df_backend->stream_info(ops[i].stream, &info))
			info.id = 0;
		df_trace(DF_REC_OP_INTENT, comm->dev->index, comm->trace, comm->rank, call,
			 (uint64_t)ops[i].kind | (uint64_t)ops[i].type << 8 |
				 (uint64_t)ops[i].redop << 16 |
				 (uint64_t)(uint32_t)(ops[i].root + 1) << 32,
			 ops[i].count, info.id, ops[i].site);
	}
}

int df_rules_connect(const struct df_op *ops, size_t nr_ops)
{
	struct meeting *m = NULL;
	size_t i, nr = 0;
	uint64_t call;
	int ret = 0;

	for (i = 0; i < nr_ops; i++) {
		struct meeting *v;

		if (ops[i].comm->connected || ops[i].comm->nranks == 1)
			continue;
		ops[i].comm->connected = 1;
		v = realloc(m, (nr + 1) * sizeof(*m));
		if (!v) {
			free(m);
			return -ENOMEM;
		}
		m = v;
		m[nr].comm = ops[i].comm;
		m[nr].site = ops[i].site;
		m[nr++].ret = 0;
	}
	if (!nr)
		return 0;
	/* All communicators of the group at once, as NCCL's jobs: one after the other could deadlock. */
	call = df_call_enter_comm(DF_CALL_CONNECT, m[0].comm, nr, m[0].site);
	note_intents(ops, nr_ops, call);
	for (i = 1; i < nr; i++)
		if (pthread_create(&m[i].thread, NULL, meet, &m[i]))
			m[i].ret = -EAGAIN;
	meet(&m[0]);
	for (i = 1; i < nr; i++)
		if (m[i].ret != -EAGAIN)
			pthread_join(m[i].thread, NULL);
	for (i = 0; i < nr && !ret; i++)
		ret = m[i].ret == -ECANCELED && df_comm_error(m[i].comm) ? df_comm_error(m[i].comm)
									 : m[i].ret;
	df_call_exit(call, DF_CALL_CONNECT, m[0].comm->dev->index, (uint64_t)-ret);
	free(m);
	return ret;
}
