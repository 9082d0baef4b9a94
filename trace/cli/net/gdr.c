/*
 * Decides whether slots can be in GPU memory, as runtime/transport/net/gpu.c and the backend do
 * (gdr.h). Conditions that only a registration would show are not checked.
 */
#define _GNU_SOURCE
#include "trace/cli/net/gdr.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/net/verbs.h"

/* The driver's numbers. They are written here because this is compiled even without its header. */
enum {
	PCI_BUS = 33,
	PCI_SLOT = 34,
	PCI_DOMAIN = 50,
	RDMA_SUPPORTED = 116,
	WRITES_ORDERING = 118,
	DMA_BUF_SUPPORTED = 124,
	ORDER_OWNER = 100
};

static int (*attribute)(int *value, int what, int device);

static int attribute_of(int device, int what)
{
	int v = 0;

	return attribute(&v, what, device) ? 0 : v;
}

void gdr_find(void *gpus)
{
	struct gdr_gpus *out = gpus;
	int (*init)(unsigned flags), (*count)(int *nr), (*get)(int *device, int ordinal);
	int (*name)(char *text, int size, int device);
	int (*proc)(const char *name, void **fn, int version, uint64_t flags, int *status);
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *export = NULL;
	int i, device, status, domain, bus, slot;

	out->nr = 0;
	if (!cuda)
		return;
	*(void **)&init = dlsym(cuda, "cuInit");
	*(void **)&count = dlsym(cuda, "cuDeviceGetCount");
	*(void **)&get = dlsym(cuda, "cuDeviceGet");
	*(void **)&name = dlsym(cuda, "cuDeviceGetName");
	*(void **)&attribute = dlsym(cuda, "cuDeviceGetAttribute");
	*(void **)&proc = dlsym(cuda, "cuGetProcAddress_v2");
	if (!init || !count || !get || !name || !attribute || !proc || init(0) || count(&out->nr))
		return;
	out->nr = DF_MIN(out->nr, GDR_MAX);
	out->exports = !proc("cuMemGetHandleForAddressRange", &export, 11070, 0, &status) && export;
	for (i = 0; i < out->nr; i++) {
		if (get(&device, i))
			continue;
		name(out->v[i].name, sizeof(out->v[i].name), device);
		/* A bus or a domain may have number 0, so 0 does not mean unknown. */
		if (!attribute(&domain, PCI_DOMAIN, device) && !attribute(&bus, PCI_BUS, device) &&
		    !attribute(&slot, PCI_SLOT, device))
			snprintf(out->v[i].pci, sizeof(out->v[i].pci), "%04x:%02x:%02x.0",
				 domain & 0xffff, bus & 0xff, slot & 0xff);
		out->v[i].rdma = attribute_of(device, RDMA_SUPPORTED);
		out->v[i].dmabuf = attribute_of(device, DMA_BUF_SUPPORTED);
		out->v[i].ordering = attribute_of(device, WRITES_ORDERING);
	}
}

enum df_pci_path gdr_nearest(const struct gdr_gpus *gpus, int gpu, const struct df_verbs *verbs)
{
	enum df_pci_path nearest = DF_PCI_UNKNOWN;
	int i;

	for (i = 0; i < verbs->nr; i++)
		if (verbs->v[i].order)
			nearest = DF_MIN(nearest,
					 df_pci_to_verbs(gpus->v[gpu].pci, verbs->v[i].device));
	return nearest;
}

/* Returns why the memory cannot be registered as dma-buf, or NULL if it can. */
static const char *no_dmabuf(const struct gdr_gpus *gpus, int gpu, const struct df_verbs *verbs)
{
	int i;

	if (!df_env()->nccl_dmabuf)
		return "NCCL_DMABUF_ENABLE=0";
	if (!gpus->v[gpu].dmabuf)
		return "the driver has no dma-buf for the GPU";
	if (!gpus->exports)
		return "the driver lacks cuMemGetHandleForAddressRange";
	for (i = 0; i < verbs->nr; i++)
		if (verbs->v[i].order && verbs->v[i].dmabuf)
			return verbs->v[i].dmabuf == ENOSYS
				       ? "libibverbs has no ibv_reg_dmabuf_mr (rdma-core 34)"
				       : "the kernel or the RDMA device takes no dma-buf";
	return NULL;
}

/*
 * Returns why slots cannot be in the GPU's memory, the most basic reason first. Returns NULL if
 * they can.
 */
static const char *obstacle(const struct gdr_gpus *gpus, int gpu, const struct df_verbs *verbs,
			    int only_verbs)
{
	const char *far = df_pci_refuses(gdr_nearest(gpus, gpu, verbs));
	int i, nr = 0;

	for (i = 0; i < verbs->nr; i++)
		nr += verbs->v[i].order > 0;
	if (!nr)
		return "no RDMA port is usable";
	if (!gpus->v[gpu].rdma)
		return "the GPU has no GPUDirect RDMA";
	if (!only_verbs)
		return "sockets or a plugin may connect them, which do not reach GPU memory: set "
		       "DFSHIM_NET=verbs";
	if (far)
		return far;
	return df_env()->net_gdr ? NULL : "DFSHIM_NET_GDR=0";
}

int gdr_slots(const struct gdr_gpus *gpus, int gpu, const struct df_verbs *verbs, int only_verbs,
	      char *why, size_t size)
{
	const char *against = obstacle(gpus, gpu, verbs, only_verbs);
	const char *no = no_dmabuf(gpus, gpu, verbs);

	if (no && !df_verbs_peermem() && gpus->v[gpu].rdma) {
		snprintf(why, size, "%s, and the module nvidia_peermem is not loaded", no);
		return 0;
	}
	if (against)
		snprintf(why, size, "%s", against);
	else
		snprintf(why, size, "%s, %s", no ? "nvidia_peermem" : "dma-buf",
			 gpus->v[gpu].ordering >= ORDER_OWNER ? "the GPU orders writes"
			 : df_env()->nccl_gdr_flush_disable   ? "NCCL_GDR_FLUSH_DISABLE=1"
							      : "arriving data are read back");
	return !against;
}
