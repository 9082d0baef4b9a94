#!/bin/bash
# Description: a job under `dfshim run` that hangs has exactly one verdict, and dfshim run exits with its status. A job that may only be slow is examined again.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"

# verdicts PROGRAM: prints the verdict words of the job.
verdicts() {
	env -u DFSHIM_TRACE DFSHIM_TIMEOUT_MS=800 timeout "${LIMIT:-60}" "$B/dfshim" run --host -n 1 --rules nccl --trace "$T/$1" -- \
		"$S" --timeout 12 "$SRC/tests/deadlock/catalogue/$1.txt" >"$T/$1.log" 2>&1
	grep -oE '^(ORDER|SLOW|MISSING|UNKNOWN|OK):' "$T/$1.log" | tr -d '\n'
}

have=$(verdicts SQ-01)
[ "$have" = ORDER: ] || fail "SQ-01: $have: $(head -40 "$T/SQ-01.log")"
tail -1 "$T/SQ-01.log" | grep -q "^dfshim run: stopped for a hang, status 10: ORDER: .*the report is above" || fail "SQ-01: the last line is not the verdict: $(tail -3 "$T/SQ-01.log")"

# A launcher that returns 0 in any case, without --trace. Only NCCL connects its processes.
rc=0
env -u DFSHIM_TRACE timeout "${LIMIT:-60}" "$B/dfshim" run --host --rules nccl --timeout "$(seconds 20)" -- \
	sh -c "'$B/clients/disorder' --ranks 2 --procs 2 --iters 40 --warmup --timeout 60; exit 0" >"$T/two.log" 2>&1 || rc=$?
[ $rc = 10 ] || fail "a launcher: status $rc: $(head -40 "$T/two.log")"
grep -q '^ORDER: 2 ranks' "$T/two.log" || fail "a launcher: $(head -40 "$T/two.log")"
tail -1 "$T/two.log" | grep -q '^dfshim run: stopped for a hang, status 10: ORDER: 2 ranks' || fail "a launcher: the last line is not the verdict: $(tail -3 "$T/two.log")"

have=$(verdicts MP-06)
[ "$have" = SLOW:MISSING: ] || fail "MP-06: $have: $(head -40 "$T/MP-06.log")"
exit 0
