#!/bin/bash
# The catalogue of deadlocks on a GPU: under dfshim, and with strict order and no release. NCCL's
# rules are executed only by the CPU backend's tests: a GPU that hangs in NCCL's kernels cannot be
# made to continue.
set -u
. "$SRC/tests/gpu/lib.sh"
export BACKEND=cuda
export RULES="ours strict"
exec "$SRC/tests/deadlock/catalogue.sh"
