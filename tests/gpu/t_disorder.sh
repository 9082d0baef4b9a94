#!/bin/bash
# The paper's tests 1 and 2 on one GPU: 8 AllReduces, 200 times, in a different order on each rank,
# without and with device synchronisations between them.
set -u
. "$SRC/tests/gpu/lib.sh"
job=(--colls 8 --iters "$(few 200)" --min 256 --max 1048576 --seed "$SEED")
card disorder --ranks 8 "${job[@]}"
card disorder --ranks 4 --procs 4 "${job[@]}"
# ncclCommInitAll accepts a device several times only with this setting, as NCCL's does from 2.30
# on.
NCCL_MULTI_RANK_GPU_ENABLE=1 card disorder --ranks 4 --single-thread "${job[@]}"
card disorder --ranks 4 --mix --streams 3 "${job[@]}"
CUDA_DEVICE_MAX_CONNECTIONS=1 card disorder --ranks 4 --streams 4 "${job[@]}"
LIMIT=250 card disorder --ranks 8 --sync "${job[@]}"
card disorder --ranks 4 --procs 4 --sync --colls 8 --iters "$(few 20)" --seed "$SEED"
exit 0
