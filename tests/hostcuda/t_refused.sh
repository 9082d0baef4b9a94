#!/bin/sh
# See p_refused.c.
set -eu
NCCL=1 tests/hostcuda/preload.sh p_refused
