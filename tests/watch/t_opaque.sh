#!/bin/bash
# Description: mode trace names a kernel of the application that never ends: before an operation, on a stream for which the operation's stream waits, and without any operation.
set -u
. "$SRC/tests/lib/clients.sh"
fake=$B/tests/cuda/driver
[ -x "$B/tests/cuda/use_opaque" ] || skip "built without NCCL's header"
# run HOW: runs the program until its verdict.
run() {
	local limit=${LIMIT:-60}
	# Without an operation there is no verdict, and the job goes on.
	[ "$1" != alone ] || limit=$((5 * SLOW))
	env LD_LIBRARY_PATH="$fake" LD_PRELOAD="$B/libdfshim.so" DFSHIM_MODE=trace DFSHIM_TRACE="$T/$1.trace" DFSHIM_TIMEOUT_MS=$((1500 * SLOW)) \
		DFSHIM_TIMEOUT_ACTION=exit timeout -k 2 "$limit" "$B/tests/cuda/use_opaque" "$1" >"$T/$1" 2>&1
	echo "status $?" >>"$T/$1"
}
for how in front event alone passed; do
	run $how &
done
wait
kernel='kernel vllm::cross_device_reduce_1stage'
grep -q "^GPU_STUCK: .*; $kernel, which was issued before it on stream [0-9]*, may never end$" "$T/front" || fail "front: $(cat "$T/front")"
grep -q "^GPU_STUCK: .*, may never end: kernel rms_norm (3 times), $kernel$" "$T/event" || fail "event: $(cat "$T/event")"
grep -q "no progress for [0-9]* ms: a thread waits for the device, .* may not have ended: rms_norm, ${kernel#kernel }$" "$T/alone" ||
	fail "alone: $(cat "$T/alone")"
[ "$(cat "$T/passed")" = "status 0" ] || fail "passed: $(cat "$T/passed")"
# Before a hang the trace contains no records of kernels.
"$B/dfshim" show "$T/passed.trace" >"$T/show" || fail "show: status $?"
! grep -q ' launch ' "$T/show" || fail "passed: $(cat "$T/show")"
exit 0
