/* Replaces rdma.c in a build without the header of libibverbs: no endpoint can use verbs. */
#include <errno.h>

#include "runtime/base/env.h"
#include "runtime/base/log.h"
#include "runtime/transport/net/net.h"

static int absent_start(struct df_net_ep *ep)
{
	(void)ep;
	if (df_env_net_has(DF_NET_VERBS))
		df_warn_once("DFSHIM_NET=%s, but this dfshim was built without infiniband/verbs.h",
			     df_env()->net);
	return -ENOTSUP;
}

/* A medium that never starts is not called again. */
const struct df_net_ops df_net_verbs = {.name = "verbs", .start = absent_start};
