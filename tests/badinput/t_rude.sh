#!/bin/bash
# Description: ranks that never join, leave early, or join twice; fork, exit and abort in the middle. Every job ends with a message.
set -u
. "$SRC/tests/lib/clients.sh"
own_shm
unset DFSHIM_TRACE
export DFSHIM_TIMEOUT_MS=$((700 * SLOW))
# rude CASE ARGS...: the job must end with $STATUS, by default 0. If a verdict ended calls, it is the
# verdict's, although the program went on and returned 0.
rude() {
	local c=$1 rc=0
	shift
	: >"$T/err"
	RUDE_UNTIL=$T/err RUDE_CASE=$c timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host -- "$C/rude" "$@" --timeout $((40 * SLOW)) >"$T/out" 2>"$T/err" || rc=$?
	[ $rc = "${STATUS:-0}" ] || fail "$c $*: status $rc: $(cat "$T/out" "$T/err")"
}
for how in "--ranks 3" "--procs 3"; do
	# shellcheck disable=SC2086 # words
	{
		DFSHIM_TIMEOUT_ACTION=abort STATUS=22 rude missing $how
		line=$(grep -m1 . "$T/err")
		[[ $line == "INIT: rank 3 of 4 has not called ncclCommInitRank"* ]] || fail "missing: begins with '$line'"
		[ "$(grep -c '^INIT' "$T/err")" = 1 ] || fail "missing: the verdict is not printed once: $(cat "$T/err")"
		rude late $how
		[ "$(grep -c '^INIT: rank 2 of 3 has' "$T/err")" = 1 ] || fail "late: $(cat "$T/err")"
		DFSHIM_TIMEOUT_ACTION=abort STATUS=22 rude stuck $how
		grep -q "^INIT: rank 3 of 4 has" "$T/err" || fail "stuck: $(cat "$T/err")"
		rude twice $how
		grep -q "the id has been used by another communicator" "$T/err" || fail "twice: $(cat "$T/err")"
		rude same-rank $how
		grep -q "rank 0 joined twice" "$T/err" || fail "same rank: $(cat "$T/err")"
		rude leave $how
		rude fork $how
		rude busy $how
		rude abort $how
		rude abort-sync $how
		rude abort-graph $how
		rude half-graph $how
	}
done
# In one process, in which all ranks launch before one leaves.
DFSHIM_HOST_FAULT=graphs rude lost-graph --ranks 3
for _ in 1 2 3; do
	rude early --procs 3
	grep -q "has exited" "$T/err" || fail "early: nothing says why: $(cat "$T/err")"
done
exit 0
