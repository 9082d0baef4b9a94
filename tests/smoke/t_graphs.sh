#!/bin/bash
# Description: collectives in CUDA graphs, replayed in different orders.
set -u
. "$SRC/tests/lib/clients.sh"
host graphcheck --ranks 4
host graphcheck --ranks 1
host graphcheck --procs 2
exit 0
