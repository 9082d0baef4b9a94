#!/bin/bash
# Description: the verdict on a Python program that hangs names the lines of each rank's scripts, live and from the files.
set -u
. "$SRC/tests/lib/clients.sh"
[ -e "$B/libdfhost.so" ] || skip "no libdfhost.so"
[ -z "${SAN_RUNTIME-}" ] || skip "the interpreter does not run under a sanitizer"
[ -z "${QEMU_LD_PREFIX-}" ] || skip "this machine's interpreter cannot load libraries of another kind of machine"
py=${PYTHON:-python3}
command -v "$py" >/dev/null || skip "no $py"
unset DFSHIM_TRACE
job=$SRC/tests/trace/hang.py
flags=()
line() { grep -n "$1" "$job" | cut -d: -f1; }
sleeps=$(line '^        time.sleep(1000)') steps=$(line 'cudaStreamSynchronize')

# hang NAME CASE ENVIRONMENT...: runs the job until its verdict. The output is in $T/NAME.
hang() {
	local name=$1 case=$2 i
	shift 2
	env "$@" timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host=2 -n 2 "${flags[@]}" --trace "$T/$name.trace" --timeout $((2 * SLOW)) -- \
		"$py" "$job" "$T/$name.id" "$case" >"$T/$name" 2>&1 &
	local pid=$!
	for ((i = 0; i < 600 * SLOW; i++)); do
		! grep -q '^Communicators:' "$T/$name" || break
		kill -0 $pid 2>/dev/null || break
		sleep 0.1
	done
	# The files are examined after the processes were killed. Stop all processes first, or the
	# last one would record the death of the others.
	pkill -STOP -f "$job $T/$name.id" 2>/dev/null
	pkill -KILL -f "$job $T/$name.id" 2>/dev/null
	wait $pid
	grep -q '^Communicators:' "$T/$name" || {
		cat "$T/$name"
		"$B/dfshim" check "$T/$name.trace"
		fail "$name: no verdict"
	}
	"$B/dfshim" check "$T/$name.trace" >"$T/$name.check"
	"$B/dfshim" check --json "$T/$name.trace" >"$T/$name.json"
	python3 "$SRC/tests/lib/json_keys.py" check "$T/$name.json" || fail "$name: JSON is not as docs/json.md says"
}
bad() {
	cat "$T/$1" "$T/$1.check"
	fail "$1: $2"
}

hang plain sleep A=
for f in plain plain.check; do
	grep -q "; it is at hang.py:$sleeps load_batch" "$T/$f" || bad plain "$f: the sentence does not say where r1 is"
	grep -qE "^  r1: hang.py:$sleeps load_batch <- hang.py:[0-9]+ main <- hang.py:[0-9]+ <module>" "$T/$f" ||
		bad plain "$f: not where r1 is"
	grep -qE "^  r0: hang.py:$steps train_step <- hang.py:[0-9]+ main" "$T/$f" || bad plain "$f: not where r0 is"
done
[ "$(jq -r '.scripts[] | "\(.rank) \(.stack[0])"' "$T/plain.json" | sort | tr '\n' ';')" = \
	"r0 hang.py:$steps train_step;r1 hang.py:$sleeps load_batch;" ] || bad plain "JSON: $(jq -c .scripts "$T/plain.json")"

# The other threads go on. The report names the thread that does not issue, and the job runs on.
for rules in dfshim nccl; do
	flags=(--rules "$rules")
	hang $rules beats A=
	grep -qE "^SLOW: A#3 waits for r1, which has not issued it: thread [0-9]+ '.*' has issued nothing for [0-9.]+ s, while another thread of r1 goes on; it is at hang.py:$sleeps load_batch" \
		"$T/$rules" || bad $rules "not the thread that does not issue"
done
flags=()

hang off sleep DFSHIM_PYTHON=0
! grep -q 'hang.py:[0-9]' "$T/off" "$T/off.check" || bad off "an interpreter was asked with DFSHIM_PYTHON=0"

# Rank 1 never releases the interpreter's lock. The verdict must not wait for it.
hang lock lock A=
grep -q "^  r0: hang.py:$steps train_step" "$T/lock" || bad lock "not where r0 is"
! grep -q '^  r1: hang.py' "$T/lock" || bad lock "r1 can't have been asked"
exit 0
