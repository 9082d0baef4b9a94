/* The list of transports in order of preference. Stateless. */
#include "runtime/transport/transport.h"

#include <stddef.h>

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
