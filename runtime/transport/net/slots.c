/*
 * The connectors of a link, as its endpoint's thread handles them: sending slices, receiving them,
 * and credits; see net.h.
 */
#include "runtime/transport/net/net.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/blocks.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "kernels/bell.h"

#define TELL_NS (5 * DF_NS_PER_MS) /* longest delay of a credit */
#define SMALL	4096		   /* slots of at most this size delay their credits */

/* ---- the thread: numbered frames ------------------------------------------------------------- */

static void note(struct df_net_link *l, const struct df_net_frame *f)
{
	struct df_net_note *n = malloc(sizeof(*n));

	if (!n) {
		/* Without the frame the two sides would disagree about their connectors. */
		df_warn_once(
			"no memory for the network transport: the connection to %s is given up",
			df_net_member(l)->hostname);
		df_net_mark_dead(l);
		return;
	}
	n->frame = *f;
	n->frame.seq = ++l->seq;
	df_list_add_tail(&l->notes, &n->node);
}

void df_net_acknowledged(struct df_net_link *l, uint64_t ack)
{
	l->settled = DF_MAX(l->settled, ack);
	/* After a break, the frame may have arrived just before it: do not send it again. */
	l->sent = DF_MAX(l->sent, DF_MIN(ack, l->seq));
	while (!df_list_empty(&l->notes)) {
		struct df_net_note *n = df_list_first(&l->notes, struct df_net_note, node);

		if (n->frame.seq > ack)
			return;
		df_list_del(&n->node);
		free(n);
	}
}

int df_net_send_notes(struct df_net_link *l)
{
	struct df_net_note *n;
	int moved = 0;

	if (l->sent == l->seq)
		return 0;
	df_list_each(n, &l->notes, node)
	{
		if (n->frame.seq <= l->sent)
			continue;
		if (l->ops->send(l, &n->frame, NULL, NULL))
			break;
		l->sent = n->frame.seq;
		moved = 1;
	}
	return moved;
}

/* ---- the thread: connectors ------------------------------------------------------------------ */

/*
 * An id is an index and a count. Indices are reused, ids are not, so a late frame finds no
 * connector.
 */
#define ID_INDEX(id) ((uint32_t)((id)&0xffffffu))

static int enter(struct df_net_link *l, struct df_net_conn *c)
{
	uint32_t i;

	for (i = 0; i < l->nr_ids && l->by_id[i]; i++)
		;
	if (i == l->nr_ids) {
		uint32_t nr = l->nr_ids ? 2 * l->nr_ids : 64;
		struct df_net_conn **v = realloc(l->by_id, nr * sizeof(struct df_net_conn *));

		if (!v || nr > 0xffffffu)
			return -ENOMEM;
		memset(v + l->nr_ids, 0, (nr - l->nr_ids) * sizeof(struct df_net_conn *));
		l->by_id = v;
		l->nr_ids = nr;
	}
	l->by_id[i] = c;
	c->id = ++l->made << 24 | i;
	df_list_add_tail(&l->conns, &c->node);
	return 0;
}

static struct df_net_conn *conn_of(struct df_net_link *l, uint64_t id)
{
	struct df_net_conn *c = ID_INDEX(id) < l->nr_ids ? l->by_id[ID_INDEX(id)] : NULL;

	return c && c->id == id ? c : NULL;
}

static char *slots_of(const struct df_net_conn *c)
{
	return c->gpu ? (char *)(uintptr_t)c->far.addr : (char *)c->conn.hdr + DF_CONN_SLOTS;
}

static void allow(struct df_net_conn *c)
{
	struct df_net_ep *ep = c->link->ep;
	int i;

	/* GPU memory is registered by the chunk, and mem is already set. */
	for (i = 0; i < DF_NET_MEDIA && !c->mem.mr[0]; i++)
		if (ep->media & 1u << i && ep->ops[i]->allow)
			ep->ops[i]->allow(ep, slots_of(c), (size_t)c->nr_slots * c->slot_bytes,
					  &c->mem);
}

static void forbid(struct df_net_conn *c)
{
	struct df_net_ep *ep = c->link->ep;
	int i;

	for (i = 0; i < DF_NET_MEDIA && c->mem.mr[0] && !c->gpu; i++)
		if (ep->media & 1u << i && ep->ops[i]->forbid)
			ep->ops[i]->forbid(ep, &c->mem);
}

void df_net_begin(struct df_net_conn *c)
{
	struct df_net_link *l = c->link;
	struct df_net_frame f = {.type = DF_NET_OPEN,
				 .pos = c->base,
				 .aux = c->conn.key,
				 .a = c->nr_slots,
				 .b = c->slot_bytes | c->says};

	df_list_del(&c->node);
	allow(c);
	if (enter(l, c)) {
		df_net_mark_dead(l);
		df_list_add_tail(&l->conns, &c->node);
		return;
	}
	if (df_net_dead(l))
		return;
	f.to = c->id;
	if (!c->conn.owner)
		f = (struct df_net_frame){.type = DF_NET_ATTACH, .to = c->peer_id, .aux = c->id};
	f.b |= c->gpu ? DF_NET_AT_GPU : 0;
	f.at = (uint64_t)(uintptr_t)slots_of(c);
	memcpy(f.rkey, c->mem.rkey, sizeof(f.rkey));
	note(l, &f);
}

static void *slot_of(const struct df_net_conn *c, uint64_t pos)
{
	return slots_of(c) + (pos % c->nr_slots) * c->slot_bytes;
}

const void *df_net_payload(const struct df_net_conn *c, uint64_t pos)
{
	const struct df_conn_hdr *h = c->conn.hdr;
	/* Relaxed: written before the tail, which has been acquired. */
	uint64_t ref = c->nr_slots <= DF_CONN_REFS
			       ? __atomic_load_n(&h->refs[pos % c->nr_slots], __ATOMIC_RELAXED)
			       : 0;

	/*
	 * Relaxed: the thread that sets it makes it visible before it goes on (df_tl_withdrawn()).
	 */
	if (!ref || __atomic_load_n(&h->withdrawn, __ATOMIC_RELAXED))
		return slot_of(c, pos);
	return (const void *)(uintptr_t)ref;
}

static int send_slices(struct df_net_conn *c, uint64_t tail)
{
	struct df_net_ep *ep = c->link->ep;
	int moved = 0;

	for (; c->next != tail; c->next++) {
		struct df_net_frame f = {.type = DF_NET_DATA,
					 .bytes = df_conn_slice(&c->conn, c->slot_bytes, c->next),
					 .to = c->peer_id,
					 .pos = c->next,
					 .aux = c->id,
					 .at = c->peer_at +
					       (c->next % c->nr_slots) * c->slot_bytes};

		memcpy(f.rkey, c->peer_rkey, sizeof(f.rkey));
		if (c->link->ops->send(c->link, &f, f.bytes ? df_net_payload(c, c->next) : NULL, c))
			break;
		c->refs++;
		df_net_count(&ep->n.bytes_sent, f.bytes);
		moved = 1;
	}
	return moved;
}

static int send_credit(struct df_net_conn *c, uint64_t head)
{
	struct df_net_frame f = {
		.type = DF_NET_CREDIT, .to = c->peer_id, .pos = head, .aux = c->received};

	if (c->link->ops->send(c->link, &f, NULL, NULL))
		return 0;
	c->told_head = head;
	c->told_received = c->received;
	return 1;
}

/* Announces to the other side that this end is no longer used. */
static void say_left(struct df_net_conn *c)
{
	struct df_net_link *l = c->link;
	struct df_net_frame f = {.type = DF_NET_CLOSE,
				 .to = c->peer_id,
				 .pos = c->id,
				 .aux = c->conn.key,
				 .at = df_net_head(c)};

	/* First send the slices that the other side still needs. */
	if (!c->conn.owner && !c->receives && !df_net_dead(l) &&
	    !__atomic_load_n(&c->closed, __ATOMIC_RELAXED) && df_net_tail(c) != c->received)
		return;
	if (!c->conn.owner)
		f = (struct df_net_frame){
			.type = DF_NET_DETACH, .to = c->peer_id, .pos = df_net_head(c)};
	if (!df_net_dead(l))
		note(l, &f);
	c->left = l->seq;
}

/*
 * Returns 1 when the end is freed: the medium holds none of its frames, and the other side has
 * stopped writing.
 */
static int leave(struct df_net_conn *c)
{
	struct df_net_link *l = c->link;

	if (c->refs)
		return 0;
	if (!c->left)
		say_left(c);
	/* A closed link (2) has no path; a link that was never up has had none. */
	if (l->opened != 2 && (!c->left || l->settled < c->left))
		return 0;
	if (!df_net_gpu_quiet(c))
		return 0;
	if (c->id)
		l->by_id[ID_INDEX(c->id)] = NULL;
	df_list_del(&c->node);
	forbid(c);
	if (c->gpu)
		df_blocks->far_free(&c->far);
	df_arena_free(&c->block);
	free(c->have);
	free(c->conn.slices);
	free(c);
	return 1;
}

/*
 * A credit in a frame of its own costs as much as a small slice. Small slots delay it while the
 * sender has enough: less than half of the slots may be in use. After a break (told_head is
 * UINT64_MAX) the sender needs a credit before it sends.
 */
static int sender_may_wait(const struct df_net_conn *c)
{
	return c->slot_bytes > SMALL || c->told_head == UINT64_MAX ||
	       2 * (c->received - c->told_head) >= c->nr_slots;
}

int df_net_due(const struct df_net_conn *c)
{
	if (!df_net_joined(c))
		return 0;
	return c->receives ? df_net_head(c) != c->told_head && sender_may_wait(c)
			   : df_net_tail(c) != c->next;
}

enum df_net_looked df_net_look(struct df_net_conn *c, uint64_t now, int tell)
{
	struct df_net_link *l = c->link;
	uint64_t at;

	/* ACQUIRE pairs with the RELEASE in give_up(): the last use in this process is over. */
	if (df_unlikely(__atomic_load_n(&c->gone, __ATOMIC_ACQUIRE)) && leave(c))
		return DF_NET_MOVED;
	if (!l->up || !df_net_joined(c))
		return 0;
	if (c->receives) {
		at = df_net_head(c);
		if (at == c->told_head && c->received == c->told_received)
			return 0;
		if (tell || (at != c->told_head && sender_may_wait(c)))
			return send_credit(c, at) ? DF_NET_MOVED : 0;
		if (!l->ep->tell_at)
			l->ep->tell_at = now + TELL_NS;
		return 4 * (c->received - c->told_head) >= c->nr_slots ? DF_NET_CREDITS : 0;
	}
	if (!l->heard_told)
		return 0;
	at = df_net_tail(c);
	return at != c->next && send_slices(c, at) ? DF_NET_MOVED | DF_NET_SLICES : 0;
}

/*
 * Forgets slices that arrived behind a gap, so they are sent again. If they were kept, the block
 * could consume one and its slot be reused while the old copy is still on the wire
 * (tests/model/rails.pml).
 */
static void forget_gaps(struct df_net_conn *c)
{
	uint32_t i;

	for (i = 0; c->have && i < c->nr_slots; i++)
		if (c->have[i] > c->received)
			c->have[i] = 0;
}

uint64_t df_net_again(struct df_net_link *l)
{
	struct df_net_conn *c;
	uint64_t again = 0;

	df_list_each(c, &l->conns, node)
	{
		forget_gaps(c);
		if (c->receives || c->next == c->received) {
			c->told_head = c->told_received = UINT64_MAX;
			continue;
		}
		again += c->next - c->received;
		c->next = c->received;
	}
	return again;
}

int df_net_tell(struct df_net_link *l)
{
	const struct df_net_frame f = {.type = DF_NET_TOLD};
	struct df_net_conn *c;

	/*
	 * A CLOSE or DETACH frame carries the position that a closed end had consumed. Send these
	 * before TOLD, or the other side sends those slices again (tests/model/away.pml).
	 */
	if (l->sent != l->seq)
		return 0;
	df_list_each(c, &l->conns, node)
	{
		if (c->receives && c->peer_id && c->told_received != c->received && !c->left &&
		    !__atomic_load_n(&c->closed, __ATOMIC_RELAXED))
			return 0;
	}
	l->told = l->ops->send(l, &f, NULL, NULL) == 0;
	return l->told;
}

/* ---- the thread: arrivals -------------------------------------------------------------------- */

/*
 * Returns the address at which the waiting block wants the slice (dfk_land(), kernels/task.inl), or
 * NULL for its slot. A slice that is sent again after a break goes to the same address. The block's
 * expected size bounds the bytes, whatever the frame claims. tests/model/land.pml models this
 * protocol.
 */
static void *landing(const struct df_net_conn *c, const struct df_net_frame *f)
{
	struct df_conn_hdr *h = c->conn.hdr;
	uint64_t *at, to;

	/* At a sender, refs[] point to its own slices: nothing may be written there. */
	if (c->says & DF_NET_SENDS || c->nr_slots > DF_CONN_REFS)
		return NULL;
	at = &h->refs[f->pos % c->nr_slots];
	/* ACQUIRE pairs with the RELEASE in dfk_land(): the block's own accesses there are over. */
	to = __atomic_load_n(at, __ATOMIC_ACQUIRE);
	/*
	 * Relaxed: the thread that sets it makes it visible before it goes on (df_tl_withdrawn()).
	 */
	if (!to || __atomic_load_n(&h->withdrawn, __ATOMIC_RELAXED) || !c->conn.slices ||
	    f->bytes > df_conn_slice(&c->conn, c->slot_bytes, f->pos))
		return NULL;
	/* Relaxed: the block reads it after it has acquired the tail. */
	__atomic_store_n(at, to & ~DF_LAND_ASKED, __ATOMIC_RELAXED);
	df_net_count(&c->link->ep->n.landed, 1);
	return (void *)(uintptr_t)(to & ~DF_LAND_ASKED);
}

void *df_net_place(struct df_net_link *l, const struct df_net_frame *f)
{
	struct df_net_conn *c = conn_of(l, f->to);
	void *to;

	/* This side closed the connector while the slice was on its way: it is no second one. */
	if (!c || __atomic_load_n(&c->gone, __ATOMIC_RELAXED))
		return NULL;
	if (f->bytes > c->slot_bytes || f->pos < c->received ||
	    f->pos - df_net_head(c) >= c->nr_slots)
		goto drop;
	if (!c->have) {
		c->have = calloc(c->nr_slots, sizeof(*c->have));
		if (!c->have)
			goto drop;
	}
	c->receives = 1;
	if (c->have[f->pos % c->nr_slots] == f->pos + 1)
		goto drop;
	c->refs++;
	to = landing(c, f);
	return to ? to : slot_of(c, f->pos);
drop:
	df_net_count(&l->ep->n.dropped, 1);
	return NULL;
}

const struct df_net_mem *df_net_place_gpu(struct df_net_link *l, const struct df_net_frame *f)
{
	const struct df_net_conn *c = conn_of(l, f->to);

	return c && c->gpu ? &c->mem : NULL;
}

void df_net_dropped(struct df_net_link *l, const struct df_net_frame *f)
{
	struct df_net_conn *c = conn_of(l, f->to);

	if (c)
		c->refs--;
}

static void data(struct df_net_link *l, const struct df_net_frame *f)
{
	struct df_net_conn *c = conn_of(l, f->to);

	if (!c)
		return;
	c->refs--;
	/*
	 * ATTACH may still be on its way over another queue pair. A sender that sends again must
	 * get a credit.
	 */
	if (!c->peer_id)
		c->peer_id = f->aux;
	c->have[f->pos % c->nr_slots] = f->pos + 1;
	while (c->have[c->received % c->nr_slots] == c->received + 1)
		c->received++;
	df_net_count(&l->ep->n.bytes_got, f->bytes);
	/*
	 * RELEASE pairs with the ACQUIRE of tail in dfk_task_poll() (kernels/task.inl): the bytes
	 * of the slice are in its slot.
	 */
	__atomic_store_n(&c->conn.hdr->tail, c->received, __ATOMIC_RELEASE);
	df_bell_ring(df_tl_bell());
}

static int credit(struct df_net_link *l, const struct df_net_frame *f)
{
	struct df_net_conn *c = conn_of(l, f->to);
	uint64_t tail;

	if (!c)
		return 0;
	tail = df_net_tail(c);
	if (c->receives || f->aux > tail || f->pos > f->aux)
		return -EPROTO;
	if (f->aux > c->received)
		l->stuck = 0;
	c->received = DF_MAX(c->received, f->aux);
	c->next = DF_MAX(c->next, c->received);
	if (f->pos <= c->consumed)
		return 0;
	c->consumed = f->pos;
	/*
	 * RELEASE pairs with the ACQUIRE of head in dfk_task_poll(): the slot may be written again.
	 * Its bytes have been sent and are not read again.
	 */
	__atomic_store_n(&c->conn.hdr->head, c->consumed, __ATOMIC_RELEASE);
	df_bell_ring(df_tl_bell());
	return 0;
}

static int offered(struct df_net_link *l, const struct df_net_frame *f)
{
	struct df_net_offer *o;

	if (!f->a || !f->to || df_net_too_large(f->a, f->b & DF_NET_SLOT_BYTES))
		return -EPROTO;
	df_mutex_lock(&l->ep->lock);
	HASH_FIND(hh, l->offers, &f->aux, sizeof(f->aux), o);
	if (!o) {
		o = calloc(1, sizeof(*o));
		if (o) {
			o->key = f->aux;
			HASH_ADD(hh, l->offers, key, sizeof(o->key), o);
		}
	}
	if (o) {
		o->id = f->to;
		o->at = f->at;
		memcpy(o->rkey, f->rkey, sizeof(o->rkey));
		o->base = f->pos;
		o->nr_slots = f->a;
		o->slot_bytes = f->b & DF_NET_SLOT_BYTES;
		o->says = f->b & ~DF_NET_SLOT_BYTES;
	}
	df_mutex_unlock(&l->ep->lock);
	df_bell_ring(df_tl_bell());
	return o ? 0 : -ENOMEM;
}

static void attached(struct df_net_link *l, const struct df_net_frame *f)
{
	struct df_net_conn *c = conn_of(l, f->to);

	/* We closed it before we knew the other side's id, so announce that now. */
	if (!c || c->left) {
		note(l, &(struct df_net_frame){.type = DF_NET_CLOSE, .to = f->aux});
		return;
	}
	c->peer_id = f->aux;
	c->peer_at = f->at;
	c->peer_gpu = (f->b & DF_NET_AT_GPU) != 0;
	memcpy(c->peer_rkey, f->rkey, sizeof(c->peer_rkey));
}

/* Handles the position in a CLOSE or DETACH frame, after which no credit follows. */
static void consumed(struct df_net_conn *c, uint64_t pos)
{
	if (c->receives || pos <= c->consumed || pos > df_net_tail(c))
		return;
	c->consumed = c->received = pos;
	/* RELEASE pairs with the ACQUIRE of head in dfk_task_poll(), as in credit(). */
	__atomic_store_n(&c->conn.hdr->head, pos, __ATOMIC_RELEASE);
	df_bell_ring(df_tl_bell());
}

/* Returns the connector that has taken the offer `id`, which the other side may not know yet. */
static struct df_net_conn *taker_of(struct df_net_link *l, uint64_t id)
{
	struct df_net_conn *c;

	df_list_each(c, &l->conns, node)
	{
		if (!c->conn.owner && c->peer_id == id)
			return c;
	}
	df_list_each(c, &l->ep->inbox, node)
	{
		if (c->link == l && !c->conn.owner && c->peer_id == id)
			return c;
	}
	return NULL;
}

static void closed(struct df_net_link *l, const struct df_net_frame *f)
{
	struct df_net_conn *c = conn_of(l, f->to);
	struct df_net_offer *o;

	df_mutex_lock(&l->ep->lock);
	HASH_FIND(hh, l->offers, &f->aux, sizeof(f->aux), o);
	if (o && o->id == f->pos) {
		HASH_DEL(l->offers, o);
		free(o);
	} else if (!c && f->pos) {
		c = taker_of(l, f->pos);
	}
	df_mutex_unlock(&l->ep->lock);
	if (!c)
		return;
	consumed(c, f->at);
	/* Relaxed: no other data depend on the flag. */
	__atomic_store_n(&c->closed, 1, __ATOMIC_RELAXED);
}

static void detached(struct df_net_link *l, const struct df_net_frame *f)
{
	struct df_net_conn *c = conn_of(l, f->to);

	if (!c)
		return;
	consumed(c, f->pos);
	c->peer_id = 0;
}

static int numbered(struct df_net_link *l, const struct df_net_frame *f)
{
	int ret = 0;

	if (f->seq <= l->heard)
		return 0;
	if (f->seq != l->heard + 1)
		return -EPROTO;
	switch (f->type) {
	case DF_NET_OPEN:
		ret = offered(l, f);
		break;
	case DF_NET_ATTACH:
		attached(l, f);
		break;
	case DF_NET_CLOSE:
		closed(l, f);
		break;
	case DF_NET_DETACH:
		detached(l, f);
		break;
	default:
		ret = -EPROTO;
	}
	if (!ret)
		l->heard = f->seq;
	return ret;
}

int df_net_arrived(struct df_net_link *l, const struct df_net_frame *f)
{
	df_net_count(&l->ep->n.frames_got, 1);
	if (f->ack > l->seq) {
		if (f->type == DF_NET_DATA)
			df_net_dropped(l, f);
		return -EPROTO;
	}
	df_net_acknowledged(l, f->ack);
	switch (f->type) {
	case DF_NET_DATA:
		data(l, f);
		return 0;
	case DF_NET_CREDIT:
		return credit(l, f);
	case DF_NET_ACK:
		return 0;
	case DF_NET_TOLD:
		l->heard_told = 1;
		return 0;
	case DF_NET_BYE:
		l->bye = 1;
		return 0;
	default:
		return numbered(l, f);
	}
}

/* Handles a complete frame whose payload is in place. */
static int whole(struct df_net_link *l, struct df_net_reader *r)
{
	r->have = 0;
	if (r->f.type == DF_NET_SETUP)
		return l->ops->setup(l, &r->f);
	return r->f.type == DF_NET_DATA && !r->to ? 0 : df_net_arrived(l, &r->f);
}

int df_net_read_on(struct df_net_link *l, struct df_net_reader *r, size_t n)
{
	r->to = r->to ? r->to + n : NULL;
	r->left -= n;
	return r->left ? 0 : whole(l, r);
}

int df_net_read(struct df_net_link *l, struct df_net_reader *r, const uint8_t *at, size_t n)
{
	const uint8_t *end = at + n;
	int ret = 0;

	while (at != end && !ret) {
		if (r->left) {
			n = DF_MIN(r->left, (size_t)(end - at));
			if (r->to)
				memcpy(r->to, at, n);
			at += n;
			ret = df_net_read_on(l, r, n);
			continue;
		}
		n = DF_MIN(sizeof(r->f) - r->have, (size_t)(end - at));
		memcpy((uint8_t *)&r->f + r->have, at, n);
		at += n;
		r->have += n;
		if (r->have < sizeof(r->f))
			break;
		if (!r->f.type || r->f.type >= DF_NET_NR ||
		    (r->f.bytes && r->f.type != DF_NET_DATA))
			return -EPROTO;
		/* Stream bytes cannot be written into GPU memory by this thread. */
		if (r->f.type == DF_NET_DATA && df_net_place_gpu(l, &r->f))
			return -EPROTO;
		r->to = r->f.type == DF_NET_DATA ? df_net_place(l, &r->f) : NULL;
		r->left = r->f.bytes;
		if (!r->left)
			ret = whole(l, r);
	}
	return ret;
}

void df_net_read_end(struct df_net_link *l, struct df_net_reader *r)
{
	if (r->left && r->to)
		df_net_dropped(l, &r->f);
	memset(r, 0, sizeof(*r));
}

void df_net_read_withdrawn(struct df_net_link *l, struct df_net_reader *r)
{
	const struct df_net_conn *c = r->left && r->to ? conn_of(l, r->f.to) : NULL;

	if (c && __atomic_load_n(&c->conn.hdr->withdrawn, __ATOMIC_RELAXED))
		r->to = (uint8_t *)slot_of(c, r->f.pos) + (r->f.bytes - r->left);
}

void df_net_sent(struct df_net_conn *from)
{
	if (from)
		from->refs--;
}
