#!/bin/bash
# The catalogue of deadlocks on a GPU, by our rules and with strict order and no release. The CPU
# backend executes NCCL's rules: a GPU that hangs in NCCL's kernels cannot be asked to continue.
set -u
. "$SRC/tests/gpu/lib.sh"
export BACKEND=cuda
export RULES="ours strict"
exec "$SRC/tests/deadlock/catalogue.sh"
