#!/bin/sh
# The GPU's data path, emulated on the CPU; see tests/kernels/reduce_cuda.cu.
set -eu
if [ ! -x "$B/tests/cuda/gpu/reduce_cuda" ]; then
	echo "skipped: built without nvcc"
	exit 77
fi
cuda=$("$SRC/scripts/cuda_home.sh")
LD_LIBRARY_PATH=$cuda/lib64 CUDA_VISIBLE_DEVICES= exec "$B/tests/cuda/gpu/reduce_cuda"
