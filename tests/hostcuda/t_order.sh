#!/bin/sh
# Runs p_order.c. Shared hardware queues add order, but never stop a program that waits only for
# work enqueued earlier.
set -eu
tests/hostcuda/preload.sh p_order
NCCL=1 DFSHIM_HOST_QUEUES=2 tests/hostcuda/preload.sh p_order 30
