#!/bin/bash
# Description: mode trace: two threads hang, one on each rank, while other threads of both processes go on. The cycle is reported once all the same.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
steps=""
for _ in $(seq $((400 * SLOW))); do steps+="AR C t; ssync t; sleep 1000; "; done
cat >"$T/part.txt" <<END
ranks 2
procs
comm A 0 1
comm B 0 1
comm C 0 1
0: AR A s; AR B s; ssync s
0.1: $steps
1: AR B s; AR A s; ssync s
1.1: $steps
END
env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host DFSHIM_TIMEOUT_MS=$((5000 * SLOW)) setsid "$S" --timeout $((400 * SLOW)) "$T/part.txt" >"$T/log" 2>&1 &
job=$!
trap 'kill -KILL -- "-$job" 2>/dev/null' EXIT
# The other threads go on for longer than this loop.
for ((i = 0; i < 1000 * SLOW; i++)); do
	! grep -q '^ORDER: ' "$T/log" || break
	sleep 0.1
done
grep -q '^ORDER: ' "$T/log" || fail "no verdict: $(cat "$T/log")"
kill -0 $job 2>/dev/null || fail "the job has ended: $(cat "$T/log")"
# Later looks show the same hang, which must not be reported again.
sleep $((6 * SLOW))
[ "$(grep -cE '^[A-Z_]+: ' "$T/log")" = 1 ] || fail "reported more than once: $(cat "$T/log")"
exit 0
