#!/bin/sh
# Runs p_errors.c with kernels refused, and with kernels skipped.
set -eu
tests/hostcuda/preload.sh p_errors
DFSHIM_HOST_STUB=1 DFSHIM_HOST_DEVICES=3 tests/hostcuda/preload.sh p_errors

# The warning names an option of nccl-tests to the programs of nccl-tests only.
cp "$B/tests/hostcuda/programs/p_errors" "$T/all_reduce_perf"
LD_PRELOAD="${SAN_RUNTIME-}$B/libdfhost.so" "$T/all_reduce_perf" 2>&1 | grep -q "kernels cannot run here; .*; nccl-tests runs without them with -c 0"
! tests/hostcuda/preload.sh p_errors 2>&1 | grep -q "nccl-tests"
