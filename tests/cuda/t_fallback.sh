#!/bin/bash
# Description: a job that NCCL executes because dfshim cannot: a hang ends with its verdict and
# status; a job that does not hang is not disturbed.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
. "$SRC/tests/cuda/two.sh"
# The test NCCL blocks the stream until all ranks are there, so opposite orders hang.
run() { # NAME HOW "VARIABLES" [any]
	# On a busy machine connections are set up for seconds, which must not count as a hang.
	local set="$3 DFSHIM_TIMEOUT_MS=$((5000 * SLOW)) DFSHIM_TIMEOUT_ACTION=exit DFSHIM_TRACE=$T/$1.trace"
	rm -f "$T"/id.? "$T/$1.words"
	mkdir -p "$T/$1.trace"
	job "$1" "$2" "$set FAKE_NCCL_MEET=$T/$1.words" "$set FAKE_NCCL_MEET=$T/$1.words" "${4-}"
}
untested="DFSHIM_BACKEND=auto DFSHIM_SELF_TEST_MS=0"
refused="DFSHIM_BACKEND=auto CUDA_INJECTION64_PATH=/tool.so"
no_machine=DFSHIM_BACKEND=host
reasons=("it has not been tested here" "a tool is inside the driver" "libdfhost.so is not preloaded")
i=0
for why in "$untested" "$refused" "$no_machine"; do
	run "hang$i" crossed "$why" any
	for p in 0 1; do
		times "hang$i.$p.err" "DFSHIM WARN dfshim cannot start: " 1
		want "hang$i.$p.err" "${reasons[i]}" "NCCL executes the job, which is recorded and watched"
	done
	# One of the two processes prints the verdict for both. The other may find its peer gone
	# meanwhile: CRASH.
	n=0
	for p in 0 1; do
		status=$(cat "$T/hang$i.$p.rc")
		if grep -q "^ORDER: r0 and r1 use different communicators first" "$T/hang$i.$p.err"; then
			n=$((n + 1))
			[ "$status" = 10 ] || fail "$why: status $status with a verdict: $(cat "$T/hang$i.$p.err")"
		fi
		[ "$status" = 10 ] || [ "$status" = 30 ] || fail "$why: status $status: $(cat "$T/hang$i.$p.err")"
	done
	[ $n = 1 ] || fail "$why: $n verdicts: $(cat "$T/hang$i".[01].err)"
	"$B/dfshim" check "$T/hang$i.trace" >"$T/check" 2>&1
	status=$?
	# The trace contains the operations that the test NCCL executed.
	grep -q 30 "$T/hang$i".[01].rc || [ $status = 10 ] || fail "$why: the traces say: $(cat "$T/check")"
	i=$((i + 1))
done
run same straight "$untested"
times same.0.err "" 1
"$B/dfshim" check "$T/same.trace" >"$T/check" 2>&1 || fail "same: $(cat "$T/check")"
want check "OK: all 4 operations finished"
exit 0
