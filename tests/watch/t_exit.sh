#!/bin/bash
# Description: a process in mode trace that exits does not wait long for others that are stopped or get no CPU time, nor for its own thread.
# Limit: 200 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
command -v python3 >/dev/null || skip "no python3"
command -v gcc >/dev/null || skip "no gcc"
netns 1 1
n=4 master=29500
export DFSHIM_TIMEOUT_MS=600000 DFSHIM_PROVED_MS=0
gcc -shared -fPIC -O1 -o "$T/naps.so" "$SRC/tests/watch/naps.c" -ldl || fail "naps.c cannot be built"
preload=("${NCCL_RULES[@]}")
preload[-1]+=" $T/naps.so"
# In the second before a process exits without an answer there are at most (1 s - 0.2 s - 0.5 s) / 5 ms naps, however
# slow the machine is: runtime/record/record_watch.c, runtime/ctl/flood.c. Without this limit there are up to 2,900.
most=60

# leave CASE HELD COMMAND...: the last rank exits in the middle of the job, while COMMAND, with the
# process ids of the ranks HELD, keeps threads from running until the rank has ended.
leave() {
	local i line naps
	master=$((master + 1)) pid=()
	rm -f "$T"/go "$T"/out* "$T"/pid*
	for ((i = 0; i < n; i++)); do
		# shellcheck disable=SC2016 # for the shell that it is given to
		HANGS=left GO=$T/go RANK=$i WORLD_SIZE=$n LOCAL_RANK=$i MASTER_ADDR=$(ip4 0) MASTER_PORT=$master \
			on 0 bash -c 'echo $$ >"$1"; exec "${@:2}"' sh "$T/pid.$i" env "${preload[@]}" DFSHIM_BACKEND=host \
			DFSHIM_DEBUG=info "$C/hangs" --timeout "${QUIET:-100}" >"$T/out.$i" 2>&1 &
		pid+=($!)
	done
	for ((i = 0; i < n - 1; i++)); do
		until grep -qs "^rank $i stands" "$T/out.$i"; do
			kill -0 "${pid[i]}" 2>/dev/null || fail "$1: rank $i: $(tail -n 20 "$T/out.$i")"
			sleep 0.05
		done
	done
	held=()
	for i in $2; do held+=("$(<"$T/pid.$i")"); done
	coproc HOLD { "${@:3}" "${held[@]}"; }
	read -r line <&"${HOLD[0]}"
	[ "$line" = frozen ] || skip "$line"
	touch "$T/go"
	wait "${pid[n - 1]}" || fail "$1: status $?: $(tail -n 20 "$T/out.$((n - 1))")"
	naps=$(sed -n 's/^naps: //p' "$T/out.$((n - 1))")
	echo "$1: ${naps:-?} naps"
	[ "${naps:-$((most + 1))}" -le $most ] || fail "$1: it waited in ${naps:-?} naps, $most at most: $(cat "$T/out.$((n - 1))")"
	kill -CONT "${held[@]}" 2>/dev/null
	kill "${pid[@]:0:n-1}" 2>/dev/null
	kill "${HOLD_PID-}" 2>/dev/null
	wait 2>/dev/null
}
# shellcheck disable=SC2016 # for the shell that it is given to
leave stopped "0 1 2" bash -c 'kill -STOP "$@"; echo frozen; sleep 1000' sh
# Their thread does not answer, although the processes run: the longest wait.
leave frozen "0 1 2" python3 "$SRC/tests/watch/freeze.py" dfshim-ctl
# Its own thread cannot say goodbye.
leave own 3 python3 "$SRC/tests/watch/freeze.py" dfshim-watch
grep -q "the exit was not announced in time" "$T/out.3" || fail "own: the thread was not held: $(cat "$T/out.3")"
exit 0
