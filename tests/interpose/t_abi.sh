#!/bin/bash
# Description: dfshim's own declarations of NCCL's types and functions agree with the installed
# headers.
set -u
SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
T=${T:-$(mktemp -d)}
cuda=$("$SRC/scripts/cuda_home.sh")
CC=${CC:-gcc}
CXX=${CXX:-g++}
[ -e "$cuda/include/nccl.h" ] || { echo "no nccl.h below $cuda" && exit 77; }

# Every prototype is declared again after the header's own. A difference is a compiler error.
cat >"$T/again.c" <<'END'
#define DF_USE_NCCL_H
#include "interpose/nccl/nccl_types.h"
/* Newer headers have macros of these names that do nothing. */
#undef ncclResetDebugInit
#undef pncclResetDebugInit
#define NCCL_FN(since, kind, result, name, params, args) result name params; result p##name params;
#ifdef __cplusplus
extern "C" {
#endif
#include "interpose/nccl/nccl_api.def"
#ifdef __cplusplus
}
#endif
END
$CC -std=gnu11 -w -I"$SRC" -isystem "$cuda/include" -fsyntax-only "$T/again.c" || exit 1
sed '/, ncclAllReduce,$/{n;s/(const void \*sendbuff/(void *sendbuff/}' \
	"$SRC/interpose/nccl/nccl_api.def" >"$T/wrong.def"
sed "s#interpose/nccl/nccl_api.def#$T/wrong.def#" "$T/again.c" >"$T/wrong.c"
$CC -std=gnu11 -w -I"$SRC" -isystem "$cuda/include" -fsyntax-only "$T/wrong.c" 2>/dev/null &&
	{ echo "a wrong row is not noticed" && exit 1; }
if command -v "$CXX" >/dev/null; then # the device headers are C++
	cp "$T/again.c" "$T/again.cc"
	"$CXX" -w -I"$SRC" -isystem "$cuda/include" -fsyntax-only "$T/again.cc" || exit 1
fi

# Values, sizes and offsets are printed with either header.
cat >"$T/values.c" <<'END'
#include <stdio.h>
#include "interpose/nccl/nccl_types.h"
#define V(x) printf("%s %lld\n", #x, (long long)(x));
#define O(f) printf("config.%s %zu\n", #f, offsetof(ncclConfig_t, f));
#define C(f) printf("collconfig.%s %zu\n", #f, offsetof(ncclCollConfig_t, f));
int main(void)
{
	V(ncclSuccess) V(ncclUnhandledCudaError) V(ncclSystemError) V(ncclInternalError)
	V(ncclInvalidArgument) V(ncclInvalidUsage) V(ncclRemoteError) V(ncclInProgress)
	V(ncclInt8) V(ncclUint8) V(ncclInt32) V(ncclUint32) V(ncclInt64) V(ncclUint64) V(ncclFloat16)
	V(ncclFloat32) V(ncclFloat64) V(ncclBfloat16) V(ncclFloat8e4m3) V(ncclFloat8e5m2) V(ncclNumTypes)
	V(ncclSum) V(ncclProd) V(ncclMax) V(ncclMin) V(ncclAvg) V(ncclNumOps) V(ncclMaxRedOp)
	V(ncclScalarDevice) V(ncclScalarHostImmediate) V(NCCL_CONFIG_UNDEF_INT) V(NCCL_SPLIT_NOCOLOR)
	V(NCCL_WIN_COLL_SYMMETRIC) V(NCCL_WIN_REQUIRED_ALIGNMENT) V(NCCL_SHRINK_ABORT)
	V(sizeof(ncclUniqueId)) V(sizeof(ncclSimInfo_t)) V(offsetof(ncclSimInfo_t, estimatedTime))
	V(sizeof(ncclResult_t)) V(sizeof(ncclRedOp_t)) V(sizeof(ncclDataType_t))
	O(size) O(magic) O(version) O(blocking) O(cgaClusterSize) O(minCTAs) O(maxCTAs) O(netName)
	O(splitShare) O(trafficClass) O(commName) O(collnetEnable) O(CTAPolicy) O(shrinkShare)
	O(nvlsCTAs) O(nChannelsPerNetPeer) O(nvlinkCentricSched)
#if NEWEST >= 23102 /* of the header, on both sides */
	O(graphUsageMode) O(numRmaCtx) O(maxP2pPeers) O(graphStreamOrdering) O(launchOrderImplicit)
	O(numRmaSig) O(rmaEagerInit) O(hostCftMode)
	C(size) C(magic) C(version) C(ext) C(minCTAs) C(maxCTAs) C(nvlsCTAs) C(cgaClusterSize)
	C(algSelection) C(forceAlgSelection) C(CTAPolicy)
#endif
#if NEWEST >= 23203
	O(nvlsHostMode) V(sizeof(ncclConfig_t)) C(userProfilerTag) C(launchCompletionEvent) V(sizeof(ncclCollConfig_t))
	V(offsetof(ncclEncryptionConfig_t, mode)) V(offsetof(ncclEncryptionConfig_t, psk))
	V(sizeof(ncclEncryptionConfig_t))
#endif
	return 0;
}
END
newest=$(awk '/define NCCL_(MAJOR|MINOR|PATCH) / { v[$2] = $3 }
	END { print v["NCCL_MAJOR"] * 10000 + v["NCCL_MINOR"] * 100 + v["NCCL_PATCH"] }' "$cuda/include/nccl.h")
$CC -std=gnu11 -w -DNEWEST="$newest" -I"$SRC" -o "$T/own" "$T/values.c" || exit 1
$CC -std=gnu11 -w -DNEWEST="$newest" -DDF_USE_NCCL_H -I"$SRC" -isystem "$cuda/include" -o "$T/theirs" "$T/values.c" || exit 1
"$T/own" >"$T/own.txt"
"$T/theirs" >"$T/theirs.txt"
diff "$T/own.txt" "$T/theirs.txt" || exit 1
echo "agrees with $cuda/include/nccl.h: $(wc -l <"$T/own.txt") values, $(grep -c ^NCCL_FN "$SRC/interpose/nccl/nccl_api.def") prototypes"
