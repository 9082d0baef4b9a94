#!/bin/bash
# Description: a program named dfshim: its threads have this name but do not belong to libdfshim.so,
# so its deadlocks are proved and released.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
. "$SRC/tests/cuda/two.sh"
self_test
# The self-test of `dfshim doctor`, started by hand. Its last check has two communicators in
# opposite orders with device synchronisations.
env LD_LIBRARY_PATH="$fake" LD_PRELOAD="$B/libdfshim.so $kernel" FAKE_CUDA_DEVICES=1 DFSHIM_BACKEND=cuda DFSHIM_STRICT=1 \
	timeout $((100 * SLOW)) "$B/dfshim" doctor --part test --gpu 0 --timeout 200 3>"$T/hand" >"$T/out" 2>&1
grep -q "^check.disorder.ok" "$T/hand" || fail "$(cat "$T/hand" "$T/out")"
exit 0
