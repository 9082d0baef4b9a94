#!/bin/bash
# Description: a job that hangs and is killed long before its time-out leaves traces with the catalogue's verdict, on lanes, by the daemon, and in mode trace; killed earlier: what was unfinished, without a verdict on it, also if the job was not stuck
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

# soon NAME PATTERN: kills the job; the word must be UNKNOWN, and the sentence has the pattern.
soon() {
	local line rc
	kill -KILL "${pids[@]}"
	wait "${pids[@]}" 2>/dev/null
	"$B/dfshim" check "$T/$1" >"$T/$1.check" 2>&1
	rc=$?
	line=$(head -1 "$T/$1.check")
	[[ $rc = 50 && $line =~ ^UNKNOWN:\ $2 && $line == *"the processes were killed after "* ]] || fail "$1: status $rc: $(cat "$T/$1.check")"
}
# Jobs that are killed as soon as an operation waits, or a rank waits for the communicator.
for job in "MP-01 (A#[0-9].*r1.*has not issued it|[0-9]+ operations are unfinished)" "IN-01 .*ncclCommInitRank"; do
	id=${job%% *}
	for how in lanes ours; do
		lib=
		[ $how = ours ] || lib=$B/libdfnccl.so
		line=
		until [[ $line == *" are in flight"* ]] || "$B/dfshim" show "$T/$how.$id" 2>/dev/null | grep -q ' comm_init .*nranks 3'; do
			# Again from the start where a slow machine looks when the job has hung for long.
			if [[ ! $line || $line =~ ^(MISSING|INIT): ]]; then
				[ ! "$line" ] || kill -KILL "${pids[@]}"
				wait "${pids[@]}" 2>/dev/null
				rm -rf "$T/$how.$id"
				pids=()
				start $how.$id "$SRC/tests/deadlock/catalogue/$id.txt" DFSHIM_EXECUTOR="$([ $how = lanes ] && echo nccl || echo daemon)" \
					"LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so $lib"
			fi
			sleep 0.05
			line=$(check $how.$id)
		done
		soon $how.$id "${job#* }"
	done
done
# A job that works. It may be killed when all operations happen to be finished.
pids=()
mkdir "$T/works"
env DFSHIM_BACKEND=host DFSHIM_TRACE="$T/works" LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" "$B/clients/disorder" --ranks 2 --colls 4 \
	--iters 100000000 >/dev/null 2>&1 &
pids=($!)
until check works | grep -q ' are in flight'; do sleep 0.05; done
kill -KILL "${pids[@]}"
wait "${pids[@]}" 2>/dev/null
check works | grep -qE '^(UNKNOWN: .* the processes were killed after |OK: )' || fail "a job that works: $(check works)"
exit 0
