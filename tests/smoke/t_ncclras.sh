#!/bin/bash
# Description: NCCL's own client ncclras with dfshim's RAS port: text, verbose, JSON, time-outs, and monitor mode, which is refused. NCCLRAS names the client; without it the test is skipped.
set -u
. "$SRC/tests/lib/clients.sh"
[ -n "${NCCLRAS-}" ] || skip "NCCLRAS=PATH names no ncclras"
[ -x "$NCCLRAS" ] || skip "NCCLRAS=$NCCLRAS is no program"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
port=$((20000 + $$ % 12000)) # below the ports that the kernel gives out

cat >"$T/job.txt" <<-END
	ranks 2
	procs
	comm A 0 1
	0: AR A s; spoll s; AR A s; sleep $((20 + 5 * SLOW))000
	1: AR A s; spoll s; sleep $((20 + 5 * SLOW))000; AR A s
END
NCCL_RAS_ADDR=127.0.0.1:$port DFSHIM_TIMEOUT_MS=600000 LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" \
	DFSHIM_BACKEND=host timeout -k 2 "${LIMIT:-100}" "$S" --timeout $((80 * SLOW)) "$T/job.txt" >"$T/log" 2>&1 &
job=$!

# ras ARGS...: runs the client. Its output is in $T/out.
ras() { timeout 30 "$NCCLRAS" -h 127.0.0.1 -p $port "$@" >"$T/out" 2>&1; }
for _ in $(seq 200); do
	ras && grep -q "MISMATCH" "$T/out" && break
	kill -0 $job 2>/dev/null || fail "the job is over: $(cat "$T/log")"
	sleep 0.1
done
for how in "" "-v" "-t 5" "-t 0"; do
	# shellcheck disable=SC2086 # options
	ras $how || fail "ncclras $how: status $?: $(cat "$T/out")"
	for want in "^Job summary" "RUNNING  MISMATCH" "different AllReduce operation counts" "^Verdict"; do
		grep -q "$want" "$T/out" || fail "ncclras $how: no \"$want\" in: $(cat "$T/out")"
	done
	! grep -qi "version mismatch\|unexpected" "$T/out" || fail "ncclras $how: $(cat "$T/out")"
done
ras -f json || fail "ncclras -f json: status $?: $(cat "$T/out")"
jq -e '.communicators_count == 1 and .communicators[0].ranks_count == 2' "$T/out" >/dev/null || fail "JSON: $(cat "$T/out")"
ras -m && fail "ncclras -m: there is no such mode: $(cat "$T/out")"
grep -q "Monitor mode activation failed: ERROR: dfshim has no monitor mode" "$T/out" || fail "ncclras -m: $(cat "$T/out")"
kill $job
wait $job 2>/dev/null
exit 0
