# shellcheck shell=bash
# Functions for tests of dfshim.deft. Sourced.
# TORCH_PYTHON names a Python with PyTorch; by default that of build/venv, then python3.
# torch_python: stores this Python in P and sets its environment. Without PyTorch the test is
# skipped.
torch_python() {
	P=${TORCH_PYTHON:-$SRC/build/venv/bin/python}
	[ -x "$P" ] || P=python3
	"$P" -c 'import torch.distributed' 2>/dev/null || { echo "no PyTorch: TORCH_PYTHON names a Python that has it"; exit 77; }
	[ -z "${SAN_RUNTIME-}" ] || { echo "a sanitizer's library does not go into an interpreter without it"; exit 77; }
	export PYTHONPATH=$SRC/interpose/python DFSHIM_LIB=$B OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES='' PYTHONDONTWRITEBYTECODE=1
}
torch_job() { # FILE
	torch_python
	timeout 800 "$P" "$SRC/tests/plan/$1" "$T"
}
