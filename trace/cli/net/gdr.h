/* Whether slots of connectors between nodes may lie in the memory of this machine's GPUs; for `dfshim net`. */
#ifndef DF_CLI_NET_GDR_H
#define DF_CLI_NET_GDR_H

#include <stddef.h>
#include "runtime/base/net/pci.h"

struct df_verbs;

#define GDR_MAX 64

/* What the driver says of its GPUs. */
struct gdr_gpus {
	int nr;
	struct {
		char name[64];
		char pci[16]; /* its address; "": not known */
		int rdma, dmabuf, ordering;
	} v[GDR_MAX];
	int exports;	/* it has the function that makes a dma-buf */
	char error[96]; /* why nothing is known of them; "" */
};

/* Through libcuda, opened here: may hang or die. Without one there is no GPU. */
void gdr_find(void *gpus);

/* Of the ports that are used: those that are farther away are used when these fail. */
enum df_pci_path gdr_nearest(const struct gdr_gpus *gpus, int gpu, const struct df_verbs *verbs);

/* 1: they lie there; and how, or why not. only_verbs: nothing else may join machines. */
int gdr_slots(const struct gdr_gpus *gpus, int gpu, const struct df_verbs *verbs, int only_verbs,
	      char *why, size_t size);

#endif
