/*
 * The part of NCCL's types that its binary interface needs. The library is built without NCCL's
 * headers, because it must build where NCCL is not installed and serve names that are newer than
 * the installed header. tests/interpose/t_abi.sh compares every value and size here, and every
 * prototype of nccl_api.def, with the installed nccl.h. With DF_USE_NCCL_H, the header provides
 * what it has.
 */
#ifndef DF_INTERPOSE_NCCL_NCCL_TYPES_H
#define DF_INTERPOSE_NCCL_NCCL_TYPES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef DF_USE_NCCL_H
#include <nccl.h>
#ifdef __cplusplus /* its device header is C++ only */
#include <nccl_device.h>
#endif
#else

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
	char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
	ncclSuccess = 0,
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,
	ncclInternalError = 3,
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,
	ncclRemoteError = 6,
	ncclInProgress = 7,
} ncclResult_t;

typedef enum {
	ncclInt8 = 0,
	ncclUint8 = 1,
	ncclInt32 = 2,
	ncclUint32 = 3,
	ncclInt64 = 4,
	ncclUint64 = 5,
	ncclFloat16 = 6,
	ncclFloat32 = 7,
	ncclFloat64 = 8,
	ncclBfloat16 = 9,
	ncclFloat8e4m3 = 10,
	ncclFloat8e5m2 = 11,
	ncclNumTypes = 12,
} ncclDataType_t;

typedef enum {
	ncclSum = 0,
	ncclProd = 1,
	ncclMax = 2,
	ncclMin = 3,
	ncclAvg = 4,
	ncclNumOps = 5,
	ncclMaxRedOp = 0x7fffffff,
} ncclRedOp_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

#define NCCL_CONFIG_UNDEF_INT	    INT_MIN
#define NCCL_SPLIT_NOCOLOR	    -1
#define NCCL_WIN_COLL_SYMMETRIC	    0x01
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096
#define NCCL_SHRINK_ABORT	    0x01

/* As in 2.32. A caller's struct may be shorter: `size` is its length. */
typedef struct {
	size_t size;
	unsigned int magic;
	unsigned int version;
	int blocking;
	int cgaClusterSize;
	int minCTAs;
	int maxCTAs;
	const char *netName;
	int splitShare;
	int trafficClass;
	const char *commName;
	int collnetEnable;
	int CTAPolicy;
	int shrinkShare;
	int nvlsCTAs;
	int nChannelsPerNetPeer;
	int nvlinkCentricSched;
	int graphUsageMode;
	int numRmaCtx;
	int maxP2pPeers;
	int graphStreamOrdering;
	int launchOrderImplicit;
	int numRmaSig;
	int rmaEagerInit;
	int hostCftMode;
	int nvlsHostMode;
} ncclConfig_t;

typedef struct {
	size_t size;
	unsigned int magic;
	unsigned int version;
	float estimatedTime;
} ncclSimInfo_t;

#endif

/*
 * The version of the headers in use: one for the names of the host API, and one for the device API,
 * which is C++.
 */
#ifdef DF_USE_NCCL_H
#define DF_HEADER NCCL_VERSION_CODE
#else
#define DF_HEADER 0
#endif
#ifdef __cplusplus
#define DF_DEVICE_HEADER DF_HEADER
#else
#define DF_DEVICE_HEADER 0
#endif

#if DF_DEVICE_HEADER == 0
struct ncclTeam {
	int nRanks, rank, stride;
};
typedef struct ncclTeam ncclTeam_t;
struct ncclMultimemHandle {
	void *mcBasePtr;
};
typedef struct ncclMultimemHandle ncclMultimemHandle_t;
typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;
#endif
#if DF_DEVICE_HEADER < 23102
typedef uint32_t ncclCftLeId_t;
typedef enum {
	NCCL_CFT_TEAM_FLAT,
	NCCL_CFT_TEAM_HIER_MULTIMEM,
	NCCL_CFT_TEAM_HIER_LSA
} ncclCftTeamMode_t;
#endif

#define DF_NCCL_API_MAGIC 0xcafebeefu
#define DF_NCCL_SIM_MAGIC 0x74685283u
/* The first word of the real library's struct ncclComm. */
#define DF_NCCL_COMM_MAGIC 0x0280028002800280ull
/* The version whose behaviour is implemented. Reported if there is no real library. */
#define DF_NCCL_VERSION 22809

/* Types of names that are newer than 2.28. */
#if DF_HEADER < 22902
typedef struct {
	int opCnt;
	int peer;
	int sigIdx;
	int ctx;
} ncclWaitSignalDesc_t;
#endif
#if DF_DEVICE_HEADER < 22902
typedef struct {
	size_t size;
	unsigned int magic;
	unsigned int version;
	int rank;
	int nRanks;
	int cudaDev;
	int nvmlDev;
	bool deviceApiSupport;
	bool multimemSupport;
	int ginType;
	int nLsaTeams;
	bool hostRmaSupport;
	int railedGinType;
} ncclCommProperties_t;
#endif
#if DF_HEADER < 22907
typedef enum {
	ncclStatGpuMemSuspend = 0,
	ncclStatGpuMemSuspended = 1,
	ncclStatGpuMemPersist = 2,
	ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;
#endif
#if DF_HEADER < 23102
/* As in 2.32. A caller's struct may be shorter: `size` is its length. */
typedef struct {
	size_t size;
	unsigned int magic;
	unsigned int version;
	void *ext; /* options of vendors, which NCCL ignores */
	int minCTAs;
	int maxCTAs;
	int nvlsCTAs;
	int cgaClusterSize;
	const char *algSelection;
	int forceAlgSelection;
	int CTAPolicy;
	uint64_t userProfilerTag;
	cudaEvent_t launchCompletionEvent;
} ncclCollConfig_t;
#endif
#if DF_HEADER < 23203
typedef struct {
	size_t size;
	unsigned int magic;
	unsigned int version;
	int mode; /* 0 for plain text, 1 for a key shared beforehand */
	const char *psk;
} ncclEncryptionConfig_t;
#endif
#if DF_HEADER < 23004
typedef struct ncclParamHandle *ncclParamHandle_t;
#endif
struct ncclGinOutboxHandle;
struct ncclGinInboxA2AHandle;

#endif
