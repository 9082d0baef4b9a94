/*
 * Slices by reference. Between blocks that reach the same memory, a sender may leave a slice in its
 * buffer, write the address into the slot, and so save a copy. dfk_ref() in kernels/task.inl
 * decides for which slices, DF_INST_STAYS says which may. This works on CPU threads of one process;
 * between ranks of one process on one GPU; and between GPUs that can access each other, if the
 * buffer is memory that this access covers (df_kinst.shown). CPU threads also use it towards other
 * nodes: the network's thread sends the slice from the buffer. For a slice from another node, a
 * receiver names the address where it should be stored (df_refs_land(), dfk_land()); these words
 * are the receiver's own, and are withdrawn in the same way.
 *
 * An operation ends only when the slices it named have been received. If its communicator is ended,
 * the names are withdrawn (df_life_end() in runtime/daemon/life.c): it marks first the headers of
 * the connectors, then their other ends in this process; then df_engine_purge() makes sure that no
 * block is in a turn that began earlier. An end that connects later sees the header. So no thread
 * waits for a receiver that never takes its slices. tests/model/byref.pml models this protocol,
 * tests/model/away.pml the one towards other nodes.
 */
#include <uthash.h>

#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/coll/byref.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/connector.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/coll/dev.h"
#include "runtime/transport/transport.h"

int df_refs_reach(const struct df_coll *coll, const struct df_cend *end)
{
	const struct df_member *peer = &coll->comm->members[df_conn_rank(coll, end)];
	int here;

	/*
	 * Within one process both ends decide alike: they share one connector, which is in GPU
	 * memory only if the two GPUs can access each other. Towards another node the network's
	 * thread reads the slice, for as long as it stays, and the other end has slots of its own.
	 */
	if (end->tl->caps & DF_TL_NETWORK)
		here = end->sends && end->conn->slices && !df_blocks->gpu;
	else
		here = peer->proc == df_rt.self.proc && !df_env()->nccl_p2p_direct_disable &&
		       (!df_blocks->gpu || peer->device == coll->dev->index || end->conn->noted);
	return here && end->k->proto == DF_PROTO_SIMPLE && end->k->nr_slots <= DF_CONN_REFS &&
	       (coll->k.loops * end->k->per_loop > end->k->nr_slots ||
		(coll->sig.kind == DF_COLL_ALLREDUCE && !df_blocks->gpu));
}

int df_refs_land(const struct df_cend *end)
{
	return !end->sends && end->tl->caps & DF_TL_NETWORK && end->conn->slices &&
	       !df_blocks->gpu && end->k->proto == DF_PROTO_SIMPLE &&
	       end->k->nr_slots <= DF_CONN_REFS;
}

int df_refs_far(const struct df_comm *comm)
{
	int i;

	for (i = 0; i < comm->nranks && df_blocks->gpu; i++)
		if (comm->members[i].proc == df_rt.self.proc &&
		    comm->members[i].device != comm->dev->index)
			return 1;
	return 0;
}

static int shown(const struct df_comm *comm, const void *p)
{
	struct df_mem_info info;

	return p && df_backend->mem_info(p, &info) == 0 && info.shown &&
	       info.device == comm->dev->index;
}

uint32_t df_refs_shown(const struct df_comm *comm, const void *in, const void *out, uint64_t bytes)
{
	if (!comm->conn.far)
		return 1u << DF_BUF_IN | 1u << DF_BUF_OUT;
	/* A small operation has few slices, and asking the driver takes as long as copying them. */
	if (bytes < df_rt.slot_bytes || df_env()->nccl_p2p_direct_disable)
		return 0;
	return (uint32_t)shown(comm, in) << DF_BUF_IN |
	       (uint32_t)(out == in ? shown(comm, in) : shown(comm, out)) << DF_BUF_OUT;
}

static int withdrawn(const struct df_cend *end)
{
	/*
	 * RELAXED: the thread that marks headers takes this device's lock afterwards. So an end
	 * that connects after that sees the mark, and one that was connected before is found.
	 */
	return !end->sends && end->k->refs && !end->k->lands &&
	       __atomic_load_n(&end->conn->hdr->withdrawn, __ATOMIC_RELAXED);
}

uint32_t df_refs_state(const struct df_cend *end)
{
	return withdrawn(end) ? DF_KCONN_WITHDRAWN : DF_KCONN_CONNECTED;
}

uint32_t df_refs_withdraw(struct df_comm *comm)
{
	struct df_coll *coll, *tmp;
	uint32_t i, n = 0;

	HASH_ITER(hh, comm->registry.all, coll, tmp)
	{
		for (i = 0; i < coll->nr_ends && coll->unretired; i++) {
			struct df_cend *end = &coll->ends[i];

			if (!end->conn || !end->k->refs || !end->k->state ||
			    !(end->sends || end->k->lands))
				continue;
			__atomic_store_n(&end->conn->hdr->withdrawn, 1, __ATOMIC_RELAXED);
			n++;
		}
	}
	return n;
}

uint32_t df_refs_withdrawn(struct df_dev *dev)
{
	struct df_coll *coll;
	uint32_t i, n = 0;

	df_list_each(coll, &dev->colls, node)
	{
		for (i = 0; i < coll->nr_ends; i++) {
			struct df_cend *end = &coll->ends[i];

			if (end->k->state != DF_KCONN_CONNECTED || !withdrawn(end))
				continue;
			/* RELAXED: df_engine_purge() orders it. */
			__atomic_store_n(&end->k->state, DF_KCONN_WITHDRAWN, __ATOMIC_RELAXED);
			n++;
		}
	}
	return n;
}
