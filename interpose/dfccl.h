/*
 * dfccl: the native interface of dfshim, after the DFCCL paper. An application registers each
 * collective once, under a number, then runs it as often as it likes, in any order and from any
 * thread. A callback reports the end of each run. No order of runs on the ranks can deadlock.
 *
 * Link with libdfshim.so, or load it with LD_PRELOAD. NCCL is not needed. Functions return 0 or a
 * negative errno value, which dfcclErrorString() describes:
 *
 *   -EINVAL      an argument is wrong: an unknown number, root, type, or operation
 *   -EEXIST      the number is taken
 *   -EPROTO      the ranks do not agree about the job
 *   -ECONNRESET  a rank has died
 *   -EOPNOTSUPP  there is no device that dfshim can use
 */
#ifndef DFCCL_H
#define DFCCL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dfcclContext *dfcclContext_t;

#define DFCCL_UNIQUE_ID_BYTES 128
typedef struct {
	char internal[DFCCL_UNIQUE_ID_BYTES];
} dfcclUniqueId;

/* The values are NCCL's. */
typedef enum {
	dfcclInt8 = 0,
	dfcclUint8 = 1,
	dfcclInt32 = 2,
	dfcclUint32 = 3,
	dfcclInt64 = 4,
	dfcclUint64 = 5,
	dfcclFloat16 = 6,
	dfcclFloat32 = 7,
	dfcclFloat64 = 8,
	dfcclBfloat16 = 9,
	dfcclFloat8e4m3 = 10,
	dfcclFloat8e5m2 = 11,
	dfcclNumTypes = 12
} dfcclDataType_t;

typedef enum {
	dfcclSum = 0,
	dfcclProd = 1,
	dfcclMax = 2,
	dfcclMin = 3,
	dfcclAvg = 4,
	dfcclNumOps = 5
} dfcclRedOp_t;

/*
 * Reports the end of a run. `result` is 0, or the error that ended the run, whose data is then
 * undefined. A thread of the context calls this once for each run. The callback may start further
 * runs, but may neither wait for the context nor destroy it. It should be brief, because other
 * callbacks wait for it.
 */
typedef void (*dfcclCallback_t)(int collId, int result, void *arg);

/* One rank makes an id and gives it to the others by its own means. */
int dfcclGetUniqueId(dfcclUniqueId *id);

/*
 * Joins the other ranks; blocks until all ranks have called it. `device` is the CUDA device of this
 * rank.
 */
int dfcclInit(dfcclContext_t *context, int nranks, dfcclUniqueId id, int rank, int device);

/*
 * Registers a collective under a number, which is the same on all ranks. The ranks may register in
 * different orders. `count` means the same as in NCCL's function of that name. With
 * DFSHIM_ORDER=priority, collectives with a higher `priority` run first. Never blocks.
 */
int dfcclRegisterAllReduce(dfcclContext_t context, int collId, size_t count, dfcclDataType_t type,
			   dfcclRedOp_t op, int priority);
int dfcclRegisterReduce(dfcclContext_t context, int collId, size_t count, dfcclDataType_t type,
			dfcclRedOp_t op, int root, int priority);
int dfcclRegisterBroadcast(dfcclContext_t context, int collId, size_t count, dfcclDataType_t type,
			   int root, int priority);
int dfcclRegisterAllGather(dfcclContext_t context, int collId, size_t sendcount,
			   dfcclDataType_t type, int priority);
int dfcclRegisterReduceScatter(dfcclContext_t context, int collId, size_t recvcount,
			       dfcclDataType_t type, dfcclRedOp_t op, int priority);

/*
 * Starts a run of a registered collective and returns at once. The input must be ready, because no
 * stream is involved. The k-th run of a number matches the k-th run of that number on the other
 * ranks. Runs of one number execute in order. Runs of different numbers execute in any order, but
 * runs whose buffers overlap wait for each other. callback may be NULL. May be called from any
 * thread.
 */
int dfcclRunAllReduce(dfcclContext_t context, int collId, const void *sendbuff, void *recvbuff,
		      dfcclCallback_t callback, void *arg);
int dfcclRunReduce(dfcclContext_t context, int collId, const void *sendbuff, void *recvbuff,
		   dfcclCallback_t callback, void *arg);
int dfcclRunBroadcast(dfcclContext_t context, int collId, const void *sendbuff, void *recvbuff,
		      dfcclCallback_t callback, void *arg);
int dfcclRunAllGather(dfcclContext_t context, int collId, const void *sendbuff, void *recvbuff,
		      dfcclCallback_t callback, void *arg);
int dfcclRunReduceScatter(dfcclContext_t context, int collId, const void *sendbuff, void *recvbuff,
			  dfcclCallback_t callback, void *arg);

/* Blocks until all runs are over and their callbacks have returned. */
int dfcclWait(dfcclContext_t context);

/* dfcclWait(), then frees everything. */
int dfcclDestroy(dfcclContext_t context);

/*
 * Ends all runs at once; their data is undefined. Afterwards only dfcclDestroy() may be called. May
 * be called from any thread.
 */
int dfcclAbort(dfcclContext_t context);

const char *dfcclErrorString(int result);

#ifdef __cplusplus
}
#endif

#endif
