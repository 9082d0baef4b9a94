/*
 * Lists the RDMA ports of this machine and chooses ports and GIDs by NCCL's rules. It opens
 * libibverbs at run time, so the build does not need it, and machines without it have no ports.
 *
 * Rules: NCCL_IB_DISABLE; NCCL_IB_HCA ("mlx5_0:1,mlx5_1", "=" exact names, "^" all but these); a
 * port must be active. InfiniBand uses GID 0, or GID 1 if that has a FLID (routing between
 * subnets). Ethernet uses NCCL_IB_GID_INDEX, or the first valid GID that fits NCCL_IB_ADDR_FAMILY,
 * NCCL_IB_ADDR_RANGE and NCCL_IB_ROCE_VERSION_NUM.
 *
 * Stateless. May block as long as a driver does, and loads code of the vendor, so it must not run
 * in the application's process. Sizes in bytes, speeds in Mbit/s.
 */
#ifndef DF_BASE_NET_VERBS_H
#define DF_BASE_NET_VERBS_H

#define DF_VERBS_MAX 64

struct df_verbs_port {
	char device[64];
	int port;
	int active;
	char state[16];	 /* InfiniBand's name of the state */
	int infiniband;	 /* 0 for Ethernet (RoCE) */
	int lid;	 /* InfiniBand */
	unsigned mtu;	 /* active MTU; 0 unknown */
	int mbps;	 /* 0 unknown */
	char netdev[16]; /* RoCE: the network interface of the GID, or "" if unknown */
	int gid_index;	 /* the GID to use; -1: none */
	char gid[40];
	int roce_version; /* of the GID; 0: InfiniBand, or unknown */
	int order;	  /* position in the order of use, from 1; 0: not used */
	char reason[112];
	/* 0 if the device can register dma-buf memory, else the errno; -1: not queried */
	int dmabuf;
};

struct df_verbs {
	char library[128]; /* the library that was opened, or asked for */
	char error[256];   /* why there is no device, or "" */
	int nr;
	struct df_verbs_port v[DF_VERBS_MAX];
};

/*
 * Lists the ports. dmabuf: also query whether the devices of used ports can register dma-buf
 * memory.
 */
void df_verbs_find(struct df_verbs *out, int dmabuf);

/* Whether a kernel module lets RDMA devices access a GPU's memory by address. */
int df_verbs_peermem(void);

#endif
