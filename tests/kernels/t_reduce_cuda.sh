#!/bin/sh
# The GPU's data path, emulated on the host; see tests/kernels/reduce_cuda.cu.
set -eu
if [ ! -x "$B/tests/kernels/reduce_cuda" ]; then
	echo "skipped: built without nvcc"
	exit 77
fi
CUDA_VISIBLE_DEVICES= exec "$B/tests/kernels/reduce_cuda"
