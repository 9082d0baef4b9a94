#!/bin/bash
# Description: a process in mode trace that exits waits at most 1 s for the others, even if they are stopped or get no CPU time.
# Limit: 200 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
command -v python3 >/dev/null || skip "no python3"
netns 1 1
n=4 master=29500
export DFSHIM_TIMEOUT_MS=600000 DFSHIM_PROVED_MS=0

# leave CASE [COMMAND...]: the last rank exits in the middle of the job, while COMMAND, with the
# process ids of the others, keeps them from running.
leave() {
	local i line
	master=$((master + 1)) pid=()
	rm -f "$T"/go "$T"/out*
	for ((i = 0; i < n; i++)); do
		# shellcheck disable=SC2016 # for the shell that it is given to
		HANGS=left GO=$T/go RANK=$i WORLD_SIZE=$n LOCAL_RANK=$i MASTER_ADDR=$(ip4 0) MASTER_PORT=$master \
			on 0 bash -c 'echo $$ >"$1"; exec "${@:2}"' sh "$T/pid.$i" env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host \
			DFSHIM_DEBUG=info "$C/hangs" --timeout "${QUIET:-100}" >"$T/out.$i" 2>&1 &
		pid+=($!)
	done
	for ((i = 0; i < n - 1; i++)); do
		until grep -qs "^rank $i stands" "$T/out.$i"; do
			kill -0 "${pid[i]}" 2>/dev/null || fail "$1: rank $i: $(tail -n 20 "$T/out.$i")"
			sleep 0.05
		done
	done
	mapfile -t held < <(head -qn 1 "$T"/pid.[0-$((n - 2))])
	coproc HOLD { "${@:2}" "${held[@]}"; }
	read -r line <&"${HOLD[0]}"
	[ "$line" = frozen ] || skip "$line"
	touch "$T/go"
	wait "${pid[n - 1]}" || fail "$1: status $?: $(tail -n 20 "$T/out.$((n - 1))")"
	took=$(awk -v b="$(date +%s%N)" '/^rank .* stands at/ { printf "%d", b / 1e6 - $NF * 1000 }' "$T/out.$((n - 1))")
	echo "$1: the exit took $took ms"
	kill -CONT "${held[@]}"
	kill "${pid[@]:0:n-1}" 2>/dev/null
	kill "$HOLD_PID" 2>/dev/null
	wait 2>/dev/null
}
# shellcheck disable=SC2016 # for the shell that it is given to
stop='[ $0 = free ] || kill -STOP "$@"; echo frozen; sleep 1000'

leave free bash -c "$stop" free
free=$took
# is_late HOW: whether the exit took too long.
is_late() {
	if [ "$1" = stopped ]; then
		leave stopped bash -c "$stop" stopped
	else
		leave frozen python3 "$SRC/tests/watch/freeze.py" dfshim-ctl
	fi
	[ "$took" -gt $((1000 + 3 * free + 1000 * SLOW)) ]
}
for how in stopped frozen; do
	# Three times, because the machine itself may have been busy.
	! { is_late $how && is_late $how && is_late $how; } || fail "$how: the exit took $took ms, $free ms if no process is held"
done
exit 0
