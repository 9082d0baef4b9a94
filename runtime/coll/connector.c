/*
 * Connects a collective to its peers: creates the connectors that this side owns, and finds the
 * others in the background. Nothing waits: a task with an unconnected end cannot start, and every
 * pass of the engine tries again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/abi.h"
#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/base/vec.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/connector.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/coll/dev.h"
#include "runtime/dfshim.h"
#include "runtime/program/program.h"
#include "runtime/program/proto.h"
#include "kernels/bell.h"
#include "runtime/coll/byref.h"
#include "runtime/coll/recycle.h"
#include "runtime/transport/transport.h"

#define CONNECT_BUDGET 16 /* collectives tried in one pass, so that a pass stays short */

/*
 * Connectors of ours that a peer still used when the collective was destroyed. They are closed when
 * the peer lets go.
 */
static struct df_mutex reap_lock = DF_MUTEX_INIT(DF_RANK_REAP, "connectors to close");
static struct reap {
	struct df_conn *conn;
	/* a send that the peer may still receive; else the remains of an ended communicator */
	int wanted;
	int leaves; /* to another process */
} * reap;
static uint32_t nr_reap, cap_reap;

static int peer_of(struct df_comm *comm, int rank, struct df_cend *end)
{
	if (!comm->conn.peers[rank]) {
		const struct df_tl_ops *tl =
			df_tl_select(&comm->members[comm->rank], &comm->members[rank]);
		int ret;

		if (!tl) {
			int off = df_env_net(comm->config.name) == DF_NET_OFF;

			df_warn("cannot reach rank %d on %s: %s%s%s", rank,
				comm->members[rank].hostname, off ? "DFSHIM_NET=" : "",
				off ? df_env()->net : "",
				off ? " keeps nodes apart"
				: comm->members[comm->rank].avoid | comm->members[rank].avoid
					? "the two do not have the network that their communicator "
					  "asks for"
					: "its process or this one has no address for other nodes");
			return -EOPNOTSUPP;
		}
		ret = tl->peer_get(&comm->members[comm->rank], &comm->members[rank],
				   &comm->conn.peers[rank]);
		if (ret)
			return ret;
		comm->conn.tls[rank] = tl;
	}
	end->peer = comm->conn.peers[rank];
	end->tl = comm->conn.tls[rank];
	return 0;
}

/*
 * Returns the end's index in its program's table of connections. The collective's array of struct
 * df_kconn has the table's order; k.ctx->send are the sends of block 0 in it.
 */
static uint32_t end_index(const struct df_coll *coll, const struct df_cend *end)
{
	return (uint32_t)(end->k - coll->k.ctx->send) + df_prog_block(coll->prog, 0)->first_send;
}

int df_conn_rank(const struct df_coll *coll, const struct df_cend *end)
{
	return df_prog_conn(coll->prog, end_index(coll, end))->peer;
}

/*
 * Returns the lengths of the end's slices, so that the network sends no more than their contents.
 * NULL: unknown.
 */
static struct df_slices *slices(const struct df_coll *coll, const struct df_cend *end)
{
	uint32_t at = end_index(coll, end), per_loop = end->k->per_loop, b, i;
	const struct df_kcoll *k = &coll->k;
	struct df_slices *s;

	s = per_loop ? calloc(1, sizeof(*s) + per_loop * sizeof(s->cnt[0])) : NULL;
	if (!s)
		return NULL;
	s->loops = k->loops;
	s->per_loop = per_loop;
	s->tile_bytes = (uint32_t)(k->tile_elems * k->elem_bytes);
	s->last_bytes =
		(uint32_t)(DF_MIN(k->tile_elems, k->chunk_elems - (k->loops - 1) * k->tile_elems) *
			   k->elem_bytes);
	for (b = 0; b < coll->prog->nr_blocks; b++) {
		const struct df_prog_block *pb = df_prog_block(coll->prog, b);

		for (i = 0; i < pb->nr_inst; i++) {
			const struct df_inst *in = df_prog_inst(coll->prog, pb->first_inst + i);

			if (end->sends && in->send_conn != DF_NO_CONN &&
			    pb->first_send + in->send_conn == at && in->send_ord < per_loop)
				s->cnt[in->send_ord] = in->cnt;
			if (!end->sends && in->recv_conn != DF_NO_CONN &&
			    pb->first_recv + in->recv_conn == at && in->recv_ord < per_loop)
				s->cnt[in->recv_ord] = in->cnt;
		}
	}
	return s;
}

int df_conn_direct(const struct df_comm *comm, int rank)
{
	const struct df_tl_ops *tl = df_tl_select(&comm->members[comm->rank], &comm->members[rank]);

	return tl && (tl->caps & DF_TL_DIRECT);
}

/* Connects the end: the block may use it from now on. */
static void connect_end(const struct df_coll *coll, struct df_cend *end)
{
	const struct df_comm *comm = coll->comm;
	const struct df_member *peer = &comm->members[df_conn_rank(coll, end)];
	struct df_kconn now = {0}, *k = end->k;

	end->tl->end(end->conn, &now);
	if (end->tl->caps & DF_TL_NETWORK && !end->conn->slices)
		end->conn->slices = slices(coll, end);
	k->nr_slots = now.nr_slots;
	k->slot_bytes = now.slot_bytes;
	k->tail = now.tail;
	k->head = now.head;
	k->slots = now.slots;
	k->lands = df_refs_land(end) && now.refs;
	k->refs = k->lands || df_refs_reach(coll, end) ? now.refs : NULL;
	k->bell = now.bell;
	k->base = now.base;
	k->peer = peer->proc + (uint64_t)peer->device;
	k->seen = 0;
	/*
	 * RELEASE pairs with the ACQUIRE of fresh in dfk_conn_begin() (kernels/rings.inl) and of
	 * state in dfk_connected() (kernels/hot.inl): all fields above are set before the block
	 * reads them. The block itself sets a fresh connector's state.
	 */
	if (now.fresh)
		__atomic_store_n(&k->fresh, now.fresh, __ATOMIC_RELEASE);
	else
		/* RELEASE pairs as above. */
		__atomic_store_n(&k->state, df_refs_state(end), __ATOMIC_RELEASE);
}

/* Makes the block initialise the counters of a new connector, which the host cannot reach. */
static void tell_block(struct df_coll *coll, const struct df_cend *end)
{
	struct df_sqe e = {end->ctx, NULL};

	if (end->conn && end->owner && end->conn->noted)
		df_sq_push(coll->dev, df_dev_block(coll, end->ctx->block), &e);
}

static int find_end(struct df_coll *coll, struct df_cend *end)
{
	int ret;

	if (!end->conn) {
		ret = end->tl->find(end->peer, end->key, &end->conn);
		if (ret)
			return ret;
	}
	ret = end->tl->use(end->conn);
	if (ret) {
		/* Closed after we found it and before we could use it: look for its successor. */
		end->tl->forget(end->conn);
		end->conn = NULL;
		return ret;
	}
	connect_end(coll, end);
	if (df_conn_movable(end) && df_list_empty(&coll->using))
		df_list_add_tail(&coll->dev->using, &coll->using);
	/* RELAXED: later requests are counted. */
	if (df_conn_movable(end) && __atomic_load_n(&end->conn->hdr->wanted, __ATOMIC_RELAXED))
		coll->asked = 1;
	return 0;
}

/*
 * The owner's side: makes a connector, or the successor of a recycled one. Returns -EAGAIN if its
 * memory is still being allocated.
 */
static int make_end(struct df_coll *coll, struct df_cend *end)
{
	int ret;

	df_conn_make_room(coll, DF_CONN_SLOTS + (uint64_t)end->nr_slots * end->slot_bytes);
	ret = end->tl->create(end->peer, end->key, end->nr_slots, end->slot_bytes,
			      (df_proto_words((enum df_proto)end->k->proto) ? DF_CONN_ZERO : 0) |
				      (end->sends ? DF_CONN_SENDS : 0),
			      end->base, &end->conn);
	if (ret)
		return ret;
	connect_end(coll, end);
	if (end->k->bell)
		df_bell_ring(end->k->bell);
	if (df_conn_movable(end) && df_list_empty(&coll->holding))
		df_list_add_tail(&coll->dev->holding, &coll->holding);
	return 0;
}

/* As make_end(), while the application waits for the result: reports failures. */
static int make_now(struct df_coll *coll, struct df_cend *end)
{
	int ret = make_end(coll, end);

	if (ret == -EAGAIN) {
		coll->nr_open++;
		return 0;
	}
	if (ret == -ECONNRESET)
		df_warn("rank %d has exited, and this operation needs it", df_conn_rank(coll, end));
	else if (ret)
		df_warn("cannot make a connector of %u slots of %u bytes: %s", end->nr_slots,
			end->slot_bytes, strerror(-ret));
	return ret;
}

/* From now on every pass of the engine tries to find or make the missing ends. */
static void await_ends(struct df_coll *coll)
{
	if (!coll->nr_open)
		return;
	df_list_add_tail(&coll->dev->connecting, &coll->waiting);
	__atomic_store_n(&coll->dev->nr_connecting, coll->dev->nr_connecting + 1, __ATOMIC_RELAXED);
	df_connector_connect(coll->dev);
}

int df_coll_reconnect(struct df_coll *coll)
{
	uint32_t i;
	int ret;

	coll->nr_open = 0;
	for (i = 0; i < coll->nr_ends; i++) {
		struct df_cend *end = &coll->ends[i];

		if (!end->owner) {
			coll->nr_open += end->k->state == 0;
		} else if (!end->conn) {
			ret = make_now(coll, end);
			if (ret)
				return ret;
			tell_block(coll, end);
		}
	}
	coll->parked = 0;
	/* On a GPU a block may have the ends' earlier state (dfk_reconnect()). */
	for (i = 0; df_blocks->gpu && i < coll->nr_ends; i++) {
		struct df_sqe e = {coll->ends[i].ctx, NULL};

		df_sq_push(coll->dev, df_dev_block(coll, e.ctx->block), &e);
	}
	await_ends(coll);
	return 0;
}

int df_coll_connect(struct df_coll *coll)
{
	uint32_t i;
	int ret;

	for (i = 0; i < coll->nr_ends; i++) {
		struct df_cend *end = &coll->ends[i];

		ret = peer_of(coll->comm, df_conn_rank(coll, end), end);
		if (ret)
			goto err_ends;
		if (!end->owner) {
			coll->nr_open++;
			continue;
		}
		ret = make_now(coll, end);
		if (ret)
			goto err_ends;
	}
	/* Only when nothing can fail any more: the ring keeps pointers to the contexts. */
	for (i = 0; i < coll->nr_ends; i++)
		tell_block(coll, &coll->ends[i]);
	await_ends(coll);
	return 0;

err_ends:
	df_coll_disconnect(coll);
	df_list_del(&coll->holding);
	df_list_del(&coll->using);
	return ret;
}

static int make_late(struct df_coll *coll, struct df_cend *end)
{
	int ret = make_end(coll, end);

	if (!ret)
		tell_block(coll, end);
	else if (ret != -EAGAIN && ret != -ECONNRESET)
		df_warn_once("cannot make a connector of %u slots of %u bytes: %s; trying again",
			     end->nr_slots, end->slot_bytes, strerror(-ret));
	return ret;
}

void df_connector_connect(struct df_dev *dev)
{
	uint32_t i, budget = DF_MIN(dev->nr_connecting, CONNECT_BUDGET);

	while (budget--) {
		struct df_coll *coll = df_list_first(&dev->connecting, struct df_coll, waiting);

		if (coll->no_scratch && df_coll_scratch(coll) == 0)
			coll->nr_open--;
		for (i = 0; i < coll->nr_ends && coll->nr_open; i++) {
			struct df_cend *end = &coll->ends[i];

			if (end->owner ? end->conn == NULL && make_late(coll, end) == 0
				       : end->k->state == 0 && find_end(coll, end) == 0)
				coll->nr_open--;
		}
		df_list_del(&coll->waiting);
		if (coll->nr_open) {
			df_list_add_tail(&dev->connecting, &coll->waiting);
		} else {
			__atomic_store_n(&dev->nr_connecting, dev->nr_connecting - 1,
					 __ATOMIC_RELAXED);
		}
	}
}

/* Whether the peer is in another process. */
static int leaves(const struct df_coll *coll, const struct df_cend *end)
{
	return coll->comm->members[df_conn_rank(coll, end)].proc != df_rt.self.proc;
}

static void reap_later(const struct df_coll *coll, const struct df_cend *end, int wanted)
{
	struct df_peer *peer;
	struct reap *r;

	/*
	 * The communicator releases its reference to the peer. Without a reference of our own the
	 * memory stays allocated.
	 */
	if (end->tl->peer_get(&coll->comm->members[coll->comm->rank],
			      &coll->comm->members[df_conn_rank(coll, end)], &peer))
		return;
	df_mutex_lock(&reap_lock);
	/* Without room the connector's memory stays until the process ends. */
	r = DF_VEC_PUSH(reap, nr_reap, cap_reap);
	if (r)
		*r = (struct reap){end->conn, wanted, leaves(coll, end)};
	df_mutex_unlock(&reap_lock);
}

/*
 * Whether the receiver of a buffered send has not taken everything yet: then the slots must outlive
 * the communicator.
 */
static int unconsumed(const struct df_conn *conn)
{
	/* RELAXED: only a difference counts, and it can only disappear. */
	return __atomic_load_n(&conn->hdr->tail, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&conn->hdr->head, __ATOMIC_RELAXED);
}

void df_coll_disconnect(struct df_coll *coll)
{
	int keep = coll->sig.kind == DF_COLL_SEND && !coll->k.aborted;
	uint32_t i;

	for (i = 0; i < coll->nr_ends; i++) {
		struct df_cend *end = &coll->ends[i];

		if (!end->conn)
			continue;
		if (!end->owner) {
			if (end->k->state)
				end->tl->unuse(end->conn);
			end->tl->forget(end->conn);
		} else if (keep && unconsumed(end->conn)) {
			reap_later(coll, end, 1);
		} else if (end->tl->close(end->conn) == -EBUSY) {
			reap_later(coll, end, 0);
		}
		end->conn = NULL;
	}
}

void df_coll_note(struct df_coll *coll)
{
	uint32_t i;

	for (i = 0; i < coll->nr_ends; i++)
		if (coll->ends[i].conn)
			df_conn_note(coll->ends[i].conn,
				     coll->retired * coll->k.loops * coll->ends[i].k->per_loop);
}

/* Whether the receiver of a buffered send may still take it: its process is alive. */
static int awaited(struct df_conn *conn)
{
	struct df_conn *none;

	return unconsumed(conn) && conn->tl->find(conn->peer, 0, &none) != -ECONNRESET;
}

static int reap_one(const struct reap *r)
{
	struct df_conn *conn = r->conn;
	struct df_peer *peer = conn->peer;
	const struct df_tl_ops *tl = conn->tl;

	if (r->wanted && awaited(conn))
		return -EBUSY;
	if (tl->close(conn) == -EBUSY)
		return -EBUSY;
	tl->peer_put(peer);
	return 0;
}

void df_conn_reap(void)
{
	uint32_t i, n = 0;

	df_mutex_lock(&reap_lock);
	for (i = 0; i < nr_reap; i++)
		if (reap_one(&reap[i]) == -EBUSY)
			reap[n++] = reap[i];
	nr_reap = n;
	df_mutex_unlock(&reap_lock);
}

/* Counts finished sends of a communicator that was not destroyed. dev->lock held. */
static uint32_t nr_awaited(const struct df_coll *coll)
{
	uint32_t i, n = 0;

	if (coll->sig.kind != DF_COLL_SEND || coll->unretired || coll->k.aborted ||
	    df_comm_state(coll->comm) != DF_COMM_READY)
		return 0;
	for (i = 0; i < coll->nr_ends; i++)
		n += coll->ends[i].conn && coll->ends[i].owner && leaves(coll, &coll->ends[i]) &&
		     awaited(coll->ends[i].conn);
	return n;
}

/*
 * Counts sends that other processes have not taken yet; living: also those of living communicators.
 */
static uint32_t nr_unconsumed(int living)
{
	struct df_coll *coll;
	uint32_t n = 0;
	int i;

	df_mutex_lock(&reap_lock);
	for (uint32_t k = 0; k < nr_reap; k++)
		n += reap[k].wanted && reap[k].leaves && unconsumed(reap[k].conn);
	df_mutex_unlock(&reap_lock);
	for (i = 0; i < df_rt.nr_devs && living; i++) {
		struct df_dev *dev = &df_rt.devs[i];

		df_mutex_lock(&dev->lock);
		df_dev_retire(dev);
		df_list_each(coll, &dev->colls, node) n += nr_awaited(coll);
		df_mutex_unlock(&dev->lock);
	}
	return n;
}

void df_conn_linger(int living)
{
	uint64_t start = df_now_ns(), bound = (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS;
	int told = 0;

	df_conn_reap();
	while (nr_unconsumed(living) && df_now_ns() - start < bound) {
		if (!told && df_now_ns() - start > DF_NS_PER_S) {
			df_warn("the exit of this process waits: %u sends have not been received "
				"yet",
				nr_unconsumed(living));
			told = 1;
		}
		df_sleep_ns(DF_NS_PER_MS / 4);
		df_conn_reap();
	}
	/* A process that exits with an error does not wait for an unreachable network. */
	df_tl_flush(living ? bound : DF_MIN(bound, DF_NS_PER_S));
}
