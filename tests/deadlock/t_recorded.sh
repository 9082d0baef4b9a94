#!/bin/bash
# Description: mode trace records the begin and the end of operations on the legacy stream, on non-blocking communicators, and in graphs.
set -u
. "$SRC/tests/lib/clients.sh"
C=$B/tests/deadlock/recorded
[ -x "$C" ] || skip "the program is not built here"
ops=$(env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host DFSHIM_TRACE="$T/t" \
	timeout "${LIMIT:-60}" "$C" 2>"$T/err") ||
	fail "status $?: $(cat "$T/err")"
[ "$ops" = 28 ] || fail "$ops operations, not 28"
"$B/dfshim" show --json "$T/t" >"$T/show" || fail "show: status $?"
count() { jq -s "map(select($1)) | length" "$T/show"; }
[ "$(count '.type == "op"')" = "$ops" ] || fail "$(count '.type == "op"') of $ops operations recorded"
[ "$(count '.type == "op_start"')" = "$ops" ] || fail "$(count '.type == "op_start"') of $ops operations seen to begin"
[ "$(count '.type == "op_done" and .a == 0')" = "$ops" ] || fail "$(count '.type == "op_done" and .a == 0') of $ops operations seen to end"
# No operation ends before it begins. None begins before the previous operation of its communicator
# has ended or has begun with it.
"$B/dfshim" check "$T/t" >"$T/check" || fail "check: $(head -1 "$T/check")"
grep -q "^OK: all $ops operations finished" "$T/check" || fail "check: $(head -1 "$T/check")"
exit 0
