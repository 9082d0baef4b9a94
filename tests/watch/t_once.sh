#!/bin/bash
# Description: one hang, one report: a mismatch on lanes that the ranks notice at the same time as the time-out, and the replay of a job that hung
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"

reports() { grep -acE '^(SLOW|ORDER|RESOURCE|SYNC|DATA|MISSING|MISMATCH|INIT|CRASH|GPU_STUCK|NET_STALL|NCCL_INTERNAL|HOST|UNKNOWN): ' "$1"; }

# hang NAME FILE MS ENV...: one rank that has sent too little exits; the other one then waits for it.
hang() {
	env -u DFSHIM_TRACE DFSHIM_BACKEND=host DFSHIM_TIMEOUT_MS="$3" "${@:4}" timeout -k 5 "${LIMIT:-90}" \
		"$S" --timeout 60 "$SRC/tests/deadlock/catalogue/$2.txt" >"$T/$1" 2>&1
}
nr=$((24 / SLOW))
for ((i = 0; i < nr; i++)); do
	[ "$(jobs -rp | wc -l)" -lt 6 ] || wait -n
	hang lanes.$i PC-08 1000 DFSHIM_EXECUTOR=nccl LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so" &
done
wait
for ((i = 0; i < nr; i++)); do
	grep -aq '^MISMATCH: ' "$T/lanes.$i" && [ "$(reports "$T/lanes.$i")" = 1 ] || fail "lanes: $(cat "$T/lanes.$i")"
done

hang job MP-01 1000 DFSHIM_TIMEOUT_ACTION=exit DFSHIM_TRACE="$T/job.trace" LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so"
for rules in nccl dfshim; do
	"$B/dfshim" replay --host --rules $rules "$T/job.trace" >"$T/replay" 2>&1
	rc=$?
	[ $rc -ge 10 ] && [ "$(reports "$T/replay")" = 1 ] || fail "replay by the rules of $rules: $rc: $(cat "$T/replay")"
done
exit 0
