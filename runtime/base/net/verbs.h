/*
 * Which RDMA ports this machine has, and which of them NCCL's rules use, with which GID: through libibverbs, opened at
 * run time, so nothing is needed to build this and nothing happens where it is not installed.
 *
 * The rules: NCCL_IB_DISABLE; NCCL_IB_HCA ("mlx5_0:1,mlx5_1", "=" exact names, "^" all but these); a port has to be
 * active. On InfiniBand GID 0 is used, or 1 if that has a FLID (routing between subnets); on Ethernet NCCL_IB_GID_INDEX,
 * or the first valid one that fits NCCL_IB_ADDR_FAMILY, NCCL_IB_ADDR_RANGE and NCCL_IB_ROCE_VERSION_NUM.
 *
 * Stateless. May block as long as a driver does, and loads code of the machine's vendor: for a process that can
 * afford that, not for the application's. Sizes in bytes, speeds in Mbit/s.
 */
#ifndef DF_BASE_NET_VERBS_H
#define DF_BASE_NET_VERBS_H

#define DF_VERBS_MAX 64

struct df_verbs_port {
	char device[64];
	int port;
	int active;
	char state[16];	 /* as InfiniBand calls it */
	int infiniband;	 /* 0: Ethernet (RoCE) */
	int lid;	 /* InfiniBand */
	unsigned mtu;	 /* active; 0 unknown */
	int mbps;	 /* 0 unknown */
	char netdev[16]; /* RoCE: the network interface of the GID, "" unknown */
	int gid_index;	 /* the one to use; -1: none */
	char gid[40];
	int roce_version; /* of the GID; 0: InfiniBand, or not known */
	int order;	  /* 1 the first to be used; 0 not used */
	char reason[112];
	int dmabuf; /* of its device: 0, or the errno with which memory of others is refused as dma-buf; -1: not asked */
};

struct df_verbs {
	char library[128]; /* what was opened, or asked for */
	char error[256];   /* why there is no device; "" */
	int nr;
	struct df_verbs_port v[DF_VERBS_MAX];
};

/* dmabuf: asks that of the devices of ports that are used, too. */
void df_verbs_find(struct df_verbs *out, int dmabuf);

/* The kernel has a module by which RDMA devices reach a GPU's memory by its address. */
int df_verbs_peermem(void);

#endif
