#!/bin/bash
# libdfhost.so has every function that PyTorch, Triton, CuPy and nccl4py look up (asked.txt, made by
# scripts/list_cuda_symbols.sh), except those of newer drivers, which a driver of CUDA 13.0 does not
# have either.
set -eu
export LC_ALL=C
host=$B/libdfhost.so
[ -e "$host" ] || { echo "skipped: built without the CUDA headers"; exit 77; }
nm -D --defined-only "$host" | sed -nE 's/.* [TW] ([^@]*)@.*/\1/p' | sort -u >"$T/served"
sed '/^#/d' tests/hostcuda/asked.txt | sort -u | comm -23 - "$T/served" >"$T/missing"
diff - "$T/missing" <<'EOF'
cuFuncGetParamCount
cuGraphExecGetId
cuGraphGetId
cuGraphNodeGetContainingGraph
cuGraphNodeGetLocalId
cuGraphNodeGetParams
cuGraphNodeGetToolsId
cuKernelGetParamCount
cuLaunchHostFunc_v2
cuLaunchHostFunc_v2_ptsz
cuStreamGetDevResource
cuStreamGetDevResource_ptsz
EOF
