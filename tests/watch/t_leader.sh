#!/bin/bash
# Description: the process that judges in mode trace is killed or stopped while it judges. Another process takes over, and each hang is reported once.
# Limit: 300 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
nodes=4
netns $nodes 1
master=29500
export DFSHIM_TIMEOUT_MS=600000 DFSHIM_DEBUG=info

# hit SIGNAL: starts a job that hangs, and sends the signal to the judging process between its two
# examinations. Sets `leader`. Fails if the verdict was faster, or if without this process no other
# could know what the ranks did.
hit() {
	local i
	master=$((master + 1)) pid=() leader=
	rm -f "$T"/out* "$T"/pid*
	for ((i = 0; i < nodes; i++)); do
		# shellcheck disable=SC2016 # for the shell that it is given to
		HANGS=mismatch RANK=$i WORLD_SIZE=$nodes LOCAL_RANK=0 MASTER_ADDR=$(ip4 0) MASTER_PORT=$master \
			on "$i" bash -c 'echo $$ >"$1"; exec "${@:2}"' sh "$T/pid.$i" env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host \
			"$C/hangs" --timeout "${QUIET:-100}" >"$T/out.$i" 2>&1 &
		pid+=($!)
	done
	until [ -n "$leader" ]; do
		for ((i = 0; i < nodes; i++)); do
			if grep -qs "looks at the job" "$T/out.$i"; then
				kill "-$1" "$(<"$T/pid.$i")"
				leader=$i
				break
			fi
			kill -0 "${pid[i]}" 2>/dev/null || fail "rank $i: $(tail -n 20 "$T/out.$i")"
		done
		sleep 0.01
	done
	sleep 0.2
	! grep -q "nothing has moved for 0 ms" "$T"/out.* || fail "a look before any operation: $(cat "$T"/out.*)"
	! grep -qE "^(MISMATCH|CRASH): " "$T"/out.* && [ "$leader" != $((nodes - 1)) ]
}
finish() {
	mapfile -t all < <(cat "$T"/pid.*)
	kill -KILL "${pid[@]}" "${all[@]}" 2>/dev/null
	wait 2>/dev/null
}
# named PATTERN: waits until all other processes have printed it, and one of them the report.
named() {
	local i
	for ((i = 0; i < nodes; i++)); do
		[ "$i" != "$leader" ] || continue
		until grep -qE "^$1" "$T/out.$i"; do
			kill -0 "${pid[i]}" 2>/dev/null || fail "not named by rank $i: $(tail -n 30 "$T"/out.*)"
			sleep 0.05
		done
	done
	[ "$(cat "$T"/out.* | grep -c '^Confidence: ')" = 1 ] || fail "not one report: $(cat "$T"/out.*)"
}

for signal in KILL STOP; do
	# The operations that a stopped process has issued are unknown, so nothing is proved before
	# the time-out.
	[ $signal = KILL ] || export DFSHIM_TIMEOUT_MS=$((15000 * SLOW))
	until hit $signal; do
		echo "$signal: too late, again"
		finish
	done
	began=$(date +%s%N)
	if [ $signal = KILL ]; then
		named "CRASH: r$leader has died"
	else
		named "MISMATCH: .* differs in count"
	fi
	awk -v a="$began" -v b="$(date +%s%N)" -v s=$signal 'BEGIN { printf "%s: another process has named the hang after %.1f s\n", s, (b - a) / 1e9 }'
	if [ $signal = STOP ]; then
		# After it continues, the process learns the verdict and does not report it again.
		kill -CONT "$(<"$T/pid.$leader")"
		until grep -qE "^(MISMATCH|.* MISMATCH): .* differs in count" "$T/out.$leader"; do
			kill -0 "${pid[leader]}" 2>/dev/null || fail "the leader does not learn of it: $(tail -n 30 "$T/out.$leader")"
			sleep 0.05
		done
		sleep "$(seconds 30)"
		[ "$(cat "$T"/out.* | grep -c '^Confidence: ')" = 1 ] || fail "the leader reports again: $(cat "$T"/out.*)"
	fi
	finish
done
exit 0
