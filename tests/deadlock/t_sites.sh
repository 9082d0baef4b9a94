#!/bin/bash
# Description: reports name the lines of the program that made the calls that do not return: waits of CUDA, and the set-up of communicators.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
cat=$SRC/tests/deadlock/catalogue

# run NAME PROGRAM VARIABLE=VALUE...: executes a program until it has reported why it hangs.
run() {
	local name=$1 program=$2 pid
	shift 2
	mkdir -p "$T/$name"
	setsid env LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" DFSHIM_BACKEND=host DFSHIM_TIMEOUT_MS=$((800 * SLOW)) DFSHIM_TRACE="$T/$name" "$@" \
		timeout -k 2 "${LIMIT:-100}" "$S" --timeout 80 "$program" >"$T/$name.live" 2>&1 &
	pid=$!
	while kill -0 $pid 2>/dev/null && ! grep -q '^Threads that wait' "$T/$name.live"; do sleep 0.1; done
	sleep 0.3
	kill -TERM -- -$pid 2>/dev/null
	wait $pid
	"$B/dfshim" check "$T/$name" >"$T/$name.check"
	"$B/dfshim" check --json "$T/$name" >"$T/$name.json"
}

# named NAME CALL: the live report, the check and the JSON output name the program's own frames that
# made CALL.
named() {
	local out
	for out in live check; do
		awk -v call="  $2 on " '/^Threads that wait/ { on = 1 } on && at && /^    at script\+0x[0-9a-f]+ <- / { ok = 1 }
			{ at = on && !index($0, call) ? 0 : on } END { exit !ok }' "$T/$1.$out" || {
			cat "$T/$1.$out"
			fail "$1, $out: where $2 was called from is not named"
		}
	done
	jq -e --arg call "$2" '[.waiting[] | select(.call == $call) | .evidence.stack] |
		length > 0 and all(length > 1 and (.[0] | test("^script")))' "$T/$1.json" >/dev/null ||
		fail "$1: check --json: $(jq -c .waiting "$T/$1.json")"
}

run rules "$cat/GS-01.txt" "${NCCL_RULES[@]}"
named rules cudaDeviceSynchronize
grep -qE 'thread .* of r[01] has been in cudaDeviceSynchronize at script\+0x[0-9a-f]+ for ' "$T/rules.check" ||
	fail "the circle does not say where the host waits: $(cat "$T/rules.check")"
# The step of the cycle that is the wait itself has a stack too.
jq -e '[.cycle[] | select(.text | test("^that cudaDeviceSynchronize")) | .evidence.stack | length] | length > 0 and all(. > 1)' \
	"$T/rules.json" >/dev/null || fail "check --json: $(jq -c .cycle "$T/rules.json")"
run ours "$cat/GS-01.txt" DFSHIM_RELEASE=none
named ours cudaDeviceSynchronize
run init "$cat/IN-01.txt"
named init ncclCommInitRank
exit 0
