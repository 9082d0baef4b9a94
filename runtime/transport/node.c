/*
 * Connectors in shared memory: the common parts of "self", "shm" and "p2p". Any thread; the gate
 * and the directory synchronise, so this file has no lock.
 */
#include "runtime/blocks.h"
#include "runtime/transport/transport_int.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"

int df_peer_dead(const struct df_peer *p)
{
	p = p->via ? p->via : p;
	/*
	 * ACQUIRE pairs with the RELEASE in mark_dead() (shm.c): all that the process wrote before
	 * its death is visible.
	 */
	return __atomic_load_n(&p->dead, __ATOMIC_ACQUIRE) != 0;
}

static void hold(struct df_peer *p)
{
	__atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
}

static void drop(struct df_peer *p)
{
	/*
	 * RELEASE pairs with the ACQUIRE in sweep() (shm.c, p2p.c): our last use of the peer is
	 * before the decrement.
	 */
	__atomic_sub_fetch(&p->refs, 1, __ATOMIC_RELEASE);
}

static uint64_t owned(const struct df_node_conn *c)
{
	return c->block.bytes + (c->far ? c->far_block.bytes : 0);
}

/*
 * Writes the address of the slots in GPU memory for the other side. That side reads it only when
 * it holds the connector's gate, which is not open yet.
 */
static void describe(struct df_node_conn *c, const struct df_far_block *far)
{
	struct df_conn_far *f = df_node_far(c);

	*f = (struct df_conn_far){.chunk = far->seg,
				  .chunk_bytes = far->chunk_bytes,
				  .offset = far->offset,
				  .addr = far->addr};
	memcpy(f->handle, far->handle, sizeof(f->handle));
	c->far = 1;
	c->addr = far->addr;
	c->far_block = *far;
}

int df_node_create(const struct df_tl_ops *tl, struct df_peer *peer, uint64_t key,
		   uint32_t nr_slots, uint32_t slot_bytes, int how, uint64_t base,
		   struct df_bell *bell, const struct df_far_block *far, struct df_conn **out)
{
	uint64_t bytes = DF_CONN_SLOTS +
			 (far ? sizeof(struct df_conn_far) : (uint64_t)nr_slots * slot_bytes);
	struct df_node_conn *c;
	struct df_conn_hdr *h;
	int ret;

	if (!nr_slots)
		return -EINVAL;
	if (df_peer_dead(peer))
		return -ECONNRESET;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	ret = df_arena_alloc(bytes, &c->block);
	if (ret)
		goto err_free;
	h = c->block.ptr;
	memset(h, 0, sizeof(*h));
	h->key = key;
	h->nr_slots = nr_slots;
	h->slot_bytes = slot_bytes;
	if (how & DF_CONN_ZERO && !far)
		memset((char *)h + DF_CONN_SLOTS, 0, (size_t)nr_slots * slot_bytes);
	/* Relaxed: no other process reads them before the gate is released open. */
	__atomic_store_n(&h->tail, base, __ATOMIC_RELAXED);
	__atomic_store_n(&h->head, base, __ATOMIC_RELAXED);
	c->conn.hdr = h;
	if (far)
		describe(c, far);
	ret = df_dir_insert(key, &c->block, nr_slots, slot_bytes, far != NULL, &c->entry, &c->gen);
	if (ret)
		goto err_block;
	c->conn = (struct df_conn){
		.hdr = h, .peer = peer, .tl = tl, .key = key, .bytes = bytes, .owner = 1};
	c->conn.noted = far != NULL;
	c->nr_slots = nr_slots;
	c->slot_bytes = slot_bytes;
	c->bell = bell;
	c->base = base;
	hold(peer);
	df_arena_count(owned(c));
	*out = &c->conn;
	return 0;

err_block:
	df_arena_free(&c->block);
err_free:
	free(c);
	return ret;
}

int df_node_found(const struct df_tl_ops *tl, struct df_peer *peer, uint64_t key,
		  const struct df_found *f, struct df_bell *bell, struct df_conn **out)
{
	struct df_node_conn *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->conn = (struct df_conn){.hdr = f->hdr,
				   .peer = peer,
				   .tl = tl,
				   .key = key,
				   .bytes = DF_CONN_SLOTS + (uint64_t)f->nr_slots * f->slot_bytes};
	c->entry = f->entry;
	c->gen = f->gen;
	c->nr_slots = f->nr_slots;
	c->slot_bytes = f->slot_bytes;
	c->far = f->far;
	c->conn.noted = f->far != 0;
	c->bell = bell;
	hold(peer);
	*out = &c->conn;
	return 0;
}

int df_node_use(struct df_conn *conn)
{
	struct df_node_conn *c = (struct df_node_conn *)conn;
	int ret;

	if (df_peer_dead(conn->peer))
		return -ECONNRESET;
	ret = df_gate_use(c->entry, c->gen);
	if (!ret)
		conn->used = 1;
	return ret;
}

void df_node_unuse(struct df_conn *conn)
{
	struct df_node_conn *c = (struct df_node_conn *)conn;

	if (!conn->used)
		return;
	conn->used = 0;
	df_gate_unuse(c->entry, c->gen);
}

/*
 * Frees a connector that is out of the directory. reuse: no process can still write into its
 * memory.
 */
static void gone(struct df_node_conn *c, int reuse)
{
	__atomic_sub_fetch(&df_arena_bytes, owned(c), __ATOMIC_RELAXED);
	if (reuse) {
		df_arena_free(&c->block);
		if (c->far)
			df_blocks->far_free(&c->far_block);
	}
	drop(c->conn.peer);
	free(c);
}

int df_node_close(struct df_conn *conn)
{
	struct df_node_conn *c = (struct df_node_conn *)conn;
	int dead = df_peer_dead(conn->peer), used = 0, ret;

	ret = df_dir_remove(c->entry, c->gen, 0);
	if (ret && dead) {
		used = 1;
		ret = df_dir_remove(c->entry, c->gen, 1);
	}
	if (ret)
		return ret;
	/*
	 * The peer held the gate when it was reported dead. Reuse the memory only if its process
	 * does not exist: a peer that was only cut off could still write.
	 */
	gone(c, !used || (kill((pid_t)conn->peer->member.pid, 0) && errno == ESRCH));
	return 0;
}

int df_node_recycle(struct df_conn *conn, uint64_t *base)
{
	struct df_node_conn *c = (struct df_node_conn *)conn;
	uint64_t tail;

	/*
	 * Take the gate ourselves, or the other side could send between our read of the positions
	 * and the close. Its ACQUIRE pairs with the RELEASE in df_gate_unuse(): we see all that was
	 * sent or, if the positions are in GPU memory, what the peer noted (df_conn_note()).
	 */
	if (df_gate_use(c->entry, c->gen))
		return -EBUSY;
	tail = __atomic_load_n(&conn->hdr->tail, __ATOMIC_RELAXED);
	if (tail != __atomic_load_n(&conn->hdr->head, __ATOMIC_RELAXED)) {
		df_gate_unuse(c->entry, c->gen);
		return -EBUSY;
	}
	*base = tail;
	df_dir_remove(c->entry, c->gen, 1);
	gone(c, 1);
	return 0;
}

void df_node_forget(struct df_conn *conn)
{
	df_node_unuse(conn);
	drop(conn->peer);
	free(df_container_of(conn, struct df_node_conn, conn));
}

void df_node_end(const struct df_conn *conn, struct df_kconn *out)
{
	const struct df_node_conn *c = (const struct df_node_conn *)conn;

	out->nr_slots = c->nr_slots;
	out->slot_bytes = c->slot_bytes;
	out->bell = c->bell;
	out->fresh = NULL;
	if (c->far) {
		/* GPU memory: only take addresses, never access it. */
		struct df_conn_hdr *far = (struct df_conn_hdr *)(uintptr_t)c->addr;

		out->tail = &far->tail;
		out->head = &far->head;
		out->refs = far->refs;
		out->slots = (uint8_t *)far + DF_CONN_SLOTS;
		if (conn->owner) {
			out->base = c->base;
			out->fresh = &df_node_far(c)->ready;
		}
		return;
	}
	out->tail = &conn->hdr->tail;
	out->head = &conn->hdr->head;
	out->slots = (uint8_t *)conn->hdr + DF_CONN_SLOTS;
	out->refs = conn->hdr->refs;
}

void df_node_adopt(struct df_conn *conn, const struct df_tl_ops *tl, struct df_peer *peer)
{
	struct df_peer *before = conn->peer;

	hold(peer);
	conn->tl = tl;
	conn->peer = peer;
	drop(before);
}
