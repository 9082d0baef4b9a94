#!/bin/bash
# Description: collectives in CUDA graphs, replayed in different orders.
set -u
. "$SRC/tests/lib/clients.sh"
host graphcheck --ranks 4
host graphcheck --ranks 1
host graphcheck --procs 2
host graphforms --ranks 2 --seed "$SEED"
host graphforms --ranks 3 --seed "$SEED"
host graphforms --procs 2 --seed "$SEED"
exit 0
