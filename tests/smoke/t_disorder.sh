#!/bin/bash
# Description: the main job: random orders on every rank, all results checked; with threads, with processes, and with one thread.
set -u
. "$SRC/tests/lib/clients.sh"
host disorder --ranks 8 --colls 8 --iters $((200 / SLOW)) --min 256 --max 1048576 --seed "$SEED"
host disorder --ranks 4 --colls 12 --iters 30 --mix --streams 3 --seed "$SEED"
host disorder --ranks 6 --colls 10 --iters 30 --comms 3 --wait sync --seed "$SEED"
host disorder --ranks 4 --colls 6 --iters 30 --single-thread --seed "$SEED"
host disorder --ranks 1 --colls 3 --iters 5 --seed "$SEED"
exit 0
