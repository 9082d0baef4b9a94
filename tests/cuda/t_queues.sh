#!/bin/bash
# Description: more streams wait for collectives than a process has hardware queues, started in
# opposite orders: the daemon keeps a queue of its own.
set -u
. "$SRC/tests/cuda/dryrun.sh"
export MANY_CASE=waiting MANY_AMOUNT=40 DFSHIM_BACKEND=cuda DFSHIM_QUIT_US=1
for ((n = 0; n < 10; n++)); do
	# A program that sets one queue gets 32 too: the driver reads 32.
	[ $n -lt 7 ] || export CUDA_DEVICE_MAX_CONNECTIONS=1
	LD_PRELOAD=$B/libdfshim.so timeout -k 5 "${LIMIT:-60}" "$C/many" --ranks 2 --procs 2 --timeout "${QUIET:-20}" >"$T/out" 2>&1 ||
		fail "run $n: status $?: $(head -40 "$T/out")"
done
exit 0
