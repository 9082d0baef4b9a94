#!/bin/bash
# All collectives, types and operations, in and out of place, on one GPU with 2, 4 and 8 ranks, in
# threads and processes.
set -u
. "$SRC/tests/gpu/lib.sh"
# Everything, if the machine is fast enough.
part=()
[ "$SLOW" = 1 ] || part=(--sample "$(few 2000)")
card collcheck --ranks 2 "${part[@]}" --seed "$SEED"
card collcheck --ranks 4 "${part[@]}" --seed "$SEED"
card collcheck --ranks 8 --sample "$(few 3000)" --seed "$SEED"
card collcheck --procs 4 --sample "$(few 2000)" --seed "$SEED"
exit 0
