#!/bin/bash
# Description: a rank killed in the middle: the others see ncclRemoteError at once, the trace says CRASH.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
for rank in 0 1 3; do
	rm -rf "$T/tr"
	start=$(date +%s%N)
	DFSHIM_HOST_FAULT=kill:rank=$rank,op=20 timeout -k 5 60 "$B/dfshim" run --host --trace "$T/tr" --grace 30 -n 4 -- \
		"$C/disorder" --colls 4 --iters 2000 --timeout 40 >"$T/out" 2>"$T/err"
	rc=$?
	ms=$((($(date +%s%N) - start) / 1000000))
	echo "rank $rank: status $rc after $ms ms"
	case $rc in 0 | 4 | 124) fail "status $rc: $(cat "$T/out" "$T/err")" ;; esac
	# Not the grace nor the client's own time-out ended the others.
	[ $ms -lt 20000 ] || fail "$ms ms"
	grep -q "rank $rank .* has died: its communicators end with ncclRemoteError" "$T/err" || fail "$(cat "$T/err")"
	grep -q "HANG" "$T/out" "$T/err" && fail "somebody waited: $(cat "$T/out" "$T/err")"
	"$B/dfshim" check "$T/tr" >"$T/check"
	rc=$?
	[ $rc = 30 ] && grep -q "^CRASH: r$rank " "$T/check" || fail "check: status $rc: $(head -3 "$T/check")"
done
exit 0
