#!/bin/bash
# Description: a program that changes the nodes of captured collectives, on the test driver: changes
# that cannot be executed are refused, others are made.
set -u
if [ ! -x "$B/tests/cuda/use_graph" ] || [ ! -f "$B/kernels/daemon.fatbin" ]; then
	echo "skipped: built without NCCL's header or without nvcc"
	exit 77
fi
for when in early late; do
	LD_LIBRARY_PATH=$B/tests/cuda/driver LD_PRELOAD=${SAN_RUNTIME-}$B/libdfshim.so FAKE_CUDA_DEVICES=2 DFSHIM_STRICT=1 DFSHIM_BLOCKS=4 \
		DFSHIM_BACKEND=cuda timeout "${LIMIT:-60}" "$B/tests/cuda/use_graph" $when 2>&1 | tee "$T/said"
	[ "${PIPESTATUS[0]}" = 0 ] || exit 1
	for what in "cannot be changed in an executable graph" "a CUDA graph is refused"; do
		[ "$(grep -c "$what" "$T/said")" = 1 ] || { echo "FAILED: not said once: $what" && exit 1; }
	done
done
