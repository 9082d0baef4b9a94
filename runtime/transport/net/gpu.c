/*
 * Slots of connectors in the memory of the endpoint's GPU (GPUDirect RDMA, DFSHIM_NET_GDR). The
 * backend allocates that memory in chunks, with a dma-buf for each where it can. The endpoint's
 * thread registers a chunk when the first connector needs it; chunks are never freed, so a
 * registration is permanent. A connector therefore has its keys before a block uses it. A chunk
 * that cannot be registered is not used, and slots are in host memory instead. The thread calls no
 * CUDA function.
 *
 * Only an RDMA device reaches GPU memory, so slots are there only if the link allows no other
 * medium: a fallback could not reach them. Slots that CPU threads access (DF_CONN_ZERO) stay in
 * host memory on both sides.
 */
#include "runtime/transport/net/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"

enum df_net_chunk_state { UNKNOWN, ASKED, REGISTERED, REFUSED };

#define PAGE 4096ull

/*
 * Logs once per endpoint where slots are. why: the reason why they are not in GPU memory, or how
 * the network reaches GPU memory.
 */
static void tell(struct df_net_ep *ep, int gpu, const char *why)
{
	if (__atomic_exchange_n(&ep->gpu.told, 1, __ATOMIC_RELAXED))
		return;
	df_info(gpu ? "device %d: slots for other nodes lie in GPU memory (%s)"
		    : "device %d: slots for other nodes lie in host memory: %s",
		ep->device, why);
}

/* Returns the functions for GPU memory; NULL: no medium of this build reaches it. */
static const struct df_net_gpu_ops *ops_of(const struct df_net_ep *ep)
{
	return ep->ops[__builtin_ctz(DF_NET_BIT_VERBS)]->gpu;
}

/* Returns why slots of this link may not be in GPU memory, or NULL if they may. */
static const char *refused(const struct df_net_link *l)
{
	if (!df_blocks->far_rdma)
		return "the device is not a GPU";
	if (!l->verbs_only)
		return "sockets or a plugin may connect them, which do not reach GPU memory: "
		       "set DFSHIM_NET=verbs";
	return df_pci_refuses(ops_of(l->ep) ? ops_of(l->ep)->nearest(l->ep) : DF_PCI_UNKNOWN);
}

int df_net_gpu_slots(struct df_net_conn *c, uint64_t bytes)
{
	struct df_net_ep *ep = c->link->ep;
	struct df_net_chunk *k;
	uint32_t state = UNKNOWN;
	const char *why;
	int ret;

	if (!df_env()->net_gdr || c->says & DF_NET_AT_HOST || !bytes ||
	    (c->says & DF_NET_SENDS && !df_env()->nccl_net_gdr_read))
		return 0;
	why = refused(c->link);
	if (why) {
		tell(ep, 0, why);
		return 0;
	}
	ret = df_blocks->far_alloc(ep->device, (bytes + PAGE - 1) & ~(PAGE - 1), &c->far);
	if (ret) {
		c->far.bytes = 0;
		return ret == -EAGAIN ? ret : 0;
	}
	k = &ep->gpu.chunk[c->far.seg];
	/* ACQUIRE pairs with the RELEASE in prepare(): the keys are complete. */
	if (__atomic_load_n(&k->state, __ATOMIC_ACQUIRE) == REGISTERED) {
		c->mem = k->mem;
		c->gpu = 1;
		return 0;
	}
	df_blocks->far_free(&c->far);
	c->far.bytes = 0;
	/* Relaxed: the thread finds the chunk through `asked`. */
	if (__atomic_compare_exchange_n(&k->state, &state, ASKED, 0, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED)) {
		/*
		 * RELEASE pairs with the ACQUIRE in df_net_gpu_pass(): the thread sees which chunk
		 * is requested.
		 */
		__atomic_store_n(&ep->gpu.asked, 1, __ATOMIC_RELEASE);
		df_bell_ring(&ep->bell);
	}
	return state == REFUSED ? 0 : -EAGAIN;
}

/* Registers a requested chunk, and logs the outcome. */
static void prepare(struct df_net_ep *ep, uint32_t seg)
{
	struct df_net_chunk *k = &ep->gpu.chunk[seg];
	struct df_far_rdma at;
	char why[160] = "";
	int ret = df_blocks->far_rdma(ep->device, seg, &at);

	if (ret)
		snprintf(why, sizeof(why), "%s", at.why ? at.why : "it was not asked for");
	else if (!(ep->media & DF_NET_BIT_VERBS))
		ret = -ENODEV;
	else
		ret = ops_of(ep)->allow(ep, &at, &k->mem, why, sizeof(why));
	tell(ep, !ret, why[0] ? why : strerror(-ret));
	/* RELEASE pairs with the ACQUIRE in df_net_gpu_slots(): the keys are complete. */
	__atomic_store_n(&k->state, ret ? REFUSED : REGISTERED, __ATOMIC_RELEASE);
	df_bell_ring(df_tl_bell());
}

int df_net_gpu_quiet(struct df_net_conn *c)
{
	struct df_net_ep *ep = c->link->ep;

	if (!c->gpu)
		return 1;
	if (!c->behind)
		c->behind = ops_of(ep)->ask(ep);
	return ops_of(ep)->done(ep, c->behind);
}

uint64_t df_net_gpu_due(const struct df_net_ep *ep)
{
	return ep->media & DF_NET_BIT_VERBS ? ops_of(ep)->due(ep) : UINT64_MAX;
}

int df_net_gpu_pass(struct df_net_ep *ep, uint64_t now, int arm)
{
	int moved = ep->media & DF_NET_BIT_VERBS ? ops_of(ep)->look(ep, now, arm) : 0;
	uint32_t i;

	/* Relaxed: the requesting thread also rings the bell. */
	if (df_likely(!__atomic_load_n(&ep->gpu.asked, __ATOMIC_RELAXED)))
		return moved;
	/*
	 * ACQUIRE pairs with the RELEASE in df_net_gpu_slots(): it shows which chunk is requested.
	 */
	__atomic_exchange_n(&ep->gpu.asked, 0, __ATOMIC_ACQUIRE);
	for (i = 0; i < DF_FAR_CHUNKS_MAX; i++)
		if (__atomic_load_n(&ep->gpu.chunk[i].state, __ATOMIC_RELAXED) == ASKED)
			prepare(ep, i);
	return 1;
}
