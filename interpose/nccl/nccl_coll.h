/* Records the calls that the real library executes (traced.c). */
#ifndef DF_INTERPOSE_NCCL_NCCL_COLL_H
#define DF_INTERPOSE_NCCL_NCCL_COLL_H

#include "interpose/nccl/nccl_types.h"
#include "runtime/dfshim.h"
#include "trace/record/format.h"

struct df_traced_call {
	enum df_coll_kind kind;
	const void *send;
	void *recv;
	size_t count;
	int type, redop, root;
	cudaStream_t stream;
};

/*
 * State of a call of the real library that issues an operation. Calls by NCCL itself are not
 * recorded.
 */
struct df_traced_op {
	void *t;  /* NULL if df_traced_end() has nothing to do */
	void *on; /* the communicator's record; NULL if it is not recorded */
	uint64_t serial;
	enum df_call call;
	struct df_record_op op;
	/*
	 * An operation that first has to connect ranks is recorded as intended, and as issued once
	 * they are connected.
	 */
	int intended;
	uint64_t reserved; /* serial of an intended operation */
	uint32_t site;
	struct df_traced_call what;
};

#endif
