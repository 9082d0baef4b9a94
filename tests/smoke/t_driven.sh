#!/bin/bash
# Description: if the daemon has no thread of its own, the waiting threads drive it: disorder, device synchronisations, processes.
set -u
. "$SRC/tests/lib/clients.sh"
[ -z "$SAN_RUNTIME" ] || skip "a sanitizer starts threads its own way"
${CC:-gcc} -shared -fPIC -o "$T/noworkers.so" "$SRC/tests/smoke/noworkers.c" -ldl || fail "the library that refuses threads"
REFUSED_THREAD=$(nm "$B/libdfshim.so" | awk '$3 == "worker" { print $1 }')
export REFUSED_THREAD
[ "$(wc -w <<<"$REFUSED_THREAD")" = 1 ] || fail "the daemon's threads begin at: $REFUSED_THREAD"

driven() {
	DFSHIM_BACKEND=host DFSHIM_TIMEOUT_MS=10000 LD_PRELOAD="$T/noworkers.so $B/libdfshim.so $B/libdfhost.so" \
		timeout -k 5 "${LIMIT:-100}" "$@" >"$T/out" 2>&1 || {
		cat "$T/out"
		fail "$*"
	}
	grep -q "cannot start a thread for the daemon" "$T/out" || fail "$*: it had threads of its own"
}
driven "$C/disorder" --ranks 4 --colls 4 --iters 50 --min 256 --max 65536 --seed "$SEED"
driven "$C/disorder" --ranks 4 --colls 4 --iters 50 --min 256 --max 65536 --seed "$SEED" --sync
driven "$C/disorder" --ranks 3 --colls 4 --iters 50 --min 256 --max 65536 --seed "$SEED" --procs 3
driven "$C/p2pcheck" --ranks 3
driven "$C/cycle"
exit 0
