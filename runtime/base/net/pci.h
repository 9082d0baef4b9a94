/*
 * The distance of two devices of this machine on the PCI bus, from sysfs and in NCCL's terms. It
 * decides which RDMA ports are near a GPU. Stateless; any thread; reads a few links and files.
 */
#ifndef DF_BASE_NET_PCI_H
#define DF_BASE_NET_PCI_H

/* Smaller is nearer. */
enum df_pci_path {
	DF_PCI_LOC, /* the same device */
	DF_PCI_PIX, /* at most one PCI switch between them */
	DF_PCI_PXB, /* several switches, but no host bridge */
	DF_PCI_PHB, /* a host bridge (the processor and its memory) */
	DF_PCI_SYS, /* the interconnect between processors */
	DF_PCI_UNKNOWN
};

/* Returns "LOC" and so on. */
const char *df_pci_name(enum df_pci_path path);

/*
 * a, b: paths of the devices in sysfs; links are followed. Returns DF_PCI_UNKNOWN if one does not
 * exist or is not on a PCI bus: a virtual device, or a device of many virtual machines.
 */
enum df_pci_path df_pci_path(const char *a, const char *b);

/*
 * The distance from a GPU to an RDMA device, or to a device at a path in sysfs. gpu: its PCI
 * address, "0000:17:00.0", or "" for none.
 */
enum df_pci_path df_pci_to_verbs(const char *gpu, const char *device);
enum df_pci_path df_pci_to(const char *gpu, const char *path);

/*
 * Returns why NCCL_NET_GDR_LEVEL forbids RDMA to a GPU's memory over such a path, or NULL if it
 * does not. An unknown path may be short, so only the lowest level forbids it.
 */
const char *df_pci_refuses(enum df_pci_path path);

#endif
