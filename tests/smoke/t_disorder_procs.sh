#!/bin/bash
# Description: the main job in processes: started by the client, started by dfshim run, and with two ranks in each.
set -u
. "$SRC/tests/lib/clients.sh"
host disorder --ranks 8 --procs 8 --iters 40 --seed "$SEED"
host disorder --ranks 8 --procs 4 --iters 20 --mix --seed "$SEED"
timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -n 4 -- "$C/disorder" --iters 20 --seed "$SEED" --timeout 60 >"$T/out" ||
	fail "under dfshim run -n 4: status $?"
[ "$(grep -c '^disorder: OK: 4 ranks in 4 processes' "$T/out")" = 1 ] || fail "summary: $(cat "$T/out")"
exit 0
