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

int df_verbs_allow_gpu(struct df_net_ep *ep, const struct df_far_rdma *at, struct df_net_mem *out,
		       char *why, size_t size)
{
	(void)ep, (void)at, (void)out, (void)why, (void)size;
	return -ENOTSUP;
}

enum df_pci_path df_verbs_nearest(const struct df_net_ep *ep)
{
	(void)ep;
	return DF_PCI_UNKNOWN;
}

uint64_t df_verbs_readback_ask(struct df_net_ep *ep)
{
	(void)ep;
	return 0;
}

int df_verbs_readback_done(const struct df_net_ep *ep, uint64_t asked)
{
	(void)ep, (void)asked;
	return 1;
}

int df_verbs_readback_look(struct df_net_ep *ep, uint64_t now, int arm)
{
	(void)ep, (void)now, (void)arm;
	return 0;
}

uint64_t df_verbs_readback_due(const struct df_net_ep *ep)
{
	(void)ep;
	return UINT64_MAX;
}

/* A medium that never starts is not called again. */
const struct df_net_ops df_net_verbs = {.name = "verbs", .start = absent_start};
