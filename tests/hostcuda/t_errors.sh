#!/bin/sh
# See p_errors.c; kernels refused, and skipped.
set -eu
tests/hostcuda/preload.sh p_errors
DFSHIM_HOST_STUB=1 DFSHIM_HOST_DEVICES=3 tests/hostcuda/preload.sh p_errors
