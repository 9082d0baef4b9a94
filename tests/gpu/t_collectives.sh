#!/bin/bash
# All collectives, types, operations, in and out of place, on one GPU with 2, 4 and 8 ranks, in threads and processes.
set -u
. "$SRC/tests/gpu/lib.sh"
card collcheck --ranks 2 --seed "$SEED"
card collcheck --ranks 4 --seed "$SEED"
card collcheck --ranks 8 --sample 3000 --seed "$SEED"
card collcheck --procs 4 --sample 2000 --seed "$SEED"
exit 0
