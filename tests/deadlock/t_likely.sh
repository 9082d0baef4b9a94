#!/bin/bash
# Description: cycles that are only likely, because of threads that sleep, have ended, or are new to the communicators. They are released after DFSHIM_RELEASE_MS, on one node and on several, also with 64 ranks. A thread that makes calls is waited for, and a rank that was only late loses nothing. A cycle is proved if the only other thread computes gradients and cannot have been called.
# Limit: 300 s
set -u
. "$SRC/tests/lib/clients.sh"
C=$B/clients/likely
[ -x "$C" ] || skip "the client is not built here"
# A late thread is late for much longer than the bound SHORT. Only SHORT grows fully with a
# sanitizer's slowness.
SHORT=$((300 * SLOW)) LATE=$((1200 + 300 * SLOW))

# one BOUND HOW [ITERATIONS]: runs the client. Its output is in $T/out, the number of releases in n.
one() {
	rm -f "$T/stats"
	env -u DFSHIM_TRACE DFSHIM_STATS="$T/stats" DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES="${RANKS:-2}" DFSHIM_RELEASE_MS="$1" DFSHIM_TIMEOUT_MS=60000 \
		${NODE:+DFSHIM_HOST_NODE_DEVICES=$NODE} LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout -k 5 "${LIMIT:-100}" \
		"$C" "$2" "${3:-1}" "$LATE" "${RANKS:-2}" >"$T/out" 2>&1 || fail "$*: status $?: $(cat "$T/out")"
	n=$(sed -n 's/.*"releases": \([0-9]*\).*/\1/p' "$T/stats" | awk '{ n += $1 } END { print n + 0 }')
}
# Without a bound this cycle is never released, so the program hangs.
env -u DFSHIM_TRACE DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=2 DFSHIM_RELEASE_MS=0 DFSHIM_TIMEOUT_MS=$((1500 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort \
	LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout -k 5 "${LIMIT:-100}" "$C" ended >"$T/kept" 2>&1 &&
	fail "ended, without a bound: it finished: $(cat "$T/kept")"
grep -q 'WARN released' "$T/kept" && fail "ended, without a bound: $(cat "$T/kept")"

for NODE in "" 1; do
	# The first release follows after the bound. Later releases of the same cycle follow at
	# once.
	one $SHORT ended 3
	[ "$n" = 3 ] || fail "ended: $n releases: $(cat "$T/out")"
	[ "$(grep -c 'WARN released a device-wide wait of a cycle that is likely' "$T/out")" = 1 ] || fail "ended: $(cat "$T/out")"
	grep -q 'WARN released .* likely .*: SYNC: .*; cycle r0 -> r1 -> r0' "$T/out" || fail "ended: the cycle is not named: $(cat "$T/out")"
	grep -q 'WARN released .* likely a deadlock: device [01] is in cudaDeviceSynchronize at likely' "$T/out" || fail "ended: the call is not named: $(cat "$T/out")"
	mapfile -t ms < <(grep -E '^[0-9]+$' "$T/out")
	[ "${ms[0]}" -ge $SHORT ] || fail "ended: released before the bound, after ${ms[0]} ms"
	echo "ended${NODE:+, over nodes}: ${ms[*]} ms"
	for how in sleeps joins cold; do
		one $SHORT $how 2
		[ "$n" -ge 2 ] || fail "$how: $n releases: $(cat "$T/out")"
		echo "$how${NODE:+, over nodes}: $n released"
	done
done
# The time counts on although searches are more than a second apart: the processes stand still again
# and again.
(
	sleep 0.5
	while pkill -STOP -f "^$C ended "; do
		sleep 1.2
		pkill -CONT -f "^$C ended "
		sleep 0.3
	done
) &
one 4000 ended
echo "ended, and stands still: $(grep -E '^[0-9]+$' "$T/out") ms, $n released"
wait
# 64 processes, on one node and on two. A build with a sanitizer lacks the memory for 64.
RANKS=$((SLOW > 1 ? 16 : 64))
for NODE in "" $((RANKS / 2)); do
	one $SHORT ended 2
	mapfile -t ms < <(grep -E '^[0-9]+$' "$T/out")
	[ "$n" -ge 2 ] && [ "${ms[0]}" -ge $SHORT ] && grep -q 'WARN released a device-wide wait of a cycle that is likely' "$T/out" ||
		fail "ended, $RANKS ranks: $n releases after ${ms[*]} ms: $(cat "$T/out")"
	echo "ended, $RANKS ranks${NODE:+, over nodes}: ${ms[*]} ms, $n released"
	one 0 autograd 2
	[ "$n" -ge 2 ] && ! grep -q 'cycle that is likely' "$T/out" || fail "autograd, $RANKS ranks: $n releases: $(cat "$T/out")"
	echo "autograd, $RANKS ranks${NODE:+, over nodes}: $(grep -E '^[0-9]+$' "$T/out" | xargs) ms, $n released"
done
RANKS=2 NODE=
# Nothing is released until a thread that makes calls has made none for the time of the bound.
for how in calls new-calls; do
	one $SHORT $how
	took=$(grep -E '^[0-9]+$' "$T/out")
	[ "$n" -ge 1 ] && [ "$took" -ge "$LATE" ] || fail "$how: $n releases, after $took ms: $(cat "$T/out")"
	echo "$how: released after $took ms"
done
# Threads that start and end. A thread that has ended may have been the one that issues the missing
# operation, so nothing is released while new threads take its place.
one 0 visits 5
[ "$n" -ge 5 ] || fail "visits: $n releases: $(cat "$T/out")"
grep 'WARN released a device-wide wait that was part of a deadlock' "$T/out" >"$T/released" || fail "visits: $(cat "$T/out")"
grep -q ': device [01] is in cudaDeviceSynchronize at likely' "$T/released" || fail "visits: the call is not named: $(cat "$T/released")"
! grep 'from another thread' "$T/released" || fail "visits: a proved release names threads that may still issue"
one $SHORT churn 2
took=$(grep -m1 -E '^[0-9]+$' "$T/out")
[ "$n" -ge 2 ] && [ "$took" -ge "$LATE" ] || fail "churn: $n releases, after $took ms: $(cat "$T/out")"
echo "churn: released after $took ms"
# Between two backward passes a thread that computes gradients issues nothing, whatever other
# threads do. A thread that is called, or runs, may issue. On an unused communicator any thread that
# has used CUDA may start to issue.
one 0 autograd
[ "$n" -ge 1 ] && grep -q 'WARN released a device-wide wait that was part of a deadlock' "$T/out" ||
	fail "autograd: $n releases: $(cat "$T/out")"
for how in backward named new init; do
	one 0 $how
	[ "$n" = 0 ] || fail "$how: $n releases: $(cat "$T/out")"
	echo "$how: waited for"
done
# Without a release the report does not call this cycle proved either. A busy machine reports later.
for late in $LATE $((4 * LATE)) $((16 * LATE)); do
	env -u DFSHIM_TRACE DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=2 DFSHIM_RELEASE=none DFSHIM_TIMEOUT_MS=$((LATE / 3)) DFSHIM_TIMEOUT_ACTION=report \
		LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout -k 5 "${LIMIT:-100}" "$C" init 1 "$late" >"$T/told" 2>&1
	! grep -q '^Confidence:' "$T/told" || break
done
grep -q 'SYNC: .* .* it is not known which threads have still to join the communicator' "$T/told" && grep -m1 '^Confidence:' "$T/told" | grep -q 'likely' ||
	fail "init, without a release: $(cat "$T/told")"
# Threads whose calls cannot be counted for lack of space are waited for too.
one $SHORT crowd
took=$(grep -E '^[0-9]+$' "$T/out")
[ "$n" -ge 1 ] && [ "$took" -ge "$LATE" ] || fail "crowd: $n releases, after $took ms: $(cat "$T/out")"
echo "crowd: released after $took ms"
# A rank that is late by less than the bound is waited for. A rank that is later than the bound
# still gets the right results.
one $((10 * LATE)) late
[ "$n" = 0 ] || fail "late: $n releases: $(cat "$T/out")"
one $SHORT late
[ "$n" -ge 1 ] || fail "late, with a bound: no release"
echo "late: released, and all right"
exit 0
