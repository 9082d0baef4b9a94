#!/bin/bash
# Description: random programs of streams, events, collectives and other work against a sequential reference.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
case $B in */thread | */address) export ORDER_PROGRAMS=15 ;; esac
host ordercheck --seed "$SEED"
host ordercheck --seed "$SEED" --ranks 4
DFSHIM_BLOCKS=3 host ordercheck --seed "$SEED" --ranks 2
# With strict order no operation may overtake another.
DFSHIM_STREAM_ORDER=strict ORDER_KEEP=1 host ordercheck --seed "$SEED"
ORDER_PROGRAMS=5 host ordercheck --seed "$SEED" --procs 2
exit 0
