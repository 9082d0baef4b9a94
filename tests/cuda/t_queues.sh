#!/bin/bash
# Description: more streams wait for collectives than a process has hardware queues: directly, started
# in opposite orders; for an event; in graphs. The daemon keeps a queue, or stays on the device.
set -u
. "$SRC/tests/cuda/dryrun.sh"
export DFSHIM_BACKEND=cuda DFSHIM_QUIT_US=1
many() { # CASE AMOUNT ARGS...
	MANY_CASE=$1 MANY_AMOUNT=$2 LD_PRELOAD=$B/libdfshim.so timeout -k 5 "${LIMIT:-60}" "$C/many" "${@:3}" --timeout "${QUIET:-20}" >"$T/out" 2>&1 ||
		fail "$*: status $?: $(head -40 "$T/out")"
	if grep -q "hardware queues" "$T/out"; then
		fail "$*: $(head -5 "$T/out")"
	fi
}
for ((n = 0; n < 10; n++)); do
	# A program that sets one queue gets 32 too: the driver reads 32.
	[ $n -lt 7 ] || export CUDA_DEVICE_MAX_CONNECTIONS=1
	many waiting 40 --ranks 2 --procs 2
done
export FAKE_CUDA_DEVICES=2
for c in behind replays; do
	many $c 40 --ranks 2
	many $c 80 --ranks 2
done
exit 0
