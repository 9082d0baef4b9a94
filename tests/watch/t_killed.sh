#!/bin/bash
# Description: a job that hangs and is killed long before its time-out leaves traces with the catalogue's verdict, on lanes, by the daemon, and in mode trace; killed at once: nothing is said of a hang
# Limit: 300 s
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
unset DFSHIM_TRACE
# A rank that is missing, a lock, a set-up, a loop of queries, a thread that has ended, a kernel.
words=(MP-01=MISSING CG-04=HOST IN-01=INIT PL-01=DATA TE-03=MISSING OL-03=GPU_STUCK)

# start NAME FILE ENV...: starts the interpreter with a time-out of ten minutes.
start() {
	mkdir "$T/$1"
	env DFSHIM_BACKEND=host DFSHIM_TIMEOUT_MS=600000 DFSHIM_TRACE="$T/$1" "${@:3}" "$S" --timeout 600 "$2" >"$T/$1.out" 2>&1 &
	pids+=($!)
}
check() { "$B/dfshim" check "$T/$1" 2>&1 | head -1; }
pids=()
trap 'kill -KILL "${pids[@]}" 2>/dev/null' EXIT

names=()
for word in "${words[@]}"; do
	id=${word%=*}
	f=$SRC/tests/deadlock/catalogue/$id.txt
	names+=("lanes.$word" "ours.$word")
	start "lanes.$word" "$f" DFSHIM_EXECUTOR=nccl "LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so"
	start "ours.$word" "$f" "LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so"
done
names+=(trace.MP-01=MISSING)
start trace.MP-01=MISSING "$SRC/tests/deadlock/catalogue/MP-01.txt" "${NCCL_RULES[@]}"
for name in "${names[@]}"; do
	until line=$(check "$name") && [[ $line == "${name#*=}: "* ]]; do sleep 0.2; done
done
kill -KILL "${pids[@]}"
wait "${pids[@]}" 2>/dev/null
for name in "${names[@]}"; do
	line=$(check "$name")
	[[ $line == "${name#*=}: "* ]] || fail "$name: $line"
	! grep -qE '^[A-Z_]+: ' "$T/$name.out" || fail "$name: a verdict before the time-out: $(cat "$T/$name.out")"
done

# A job that is killed as soon as an operation is in flight.
pids=()
start soon "$SRC/tests/deadlock/catalogue/MP-01.txt" "LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so"
until check soon | grep -q ' are in flight'; do sleep 0.05; done
kill -KILL "${pids[@]}"
wait "${pids[@]}" 2>/dev/null
check soon | grep -qE '^OK: [0-9]+ operations were in flight when the processes were killed' || fail "killed at once: $(check soon)"
exit 0
