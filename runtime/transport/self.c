/*
 * Transport "self": both ends are in this process. The other end searches our own directory and
 * uses the same pointers.
 */
#include "runtime/transport/transport_int.h"

#include <errno.h>

static struct df_peer us; /* the only peer; never freed */

static int self_reachable(const struct df_member *self, const struct df_member *peer)
{
	return self->proc == peer->proc && self->node == peer->node;
}

static int self_peer_get(const struct df_member *self, const struct df_member *peer,
			 struct df_peer **out)
{
	int ret = df_arena_start();

	(void)self;
	(void)peer;
	if (!ret)
		*out = &us;
	return ret;
}

static void self_peer_put(struct df_peer *peer)
{
	(void)peer;
}

static int self_create(struct df_peer *peer, uint64_t key, uint32_t nr_slots, uint32_t slot_bytes,
		       int how, uint64_t base, struct df_conn **out)
{
	return df_node_create(&df_tl_self_ops, peer, key, nr_slots, slot_bytes, how, base,
			      df_tl_bell(), NULL, out);
}

static int self_find(struct df_peer *peer, uint64_t key, struct df_conn **out)
{
	struct df_found f;
	int ret = df_dir_find(df_arena_view(), key, &f);

	if (ret)
		return ret == -ENOENT ? -EAGAIN : ret;
	return df_node_found(&df_tl_self_ops, peer, key, &f, df_tl_bell(), out);
}

const struct df_tl_ops df_tl_self_ops = {
	.name = "self",
	.caps = DF_TL_SAME_PROCESS | DF_TL_DIRECT | DF_TL_BELL,
	.reachable = self_reachable,
	.peer_get = self_peer_get,
	.peer_put = self_peer_put,
	.create = self_create,
	.find = self_find,
	DF_NODE_OPS,
};
