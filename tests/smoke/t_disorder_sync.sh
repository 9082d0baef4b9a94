#!/bin/bash
# Description: device synchronisations between disordered AllReduces are released when they are proved to be part of a cycle.
set -u
. "$SRC/tests/lib/clients.sh"
host disorder --ranks 2 --colls 2 --iters $((20 / SLOW)) --sync --seed "$SEED"
# The second test of the DFCCL paper, with a synchronisation after each operation; and with a few in
# each iteration.
host disorder --ranks 8 --colls 8 --iters $((200 / SLOW)) --min 256 --max 1048576 --sync --seed "$SEED"
host disorder --ranks 8 --colls 8 --iters $((40 / SLOW)) --sync=2 --seed "$SEED"
# With processes.
host disorder --ranks 4 --procs 4 --colls 4 --iters 5 --sync --seed "$SEED"
host disorder --ranks 8 --procs 2 --colls 6 --iters 5 --sync --seed "$SEED"
# Without releases the job hangs, and the hang is reported.
for procs in 1 2; do
	DFSHIM_RELEASE=none DFSHIM_TIMEOUT_MS=1000 DFSHIM_TIMEOUT_ACTION=abort \
		"$B/dfshim" run --host -- "$B/clients/disorder" --ranks 4 --procs $procs --colls 4 --iters 5 --sync \
		--seed "$SEED" >"$T/none" 2>&1 && fail "finishes without releases"
	grep -q '^SYNC: ' "$T/none" || fail "not told as SYNC: $(cat "$T/none")"
done
exit 0
