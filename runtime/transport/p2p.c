/*
 * Transport "p2p": slots and counters are in the memory of the owner's GPU, which the other side
 * accesses directly: the same GPU, another one over NVLink or PCIe, or either through CUDA IPC.
 * Gate, key and directory entry stay in the node's shared memory and belong to the transport below,
 * "self" or "shm".
 *
 * The CPU accesses neither counters nor slots. The owner's block initialises the counters
 * (df_kconn.fresh) and sets a flag in shared memory; until then the connector counts as not
 * announced. If GPU memory is short, a connector is in shared memory as with the other transports;
 * the directory shows which it is.
 *
 * Lock: DF_RANK_TRANSPORT for the list of peers. Peers of "shm" are taken and put without it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "runtime/base/err.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/blocks.h"
#include "runtime/transport/transport_int.h"

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_TRANSPORT, "p2p peers");
static struct df_peer *peers;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void after_fork_child(void)
{
	df_mutex_init(&lock, DF_RANK_TRANSPORT, "p2p peers");
	peers = NULL;
}

static void install(void)
{
	pthread_atfork(NULL, NULL, after_fork_child);
}

static const struct df_tl_ops *below(const struct df_peer *p)
{
	return p->local ? &df_tl_self_ops : &df_tl_shm_ops;
}

static int p2p_reachable(const struct df_member *self, const struct df_member *peer)
{
	return df_blocks->far_agreed &&
	       (df_tl_self_ops.reachable(self, peer) || df_tl_shm_ops.reachable(self, peer)) &&
	       df_blocks->far_agreed(self, peer);
}

/* Removes peers that are dead and unreferenced from the list and returns them. Under the lock. */
static struct df_peer *sweep(void)
{
	struct df_peer **at = &peers, *p, *gone = NULL;

	while ((p = *at)) {
		/*
		 * ACQUIRE pairs with the RELEASE in p2p_peer_put() and in drop() (node.c): no
		 * thread still uses the peer's memory.
		 */
		if (df_peer_dead(p) && !__atomic_load_n(&p->refs, __ATOMIC_ACQUIRE)) {
			*at = p->next;
			p->next = gone;
			gone = p;
		} else {
			at = &p->next;
		}
	}
	return gone;
}

static void bury(struct df_peer *gone)
{
	struct df_peer *p;
	int left = 0;

	while (gone) {
		struct df_peer *next = gone->next;

		df_mutex_lock(&lock);
		for (p = peers; p && p->member.proc != gone->member.proc; p = p->next)
			;
		left = p != NULL;
		df_mutex_unlock(&lock);
		/* Another of our devices may still use that process. */
		if (!left)
			df_blocks->far_close(gone->member.proc);
		below(gone)->peer_put(gone->via);
		free(gone);
		gone = next;
	}
}

static int p2p_peer_get(const struct df_member *self, const struct df_member *m,
			struct df_peer **out)
{
	struct df_peer *p, *made, *gone;
	int ret;

	pthread_once(&once, install);
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->member = *m;
	made->device = self->device;
	made->local = self->proc == m->proc;
	ret = below(made)->peer_get(self, m, &made->via);
	if (ret) {
		free(made);
		return ret;
	}
	df_mutex_lock(&lock);
	gone = sweep();
	for (p = peers; p; p = p->next)
		if (p->member.proc == m->proc && p->member.device == m->device &&
		    p->device == self->device)
			break;
	if (!p) {
		p = made;
		p->next = peers;
		peers = p;
		made = NULL;
	}
	__atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
	df_mutex_unlock(&lock);
	if (made) {
		below(made)->peer_put(made->via);
		free(made);
	}
	bury(gone);
	*out = p;
	return 0;
}

static void p2p_peer_put(struct df_peer *p)
{
	/*
	 * RELEASE pairs with the ACQUIRE in sweep(): our last use of the peer is before the
	 * decrement.
	 */
	__atomic_sub_fetch(&p->refs, 1, __ATOMIC_RELEASE);
}

static int p2p_create(struct df_peer *p, uint64_t key, uint32_t nr_slots, uint32_t slot_bytes,
		      int how, uint64_t base, struct df_conn **out)
{
	struct df_bell *bell = p->local ? df_tl_bell() : df_shm_bell(p->via);
	struct df_far_block far;
	int ret;

	if (!nr_slots)
		return -EINVAL;
	ret = df_blocks->far_alloc(p->device, DF_CONN_SLOTS + (uint64_t)nr_slots * slot_bytes,
				   &far);
	if (ret == -EAGAIN)
		return ret;
	if (ret)
		return df_node_create(&df_tl_p2p_ops, p, key, nr_slots, slot_bytes, how, base, bell,
				      NULL, out);
	ret = df_node_create(&df_tl_p2p_ops, p, key, nr_slots, slot_bytes, how, base, bell, &far,
			     out);
	if (ret)
		df_blocks->far_free(&far);
	return ret;
}

/*
 * Finds the address of the other side's slots; -EAGAIN while there is none. The caller must hold
 * the gate: after a close the description's memory may belong to another connector, and opening an
 * invalid handle would be remembered as a refusal.
 */
static int reach_far(struct df_peer *p, struct df_node_conn *c)
{
	uint64_t bytes = DF_CONN_SLOTS + (uint64_t)c->nr_slots * c->slot_bytes;
	const struct df_conn_far *far = df_node_far(c);
	uint64_t addr;
	int ret;

	/*
	 * ACQUIRE pairs with the RELEASE in dfk_conn_begin() (kernels/rings.inl): the counters are
	 * initialised before our block reads them.
	 */
	if (!__atomic_load_n(&far->ready, __ATOMIC_ACQUIRE))
		return -EAGAIN;
	if (p->local) {
		c->addr = far->addr;
		return 0;
	}
	ret = df_blocks->far_open(p->device, p->member.proc, far, &addr);
	if (ret)
		return ret;
	/* Do not trust the other process; far_open() has checked chunk_bytes. */
	if (far->offset % 64 || far->offset > far->chunk_bytes ||
	    bytes > far->chunk_bytes - far->offset)
		return -EAGAIN;
	c->addr = addr + far->offset;
	return 0;
}

static int p2p_find(struct df_peer *p, uint64_t key, struct df_conn **out)
{
	struct df_conn *conn;
	struct df_node_conn *c;
	int ret = below(p)->find(p->via, key, &conn);

	if (ret)
		return ret;
	c = (struct df_node_conn *)conn;
	if (c->far) {
		ret = df_node_use(conn);
		if (!ret)
			ret = reach_far(p, c);
		df_node_unuse(conn);
		if (ret) {
			df_node_forget(conn);
			return ret;
		}
	}
	df_node_adopt(conn, &df_tl_p2p_ops, p);
	*out = conn;
	return 0;
}

const struct df_tl_ops df_tl_p2p_ops = {
	.name = "p2p",
	.caps = DF_TL_SAME_PROCESS | DF_TL_SAME_NODE | DF_TL_DIRECT | DF_TL_BELL | DF_TL_FAR,
	.reachable = p2p_reachable,
	.peer_get = p2p_peer_get,
	.peer_put = p2p_peer_put,
	.create = p2p_create,
	.find = p2p_find,
	DF_NODE_OPS,
};
