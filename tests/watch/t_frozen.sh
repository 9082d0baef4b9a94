#!/bin/bash
# Description: rank 0, through which the others are linked, is stopped and not dead. Each other rank says so and names its process, in both modes.
# Limit: 300 s
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
n=3
export DFSHIM_TIMEOUT_MS=$((8000 * SLOW)) DFSHIM_BACKEND=host MASTER_ADDR=127.0.0.1 WORLD_SIZE=$n DFSHIM_DEBUG=info
export HANGS=slow LATE=$((25 * SLOW))
master=$((20000 + $$ % 10000)) pid=()
trap 'kill -KILL "${pid[@]}" 2>/dev/null' EXIT

# Waits until a file has the pattern.
until_in() {
	until grep -qE "$1" "${@:2}"; do
		kill -0 "${pid[1]}" 2>/dev/null || fail "rank 1 has ended: $(tail -n 40 "$T"/out.*)"
		sleep 0.05
	done
}
# frozen READY ENVIRONMENT...: stops rank 0 once rank 1 has printed READY, while both wait for the last rank.
frozen() {
	local i ready=$1
	shift
	master=$((master + 1)) pid=()
	rm -f "$T"/out*
	for ((i = 0; i < n; i++)); do
		env RANK=$i LOCAL_RANK=$i MASTER_PORT=$master "$@" "$C/hangs" --timeout "${QUIET:-250}" >"$T/out.$i" 2>&1 &
		pid+=($!)
	done
	until_in "stands at" "$T/out.0"
	until_in "$ready" "$T"/out.*
	kill -STOP "${pid[0]}"
	# The last rank notices only when it waits itself.
	for ((i = 1; i < n; i++)); do
		until_in "HOST: .* waits for r0, whose process \(pid ${pid[0]} on .*\) lives and does not answer" "$T/out.$i"
	done
	grep -hoE "HOST: .*" "$T"/out.[12]
	kill -KILL "${pid[@]}" 2>/dev/null
	wait 2>/dev/null
}
frozen "looks at the job" "${NCCL_RULES[@]}"
frozen "stands at" "LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so"
exit 0
