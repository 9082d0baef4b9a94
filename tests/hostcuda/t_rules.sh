#!/bin/sh
# See p_rules.c.
set -eu
DFSHIM_RULES=nccl DFSHIM_HOST_QUEUES=2 tests/hostcuda/preload.sh p_rules nccl
DFSHIM_RULES=dfshim DFSHIM_HOST_QUEUES=2 tests/hostcuda/preload.sh p_rules dfshim
