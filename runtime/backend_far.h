/* GPU memory for connectors and scratch: types of the far_ functions (runtime/blocks.h). */
#ifndef DF_RUNTIME_BACKEND_FAR_H
#define DF_RUNTIME_BACKEND_FAR_H

#include <stdint.h>
#include "kernels/abi.h"

/* Memory of a GPU that its daemon can access and the CPU cannot. */
struct df_far_block {
	int device;
	uint32_t seg; /* the chunk */
	uint64_t offset, bytes;
	uint64_t addr, chunk_bytes;
	uint8_t handle[sizeof(((struct df_conn_far *)0)->handle)];
};

#define DF_FAR_CHUNKS_MAX 64

/* Such a chunk as RDMA devices can reach it (GPUDirect RDMA). */
struct df_far_rdma {
	uint64_t addr, bytes;
	int dmabuf;	 /* of the whole chunk, owned by the machine; -1: none, because of `why` */
	uint8_t ordered; /* its GPU sees their writes in the order in which they were made */
	const char *why;
};

#endif
