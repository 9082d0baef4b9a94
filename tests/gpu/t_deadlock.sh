#!/bin/bash
# The catalogue of deadlocks on a GPU, by our rules and with strict order and no release. NCCL's rules are the host
# backend's to execute: a GPU that hangs in NCCL's kernels can't be asked to go on.
set -u
. "$SRC/tests/gpu/lib.sh"
export BACKEND=cuda
export RULES="ours strict"
exec "$SRC/tests/deadlock/catalogue.sh"
