/*
 * Description: one suite for every transport: connectors, gates, data, death. A network is tested
 * between two nodes.
 */
#include "tests/transport/sides.h"

#include "runtime/blocks.h"
#include "kernels/bell.h"

/* A transport that works within a process and between processes runs the suite twice. */
static const struct variant {
	unsigned tl; /* index in df_tl_all */
	int threads;
	const char *name;
} variants[] = {
	{0, 1, "p2p, devices of one process"},
	{0, 0, "p2p, processes"},
	{1, 1, "self"},
	{2, 0, "shm"},
	{3, 1, "net, devices of one process"},
	{3, 0, "net, processes"},
};
/*
 * With DFSHIM_NET_GDR=1 the network's slots are in GPU memory, which the CPU must not access
 * (tests/net/t_conform_gdr.sh).
 */

static int over_network(const struct world *w)
{
	return (w->tl->caps & DF_TL_NETWORK) != 0;
}

/*
 * Over a network the other side is informed, and memory is freed, a little later. Returns 1 after
 * it has yielded, if the caller must ask again.
 */
static int later(const struct world *w)
{
	return over_network(w) && !sched_yield();
}

/* ---- data ------------------------------------------------------------------------------------ */

static uint64_t get(const uint64_t *p)
{
	/* pairs with put(); the slot's bytes are then visible */
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void put(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE); /* pairs with get() */
}

static uint8_t byte_of(uint64_t key, uint64_t pos, uint32_t i)
{
	return (uint8_t)(key * 31 + pos * 7 + i * 13 + (i >> 8));
}

static int send_slice(struct df_kconn *k, uint64_t key, uint32_t bytes)
{
	uint64_t tail = get(k->tail);
	uint8_t *slot;
	uint32_t i;

	if (tail - get(k->head) >= k->nr_slots)
		return 0;
	slot = k->slots + (size_t)(tail % k->nr_slots) * k->slot_bytes;
	for (i = 0; i < bytes; i++)
		slot[i] = byte_of(key, tail, i);
	put(k->tail, tail + 1);
	df_bell_ring(k->bell); /* as a block does */
	return 1;
}

static int recv_slice(struct df_kconn *k, uint64_t key, uint32_t bytes)
{
	uint64_t head = get(k->head);
	const uint8_t *slot;
	uint32_t i;

	if (get(k->tail) == head)
		return 0;
	slot = k->slots + (size_t)(head % k->nr_slots) * k->slot_bytes;
	for (i = 0; i < bytes && slot[i] == byte_of(key, head, i); i++)
		;
	if (i < bytes)
		ck_abort_msg("connector %llx, slice %llu: byte %u is %u", (unsigned long long)key,
			     (unsigned long long)head, i, slot[i]);
	put(k->head, head + 1);
	df_bell_ring(k->bell);
	return 1;
}

#define NR_STREAMS 12

/*
 * Connectors of random geometry, first position and amount of data. Either side owns them. Slices
 * of all connectors are interleaved at random.
 */
static int streams(struct world *w, int side, const struct df_member *peer)
{
	struct df_conn *conn[NR_STREAMS];
	struct df_kconn k[NR_STREAMS];
	uint64_t key[NR_STREAMS], left[NR_STREAMS], base;
	uint32_t slots[NR_STREAMS], bytes[NR_STREAMS];
	int sends[NR_STREAMS], owner, i, open;
	struct df_peer *p;
	struct df_rng both, mine;

	df_rng_init(&both, w->seed);
	df_rng_init(&mine, w->seed + 1 + (uint64_t)side);
	ck_assert_int_eq(peer_get(w->tl, peer, &p), 0);
	for (i = 0; i < NR_STREAMS; i++) {
		key[i] = df_rng_u64(&both);
		slots[i] = (uint32_t)df_rng_range(&both, 1, 9);
		bytes[i] = (uint32_t)(df_rng_below(&both, 2) ? df_rng_range(&both, 0, 200)
							     : df_rng_range(&both, 1, 100000));
		base = df_rng_below(&both, 2) ? 0 : df_rng_u64(&both) >> 8;
		left[i] = df_rng_below(&both, bytes[i] > 1000 ? 200 : 3000);
		owner = (int)df_rng_below(&both, 2);
		sends[i] = (int)df_rng_below(&both, 2) == side;
		if (owner == side) {
			ck_assert_int_eq(
				make(w->tl, p, key[i], slots[i], bytes[i], base, &conn[i], &k[i]),
				0);
			ck_assert_int_eq(conn[i]->owner, 1);
			ck_assert_uint_eq(get(k[i].head), base);
		} else {
			conn[i] = find(w->tl, p, key[i]);
			ck_assert_int_eq(HOST(int, w->tl->use(conn[i])), 0);
			ck_assert_uint_eq(conn[i]->hdr->key, key[i]);
			memset(&k[i], 0, sizeof(k[i]));
			HOST_VOID(w->tl->end(conn[i], &k[i]));
		}
		ck_assert_uint_eq(k[i].nr_slots, slots[i]);
		ck_assert_uint_eq(k[i].slot_bytes, bytes[i]);
		ck_assert_ptr_nonnull(k[i].bell);
	}
	do {
		for (i = 0, open = 0; i < NR_STREAMS; i++)
			open += left[i] > 0;
		i = (int)df_rng_below(&mine, NR_STREAMS);
		if (left[i])
			left[i] -= (uint64_t)(sends[i] ? send_slice(&k[i], key[i], bytes[i])
						       : recv_slice(&k[i], key[i], bytes[i]));
		/* Over a network either side may drive it, alternating with the network thread. */
		switch (df_rng_below(&mine, 64)) {
		case 0:
			sched_yield();
			break;
		case 1 ... 8:
			df_tl_progress(self.device);
			break;
		case 9:
			df_tl_leave(self.device, (int)df_rng_below(&mine, 2));
			break;
		default:
			break;
		}
	} while (open);
	for (i = 0; i < NR_STREAMS; i++) {
		if (conn[i]->owner)
			continue;
		HOST_VOID(w->tl->unuse(conn[i]));
		HOST_VOID(w->tl->forget(conn[i]));
		conn[i] = NULL;
	}
	step(w, 1);
	for (i = 0; i < NR_STREAMS; i++)
		if (conn[i])
			ck_assert_int_eq(HOST(int, w->tl->close(conn[i])), 0);
	w->tl->peer_put(p);
	return 0;
}

START_TEST(t_streams)
{
	play(streams);
}
END_TEST

/* Runs a scenario with different functions: side 0 owns the connectors, side 1 uses them. */
static int by_side(struct world *w, int side, const struct df_member *peer,
		   void (*owner)(struct world *w, struct df_peer *p),
		   void (*user)(struct world *w, struct df_peer *p))
{
	struct df_peer *p;

	ck_assert_int_eq(peer_get(w->tl, peer, &p), 0);
	(side ? user : owner)(w, p);
	w->tl->peer_put(p);
	return 0;
}

/* ---- the gate -------------------------------------------------------------------------------- */

#define NR_KEYS	  6
#define NR_ROUNDS 4000

/*
 * Side 0 creates, closes and recreates connectors of a few keys at random. It uses the memory of
 * closed ones for connectors that the other side does not look for, and fills these with a pattern.
 * Side 1 finds, uses, writes and releases connectors at random, and keeps old results of find() for
 * any time. No write may change the pattern.
 */
static void gate_owner(struct world *w, struct df_peer *p)
{
	struct df_conn *live[NR_KEYS] = {NULL}, *canary = NULL;
	uint32_t canary_bytes = 0, i, j;
	struct df_rng r;
	int n, ret, closed = 0, busy = 0;
	struct df_kconn k;

	df_rng_init(&r, w->seed + 7);
	for (n = 0; n < NR_ROUNDS || !closed || (!busy && !over_network(w) && n < 50 * NR_ROUNDS);
	     n++) {
		i = (uint32_t)df_rng_below(&r, NR_KEYS);
		if (!live[i]) {
			ck_assert_int_eq(make(w->tl, p, 100 + i, (uint32_t)df_rng_range(&r, 1, 4),
					      (uint32_t)df_rng_range(&r, 8, 300), 0, &live[i], &k),
					 0);
			continue;
		}
		ret = HOST(int, w->tl->close(live[i]));
		if (ret) {
			ck_assert_int_eq(ret, -EBUSY);
			busy++;
			if (!(n % 16))
				sched_yield();
			continue;
		}
		live[i] = NULL;
		closed++;
		/* This connector most likely gets the same memory. */
		canary_bytes = (uint32_t)df_rng_range(&r, 8, 300);
		ck_assert_int_eq(
			make(w->tl, p, 1000000 + (uint64_t)n, 4, canary_bytes, 0, &canary, &k), 0);
		memset(k.slots, 0x5a, 4 * canary_bytes);
		if (!(n % 4))
			sched_yield();
		for (j = 0; j < 4 * canary_bytes; j++)
			if (k.slots[j] != 0x5a)
				ck_abort_msg("round %d: byte %u of reused memory was written", n,
					     j);
		ck_assert_uint_eq(get(k.tail), 0);
		ck_assert_int_eq(HOST(int, w->tl->close(canary)), 0);
	}
	__atomic_store_n(&w->turn, 1, __ATOMIC_RELEASE); /* pairs with gate_user() */
	step(w, 2);
	for (i = 0; i < NR_KEYS; i++)
		if (live[i])
			ck_assert_int_eq(w->tl->close(live[i]), 0);
	ck_assert_int_gt(closed, 0);
}

static void gate_user(struct world *w, struct df_peer *p)
{
	struct df_conn *c[NR_KEYS] = {NULL};
	struct df_kconn k;
	struct df_rng r;
	uint32_t i;
	int ret;

	df_rng_init(&r, w->seed + 8);
	while (!__atomic_load_n(&w->turn, __ATOMIC_ACQUIRE)) { /* pairs with gate_owner() */
		i = (uint32_t)df_rng_below(&r, NR_KEYS);
		if (!c[i]) {
			ret = HOST(int, w->tl->find(p, 100 + i, &c[i]));
			ck_assert(ret == 0 || ret == -EAGAIN);
			if (ret)
				c[i] = NULL;
			continue;
		}
		if (!c[i]->used) {
			ret = HOST(int, w->tl->use(c[i]));
			if (ret) {
				ck_assert_int_eq(ret, -EAGAIN);
				w->tl->forget(c[i]);
				c[i] = NULL;
			}
			continue;
		}
		/* Until this side releases the connector, its memory is in no other one. */
		memset(&k, 0, sizeof(k));
		w->tl->end(c[i], &k);
		ck_assert_uint_eq(c[i]->hdr->key, 100 + i);
		ck_assert_uint_eq(c[i]->hdr->nr_slots, k.nr_slots);
		ck_assert_ptr_null(k.fresh);
		/*
		 * Over a network this side may write as many slots as it has credits, and the owner
		 * returns none here.
		 */
		if (!over_network(w)) {
			memset(k.slots, 0xee, (size_t)k.nr_slots * k.slot_bytes);
			put(k.tail, get(k.tail) + 1);
		} else if (get(k.tail) - get(k.head) < k.nr_slots) {
			memset(k.slots + get(k.tail) % k.nr_slots * k.slot_bytes, 0xee,
			       k.slot_bytes);
			put(k.tail, get(k.tail) + 1);
			df_bell_ring(k.bell);
		}
		if (df_rng_below(&r, 3))
			w->tl->unuse(c[i]);
		if (!df_rng_below(&r, 8))
			sched_yield();
	}
	for (i = 0; i < NR_KEYS; i++) {
		if (!c[i])
			continue;
		w->tl->unuse(c[i]);
		w->tl->forget(c[i]);
	}
	step(w, 2);
}

static int gate(struct world *w, int side, const struct df_member *peer)
{
	return by_side(w, side, peer, gate_owner, gate_user);
}

START_TEST(t_gate)
{
	play(gate);
}
END_TEST

/* ---- many ------------------------------------------------------------------------------------ */

#define NR_MANY 5000

static uint64_t many_key(uint64_t seed, int i)
{
	return seed * 0x9e3779b97f4a7c15ull + (uint64_t)i * 77;
}

static void many_owner(struct world *w, struct df_peer *p)
{
	struct df_conn **c = calloc(NR_MANY, sizeof(struct df_conn *)), *other;
	struct df_kconn *k = calloc(NR_MANY, sizeof(*k));
	uint64_t before;
	int round, i;

	before = df_tl_bytes();
	for (round = 0; round < 2; round++) {
		for (i = 0; i < NR_MANY; i++)
			ck_assert_int_eq(make(w->tl, p, many_key(w->seed, i), 2,
					      i % 100 ? 64 : 70000, 3, &c[i], &k[i]),
					 0);
		ck_assert_int_eq(make(w->tl, p, many_key(w->seed, 5), 2, 64, 0, &other, &k[5]),
				 -EEXIST);
		ck_assert_uint_ge(df_tl_bytes() - before, NR_MANY * 128);
		step(w, 10 + round * 4);
		/* Side 1 uses all of them. */
		step(w, 11 + round * 4);
		for (i = 0; i < NR_MANY; i++) {
			while (get(k[i].tail) == 3 && later(w))
				;
			ck_assert_uint_eq(get(k[i].tail), 4 + (uint64_t)(over_network(w) ? 0 : i));
			if (!over_network(w))
				ck_assert_int_eq(w->tl->close(c[i]), -EBUSY);
		}
		step(w, 12 + round * 4);
		/* Side 1 has released all of them. */
		step(w, 13 + round * 4);
		for (i = 0; i < NR_MANY; i++)
			ck_assert_int_eq(w->tl->close(c[i]), 0);
		ck_assert_uint_eq(df_tl_bytes(), before);
	}
	step(w, 30);
	free(c);
	free(k);
}

static void many_user(struct world *w, struct df_peer *p)
{
	struct df_conn **c = calloc(NR_MANY, sizeof(struct df_conn *)), *none;
	struct df_kconn k;
	int round, i;

	for (round = 0; round < 2; round++) {
		step(w, 10 + round * 4);
		for (i = 0; i < NR_MANY; i++) {
			c[i] = find(w->tl, p, many_key(w->seed, i));
			ck_assert_int_eq(w->tl->use(c[i]), 0);
			w->tl->end(c[i], &k);
			ck_assert_uint_eq(get(k.head), 3);
			put(k.tail, 4 + (uint64_t)(over_network(w) ? 0 : i));
			df_bell_ring(k.bell);
		}
		step(w, 11 + round * 4);
		step(w, 12 + round * 4);
		for (i = 0; i < NR_MANY; i++) {
			w->tl->unuse(c[i]);
			w->tl->forget(c[i]);
		}
		step(w, 13 + round * 4);
	}
	step(w, 30);
	for (i = 0; i < NR_MANY; i++)
		ck_assert_int_eq(w->tl->find(p, many_key(w->seed, i), &none), -EAGAIN);
	free(c);
}

static int many(struct world *w, int side, const struct df_member *peer)
{
	return by_side(w, side, peer, many_owner, many_user);
}

START_TEST(t_many)
{
	play(many);
}
END_TEST

/* ---- recycling ------------------------------------------------------------------------------- */

#define NR_LIVES 5

/*
 * A connector can be recycled only when it is not in use and contains no slice. Its successor
 * starts at the next position, with zeroed slots if the protocol needs that.
 */
static void lives_owner(struct world *w, struct df_peer *p)
{
	uint64_t base = 7, bytes = df_tl_bytes(), next;
	struct df_conn *c;
	struct df_kconn k;
	int life, no;

	for (life = 0; life < NR_LIVES; life++) {
		ck_assert_int_eq(
			make_for(DF_PROTO_LL, w->tl, p, many_key(w->seed, 1), 2, 64, base, &c, &k),
			0);
		/* Over a network slices may still be in transit, so connectors are not recycled. */
		no = over_network(w) ? -EOPNOTSUPP : -EBUSY;
		step(w, 10 + life * 5);
		/* Side 1 uses it and has sent a slice. */
		step(w, 11 + life * 5);
		ck_assert_int_eq(w->tl->recycle(c, &next), no);
		step(w, 12 + life * 5);
		/*
		 * Side 1 has released it, but the slice is not received yet. The host knows about
		 * positions in GPU memory only what df_conn_note() has recorded.
		 */
		step(w, 13 + life * 5);
		df_conn_note(c, base);
		ck_assert_int_eq(w->tl->recycle(c, &next), no);
		while (get(k.tail) == base && later(w))
			;
		ck_assert_int_eq(recv_slice(&k, many_key(w->seed, 1), 64), 1);
		df_conn_note(c, ++base);
		/* The successor must not take these words for its own. */
		memset(k.slots, 0xee, 2 * 64);
		if (no == -EOPNOTSUPP) {
			ck_assert_int_eq(w->tl->recycle(c, &next), no);
			ck_assert_int_eq(w->tl->close(c), 0);
		} else {
			ck_assert_int_eq(w->tl->recycle(c, &next), 0);
			ck_assert_uint_eq(next, base);
		}
		ck_assert_uint_eq(df_tl_bytes(), bytes);
		step(w, 14 + life * 5);
	}
	step(w, 10 + life * 5);
}

static void lives_user(struct world *w, struct df_peer *p)
{
	struct df_conn *c;
	struct df_kconn k;
	int life, i;

	for (life = 0; life < NR_LIVES; life++) {
		step(w, 10 + life * 5);
		c = find(w->tl, p, many_key(w->seed, 1));
		ck_assert_int_eq(HOST(int, w->tl->use(c)), 0);
		memset(&k, 0, sizeof(k));
		w->tl->end(c, &k);
		ck_assert_uint_eq(get(k.tail), 7 + (uint64_t)life);
		/* over a network the sender has slots of its own */
		for (i = 0; i < 2 * 64 && !over_network(w); i++)
			ck_assert_uint_eq(k.slots[i], 0);
		ck_assert_int_eq(send_slice(&k, many_key(w->seed, 1), 64), 1);
		step(w, 11 + life * 5);
		step(w, 12 + life * 5);
		df_conn_note(c, 8 + (uint64_t)life);
		w->tl->unuse(c);
		/* After unuse() another connector may be there: the note has no effect. */
		df_conn_note(c, 99);
		step(w, 13 + life * 5);
		step(w, 14 + life * 5);
		/* The connector found before is closed. Its successor must be found again. */
		while (w->tl->use(c) == 0 && later(w))
			;
		ck_assert_int_eq(HOST(int, w->tl->use(c)), -EAGAIN);
		w->tl->forget(c);
	}
	step(w, 10 + life * 5);
}

static int lives(struct world *w, int side, const struct df_member *peer)
{
	return by_side(w, side, peer, lives_owner, lives_user);
}

START_TEST(t_recycle)
{
	play(lives);
}
END_TEST

/* ---- closed while slices are in transit ------------------------------------------------------ */

#define NR_CUT	   500
#define NR_ENDS	   50
#define NR_NEXT	   4
#define CUT_BYTES  1024 /* GPU memory is allocated in units of 4 of these */
#define CUT_MARK   0x5a
#define CUT_DELAYS 6000

static void check_mark(const struct df_kconn *k, int round)
{
	for (uint32_t i = 0; i < k->nr_slots * CUT_BYTES; i++)
		if (k->slots[i] != CUT_MARK)
			ck_abort_msg("round %d: byte %u of reused memory was written", round, i);
}

/*
 * Over a network. Side 1 fills connectors, which side 0 closes meanwhile without having received
 * all data. Side 0 then creates connectors that side 1 does not look for, most likely in the same
 * memory, and fills them with a pattern. The pattern must stay unchanged while later slices arrive.
 * A GPU sees only writes that are old enough.
 */
static void cut_owner(struct world *w, struct df_peer *p)
{
	struct df_conn *c, *next[NR_NEXT] = {NULL};
	struct df_kconn k, of[NR_NEXT];
	int n, i;
	uint64_t delay;
	struct df_rng r;

	df_rng_init(&r, w->seed + 9);
	for (n = 0; n < NR_CUT; n++) {
		ck_assert_int_eq(make(w->tl, p, 100 + (uint64_t)n, 4, CUT_BYTES, 0, &c, &k), 0);
		/* ACQUIRE pairs with the RELEASE in cut_user(). */
		while (__atomic_load_n(&w->turn, __ATOMIC_ACQUIRE) <= (uint32_t)n)
			sched_yield();
		for (delay = df_rng_below(&r, CUT_DELAYS); delay && get(k.tail) < 4; delay--)
			;
		ck_assert_int_eq(HOST(int, w->tl->close(c)), 0);
		i = n % NR_NEXT;
		if (next[i]) {
			check_mark(&of[i], n);
			ck_assert_int_eq(HOST(int, w->tl->close(next[i])), 0);
		}
		ck_assert_int_eq(
			make(w->tl, p, 1000000 + (uint64_t)n, 4, CUT_BYTES, 0, &next[i], &of[i]),
			0);
		memset(of[i].slots, CUT_MARK, 4 * CUT_BYTES);
	}
	for (i = 0; i < NR_NEXT; i++) {
		check_mark(&of[i], n);
		ck_assert_int_eq(HOST(int, w->tl->close(next[i])), 0);
	}
}

static void cut_user(struct world *w, struct df_peer *p)
{
	struct df_conn *c;
	struct df_kconn k;
	int n, i;

	for (n = 0; n < NR_CUT; n++) {
		c = find(w->tl, p, 100 + (uint64_t)n);
		ck_assert_int_eq(HOST(int, w->tl->use(c)), 0);
		memset(&k, 0, sizeof(k));
		HOST_VOID(w->tl->end(c, &k));
		/* RELEASE pairs with the ACQUIRE in cut_owner(). */
		__atomic_store_n(&w->turn, (uint32_t)n + 1, __ATOMIC_RELEASE);
		for (i = 0; i < 4; i++)
			ck_assert_int_eq(send_slice(&k, 100 + (uint64_t)n, CUT_BYTES), 1);
		HOST_VOID(w->tl->unuse(c));
		HOST_VOID(w->tl->forget(c));
	}
}

static int cut(struct world *w, int side, const struct df_member *peer)
{
	return over_network(w) ? by_side(w, side, peer, cut_owner, cut_user) : 0;
}

START_TEST(t_cut)
{
	play(cut);
}
END_TEST

/* ---- the end --------------------------------------------------------------------------------- */

/*
 * The side that closes a connector reports how much it has consumed. Otherwise small slots' credits
 * would be held back until more slices arrive, and none do.
 */
static void end_owner(struct world *w, struct df_peer *p)
{
	struct df_conn *c;
	struct df_kconn k;
	uint64_t n;

	for (n = 0; n < NR_ENDS; n++) {
		ck_assert_int_eq(make(w->tl, p, 1 + n, 8, CUT_BYTES, 0, &c, &k), 0);
		while (!get(k.tail))
			sched_yield();
		put(k.head, 1);
		ck_assert_int_eq(HOST(int, w->tl->close(c)), 0);
	}
}

static void end_user(struct world *w, struct df_peer *p)
{
	struct df_conn *c;
	struct df_kconn k;
	uint64_t n;

	for (n = 0; n < NR_ENDS; n++) {
		c = find(w->tl, p, 1 + n);
		ck_assert_int_eq(HOST(int, w->tl->use(c)), 0);
		memset(&k, 0, sizeof(k));
		HOST_VOID(w->tl->end(c, &k));
		ck_assert_int_eq(send_slice(&k, 1 + n, CUT_BYTES), 1);
		while (get(k.head) != 1) {
			df_tl_progress(self.device);
			sched_yield();
		}
		HOST_VOID(w->tl->unuse(c));
		HOST_VOID(w->tl->forget(c));
	}
}

static int end(struct world *w, int side, const struct df_member *peer)
{
	return over_network(w) ? by_side(w, side, peer, end_owner, end_user) : 0;
}

START_TEST(t_end)
{
	play(end);
}
END_TEST

/* ---- memory ---------------------------------------------------------------------------------- */

/*
 * If memory runs out, create() returns an error and nothing else fails. Freed memory can be
 * allocated again.
 */
static int memory(struct world *w, int side, const struct df_member *peer)
{
	struct df_conn *c[64], *big;
	struct df_kconn k;
	struct df_peer *p;
	int n, ret;

	ck_assert_int_eq(peer_get(w->tl, peer, &p), 0);
	if (side) {
		w->tl->peer_put(p);
		return 0;
	}
	/* Larger than a segment of the arena. */
	ck_assert_int_eq(make(w->tl, p, 1, 4, 40u << 20, 0, &big, &k), 0);
	memset(k.slots, 1, 4ull * (40u << 20));
	ck_assert_int_eq(w->tl->close(big), 0);
	df_arena_limit(24 << 20);
	/* Large memory is freed after a while. */
	for (n = 0; make(w->tl, p, 97, 1, 64, 0, &big, &k) == -ENOMEM && later(w) && n < 1000; n++)
		usleep(1000);
	ck_assert_int_eq(w->tl->close(big), 0);
	if (df_blocks->far_limit)
		df_blocks->far_limit(16 << 20); /* above this limit slots are in host memory */
	ck_assert_int_eq(make(w->tl, p, 1, 4, 40u << 20, 0, &big, &k), -ENOMEM);
	for (n = 0; n < 64; n++) {
		ret = make(w->tl, p, 100 + (uint64_t)n, 2, 1 << 20, 0, &c[n], &k);
		if (ret)
			break;
		memset(k.slots, 2, 2 << 20);
	}
	ck_assert_int_eq(ret, -ENOMEM);
	ck_assert_int_gt(n, 4);
	ck_assert_int_eq(w->tl->close(c[0]), 0);
	while ((ret = make(w->tl, p, 99, 2, 1 << 20, 0, &c[0], &k)) == -ENOMEM && later(w))
		usleep(1000);
	ck_assert_int_eq(ret, 0);
	ck_assert_int_eq(w->tl->create(p, 98, 0, 8, 0, 0, &big), -EINVAL);
	while (n--)
		ck_assert_int_eq(w->tl->close(c[n]), 0);
	df_arena_limit(0);
	if (df_blocks->far_limit)
		df_blocks->far_limit(0);
	w->tl->peer_put(p);
	return 0;
}

START_TEST(t_memory)
{
	play(memory);
}
END_TEST

/* ---- death ----------------------------------------------------------------------------------- */

static int death(struct world *w, int side, const struct df_member *peer)
{
	struct df_conn *mine, *theirs;
	struct df_kconn k;
	struct df_peer *p;
	int ret;

	ck_assert_int_eq(peer_get(w->tl, peer, &p), 0);
	ck_assert_int_eq(make(w->tl, p, 10 + (uint64_t)side, 2, 64, 0, &mine, &k), 0);
	theirs = find(w->tl, p, 10 + (uint64_t)!side);
	ck_assert_int_eq(w->tl->use(theirs), 0);
	step(w, 1);
	if (side)
		raise(SIGKILL);
	/* The other side died while it held this side's gate. */
	while ((ret = w->tl->find(p, 77, &theirs)) == -EAGAIN)
		usleep(1000);
	ck_assert_int_eq(ret, -ECONNRESET);
	ck_assert_int_eq(w->tl->close(mine), 0);
	ck_assert_int_eq(w->tl->create(p, 12, 2, 64, 0, 0, &mine), -ECONNRESET);
	w->tl->peer_put(p);
	return 0;
}

START_TEST(t_death)
{
	struct world *w;

	if (threads_now)
		return; /* both sides are in one process */
	w = ct_shared(sizeof(*w));
	w->tl = tl_now;
	w->seed = df_test_seed();
	w->scenario = death;
	w->one_dies = 1;
	w->pid[0] = ct_fork(first_side, 0, w);
	w->pid[1] = ct_fork(first_side, 1, w);
	ck_assert_int_eq(ct_wait(w->pid[1]), 256 + SIGKILL);
	ck_assert_int_eq(ct_wait(w->pid[0]), 0);
}
END_TEST

/* Every transport has every function, because callers do not check. */
START_TEST(t_whole)
{
	struct df_member a = {.proc = 1}, b = {.proc = 2};

	ck_assert_ptr_null(df_tl_select(&a, &b));
	for (unsigned i = 0; i < df_tl_nr; i++) {
		const struct df_tl_ops *t = df_tl_all[i];

		ck_assert_msg(t->name && t->caps && t->reachable && t->peer_get && t->peer_put &&
				      t->create && t->find && t->use && t->unuse && t->close &&
				      t->recycle && t->forget && t->end,
			      "transport %u has a gap", i);
	}
}
END_TEST

static unsigned which;

static void choose(void)
{
	tl_now = df_tl_all[variants[which].tl];
	threads_now = variants[which].threads;
}

int main(int argc, char **argv)
{
	unsigned nr = DF_ARRAY_LEN(variants), only = argc > 1 ? (unsigned)atoi(argv[1]) : nr;
	int failed = 0, gpu = access(fake_path(), R_OK) == 0;

	for (which = 0; which < nr; which++) {
		const struct df_tl_ops *tl = df_tl_all[variants[which].tl];

		if (only < nr && which != only)
			continue;
		if ((tl->caps & DF_TL_FAR) && !gpu) {
			printf("left out: %s: built without CUDA headers\n", variants[which].name);
			continue;
		}
		failed |= DF_TESTS(variants[which].name, {.before = choose}, {t_streams}, {t_gate},
				   {t_many}, {t_recycle}, {t_cut}, {t_end}, {t_memory}, {t_death},
				   {t_whole});
	}
	return failed;
}
