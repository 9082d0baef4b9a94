#!/bin/sh
# See p_rules.c.
set -eu
NCCL=1 DFSHIM_HOST_QUEUES=2 tests/hostcuda/preload.sh p_rules nccl
DFSHIM_HOST_QUEUES=2 tests/hostcuda/preload.sh p_rules dfshim
