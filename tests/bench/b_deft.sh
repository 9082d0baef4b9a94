#!/bin/bash
# What dfshim.deft gains and costs: real training of three small networks on 4 ranks, on links that are slowed to a coverage rate
# of 2 (one after the other, an all-reduce takes as long as its bytes at the link's speed; the second link is 1.65 times slower).
#
#   time       of an iteration: plain DDP, exact gating, DeFT on one and two links, and what the planner expected. Computation is the
#              network's, and naps of 90 ms in all that stand for that of a larger one, so that one processor is enough
#   accuracy   beside plain DDP's, from equal seeds, with and without the preserver, by schedules of CR 2. No naps, no links: each rank
#              trains with the batches of all four and seeds of its own (deft_job.py shows that four would follow the same schedule).
#              The loss along the way is in $T/lines
#
# SEEDS (5), ITERATIONS (600), NETS (mlp conv gpt), OPTIMIZER (adamw; sgd, momentum). mlp and conv need scikit-learn (its digits), gpt reads Python's help texts.
# TORCH_PYTHON: a Python with PyTorch.
set -u
cd "$SRC" || exit 1
P=${TORCH_PYTHON:-$B/venv/bin/python}
[ -x "$P" ] || P=python3
"$P" -c 'import torch.distributed' 2>/dev/null || { echo "# deft: no PyTorch: TORCH_PYTHON names a Python that has it"; exit 77; }
nets=${NETS:-mlp conv gpt}
"$P" -c 'import sklearn.datasets' 2>/dev/null || {
	echo "# deft: no scikit-learn: only gpt is trained"
	nets=gpt
}
export PYTHONPATH=$SRC/interpose/python${PYTHONPATH:+:$PYTHONPATH} DFSHIM_LIB=$B OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES='' PYTHONDONTWRITEBYTECODE=1
rm -f "$T/store"
# shellcheck disable=SC2086 # words
"$P" tests/bench/deft.py "$T" "${SEEDS:-5}" "${ITERATIONS:-600}" $nets
