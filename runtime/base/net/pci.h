/*
 * How far two devices of this machine are from each other on its PCI bus, by what sysfs says, in NCCL's words: which RDMA ports are
 * near a GPU. Stateless, any thread; reads a few links and files.
 */
#ifndef DF_BASE_NET_PCI_H
#define DF_BASE_NET_PCI_H

/* The nearer the smaller. */
enum df_pci_path {
	DF_PCI_LOC, /* one and the same device */
	DF_PCI_PIX, /* one PCI switch at the most is between them */
	DF_PCI_PXB, /* several, but no host bridge */
	DF_PCI_PHB, /* a host bridge: the processor, and its memory */
	DF_PCI_SYS, /* the link between processors */
	DF_PCI_UNKNOWN
};

/* "LOC" and so on. */
const char *df_pci_name(enum df_pci_path path);

/*
 * a, b: where the devices are in sysfs; links are followed. DF_PCI_UNKNOWN: one is not there, or is no device of a PCI bus, as those are
 * that software makes, and many in virtual machines.
 */
enum df_pci_path df_pci_path(const char *a, const char *b);

/* From a GPU. gpu: its address, "0000:17:00.0"; "": none. To an RDMA device, or to what is there in sysfs. */
enum df_pci_path df_pci_to_verbs(const char *gpu, const char *device);
enum df_pci_path df_pci_to(const char *gpu, const char *path);

/* Why RDMA is not to reach a GPU's memory over such a path, by NCCL_NET_GDR_LEVEL; NULL: it may. One that is not known may be short. */
const char *df_pci_refuses(enum df_pci_path path);

#endif
