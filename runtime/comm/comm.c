/*
 * The life of a communicator: rendezvous, derivation, end. The state is written under the device's
 * lock and read anywhere. All ends (by the user, a time-out, a peer's death) take one path,
 * df_comm_end():
 *
 *   set state and stop  ->  mark its collectives aborted  ->  wait until no block uses them
 *   ->  set completion words, so that streams and threads continue
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/exit_status.h"
#include "runtime/base/hash.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/net/sockaddr.h"
#include "runtime/coll/calibrate.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/connector.h"
#include "runtime/coll/far.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/daemon/dev.h"
#include "runtime/daemon/engine.h"
#include "runtime/dfshim.h"
#include "runtime/order/debt.h"
#include "runtime/order/flights.h"
#include "runtime/order/stream.h"
#include "runtime/program/build/cost.h"
#include "runtime/program/layout.h"
#include "runtime/transport/bell.h"
#include "runtime/transport/transport.h"
#include "runtime/watch/watchdog.h"
#include "trace/record/writer.h"

int df_comm_create(int device, const struct df_comm_config *config, struct df_comm **out)
{
	struct df_comm *comm;

	if (device < 0 || device >= df_rt.nr_devs)
		return -EINVAL;
	comm = calloc(1, sizeof(*comm));
	if (!comm)
		return -ENOMEM;
	comm->dev = &df_rt.devs[device];
	if (config)
		comm->config = *config;
	comm->refs = 1;
	comm->state = DF_COMM_NEW;
	df_list_init(&comm->node);
	df_mutex_lock(&df_rt.lock);
	df_list_add_tail(&df_rt.comms, &comm->node);
	df_mutex_unlock(&df_rt.lock);
	*out = comm;
	return 0;
}

static void set_state(struct df_comm *comm, enum df_comm_state state)
{
	/* If it was ended meanwhile, it stays ended. */
	df_mutex_lock(&comm->dev->lock);
	if (comm->state != DF_COMM_ABORTED)
		__atomic_store_n(&comm->state, state, __ATOMIC_RELAXED);
	df_mutex_unlock(&comm->dev->lock);
}

/*
 * Reports a member that died while the communicator was made: df_comm_death() skips communicators
 * that are not ready.
 */
static void tell_dead(const struct df_comm *comm)
{
	int i;

	for (i = 0; comm->members && i < comm->nranks; i++) {
		const struct df_member *m = &comm->members[i];

		if (!df_ctl_is_dead(m->proc))
			continue;
		df_comm_lost(m);
		df_warn("rank %d (%s, pid %u) has died while its communicator was made, which ends with "
			"ncclRemoteError",
			i, m->hostname, m->pid);
		return;
	}
}

static int fail(struct df_comm *comm, int ret)
{
	if (ret == -ECONNRESET)
		tell_dead(comm);
	df_mutex_lock(&comm->dev->lock);
	if (comm->state != DF_COMM_ABORTED) {
		__atomic_store_n(&comm->error, ret, __ATOMIC_RELAXED);
		__atomic_store_n(&comm->state, DF_COMM_FAILED, __ATOMIC_RELAXED);
	} else if (ret == -ECANCELED && comm->error) {
		ret = comm->error;
	}
	df_mutex_unlock(&comm->dev->lock);
	return ret;
}

/* Counts the processes that share this node's cores. The engine's way of waiting depends on it. */
static void note_neighbours(const struct df_comm *comm)
{
	uint32_t nr = 0, most = __atomic_load_n(&df_rt.execs.nr_procs, __ATOMIC_RELAXED);
	int i, j;

	for (i = 0; i < comm->nranks; i++) {
		if (comm->members[i].host != df_rt.self.host)
			continue;
		for (j = 0; j < i && comm->members[j].proc != comm->members[i].proc; j++)
			;
		nr += j == i;
	}
	if (nr > most)
		__atomic_store_n(&df_rt.execs.nr_procs, nr, __ATOMIC_RELAXED);
}

/* Finds which ranks are on which node. The result is equal on all ranks. */
static int look_at_nodes(struct df_comm *comm)
{
	uint64_t *node = malloc((size_t)comm->nranks * sizeof(*node));
	int i, ret = -ENOMEM;

	for (i = 0; node && i < comm->nranks; i++)
		node[i] = comm->members[i].node;
	if (node)
		ret = df_layout_create(comm->nranks, node, &comm->choice.layout);
	free(node);
	if (ret)
		return ret;
	comm->choice.nodes = comm->choice.layout->nodes;
	if (comm->choice.nodes == 1 || (comm->choice.layout->rows && comm->choice.layout->equal)) {
		df_layout_free(comm->choice.layout);
		comm->choice.layout = NULL;
	}
	return 0;
}

uint32_t df_comm_slot_bytes(const struct df_comm *comm)
{
	return comm->choice.nodes > 1 ? df_rt.far_slot_bytes : df_rt.slot_bytes;
}

/*
 * The member table is known: derives everything that all ranks must agree on. rows: as for
 * df_cal_members(). parent: copies its speeds between nodes; NULL: the ranks measure them together.
 */
static int agree(struct df_comm *comm, int nranks, int rank, const struct df_cal *rows,
		 const struct df_comm *parent)
{
	struct df_dev *dev = comm->dev;
	int i;

	comm->nranks = nranks;
	comm->rank = rank;
	comm->members = df_ctl_members(comm->ctl);
	comm->hash = df_ctl_hash(comm->ctl);
	comm->blocks = dev->exec.d.nr_blocks;
	for (i = 0; i < nranks; i++)
		comm->blocks = DF_MIN(comm->blocks, comm->members[i].blocks);
	if (comm->config.max_blocks > 0)
		comm->blocks = DF_MIN(comm->blocks, (uint32_t)comm->config.max_blocks);
	comm->conn.peers = calloc((size_t)nranks, sizeof(struct df_peer *));
	comm->conn.tls = calloc((size_t)nranks, sizeof(struct df_tl_ops *));
	if (!comm->conn.peers || !comm->conn.tls || look_at_nodes(comm) ||
	    df_cal_members(comm, rows))
		return -ENOMEM;
	if (!parent)
		return df_far_members(comm);
	comm->choice.cost.far_ns = parent->choice.cost.far_ns;
	comm->choice.cost.far_inst_ns = parent->choice.cost.far_inst_ns;
	comm->choice.cost.far_byte_ns = parent->choice.cost.far_byte_ns;
	return 0;
}

/* Everything is known: opens the communicator for operations. */
static int ready(struct df_comm *comm, uint64_t parent)
{
	int i, nranks = comm->nranks, rank = comm->rank;
	struct df_dev *dev = comm->dev;

	comm->conn.far = df_refs_far(comm);
	note_neighbours(comm);
	comm->trace =
		df_trace_comm(comm->hash, nranks, rank, dev->index, parent, comm->config.name);
	df_trace(DF_REC_COMM_READY, dev->index, comm->trace, rank, 0, comm->hash, (uint64_t)nranks,
		 (uint64_t)dev->index, 0);
	for (i = 0; i < nranks; i++)
		df_trace(DF_REC_COMM_MEMBER, dev->index, comm->trace, rank, (uint64_t)i,
			 comm->members[i].host, comm->members[i].pid,
			 (uint64_t)comm->members[i].device, 0);
	__atomic_store_n(&dev->exec.used, 1, __ATOMIC_RELAXED);
	df_engine_start();
	df_watchdog_start();
	/*
	 * RELEASE pairs with the ACQUIRE in df_comm_is_open(): without it the watchdog and the
	 * control thread could read members that are not set yet.
	 */
	__atomic_store_n(&comm->open, 1, __ATOMIC_RELEASE);
	set_state(comm, DF_COMM_READY);
	/*
	 * df_comm_death() skips communicators that are not open: a member may have died between the
	 * rendezvous and here.
	 */
	df_ctl_tell_deaths(comm->ctl);
	return comm->state == DF_COMM_READY ? 0 : -ECANCELED;
}

/*
 * If the runtime of some rank could not start, the ranks only get to know each other: returns
 * DF_JOIN_UNABLE.
 */
static int meet_unable(struct df_comm *comm, int nranks, int rank)
{
	int i;

	for (i = 0; i < nranks && !df_ctl_members(comm->ctl)[i].unable; i++)
		;
	if (i == nranks)
		return 0;
	comm->nranks = nranks;
	comm->rank = rank;
	comm->members = df_ctl_members(comm->ctl);
	comm->hash = df_ctl_hash(comm->ctl);
	return DF_JOIN_UNABLE;
}

/* Joins, on a rank whose own runtime could not start. */
static int join_unable(struct df_comm *comm, int nr_ids, const unsigned char (*ids)[DF_ID_BYTES],
		       int nranks, struct df_member *me)
{
	const struct df_ctl_limits limits = {df_rt.reason, comm->config.bound};
	int ret;

	me->device_id = df_hash_u64(me->proc, (uint64_t)me->rank + 1);
	me->node = me->host;
	ret = df_ctl_join(nr_ids, ids, nranks, me, &limits, &comm->stop, &comm->ctl);
	return ret ? fail(comm, ret) : meet_unable(comm, nranks, me->rank);
}

/* Returns the node that a device belongs to: the machine, or an emulated node. */
static uint64_t node_of(uint64_t host, int device)
{
	long per = df_env()->host_node_devices;

	if (per == DF_AUTO)
		return host;
	return df_hash_u64(host, (uint64_t)(device / per) + 1);
}

int df_comm_join(struct df_comm *comm, int nr_ids, const unsigned char (*ids)[DF_ID_BYTES],
		 int nranks, int rank)
{
	const struct df_ctl_limits limits = {NULL, comm->config.bound};
	struct df_member me;
	uint64_t call;
	int ret;

	set_state(comm, DF_COMM_JOINING);
	ret = df_ctl_self(&me);
	if (ret)
		return fail(comm, ret);
	me.rank = rank;
	if (__atomic_load_n(&df_rt.unable, __ATOMIC_RELAXED))
		return join_unable(comm, nr_ids, ids, nranks, &me);
	if (df_blocks->prepare(comm->dev->index, df_rt.reason, sizeof(df_rt.reason)))
		return join_unable(comm, nr_ids, ids, nranks, &me);
	me.device = comm->dev->index;
	me.device_id = df_blocks->device_id(comm->dev->index);
	if (!me.device_id)
		me.device_id = df_hash_u64(me.host, (uint64_t)comm->dev->index + 1);
	df_cal_mine((struct df_cal *)me.cal, nranks);
	me.node = node_of(me.host, comm->dev->index);
	me.avoid = df_net_avoid(comm->dev->index, comm->config.name, comm->config.net);
	ret = nranks > 1 ? df_net_address(comm->dev->index, me.net, sizeof(me.net)) : 0;
	if (ret == -EMFILE) {
		df_addr_no_file(df_rt.reason, sizeof(df_rt.reason));
		return join_unable(comm, nr_ids, ids, nranks, &me);
	}
	if (ret)
		df_info("device %d cannot be reached by other nodes", comm->dev->index);
	me.gpu = df_blocks->gpu;
	me.blocks = (uint16_t)comm->dev->exec.d.nr_blocks;
	me.settings = df_rt.settings;
	/* Before the rendezvous, which may be the first call of the job that hangs. */
	df_watchdog_start();
	call = df_call_enter(DF_CALL_COMM_INIT, comm->dev->index, df_id_hash(ids[0]),
			     (uint64_t)nranks, 0);
	df_trace(DF_REC_COMM_INIT, comm->dev->index, 0, rank, call, df_id_hash(ids[0]),
		 (uint64_t)nranks, (uint64_t)comm->dev->index, 0);
	df_joining(comm, df_id_hash(ids[0]), nranks, rank);
	df_watchdog_start();
	ret = df_ctl_join(nr_ids, ids, nranks, &me, &limits, &comm->stop, &comm->ctl);
	df_joining(comm, 0, 0, 0);
	if (!ret)
		ret = meet_unable(comm, nranks, rank);
	if (!ret)
		ret = df_blocks->meet(comm->ctl, nranks, rank, &comm->stop);
	if (!ret)
		ret = agree(comm, nranks, rank, NULL, NULL);
	df_call_exit(call, DF_CALL_COMM_INIT, comm->dev->index, ret > 0 ? 0 : (uint64_t)-ret);
	if (ret > 0)
		return ret;
	if (!ret)
		ret = ready(comm, 0);
	return ret ? fail(comm, ret) : 0;
}

struct split_row {
	int32_t color, key;
	uint32_t avoid;
	struct df_cal cal;
};

/*
 * Makes a child communicator of the parent's ranks that are listed. avoid: what the ranks'
 * df_member.avoid amount to together. rows: the calibrations that they exchanged; NULL: uses what
 * the parent knows, so that no rank waits for others.
 */
static int derive(struct df_comm *comm, struct df_comm *parent, uint64_t hash, const int *ranks,
		  int nr, uint32_t avoid, const struct df_cal *rows)
{
	int me, ret;

	for (me = 0; me < nr && ranks[me] != parent->rank; me++)
		;
	if (comm->config.share) {
		static uint64_t nr_families;

		df_mutex_lock(&df_rt.lock);
		if (!parent->family)
			parent->family = ++nr_families;
		comm->family = parent->family;
		df_mutex_unlock(&df_rt.lock);
	}
	ret = df_ctl_derive(parent->ctl, hash, ranks, nr, me, avoid, &comm->ctl);
	if (ret)
		return ret;
	ret = agree(comm, nr, me, rows, rows ? NULL : parent);
	return ret ? ret : ready(comm, parent->hash);
}

int df_comm_join_split(struct df_comm *comm, struct df_comm *parent, int color, int key)
{
	struct split_row mine = {.color = color, .key = key}, *all;
	uint32_t avoid = 0;
	struct df_cal *rows;
	int *ranks, i, j, nr = 0, ret;
	uint64_t call = 0, salt;

	if (comm)
		set_state(comm, DF_COMM_JOINING);
	all = malloc((size_t)parent->nranks * sizeof(*all));
	ranks = malloc((size_t)parent->nranks * sizeof(*ranks));
	rows = malloc((size_t)parent->nranks * sizeof(*rows));
	ret = -ENOMEM;
	if (!all || !ranks || !rows)
		goto out;
	df_cal_mine(&mine.cal, parent->nranks);
	if (comm)
		mine.avoid = df_net_avoid(comm->dev->index, comm->config.name, comm->config.net);
	/* The call is collective, so every rank has the same count. */
	salt = ++parent->splits;
	call = df_call_enter_comm(DF_CALL_COMM_SPLIT, parent, (uint64_t)(uint32_t)color, 0);
	ret = df_ctl_allgather(parent->ctl, &mine, sizeof(mine), all, &parent->stop);
	if (ret || color < 0 || !comm)
		goto out;
	for (i = 0; i < parent->nranks; i++) {
		if (all[i].color != color)
			continue;
		for (j = nr++; j > 0 && all[ranks[j - 1]].key > all[i].key; j--)
			ranks[j] = ranks[j - 1];
		ranks[j] = i;
	}
	for (i = 0; i < nr; i++) {
		rows[i] = all[ranks[i]].cal;
		avoid |= all[ranks[i]].avoid;
	}
	ret = derive(comm, parent, df_hash_u64(df_hash_u64(parent->hash, salt), (uint64_t)color),
		     ranks, nr, avoid, rows);
out:
	if (call)
		df_call_exit(call, DF_CALL_COMM_SPLIT, parent->dev->index, (uint64_t)-ret);
	free(rows);
	free(all);
	free(ranks);
	return ret && comm ? fail(comm, ret) : ret;
}

int df_comm_join_shrink(struct df_comm *comm, struct df_comm *parent, const int *exclude,
			int nr_exclude, int abort)
{
	int *ranks, i, x = 0, nr = 0, ret;
	uint32_t avoid = 0;
	uint64_t call, hash;

	set_state(comm, DF_COMM_JOINING);
	if (abort)
		df_comm_revoke(parent);
	ranks = malloc((size_t)parent->nranks * sizeof(*ranks));
	if (!ranks)
		return fail(comm, -ENOMEM);
	hash = df_hash_u64(parent->hash, ++parent->splits);
	for (i = 0; i < parent->nranks; i++) {
		avoid |= parent->members[i].avoid;
		while (x < nr_exclude && exclude[x] < i)
			x++;
		if (x < nr_exclude && exclude[x] == i)
			hash = df_hash_u64(hash, (uint64_t)i);
		else
			ranks[nr++] = i;
	}
	call = df_call_enter_comm(DF_CALL_COMM_SHRINK, parent, 0, 0);
	ret = derive(comm, parent, hash, ranks, nr, avoid, NULL);
	df_call_exit(call, DF_CALL_COMM_SHRINK, parent->dev->index, (uint64_t)-ret);
	free(ranks);
	return ret ? fail(comm, ret) : 0;
}

int df_comm_allgather(struct df_comm *comm, const void *in, size_t bytes, void *out)
{
	return df_ctl_allgather(comm->ctl, in, bytes, out, &comm->stop);
}

/* ---- the end --------------------------------------------------------------------------------- */

static int all_retired(void *arg)
{
	struct df_comm *comm = arg;

	/* RELAXED: the completion words have ordered the results; only the numbers count here. */
	if (__atomic_load_n(&comm->issued, __ATOMIC_RELAXED) ==
	    __atomic_load_n(&comm->retired, __ATOMIC_RELAXED))
		return 1;
	df_mutex_lock(&comm->dev->lock);
	df_dev_retire(comm->dev);
	df_mutex_unlock(&comm->dev->lock);
	return __atomic_load_n(&comm->issued, __ATOMIC_RELAXED) ==
	       __atomic_load_n(&comm->retired, __ATOMIC_RELAXED);
}

int df_comm_finalize(struct df_comm *comm)
{
	uint64_t call;

	df_trace(DF_REC_COMM_FINALIZE, comm->dev->index, comm->trace, comm->rank, 0, 0, 0, 0, 0);
	call = df_call_enter_comm(DF_CALL_COMM_FINALIZE, comm, 0, 0);
	df_engine_wait(comm->dev, all_retired, comm);
	df_call_exit(call, DF_CALL_COMM_FINALIZE, comm->dev->index, 0);
	if (df_comm_error(comm))
		return df_comm_error(comm);
	set_state(comm, DF_COMM_FINALIZED);
	return 0;
}

/*
 * Withdraws the slices that the communicator's operations have named: afterwards no block of this
 * process reads them.
 */
static void withdraw(struct df_comm *comm)
{
	uint32_t n;
	int i;

	df_mutex_lock(&comm->dev->lock);
	n = df_refs_withdraw(comm);
	df_mutex_unlock(&comm->dev->lock);
	if (n)
		df_tl_withdrawn(comm->dev->index);
	for (i = 0; i < df_rt.nr_devs && n; i++) {
		struct df_dev *dev = &df_rt.devs[i];
		uint32_t concerned;

		df_mutex_lock(&dev->lock);
		concerned = df_refs_withdrawn(dev);
		df_mutex_unlock(&dev->lock);
		if (concerned)
			df_engine_purge(dev);
	}
}

/* Ends the operations in flight on the communicator. Its state is set already. */
void df_comm_end_operations(struct df_comm *comm)
{
	struct df_dev *dev = comm->dev;
	struct df_coll *coll, *tmp;

	df_mutex_lock(&dev->lock);
	HASH_ITER(hh, comm->registry.all, coll, tmp)
	df_coll_abort(coll);
	df_sq_drop(dev);
	df_mutex_unlock(&dev->lock);
	df_engine_purge(dev);
	withdraw(comm);
	df_mutex_lock(&dev->lock);
	HASH_ITER(hh, comm->registry.all, coll, tmp)
	{
		df_debt_end(coll->k.done);
		/*
		 * RELEASE pairs with df_flight_done() and the streams' waits: they continue, with
		 * undefined data. No block writes the word any more.
		 */
		__atomic_store_n(coll->k.done, coll->base + coll->issued, __ATOMIC_RELEASE);
		df_coll_retire(coll);
	}
	df_mutex_unlock(&dev->lock);
	df_backend->kick(dev->index);
	df_bell_ring(df_tl_bell());
}

int df_comm_condemn(struct df_comm *comm, int error, int why)
{
	df_mutex_lock(&comm->dev->lock);
	if (comm->state == DF_COMM_ABORTED) {
		df_mutex_unlock(&comm->dev->lock);
		return 0;
	}
	/* Trace first: what the application does when it sees the state is a consequence. */
	df_trace(DF_REC_COMM_ABORT, comm->dev->index, comm->trace, comm->rank, 0, (uint64_t)why, 0,
		 0, 0);
	__atomic_store_n(&comm->error, error, __ATOMIC_RELAXED);
	__atomic_store_n(&comm->state, DF_COMM_ABORTED, __ATOMIC_RELAXED);
	/*
	 * SEQ_CST pairs with the readers of `stop` in the control plane: they see it after the poke
	 * at the latest.
	 */
	__atomic_store_n(&comm->stop, 1, __ATOMIC_SEQ_CST);
	df_mutex_unlock(&comm->dev->lock);
	df_ctl_poke();
	return 1;
}

void df_comm_end(struct df_comm *comm, int error, int why)
{
	if (df_comm_condemn(comm, error, why))
		df_comm_end_operations(comm);
}

/* Returns a communicator of the family that has not ended, with a reference, or NULL. */
static struct df_comm *relative(uint64_t family)
{
	struct df_comm *comm, *found = NULL;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		if (comm->family != family ||
		    __atomic_load_n(&comm->state, __ATOMIC_RELAXED) == DF_COMM_ABORTED)
			continue;
		found = comm;
		df_comm_get(found);
		break;
	}
	df_mutex_unlock(&df_rt.lock);
	return found;
}

void df_comm_unheard(struct df_comm *comm, int status)
{
	if (!__atomic_exchange_n(&comm->unheard, 1, __ATOMIC_RELAXED))
		df_exit_status_unheard(status);
}

/* The program itself gives the communicator up. */
static void is_heard(struct df_comm *comm)
{
	if (__atomic_exchange_n(&comm->unheard, 0, __ATOMIC_RELAXED))
		df_exit_status_heard();
}

void df_comm_abort(struct df_comm *comm)
{
	struct df_comm *other;

	is_heard(comm);
	df_comm_end(comm, -ECANCELED, 0);
	while (comm->family && (other = relative(comm->family))) {
		df_comm_end(other, -ECANCELED, 0);
		df_comm_put(other);
	}
}

int df_comm_revoke(struct df_comm *comm)
{
	is_heard(comm);
	df_mutex_lock(&comm->dev->lock);
	if (comm->state != DF_COMM_READY) {
		df_mutex_unlock(&comm->dev->lock);
		return -EINVAL;
	}
	__atomic_store_n(&comm->state, DF_COMM_REVOKED, __ATOMIC_RELAXED);
	df_mutex_unlock(&comm->dev->lock);
	df_trace(DF_REC_COMM_ABORT, comm->dev->index, comm->trace, comm->rank, 0, 3, 0, 0, 0);
	df_comm_end_operations(comm);
	return 0;
}

void df_comm_get(struct df_comm *comm)
{
	__atomic_add_fetch(&comm->refs, 1, __ATOMIC_RELAXED);
}

void df_comm_put(struct df_comm *comm)
{
	/*
	 * ACQ_REL pairs with itself: without it the thread that drops the last reference could free
	 * the communicator before another thread's last accesses.
	 */
	if (!__atomic_sub_fetch(&comm->refs, 1, __ATOMIC_ACQ_REL))
		free(comm);
}

void df_comm_destroy(struct df_comm *comm)
{
	struct df_dev *dev = comm->dev;
	struct df_coll *coll, *tmp;
	uint64_t call;
	int i;

	call = df_call_enter_comm(DF_CALL_COMM_DESTROY, comm, 0, 0);
	df_engine_wait(dev, all_retired, comm);
	df_call_exit(call, DF_CALL_COMM_DESTROY, dev->index, 0);
	df_mutex_lock(&df_rt.lock);
	df_list_del(&comm->node);
	df_mutex_unlock(&df_rt.lock);
	/* No block is in a turn on one of its collectives, and no completion names one. */
	df_engine_purge(dev);
	df_mutex_lock(&dev->lock);
	df_dev_retire(dev);
	df_stream_forget_comm(comm);
	HASH_ITER(hh, comm->registry.all, coll, tmp)
	{
		HASH_DEL(comm->registry.all, coll);
		df_coll_destroy(coll);
	}
	df_mutex_unlock(&dev->lock);
	df_conn_reap();
	df_trace(DF_REC_COMM_DESTROY, dev->index, comm->trace, comm->rank, 0, 0, 0, 0, 0);
	for (i = 0; comm->conn.peers && i < comm->nranks; i++)
		if (comm->conn.peers[i])
			comm->conn.tls[i]->peer_put(comm->conn.peers[i]);
	if (comm->ctl)
		df_ctl_leave(comm->ctl);
	free(comm->conn.peers);
	free(comm->conn.tls);
	df_layout_free(comm->choice.layout);
	df_flights_free(&comm->order.pending);
	comm->conn.peers = NULL;
	comm->conn.tls = NULL;
	comm->ctl = NULL;
	memset(&comm->order.pending, 0, sizeof(comm->order.pending));
	/* A graph may still be launched: its operations see this error. */
	df_mutex_lock(&dev->lock);
	__atomic_store_n(&comm->error, -ECANCELED, __ATOMIC_RELAXED);
	__atomic_store_n(&comm->state, DF_COMM_ABORTED, __ATOMIC_RELAXED);
	df_mutex_unlock(&dev->lock);
	df_comm_put(comm);
}

int df_comm_is_open(const struct df_comm *comm)
{
	/* ACQUIRE pairs with the RELEASE in ready(): the members are set. */
	return __atomic_load_n(&comm->open, __ATOMIC_ACQUIRE);
}

/* ---- queries --------------------------------------------------------------------------------- */

int df_comm_nranks(const struct df_comm *comm)
{
	return comm->nranks;
}

int df_comm_rank(const struct df_comm *comm)
{
	return comm->rank;
}

uint64_t df_comm_hash(const struct df_comm *comm)
{
	return comm->hash;
}

enum df_comm_state df_comm_state(const struct df_comm *comm)
{
	return (enum df_comm_state)__atomic_load_n(&comm->state, __ATOMIC_RELAXED);
}

int df_comm_error(const struct df_comm *comm)
{
	return __atomic_load_n(&comm->error, __ATOMIC_RELAXED);
}

uint64_t df_comm_pending(const struct df_comm *comm)
{
	return __atomic_load_n(&comm->issued, __ATOMIC_RELAXED) -
	       __atomic_load_n(&comm->retired, __ATOMIC_RELAXED);
}
