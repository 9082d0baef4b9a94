/*
 * The list of transports, in order of preference, and what concerns all of them. Stateless but for the
 * bell of the process.
 */
#include "runtime/transport/transport.h"

#include <errno.h>
#include <stddef.h>

#include "runtime/transport/arena.h"
#include "runtime/transport/node.h"

static int none_reachable(const struct df_member *self, const struct df_member *peer)
{
	(void)self;
	(void)peer;
	return 0;
}

static int none_peer_get(const struct df_member *self, const struct df_member *peer,
			 struct df_peer **out)
{
	(void)self;
	(void)peer;
	(void)out;
	return -EOPNOTSUPP;
}

static void none_peer_put(struct df_peer *peer)
{
	(void)peer;
}

static int none_create(struct df_peer *peer, uint64_t key, uint32_t nr_slots, uint32_t slot_bytes,
		       int zero, uint64_t base, struct df_conn **out)
{
	(void)peer;
	(void)key;
	(void)nr_slots;
	(void)slot_bytes;
	(void)zero;
	(void)base;
	(void)out;
	return -EOPNOTSUPP;
}

static int none_find(struct df_peer *peer, uint64_t key, struct df_conn **out)
{
	(void)peer;
	(void)key;
	(void)out;
	return -EOPNOTSUPP;
}

static int none_use(struct df_conn *conn)
{
	(void)conn;
	return -EOPNOTSUPP;
}

static void none_conn(struct df_conn *conn)
{
	(void)conn;
}

static int none_close(struct df_conn *conn)
{
	(void)conn;
	return -EOPNOTSUPP;
}

static int none_recycle(struct df_conn *conn, uint64_t *base)
{
	(void)conn;
	(void)base;
	return -EOPNOTSUPP;
}

static void none_end(const struct df_conn *conn, struct df_kconn *out)
{
	(void)conn;
	(void)out;
}

static int none_progress(void)
{
	return 0;
}

const struct df_tl_ops df_tl_none_ops = {
	.name = "none",
	.reachable = none_reachable,
	.peer_get = none_peer_get,
	.peer_put = none_peer_put,
	.create = none_create,
	.find = none_find,
	.use = none_use,
	.unuse = none_conn,
	.close = none_close,
	.recycle = none_recycle,
	.forget = none_conn,
	.end = none_end,
	.progress = none_progress,
};

const struct df_tl_ops *const df_tl_all[] = {
	&df_tl_p2p_ops,
	&df_tl_self_ops,
	&df_tl_shm_ops,
};
const unsigned df_tl_nr = sizeof(df_tl_all) / sizeof(df_tl_all[0]);

const struct df_tl_ops *df_tl_select(const struct df_member *self, const struct df_member *peer)
{
	unsigned i;

	for (i = 0; i < df_tl_nr; i++)
		if (df_tl_all[i]->reachable(self, peer))
			return df_tl_all[i];
	return NULL;
}

uint64_t df_tl_bytes(void)
{
	return __atomic_load_n(&df_arena_bytes, __ATOMIC_RELAXED);
}

struct df_bell *df_tl_bell(void)
{
	/* Without shared memory there are no peers to ring it either. */
	static struct df_bell alone;
	void *base;

	if (df_arena_start())
		return &alone;
	/* ACQUIRE pairs with the RELEASE in seg_publish(): the header is mapped. */
	base = __atomic_load_n(&df_arena_view()->base[0], __ATOMIC_ACQUIRE);
	return df_arena_bell(base);
}
