#!/bin/bash
# Description: PyTorch jobs that hang by NCCL's rules, unmodified, on the CPU: the verdict names the lines of the script.
# TORCH_PYTHON: a Python with a CUDA build of PyTorch, else it is skipped.
set -u
. "$SRC/tests/lib/clients.sh"
[ -n "${TORCH_PYTHON-}" ] || skip "TORCH_PYTHON does not name a Python with PyTorch"
hang() { # CASE WORD LINES...
	local case=$1 word=$2 line rc
	shift 2
	env -u DFSHIM_TRACE timeout -k 5 "${LIMIT:-90}" "$B/dfshim" run --host -n 2 --rules nccl --timeout "$(seconds 60)" --trace "$T/$case" -- \
		"$TORCH_PYTHON" "$SRC/tests/deadlock/torch_hang.py" "$case" >"$T/$case.log" 2>&1
	rc=$?
	[ $rc != 0 ] && [ $rc != 124 ] || fail "$case: status $rc, not a hang that was ended: $(tail -30 "$T/$case.log")"
	"$B/dfshim" check "$T/$case" >"$T/$case.check"
	head -1 "$T/$case.check" | grep -q "^$word:" || fail "$case: $(head -30 "$T/$case.check")"
	for line in "$@"; do
		grep -qE "$line" "$T/$case.check" || fail "$case: no line '$line': $(cat "$T/$case.check")"
	done
}
hang circle SYNC '^  r0: .* reduce <- torch_hang.py:[0-9]+ forward' '^  r1: .* reduce <- torch_hang.py:[0-9]+ backward'
hang missing MISSING '^  r1: torch_hang.py:[0-9]+ load_batch'
# Which of two threads issues what is missing is not known: never proved.
hang lock HOST '^HOST: r0 has not issued .* waits for a lock \(torch_hang.py:[0-9]+ helper\)' '^Confidence: likely\.'
hang script HOST "waits for the interpreter's lock" '^Confidence: likely\.'
hang queue DATA 'from another thread: .*queue.py:[0-9]+ get.* torch_hang.py:[0-9]+ helper' '^Confidence: likely\.'
exit 0
