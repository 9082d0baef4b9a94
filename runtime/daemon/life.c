/*
 * The daemon's part of a communicator: the offers of its ranks, its connections to them, the end of
 * its operations.
 */
#include <errno.h>
#include <stdlib.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/blocks.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
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
#include "runtime/coll/dev.h"
#include "runtime/daemon/engine.h"
#include "runtime/daemon/life.h"
#include "runtime/program/build/cost.h"
#include "runtime/program/layout.h"
#include "kernels/bell.h"
#include "runtime/coll/byref.h"
#include "runtime/transport/transport.h"
#include "runtime/watch/debt.h"

int df_life_open(struct df_comm *comm, int nranks, struct df_member *me)
{
	int device = comm->dev->index, ret;

	if (df_blocks->open(device, df_rt.reason, sizeof(df_rt.reason)) ||
	    df_blocks->prepare(device, df_rt.reason, sizeof(df_rt.reason)))
		return -EOPNOTSUPP;
	me->device_id = df_blocks->device_id(device);
	if (!me->device_id)
		me->device_id = df_hash_u64(me->host, (uint64_t)device + 1);
	df_life_terms(comm, nranks, (struct df_cal *)me->cal, &me->avoid);
	ret = nranks > 1 ? df_net_address(device, me->net, sizeof(me->net)) : 0;
	if (ret == -EMFILE) {
		df_addr_no_file(df_rt.reason, sizeof(df_rt.reason));
		return ret;
	}
	if (ret)
		df_info("device %d cannot be reached by other nodes", device);
	me->gpu = df_blocks->gpu;
	me->blocks = (uint16_t)comm->dev->exec.d.nr_blocks;
	me->settings = df_rt.settings;
	return 0;
}

void df_life_terms(const struct df_comm *comm, int nranks, struct df_cal *cal, uint32_t *avoid)
{
	df_cal_mine(cal, nranks);
	if (comm)
		*avoid = df_net_avoid(comm->dev->index, comm->config.name, comm->config.net);
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

int df_life_meet(struct df_comm *comm, const struct df_comm *parent, const struct df_cal *rows)
{
	size_t nranks = (size_t)comm->nranks, i;
	int ret;

	ret = parent ? 0 : df_blocks->meet(comm->ctl, comm->nranks, comm->rank, &comm->stop);
	if (ret)
		return ret;
	comm->blocks = comm->dev->exec.d.nr_blocks;
	for (i = 0; i < nranks; i++)
		comm->blocks = DF_MIN(comm->blocks, comm->members[i].blocks);
	if (comm->config.max_blocks > 0)
		comm->blocks = DF_MIN(comm->blocks, (uint32_t)comm->config.max_blocks);
	comm->conn.peers = calloc(nranks, sizeof(struct df_peer *));
	comm->conn.tls = calloc(nranks, sizeof(struct df_tl_ops *));
	if (!comm->conn.peers || !comm->conn.tls || look_at_nodes(comm) ||
	    df_cal_members(comm, rows))
		return -ENOMEM;
	if (!parent || rows)
		return df_far_members(comm);
	/* Shrink: no rank waits for others, so the speeds between nodes are the parent's. */
	comm->choice.cost.far_ns = parent->choice.cost.far_ns;
	comm->choice.cost.far_inst_ns = parent->choice.cost.far_inst_ns;
	comm->choice.cost.far_byte_ns = parent->choice.cost.far_byte_ns;
	return 0;
}

void df_life_start(struct df_comm *comm)
{
	comm->conn.far = df_refs_far(comm);
	note_neighbours(comm);
	df_engine_start();
}

/* ---- the end -------------------------------------------------------------------------------- */

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

void df_life_end(struct df_comm *comm)
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

void df_life_forget(struct df_comm *comm)
{
	struct df_dev *dev = comm->dev;
	struct df_coll *coll, *tmp;
	int i;

	/*
	 * Afterwards no block is in a turn on one of its collectives, and no completion names one.
	 * If that cannot be said, all that a block may access stays where it is.
	 */
	if (df_engine_purge(dev)) {
		df_comm_get(comm);
		return;
	}
	df_mutex_lock(&dev->lock);
	df_dev_retire(dev);
	HASH_ITER(hh, comm->registry.all, coll, tmp)
	{
		HASH_DEL(comm->registry.all, coll);
		df_coll_destroy(coll);
	}
	df_mutex_unlock(&dev->lock);
	df_conn_reap();
	for (i = 0; comm->conn.peers && i < comm->nranks; i++)
		if (comm->conn.peers[i])
			comm->conn.tls[i]->peer_put(comm->conn.peers[i]);
	free(comm->conn.peers);
	free(comm->conn.tls);
	comm->conn.peers = NULL;
	comm->conn.tls = NULL;
	df_layout_free(comm->choice.layout);
}
