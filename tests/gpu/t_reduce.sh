#!/bin/sh
# The GPU's data path on the GPU; see tests/kernels/reduce_cuda.cu.
set -eu
if [ ! -x "$B/tests/kernels/reduce_cuda" ]; then
	echo "skipped: built without nvcc"
	exit 77
fi
exec "$B/tests/kernels/reduce_cuda" gpu
