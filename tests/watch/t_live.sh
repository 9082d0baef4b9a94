#!/bin/bash
# Description: mode trace names a hang on every node (network namespaces that share nothing): two calls that differ, a cycle, a rank that has died, has exited, or never arrives. A slow rank is not reported.
# Limit: 300 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
nodes=4
netns $nodes 1
procs=$((SLOW > 1 ? 1 : 4))
n=$((nodes * procs))
. "$SRC/tests/lib/live.sh"

# Before the time-out only proved hangs are reported.
hang mismatch "MISMATCH: .* differs in count" 600000
hang cycle "DATA: .* cycle " 600000
hang dead "CRASH: r$((n - 1)) has died" 600000
hang left "MISSING: .* waits for r$((n - 1)), whose process exited normally" $((3000 * SLOW))
hang sleeps "(SLOW|MISSING): .* waits for r$((n - 1)), which has not issued it" $((3000 * SLOW))
hang missing "INIT: rank $((n - 1)) of $n has not called ncclCommInitRank" $((3000 * SLOW))

# Only a part of the job hangs while the others still run.
LATE=$((20 * SLOW)) hang part "(DATA: .* cycle |ORDER: .* use different communicators first)" 600000
! grep "has gone on" "$T"/out.* || fail "part: named when nothing ran any more"
# A rank that does other work for ever is reported after the time-out.
LATE=100000 hang busy "(SLOW|MISSING): .* waits for r$((n - 1)), which has not issued it" $((1000 * SLOW))

# A slow rank is never reported, however often the processes are examined. A rank that makes
# progress is not reported after the time-out either.
export DFSHIM_TIMEOUT_MS=600000 DFSHIM_PROVED_MS=200 LATE=6
job slow
for p in "${pid[@]}"; do
	wait "$p" || fail "slow: status $?: $(tail -n 40 "$T"/out.*)"
done
! cat "$T"/out.* | grep -E '^[A-Z_]+: ' || fail "a slow rank was called: $(tail -n 40 "$T"/out.*)"
export DFSHIM_TIMEOUT_MS=$((2500 * SLOW)) LATE=$((6 * SLOW))
job busy
for p in "${pid[@]}"; do
	wait "$p" || fail "busy: status $?: $(tail -n 40 "$T"/out.*)"
done
! cat "$T"/out.* | grep -E '^[A-Z_]+: ' || fail "a rank that moves was called: $(tail -n 40 "$T"/out.*)"
echo "slow, busy: nothing was reported"
exit 0
