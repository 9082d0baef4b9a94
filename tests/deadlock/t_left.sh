#!/bin/bash
# Description: a rank's process exits, normally or with an error, while others go on. A rank that waits for it is reported once; the others go on.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
export DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=4 DFSHIM_TIMEOUT_MS=$((20000 * SLOW))
MISSING='^MISSING: .* waits for r1, whose process exited (normally|with status 1)'

# job NAME: starts the program on standard input in the background. run NAME: starts the same
# program again.
job() {
	cat >"$T/$1.txt"
	run "$1"
}
run() {
	DFSHIM_TRACE=$T/trace/$1 DFSHIM_TIMEOUT_ACTION=abort LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" \
		timeout -k 5 "${LIMIT:-60}" "$S" --timeout $((9 * SLOW)) "$T/$1.txt" >"$T/out.$1" 2>&1 &
}
for how in exit fail quit; do
	# All remaining ranks wait for the rank that has exited.
	job "all_$how" <<END
prog all_$how
ranks 4
procs
comm c0 0 1 2 3
0: AR c0 nb0; ssync nb0; recv c0 1 nb0; ssync nb0
1: AR c0 nb0; ssync nb0; $how
2: AR c0 nb0; ssync nb0; recv c0 1 nb0; ssync nb0
3: AR c0 nb0; ssync nb0; recv c0 1 nb0; ssync nb0
END
	# The unfinished operation waits for another rank, which is only late. (A client that exits
	# with an error does not let the others go on that long.)
	[ $how != fail ] || continue
	job "none_$how" <<END
prog none_$how
ranks 3
procs
comm c0 0 1 2
0: AR c0 nb0; ssync nb0; sleep 4000; send c0 2 nb0; ssync nb0
1: AR c0 nb0; ssync nb0; $how
2: AR c0 nb0; ssync nb0; recv c0 0 nb0; ssync nb0
END
	# The rank that exits has finished its part of the unfinished operation, which waits for
	# another rank.
	job "finished_$how" <<END
prog finished_$how
ranks 3
procs
comm c0 0 1 2
comm c1 0 2
0: BC c0 nb0; ssync nb0
0.1: sleep 4500; send c1 2 nb1; ssync nb1
1: BC c0 nb0; ssync nb0; $how
2: recv c1 0 nb0 buf=b; BC c0 nb0 buf=b; ssync nb0
END
done
# The process that prints the report has nothing unfinished.
job one <<'END'
prog one
ranks 3
procs
comm c0 0 1 2
0: AR c0 nb0; ssync nb0; sleep 60000
1: AR c0 nb0; ssync nb0; exit
2: AR c0 nb0; ssync nb0; recv c0 1 nb0; ssync nb0
END
wait
for name in all_exit all_fail all_quit one; do
	# If a process answers too late, another process prints a report too. Then repeat the
	# program alone.
	for try in 1 2 3; do
		n=$(grep -cE "$MISSING" "$T/out.$name")
		[ "$n" -gt 1 ] || break
		rm -rf "$T/trace/$name"
		run "$name" && wait
	done
	# A build with a sanitizer is always late, so accept several reports there.
	[ "$n" = 1 ] || { [ "$SLOW" != 1 ] && [ "$n" != 0 ]; } || fail "$name: told $n times ($try runs): $(cat "$T/out.$name")"
	grep -q "^--- $name hung rank 2 communicator c0: asynchronous NCCL error 6" "$T/out.$name" || fail "$name: $(cat "$T/out.$name")"
done
grep -q "whose process exited with status 1" "$T/out.all_fail" || fail "all_fail: the status is not told: $(cat "$T/out.all_fail")"
grep -q "whose process exited normally" "$T/out.all_quit" || fail "all_quit: $(cat "$T/out.all_quit")"
# Both ranks have executed all steps. Then each waits for the other ranks until its --timeout ends
# it.
for name in none_exit none_quit finished_exit finished_quit; do
	out=$T/out.$name
	sed '/^script: no progress/q' "$out" | grep -qE '^[A-Z_]+: |operations unfinished|NCCL error' && fail "$name: $(cat "$out")"
	ends='0 0 5|2 0 4'
	[ "$name" = "${name#finished}" ] || ends='0 0 2|2 0 3'
	[ "$(grep -cE "^@ ($ends)$" "$out")" = 2 ] || fail "$name: not at their ends: $(cat "$out")"
done
exit 0
