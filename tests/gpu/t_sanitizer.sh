#!/bin/bash
# The daemon's kernel under compute-sanitizer: no invalid access, no race within a block.
set -u
. "$SRC/tests/gpu/lib.sh"
command -v compute-sanitizer >/dev/null || skip "compute-sanitizer is not installed"
for tool in memcheck racecheck; do
	# dfshim asks for the context of threads that have none, which memcheck would report as an
	# error.
	calls=()
	[ $tool = racecheck ] || calls=(--report-api-errors no)
	timeout -k 5 140 env "${card_env[@]}" DFSHIM_TIMEOUT_MS=120000 compute-sanitizer --tool "$tool" \
		"${calls[@]}" --target-processes all --error-exitcode 9 "$C/disorder" --ranks 2 --colls 3 --iters 3 --mix --max 65536 \
		--timeout 120 >"$T/$tool" 2>&1
	rc=$?
	tail -15 "$T/$tool"
	# Systems that put their own layer between driver and GPU (gVisor) do not support
	# compute-sanitizer.
	! grep -q 'Device not supported' "$T/$tool" || skip "compute-sanitizer: device not supported"
	[ $rc = 0 ] || fail "$tool: status $rc"
	grep -qE 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$T/$tool" || fail "$tool gave no summary"
done
exit 0
