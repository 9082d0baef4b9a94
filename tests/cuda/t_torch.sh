#!/bin/bash
# Description: unmodified PyTorch on the test driver: its NCCL backend, watchdog,
# allocator, graphs, DDP, FSDP2.
#
# Limit: 900 s
#
# TORCH_PYTHON names a Python with a CUDA build of PyTorch and NumPy (`pip install torch numpy`:
# some gigabytes). Without it the test is skipped. The jobs are those of tests/gpu/t_torch.sh. The
# operators of `dfshim run --host` compute in place of kernels.
set -u
. "$SRC/tests/cuda/dryrun.sh"
[ -n "${TORCH_PYTHON-}" ] || skip "TORCH_PYTHON does not name a Python with PyTorch"
export SLOW=1 PYTHONPATH=$B/python/dfshim/host/site CARD_RUNTIME=$B/tests/cuda/runtime/libcudart.so.13
(. "$SRC/tests/gpu/t_torch.sh") || exit 1

exit 0
