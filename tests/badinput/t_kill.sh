#!/bin/bash
# Description: a rank is killed in the middle of a job. The others get ncclRemoteError at once, and the trace says CRASH.
set -u
. "$SRC/tests/lib/clients.sh"
own_shm
unset DFSHIM_TRACE
for rank in 0 1 3; do
	rm -rf "$T/tr"
	DFSHIM_HOST_FAULT=kill:rank=$rank,op=20 timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host --trace "$T/tr" \
		--grace "$(seconds 200)" -n 4 -- \
		"$C/disorder" --colls 4 --iters 2000 --timeout $((40 * SLOW)) >"$T/out" 2>"$T/err"
	rc=$?
	echo "rank $rank: status $rc"
	case $rc in 0 | 4 | 124) fail "status $rc: $(cat "$T/out" "$T/err")" ;; esac
	# Neither the grace time nor the client's own time-out has ended the others.
	grep -q "ending the other" "$T/err" && fail "somebody went on: $(cat "$T/out" "$T/err")"
	grep -q "rank $rank .* has died: its communicators end with ncclRemoteError" "$T/err" || fail "$(cat "$T/err")"
	grep -q "HANG" "$T/out" "$T/err" && fail "somebody waited: $(cat "$T/out" "$T/err")"
	"$B/dfshim" check "$T/tr" >"$T/check"
	rc=$?
	[ $rc = 30 ] && grep -q "^CRASH: r$rank " "$T/check" || fail "check: status $rc: $(head -3 "$T/check")"
done
# Four communicators contain the process, and each process has two ranks. Each survivor reports the
# death once, with the rank in the largest communicator.
SURVIVOR_HOW=kill SURVIVOR_PROC=1 SURVIVOR_US=200000 SURVIVOR_ROUNDS=100000 timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host \
	--grace "$(seconds 200)" -n 3 -- "$C/survivor" --ranks 6 --timeout $((40 * SLOW)) >"$T/out" 2>"$T/err"
[ "$(grep -c 'rank [23] .* has died: its communicators end' "$T/err")" = 2 ] && [ "$(grep -c 'its communicators end' "$T/err")" = 2 ] ||
	fail "told not once by each survivor: $(cat "$T/err")"
exit 0
