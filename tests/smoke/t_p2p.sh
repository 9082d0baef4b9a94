#!/bin/bash
# Description: ncclSend and ncclRecv: rings, all-to-all of uneven sizes, order, buffering; with threads and processes.
set -u
. "$SRC/tests/lib/clients.sh"
for n in 1 2 4 7; do
	host p2pcheck --ranks $n --seed "$SEED"
done
host p2pcheck --procs 3 --seed "$SEED"
exit 0
