#!/bin/bash
# Description: PyTorch itself, unmodified, on the stand-in: its NCCL backend, watchdog, allocator, graphs, DDP, FSDP2.
# Limit: 900 s
# TORCH_PYTHON: a Python with a CUDA build of PyTorch and NumPy (`pip install torch numpy`: some gigabytes), else it is skipped.
# The jobs are those of tests/gpu/t_torch.sh; what would be a kernel is computed on the host (torch_host.py).
set -u
. "$SRC/tests/cuda/dryrun.sh"
[ -n "${TORCH_PYTHON-}" ] || skip "TORCH_PYTHON does not name a Python with PyTorch"
export SLOW=1 TORCH_HOST=$SRC/tests/cuda/torch_host.py CARD_RUNTIME=$B/tests/cuda/runtime/libcudart.so.13
(. "$SRC/tests/gpu/t_torch.sh") || exit 1

# Around NCCL (its stand-in of the deadlock suite, which executes), as on a GPU today: nothing is prevented, and the verdict
# names the lines of the script.
hang() { # CASE WORD LINES...
	local case=$1 word=$2 line rc
	shift 2
	mkdir -p "$T/hang/$case"
	timeout -k 5 40 env -u DFSHIM_BACKEND -u DFSHIM_STRICT DFSHIM_MODE=trace "DFSHIM_TRACE=$T/hang/$case" DFSHIM_TIMEOUT_MS=6000 \
		"LD_PRELOAD=$B/libdfshim.so:$CARD_RUNTIME:$B/tests/deadlock/fake/libnccl.so.2" \
		"$TORCH_PYTHON" -m torch.distributed.run --nproc-per-node 2 --master-port $((20000 + RANDOM % 10000)) \
		"$TORCH_HOST" "$SRC/tests/cuda/torch_hang.py" "$case" >"$T/hang/$case.log" 2>&1
	rc=$?
	[ $rc = 124 ] || fail "$case: status $rc, not a hang: $(tail -30 "$T/hang/$case.log")"
	"$B/dfshim" check "$T/hang/$case" >"$T/hang/$case.check"
	head -1 "$T/hang/$case.check" | grep -q "^$word:" || fail "$case: $(head -30 "$T/hang/$case.check")"
	for line in "$@"; do
		grep -qE "$line" "$T/hang/$case.check" && grep -qE "$line" "$T/hang/$case.log" ||
			fail "$case: no line '$line': $(cat "$T/hang/$case.check")"
	done
}
hang circle SYNC '^  r0: .* reduce <- torch_hang.py:[0-9]+ forward' '^  r1: .* reduce <- torch_hang.py:[0-9]+ backward'
hang missing MISSING '^  r1: torch_hang.py:[0-9]+ load_batch' '; it is at torch_hang.py:[0-9]+ load_batch'
exit 0
