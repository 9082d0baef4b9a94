#!/bin/bash
# Description: mode trace names a hang on every node (network namespaces that share nothing): two calls that differ, a cycle, a rank that has died, has exited, or never arrives. A slow rank is not reported.
# Limit: 300 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
nodes=4
netns $nodes 1
procs=$((SLOW > 1 ? 1 : 4))
n=$((nodes * procs)) master=29500
unset DFSHIM_TRACE

# A process with its own /tmp and /dev/shm. A build folder inside /tmp remains visible.
# shellcheck disable=SC2016 # for the shell that it is given to
own='mount -t tmpfs none /dev/shm && mkdir -p "$0" && mount -t tmpfs none "$0" || exit 1
for d in "$SRC" "$B" "$T"; do
	case $d in /tmp/*) mkdir -p "$0${d#/tmp}" && mount --rbind "$d" "$0${d#/tmp}" || exit 1 ;; esac
done
mount --rbind "$0" /tmp && cd / && exec "$@"'

# job HANGS: starts the job's processes on every node.
job() {
	local i j
	master=$((master + 1))
	rm -f "$T"/out*
	pid=()
	for ((i = 0; i < nodes; i++)); do
		for ((j = 0; j < procs; j++)); do
			HANGS=$1 RANK=$((i * procs + j)) WORLD_SIZE=$n LOCAL_RANK=$j MASTER_ADDR=$(ip4 0) MASTER_PORT=$master \
				on "$i" unshare -m bash -c "$own" "$T/tmp.$i.$j" \
				env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host timeout -k 5 "${LIMIT:-100}" "$C/hangs" --timeout "${QUIET:-60}" \
				>"$T/out.$i.$j" 2>&1 &
			pid+=($!)
		done
	done
}
finish() {
	kill "${pid[@]}" 2>/dev/null
	wait "${pid[@]}" 2>/dev/null
}
# names NODE PATTERN: whether a process of the node has printed the pattern.
names() { cat "$T"/out."$1".* 2>/dev/null | grep -qE "^$2"; }

# hang HANGS PATTERN TIMEOUT_MS: the hang must be named on every node.
hang() {
	local i p began
	export DFSHIM_TIMEOUT_MS=$3
	job "$1"
	for ((i = 0; i < nodes; i++)); do
		until names "$i" "$2"; do
			p=$(for p in "${pid[@]}"; do kill -0 "$p" 2>/dev/null && echo "$p"; done)
			[ -n "$p" ] || fail "$1: not named on node $i: $(tail -n 60 "$T"/out.*)"
			sleep 0.05
		done
	done
	began=$(sed -n 's/^rank .* stands at //p' "$T"/out.* | sort -n | tail -1)
	awk -v a="$began" -v b="$(date +%s%N)" -v w="$1" 'BEGIN { printf "%s: named on every node after %.1f s: ", w, b / 1e9 - a }'
	cat "$T"/out.* | grep -E "^$2" | head -1
	finish
	# One report in the whole job. The other nodes print only its sentence.
	[ "$(cat "$T"/out.* | grep -c '^Confidence: ')" = 1 ] || [ "$1" = missing ] || fail "$1: more than one report: $(tail -n 40 "$T"/out.*)"
}

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
