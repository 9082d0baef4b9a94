#!/bin/bash
# Description: every collective, type, operation, place and count against a reference; in threads and processes.
set -u
. "$SRC/tests/lib/clients.sh"
host collcheck --ranks 4 --sample $((1500 / SLOW)) --seed "$SEED"
host collcheck --ranks 2 --sample $((600 / SLOW)) --seed "$SEED"
host collcheck --ranks 3 --procs 3 --sample $((600 / SLOW)) --seed "$SEED"
host collcheck --ranks 16 --sample $((100 / SLOW)) --largest 1023 --seed "$SEED"
host collcheck --ranks 1 --sample $((300 / SLOW)) --seed "$SEED"
exit 0
