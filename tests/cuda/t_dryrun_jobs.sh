#!/bin/bash
# Description: scripts/gpu.sh with the GPU's tests and benchmarks, on the test driver. This part runs
# jobs, and the catalogue of deadlocks.
set -u
. "$SRC/tests/cuda/dryrun.sh"
passes t_disorder t_collectives
# A program that must hang is judged after a time that is proportional to SLOW.
slow=$SLOW
SLOW=1
[ -n "${WHOLE-}" ] || export ONLY="SQ-01 SQ-02 CG-01 PL-08"
passes t_deadlock
unset ONLY
SLOW=$slow

# With 16 multiprocessors the daemon has four blocks. The messages are large enough to use all of
# them.
env FAKE_CUDA_SMS=16 FAKE_CUDA_DEVICES=1 "LD_PRELOAD=$B/libdfshim.so" DFSHIM_BACKEND=cuda "DFSHIM_STATS=$T/stats.blocks" \
	timeout "${LIMIT:-100}" "$C/disorder" --ranks 2 --iters 2 --max 4194304 --timeout 60 >"$T/blocks" 2>&1 ||
	fail "four blocks: $(tail -20 "$T/blocks")"
grep -q '"blocks": 4' "$T/stats.blocks" || fail "not four blocks: $(cat "$T/stats.blocks")"
exit 0
