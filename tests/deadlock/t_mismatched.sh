#!/bin/bash
# Description: ranks that differ in one call, with device synchronisations that may be released. The status is never 0, no value is wrong, and there is one report. An operation that can never match is reported at once as MISMATCH and not released.
set -u
. "$SRC/tests/lib/clients.sh"
C=$B/clients/differ
[ -x "$C" ] || skip "the client is not built here"
PROGRAMS=${PROGRAMS:-80}

# one NAME ARGS...: runs the client, prints to $T/NAME, and returns the client's status.
one() {
	local name=$1
	shift
	env -u DFSHIM_TRACE DFSHIM_STATS="$T/$name.stats" DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=2 DFSHIM_TIMEOUT_MS="${MS:-$((2000 * SLOW))}" \
		DFSHIM_TIMEOUT_ACTION="${ACTION:-abort}" LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout -k 5 "${LIMIT:-100}" "$C" "$@" >"$T/$name" 2>&1
}
reports() { grep -acE '^(MISMATCH|MISSING|CRASH|UNKNOWN|SYNC|DATA|ORDER|SLOW): ' "$1"; }
released() { sed -n 's/.*"releases": \([0-9]*\).*/\1/p' "$T/$1.stats" | awk '{ n += $1 } END { print n + 0 }'; }

# Both processes exit at once with the verdict's status, whatever the time-out and its action.
for what in count type op kind root last; do
	MS=60000 ACTION=report one $what $what && fail "$what: status 0: $(cat "$T/$what")"
	grep -q '^MISMATCH: ' "$T/$what" && grep -q '^21 21$' "$T/$what" || fail "$what: $(cat "$T/$what")"
	[ "$(released $what)" = 0 ] || fail "$what: released: $(cat "$T/$what")"
done
# With DFSHIM_TIMEOUT_ACTION=abort the program goes on, but does not exit with status 0.
one abort count && fail "abort: status 0: $(cat "$T/abort")"
grep -q '^21 21$' "$T/abort" || fail "abort: $(cat "$T/abort")"
# The same holds if the mismatch is found only after the time-out, because no wait may be released.
DFSHIM_RELEASE=none one late count && fail "late: status 0: $(cat "$T/late")"
grep -q '^MISMATCH: ' "$T/late" && grep -q '^21 21$' "$T/late" || fail "late: $(cat "$T/late")"

# Different orders that dfshim can execute are no mismatch. An operation that one rank leaves out
# becomes an error when that rank ends.
one known known && fail "known: status 0: $(cat "$T/known")"
[ "$(released known)" -ge 1 ] && grep -q 'never finished' "$T/known" && grep -q '^MISSING: ' "$T/known" || fail "known: $(cat "$T/known")"

nr=$((PROGRAMS / SLOW)) seed=$((SEED % 1000000)) bad=""
for ((s = seed; s < seed + nr; s++)); do
	[ "$(jobs -rp | wc -l)" -lt 6 ] || wait -n
	(
		one r$s random $s
		rc=$?
		if [ $((s % 4)) = 0 ]; then want=0; else want=1; fi
		[ $rc = $want ] && ! grep -q ' instead of ' "$T/r$s" && [ "$(reports "$T/r$s")" -le 1 ] ||
			{ echo "random $s: status $rc, not $want, or several reports:" && cat "$T/r$s"; } >"$T/bad.$s"
	) &
done
wait
bad=$(cat "$T"/bad.* 2>/dev/null)
[ -z "$bad" ] || fail "$bad"
words=$(cat "$T"/r* | grep -aoE '^(MISMATCH|MISSING|CRASH|UNKNOWN|SYNC|DATA|ORDER|SLOW):' | sort | uniq -c | tr '\n' ' ')
echo "$nr random programs: $words"
exit 0
