#!/bin/bash
# The daemon's kernel under compute-sanitizer: no bad access, no race within a block.
set -u
. "$SRC/tests/gpu/lib.sh"
command -v compute-sanitizer >/dev/null || skip "compute-sanitizer is not installed"
for tool in memcheck racecheck; do
	# We ask a thread without a context for one, and the answer is that there is none.
	calls=()
	[ $tool = racecheck ] || calls=(--report-api-errors no)
	timeout -k 5 140 env "${card_env[@]}" DFSHIM_TIMEOUT_MS=120000 compute-sanitizer --tool "$tool" \
		"${calls[@]}" --target-processes all --error-exitcode 9 "$C/disorder" --ranks 2 --colls 3 --iters 3 --mix --max 65536 \
		--timeout 120 >"$T/$tool" 2>&1
	rc=$?
	tail -15 "$T/$tool"
	# Kernels that put themselves between the driver and the GPU (gVisor) leave it nothing to attach to.
	! grep -q 'Device not supported' "$T/$tool" || skip "compute-sanitizer: device not supported"
	[ $rc = 0 ] || fail "$tool: status $rc"
	grep -qE 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$T/$tool" || fail "$tool gave no summary"
done
exit 0
