#!/bin/bash
# Description: PyTorch jobs that hang by NCCL's rules, unmodified, on the CPU: the verdict names the lines of the script.
# TORCH_PYTHON names a Python with a CUDA build of PyTorch. Without it the test is skipped.
set -u
. "$SRC/tests/lib/clients.sh"
[ -n "${TORCH_PYTHON-}" ] || skip "TORCH_PYTHON does not name a Python with PyTorch"
hang() { # CASE STATUS WORD LINES...
	local case=$1 status=$2 word=$3 line rc
	shift 3
	env -u DFSHIM_TRACE timeout -k 5 "${LIMIT:-90}" "$B/dfshim" run --host -n 2 --rules nccl --timeout "$(seconds 60)" --trace "$T/$case" -- \
		"$TORCH_PYTHON" "$SRC/tests/deadlock/torch_hang.py" "$case" >"$T/$case.log" 2>&1
	rc=$?
	[ $rc = "$status" ] || fail "$case: status $rc, not $status: $(tail -30 "$T/$case.log")"
	tail -1 "$T/$case.log" | grep -q "^dfshim run: stopped for a hang, status $status: $word: " || fail "$case: the last line: $(cat "$T/$case.log")"
	! grep -q "Traceback\|FATAL\|terminate called" "$T/$case.log" || fail "$case: a rank died of what ended it: $(cat "$T/$case.log")"
	"$B/dfshim" check "$T/$case" >"$T/$case.check"
	head -1 "$T/$case.check" | grep -q "^$word:" || fail "$case: $(head -30 "$T/$case.check")"
	for line in "$@"; do
		grep -qE "$line" "$T/$case.check" || fail "$case: no line '$line': $(cat "$T/$case.check")"
	done
}
hang circle 12 SYNC '^  r0: .* reduce <- torch_hang.py:[0-9]+ forward' '^  r1: .* reduce <- torch_hang.py:[0-9]+ backward'
hang missing 20 MISSING '^  r1: torch_hang.py:[0-9]+ load_batch'
# Which of the two threads issues the missing operation is unknown, so the cycle is never proved.
hang lock 40 HOST '^HOST: r0 has not issued .* waits for a lock \(torch_hang.py:[0-9]+ helper\)' '^Confidence: likely\.'
hang script 40 HOST "waits for the interpreter's lock" '^Confidence: likely\.'
hang queue 13 DATA 'from another thread: .*queue.py:[0-9]+ get.* torch_hang.py:[0-9]+ helper' '^Confidence: likely\.'
# The copies do not use the buffers of operations in flight, so by dfshim's rules they do not wait.
env -u DFSHIM_TRACE timeout -k 5 "${LIMIT:-90}" "$B/dfshim" run --host -n 2 --trace "$T/copies" --timeout "$(seconds 60)" -- \
	"$TORCH_PYTHON" "$SRC/tests/deadlock/torch_hang.py" copies >"$T/copies.log" 2>&1 || fail "copies: status $?: $(tail -30 "$T/copies.log")"
exit 0
