#!/bin/bash
# Description: the daemon's stream in a green context with a work queue of its own: the kernel's
# code is loaded before the first operation. If the driver describes work queues in another layout,
# dfshim creates none.
set -u
. "$SRC/tests/lib/clients.sh"
fake=$B/tests/cuda/driver
if [ ! -x "$B/tests/cuda/use_nccl" ] || [ ! -f "$B/kernels/daemon.fatbin" ]; then
	skip "built without NCCL's header or without nvcc"
fi
run() { # NAME HOW
	LD_LIBRARY_PATH=$fake LD_PRELOAD=${SAN_RUNTIME-}$B/libdfshim.so FAKE_CUDA_DEVICES=2 DFSHIM_STRICT=1 DFSHIM_BACKEND=cuda \
		DFSHIM_GPU_QUEUE=green FAKE_CUDA_GREEN=$2 FAKE_CUDA_LOG=$T/$1.log timeout $((60 * ${SLOW:-1})) \
		"$B/tests/cuda/use_nccl" >"$T/$1" 2>&1 || fail "$1: status $?: $(cat "$T/$1")"
}
times() { # NAME FUNCTION TIMES
	[ "$(grep -cw "$2" "$T/$1.log")" = "$3" ] || fail "$1: $2 was called $(grep -cw "$2" "$T/$1.log") times, not $3"
}
run fine 1
times fine cuGreenCtxStreamCreate 2
times fine cuFuncLoad 2
! grep -q "DFSHIM_GPU_QUEUE" "$T/fine" || fail "a warning: $(cat "$T/fine")"
run other other
times other cuGreenCtxCreate 0
times other cuFuncLoad 2
grep -q "DFSHIM_GPU_QUEUE=green: the driver describes work queues in a way that is not known" "$T/other" ||
	fail "no warning: $(cat "$T/other")"
exit 0
