#!/bin/bash
# Description: device synchronisations between disordered all-reduces: released when proved to be part of a circle.
set -u
. "$SRC/tests/lib/clients.sh"
host disorder --ranks 2 --colls 2 --iters $((20 / SLOW)) --sync --seed "$SEED"
host disorder --ranks 8 --colls 8 --iters $((10 / SLOW)) --sync --seed "$SEED"
# As in the paper's second test: a few per iteration.
host disorder --ranks 8 --colls 8 --iters $((40 / SLOW)) --sync=2 --seed "$SEED"
exit 0
