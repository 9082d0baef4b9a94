#!/bin/bash
# Description: each of 4 ranks has two threads, one with messages on one communicator and one with AllReduces on another. Completes by dfshim's rules in every form. By NCCL's rules it hangs with ORDER if events order the streams, and with RESOURCE on one hardware queue.
# Limit: 300 s
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
# In each round some dozen threads wake up, and a busy machine delays each by milliseconds.
export OVERLAP_ITERS=$((${ROUNDS:-1000} / SLOW / SLOW))
# overlap STATUS RULES SECONDS VARIABLE...: runs the client with these variables set to 1. The
# output is in $T/out.
overlap() {
	local want=$1 rules=$2 quiet=$3 rc
	shift 3
	env "${@/%/=1}" timeout -k 5 "${LIMIT:-200}" "$B/dfshim" run --host --rules "$rules" --timeout "$quiet" -- \
		"$C/overlap" --timeout 0 >"$T/out" 2>&1
	rc=$?
	[ $rc = "$want" ] || fail "$rules, $*: status $rc, not $want: $(tail -30 "$T/out" | cut -c1-200)"
}

overlap 0 dfshim 90 PLAIN
overlap 0 dfshim 90 OVERLAP_FENCE
overlap 0 dfshim 90 OVERLAP_FENCE OVERLAP_SWAP
overlap 0 dfshim 90 OVERLAP_SWAP DFSHIM_HOST_QUEUES
OVERLAP_ITERS=500
overlap 0 nccl 90 OVERLAP_SWAP
overlap 10 nccl "$(seconds 40)" OVERLAP_FENCE OVERLAP_SWAP
grep -qE '^ORDER: .* cycle r[0-3] -> r[0-3] -> r[0-3] over .*A#[0-9]+' "$T/out" || fail "it says: $(head -3 "$T/out")"
grep -q 'waits through an event for' "$T/out" || fail "no event: $(cat "$T/out")"
overlap 11 nccl "$(seconds 40)" OVERLAP_SWAP DFSHIM_HOST_QUEUES
grep -q '^RESOURCE: .* share a hardware queue' "$T/out" || fail "it says: $(head -3 "$T/out")"
exit 0
