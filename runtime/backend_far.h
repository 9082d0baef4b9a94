/* Memory of GPUs for connectors and scratch, as the runtime and a machine speak of it (backend.h, the functions far_). */
#ifndef DF_RUNTIME_BACKEND_FAR_H
#define DF_RUNTIME_BACKEND_FAR_H

#include <stdint.h>
#include "kernels/abi.h"

/* Memory of a GPU that its daemon touches and the host can't. */
struct df_far_block {
	int device;
	uint32_t seg; /* the chunk */
	uint64_t offset, bytes;
	uint64_t addr, chunk_bytes;
	uint8_t handle[sizeof(((struct df_conn_far *)0)->handle)];
};

#define DF_FAR_CHUNKS_MAX 64

/* A chunk of such memory as RDMA devices may reach it (GPUDirect RDMA). */
struct df_far_rdma {
	uint64_t addr, bytes;
	int dmabuf;	 /* of all of it; the machine's; -1: there is none, because `why` */
	uint8_t ordered; /* its GPU sees what they write in the order in which they wrote */
	const char *why;
};

#endif
