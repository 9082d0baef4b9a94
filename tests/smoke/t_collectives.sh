#!/bin/bash
# Description: every collective, type, operation, in place or not, and many counts against a reference, with threads and processes.
set -u
. "$SRC/tests/lib/clients.sh"
host collcheck --ranks 4 --sample $((1500 / SLOW)) --seed "$SEED"
host collcheck --ranks 2 --sample $((600 / SLOW)) --seed "$SEED"
host collcheck --ranks 3 --procs 3 --sample $((600 / SLOW)) --seed "$SEED"
host collcheck --ranks 16 --sample $((100 / SLOW)) --largest 1023 --seed "$SEED"
host collcheck --ranks 1 --sample $((300 / SLOW)) --seed "$SEED"
# Flag-with-data words (LL, LL128) for all sizes. The last list allows only LL128 for AllReduce.
for p in LL LL128 '^simple;allreduce:^ll,simple'; do
	NCCL_PROTO=$p host collcheck --ranks 3 --sample $((300 / SLOW)) --seed "$SEED"
	NCCL_PROTO=$p host collcheck --ranks 2 --procs 2 --sample $((150 / SLOW)) --largest 5000 --seed "$SEED"
done
exit 0
