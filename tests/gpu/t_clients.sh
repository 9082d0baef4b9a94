#!/bin/bash
# Point-to-point, communicators, errors, non-blocking communicators, graphs: the clients of the host backend's tests.
set -u
. "$SRC/tests/gpu/lib.sh"
for n in 1 2 4 7; do
	card p2pcheck --ranks $n --seed "$SEED"
done
card p2pcheck --procs 3 --seed "$SEED"
card splitcheck --ranks 5
card splitcheck --procs 4
card nbcheck --ranks 4
card errcheck --ranks 2
card graphcheck --ranks 4
card graphcheck --procs 2
card graphforms --ranks 2
# Streams with a late peer; "opposite" needs a device for each rank, since two threads would share a legacy stream.
for part in elapsed pending pressure threads; do
	STREAM_ONLY=$part card streamcheck
done
MANY_CASE=comms MANY_AMOUNT=$(few 64) card many --ranks 4
MANY_CASE=outstanding MANY_AMOUNT=$(few 1000) card many --ranks 4
exit 0
