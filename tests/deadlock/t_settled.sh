#!/bin/bash
# Description: both communicators use one buffer, so a released wait only leads to operations that wait for one another. This is reported as ORDER at once, and no release is logged. With a buffer for each communicator the release is logged and helps.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"

# program BUFFER [procs [PAUSE]]: writes a program of two ranks with opposite orders. The second
# communicator uses BUFFER. Rank 0 executes the step PAUSE after its first wait.
program() {
	cat >"$T/program" <<-END
		prog 0
		class OK
		ranks 2
		${2-}
		comm c0 0 1
		comm c1 0 1
		0: AR c0 nb0 n=4 in=x out=x; dsync; ${3-} AR c1 nb0 n=4 in=$1 out=$1; dsync
		1: AR c1 nb0 n=4 in=$1 out=$1; dsync; AR c0 nb0 n=4 in=x out=x; dsync
		end
	END
}
# run NAME ACTION: executes the program with a time-out that is never reached.
run() {
	env -u DFSHIM_TRACE DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=2 ${NODE:+DFSHIM_HOST_NODE_DEVICES=$NODE} DFSHIM_TIMEOUT_MS=600000 \
		DFSHIM_TIMEOUT_ACTION="$2" LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout -k 5 "${LIMIT:-100}" \
		"$S" --timeout 600 "$T/program" >"$T/$1" 2>&1
}
for procs in "" procs; do
	for NODE in "" 1; do
		# A rank may be slow between its released wait and the operation that waits for the
		# previous one.
		for pause in "" "sleep 1500;"; do
			name=one.${procs:-threads}.${NODE:-0}${pause:+.slow}
			program x "$procs" "$pause"
			run "$name" abort
			grep -q '^ORDER: .*(their buffers overlap on every rank' "$T/$name" || fail "$name: $(cat "$T/$name")"
			grep -q '^Confidence: proved' "$T/$name" || fail "$name: $(cat "$T/$name")"
			grep -q 'WARN released' "$T/$name" && fail "$name: a release is logged: $(cat "$T/$name")"
			[ "$(grep -c '^ORDER: ' "$T/$name")" = 1 ] || fail "$name: more than one report: $(cat "$T/$name")"
		done
		name=two.${procs:-threads}.${NODE:-0}
		program y $procs
		run "$name" abort || fail "$name: status $?: $(cat "$T/$name")"
		grep -q '^--- 0 completes' "$T/$name" && grep -q 'WARN released' "$T/$name" || fail "$name: $(cat "$T/$name")"
	done
done
# With DFSHIM_TIMEOUT_ACTION=exit the processes exit at once as well.
NODE=
program x procs
run exit exit
grep -q '^ORDER: ' "$T/exit" || fail "exit: $(cat "$T/exit")"
exit 0
