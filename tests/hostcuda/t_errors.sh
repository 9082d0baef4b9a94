#!/bin/sh
# See p_errors.c; kernels refused, and skipped.
set -eu
tests/hostcuda/preload.sh p_errors
DFSHIM_HOST_STUB=1 DFSHIM_HOST_DEVICES=3 tests/hostcuda/preload.sh p_errors

# The warning names the option of nccl-tests to its programs, and only to them.
cp "$B/tests/hostcuda/programs/p_errors" "$T/all_reduce_perf"
LD_PRELOAD="${SAN_RUNTIME-}$B/libdfhost.so" "$T/all_reduce_perf" 2>&1 | grep -q "kernels cannot run here; .*; nccl-tests runs without them with -c 0"
! tests/hostcuda/preload.sh p_errors 2>&1 | grep -q "nccl-tests"
