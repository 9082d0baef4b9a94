#!/bin/sh
# See p_order.c. Sharing hardware queues adds order, and never stops a program whose waits are for what
# was enqueued before.
set -eu
tests/hostcuda/preload.sh p_order
NCCL=1 DFSHIM_HOST_QUEUES=2 tests/hostcuda/preload.sh p_order 30
