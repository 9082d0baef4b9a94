/*
 * The list of transports in order of preference, and functions that concern all of them. Stateless,
 * except for the bell of the process.
 */
#include "runtime/transport/transport.h"

#include <stddef.h>

#include "runtime/transport/arena.h"
#include "runtime/transport/transport_int.h"

const struct df_tl_ops *const df_tl_all[] = {
	&df_tl_p2p_ops,
	&df_tl_self_ops,
	&df_tl_shm_ops,
	&df_tl_net_ops,
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

uint64_t df_tl_most(void)
{
	return __atomic_load_n(&df_arena_most, __ATOMIC_RELAXED);
}

struct df_bell *df_tl_bell(void)
{
	/* Without shared memory there are no peers that could ring it. */
	static struct df_bell alone;
	void *base;

	if (df_arena_start())
		return &alone;
	/* ACQUIRE pairs with the RELEASE in seg_publish(): the header is mapped. */
	base = __atomic_load_n(&df_arena_view()->base[0], __ATOMIC_ACQUIRE);
	return df_arena_bell(base);
}
