/*
 * Whether slots of connectors between nodes can be in the memory of this machine's GPUs; for
 * `dfshim net`.
 */
#ifndef DF_CLI_NET_GDR_H
#define DF_CLI_NET_GDR_H

#include <stddef.h>
#include "runtime/base/net/pci.h"

struct df_verbs;

#define GDR_MAX 64

/* The driver's data of its GPUs. */
struct gdr_gpus {
	int nr;
	struct {
		char name[64];
		char pci[16]; /* PCI address; "" if unknown */
		int rdma, dmabuf, ordering;
	} v[GDR_MAX];
	int exports;	/* whether the driver has the function that makes a dma-buf */
	char error[96]; /* why nothing is known about the GPUs, or "" */
};

/*
 * Fills in *gpus. Opens and uses libcuda, which may hang or crash. Without libcuda there is no
 * GPU.
 */
void gdr_find(void *gpus);

/* Returns the path to the nearest port in use. Farther ports are used only if the nearest fail. */
enum df_pci_path gdr_nearest(const struct gdr_gpus *gpus, int gpu, const struct df_verbs *verbs);

/*
 * Returns whether slots are in the GPU's memory. `why` is how, or why not. `only_verbs`: only RDMA
 * verbs may connect machines.
 */
int gdr_slots(const struct gdr_gpus *gpus, int gpu, const struct df_verbs *verbs, int only_verbs,
	      char *why, size_t size);

#endif
