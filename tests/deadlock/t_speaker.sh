#!/bin/bash
# Description: one process prints the verdict, once, whichever it is: also beside one that is tied
# to those that hang and has nothing unfinished.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
export DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=4 DFSHIM_TIMEOUT_MS=$((1500 * SLOW))
# Rank 2 shares a communicator with those that hang, and sleeps.
cat >"$T/program" <<'END'
prog DATA
ranks 3
procs
comm c0 0 1
comm c1 0 1
comm c2 0 1 2
0: AR c2 nb2; ssync nb2; AR c0 nb0; ssync nb0; AR c1 nb1; ssync nb1
1: AR c2 nb2; ssync nb2; AR c1 nb1; ssync nb1; AR c0 nb0; ssync nb0
2: AR c2 nb2; ssync nb2; sleep 60000
END
# Names that are drawn decide which process leads: in 9 of 10 runs of this test some rank 2 has the
# smallest.
for action in report abort; do
	for i in 1 2 3; do
		DFSHIM_TRACE=$T/trace/$action.$i DFSHIM_TIMEOUT_ACTION=$action LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" \
			timeout -k 5 "${LIMIT:-90}" "$S" --timeout $((40 * SLOW)) "$T/program" >"$T/out.$action.$i" 2>&1 &
	done
done
# Where nothing is aborted the job stays. Another process's report would follow at nearly the same
# time.
for ((i = 0; i < 300 * SLOW && $(grep -lE '^[A-Z_]+: ' "$T"/out.* | wc -l) < 6; i++)); do
	sleep 0.1
done
sleep $((2 * SLOW))
pgrep -f "script --timeout $((40 * SLOW)) $T/program" | xargs -r kill -KILL
{ wait; } 2>/dev/null
for action in report abort; do
	for i in 1 2 3; do
		out=$T/out.$action.$i
		first=$(grep -m1 -oE '^[A-Z_]+: ' "$out")
		# A sanitizer's build may answer too late to be counted with.
		[ "$SLOW" = 1 ] || [ -z "$first" ] || continue
		# The first process that gives up is lost for the others: that is reported too,
		# later.
		n=$(grep -c '^DATA: ' "$out")
		[ "$n" = 1 ] && [ "$first" = "DATA: " ] || fail "$action: told $n times, first ${first:-nothing}: $(cat "$out")"
	done
done
exit 0
