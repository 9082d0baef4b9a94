#!/bin/bash
# Description: emulated nodes: hierarchical programs and delayed slices give the same results, in threads and processes.
set -u
. "$SRC/tests/lib/clients.sh"
export DFSHIM_HOST_LINK_US=10 DFSHIM_HOST_LINK_MESSAGE_US=1
DFSHIM_HOST_NODE_DEVICES=2 host collcheck --ranks 4 --sample 150 --seed "$SEED"
DFSHIM_HOST_NODE_DEVICES=3 host collcheck --ranks 6 --procs 6 --sample 100 --seed "$SEED"
DFSHIM_HOST_NODE_DEVICES=1 host collcheck --ranks 3 --sample 100 --seed "$SEED"
# Nodes of unequal size: no hierarchy, but the links are there.
DFSHIM_HOST_NODE_DEVICES=2 host collcheck --ranks 3 --procs 3 --sample 100 --seed "$SEED"
DFSHIM_HOST_NODE_DEVICES=2 host p2pcheck --ranks 4 --seed "$SEED"
DFSHIM_HOST_NODE_DEVICES=1 host disorder --ranks 2 --iters 20 --seed "$SEED"
exit 0
